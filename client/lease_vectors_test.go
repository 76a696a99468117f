package sluice

import (
	"context"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce/lend"
)

// internal/checks/checkapi tests that a server gives the answers of clients/testdata/leases.json.
func TestLeaseVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../clients/testdata/leases.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Steps []struct {
			AdvanceMS int64 `json:"advance_ms"`
			Take      int
			Close     bool
			Request   any
			Answer    any
		}
	}
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors.Steps) < 4 {
		t.Fatalf("%d steps were read: %v", len(vectors.Steps), err)
	}
	server := newScriptedServer(t)
	client, err := New(Config{URL: server.URL, Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	l := &client.leases
	now := lend.Instant{Mono: int64(time.Hour), Wall: int64(time.Hour)}
	l.holder, l.clock, l.last, l.begun = "vector", func() lend.Instant { return now }, now, true
	h := handleOf(t, client, Check{UserID: "42"})
	l.admit(h)
	for i, step := range vectors.Steps {
		now = now.Plus(time.Duration(step.AdvanceMS) * time.Millisecond)
		for range step.Take {
			if got := h.Try(); got != Allowed {
				t.Fatalf("step %d: a check is %v", i, got)
			}
		}
		server.mu.Lock()
		server.next = []scripted{{Status: 200, Body: step.Answer}}
		server.mu.Unlock()
		if step.Close {
			l.end(context.Background())
		} else {
			l.tick(context.Background())
		}
		sent := server.take()
		var body any
		if len(sent) != 1 || sent[0].path != leasesPath || json.Unmarshal([]byte(sent[0].body), &body) != nil ||
			!reflect.DeepEqual(body, step.Request) {
			t.Fatalf("step %d: %+v was sent, want %v", i, sent, step.Request)
		}
	}
}
