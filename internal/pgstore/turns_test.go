package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
)

func TestAWriteThatWaitsForItsTurnLetsOthersRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := must(connect(t, w.url).Begin(t.Context()))(t)
	must(other.Exec(t.Context(), "SELECT FROM tenant WHERE tenant_id = $1 FOR UPDATE", w.ours.ID))(t)
	w.LimitClass("write", time.Minute)
	w.LimitClass("bulk", time.Minute)
	counts := map[string]func() shares.Count{}
	w.ObserveShares(func(name string, count func() shares.Count) { counts[name] = count })
	await := func(held, waiting int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; {
			now := counts["turns"]()
			if now.Held == held && now.Waiting == waiting {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the turns are %+v, want %d held and %d waiting", now, held, waiting)
			}
			time.Sleep(time.Millisecond) //nolint:forbidigo // other goroutines work meanwhile
		}
	}
	write := func(ctx context.Context, name string) error {
		return second(w.CreatePlan(ctx, rules.Plan{TenantID: w.ours.ID, Name: name}))
	}
	requests, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() { _ = write(requests, "first") })
	await(1, 0)
	waits := func(do func(context.Context) error) *shares.Shares {
		of := shares.New(shares.Limits{Slots: 1})
		slot := new(shares.Slot)
		if err := slot.Take(t.Context(), of, shares.Caller{Tenant: w.ours.ID, Account: "a"}); err != nil {
			t.Fatal(err)
		}
		group.Go(func() { _ = do(shares.With(requests, slot)) })
		return of
	}
	small := waits(func(ctx context.Context) error { return write(ctx, "second") })
	await(1, 1)
	release, ok := small.Try(shares.Caller{Tenant: w.ours.ID + 1})
	if !ok {
		t.Fatal("a write that waits for its turn keeps its slot")
	}
	release()
	large := waits(func(ctx context.Context) error { return second(w.AssignAll(ctx, w.ours.ID, onPlan("free", "1"))) })
	await(1, 2)
	if _, ok := large.Try(shares.Caller{Tenant: w.ours.ID + 1}); ok {
		t.Error("a write in bulk gives its slot back")
	}
}

func TestAWriteOfADatabaseThatFellSilentSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var silent atomic.Bool
	end := make(chan struct{})
	defer close(end)
	proxied := behindProxy(t, runtimeOf(t, w.url)+"&pool_max_conns=2", func() (sent, received func()) {
		return func() {
			if silent.Load() {
				<-end
			}
		}, func() {}
	})
	store := must(pgstore.Open(t.Context(), proxied, slog.New(slog.DiscardHandler)))(t)
	defer store.Close()
	create := func(name string) error {
		return second(store.As(tester).CreatePlan(t.Context(), rules.Plan{TenantID: w.ours.ID, Name: name}))
	}
	store.LimitClass("write", 30*time.Second)
	if err := create("heard"); err != nil {
		t.Fatal(err)
	}
	store.LimitClass("write", time.Second)
	silent.Store(true)
	if err := create("not heard"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rules.ErrBeingWritten) {
		t.Errorf("the answer is %v", err)
	}
}

func TestAWriteThatWaitedForAnotherSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := must(connect(t, w.url).Begin(t.Context()))(t)
	must(other.Exec(t.Context(), "SELECT FROM tenant WHERE tenant_id = $1 FOR UPDATE", w.ours.ID))(t)
	w.LimitClass("write", 10*time.Second) // long enough to get to the row on a busy machine
	errs := make(chan error)
	for i := range 2 { // one of which waits for the row, and the other for that one
		go func() {
			_, err := w.CreatePlan(t.Context(), rules.Plan{TenantID: w.ours.ID, Name: fmt.Sprintf("plan-%d", i)})
			errs <- err
		}()
	}
	for range 2 {
		err := <-errs
		wantError(t, err, rules.ErrBeingWritten)
		if errors.Is(err, rules.ErrAway) {
			t.Errorf("the database is taken to be away: %v", err)
		}
	}
}
