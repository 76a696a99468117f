package pgstore_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// commitCutter swallows the answer to every other COMMIT, which the server has executed by then, and cuts its
// connection.
type commitCutter struct {
	server  string
	commits atomic.Int64
}

func cutCommits(t *testing.T, databaseURL string) (string, *commitCutter) {
	t.Helper()
	u := must(url.Parse(databaseURL))(t)
	c := &commitCutter{server: u.Host}
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { c.serve(client) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	u.Host = listener.Addr().String()
	return u.String(), c
}

func (c *commitCutter) serve(client net.Conn) {
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		_ = client.Close()
		return
	}
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	defer copying.Wait()
	defer func() { _ = client.Close() }()
	answer := make([]byte, 64<<10)
	for {
		n, err := server.Read(answer)
		if err != nil {
			return
		}
		// The tag of CommandComplete says that the server has committed.
		if bytes.Contains(answer[:n], []byte("COMMIT\x00")) && c.commits.Add(1)%2 == 1 {
			_ = server.Close()
			return
		}
		if _, err := client.Write(answer[:n]); err != nil {
			_ = server.Close()
			return
		}
	}
}

func TestABatchWhoseCommitWasNotAnsweredIsCountedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const denials = 1000
	through, cutter := cutCommits(t, w.url)
	store := must(pgstore.Open(t.Context(), through, slog.New(slog.DiscardHandler)))(t)
	defer store.Close()
	r := violations.NewRecorder(store, violations.Options{FlushInterval: 50 * time.Millisecond})
	for range denials {
		r.Record(time.Now(), &violations.Check{
			Tenant: w.ours.ID, Request: &rules.Request{UserID: "42"}, Plan: "free", Cost: violations.Token,
			Tiers: []violations.Tier{{
				Rule: &w.ours.user, Mode: rules.ModeEnforce, Subject: "42",
				Reason: "limit_exceeded", BucketRead: true,
			}},
		})
	}
	connection := connect(t, w.url)
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx, time.Minute) })
	defer running.Wait()
	defer end()
	written := func() (batches int64) {
		if err := connection.QueryRow(t.Context(), "SELECT count(*) FROM recorder_batch").Scan(&batches); err != nil {
			t.Fatal(err)
		}
		return batches
	}
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(time.Minute); written() == 0; <-poll.C {
		if time.Now().After(deadline) {
			t.Fatal("nothing was written")
		}
	}
	end()
	running.Wait() // it writes what it has, until the answer comes through
	var denied, decided int64
	err := connection.QueryRow(t.Context(), `SELECT (SELECT sum(denied) FROM violation_minute WHERE tenant_id = $1),
		(SELECT sum(allowed + denied) FROM decision_minute WHERE tenant_id = $1 AND rule_id = 0)`,
		w.ours.ID).Scan(&denied, &decided)
	if err != nil {
		t.Fatal(err)
	}
	if commits := cutter.commits.Load(); commits <= written() {
		t.Errorf("%d batches were written by %d COMMITs: no answer was lost", written(), commits)
	}
	if denied != denials || decided != denials {
		t.Errorf("%d denials and %d decisions are counted, want %d", denied, decided, denials)
	}
}
