package redisbucket

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/combine"
)

// The link to Redis carries a few hundred checks a second; a quiet tenant sends one after the other.
func TestASaturatedRedisShedsTheGreedyTenantAtOnce(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	proxy := newToxic(t, server.Addr())
	const budget = time.Second
	s := New(client(t, "redis://"+proxy.Listen, budget), budget)
	seen := &noted{}
	s.Observe(seen)
	const greedy, quiet = 1, 2
	check := func(tenant rules.TenantID, i int) []enforce.BucketCheck {
		checks := []enforce.BucketCheck{fourTiers(i, still)}
		for j := range checks[0].Tiers {
			checks[0].Tiers[j].Key.Tenant = tenant
		}
		return checks
	}
	mustTake(t, s, check(quiet, 0)) // so that Redis knows the script
	if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(
		`{"name":"narrow","type":"bandwidth","stream":"upstream","attributes":{"rate":100}}`)); err != nil {
		t.Fatal(err)
	}

	var calls sync.WaitGroup
	var decided, shed atomic.Int64
	stop := make(chan struct{})
	flood := time.NewTicker(time.Millisecond)
	defer flood.Stop()
	calls.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-flood.C:
			}
			for range 20 {
				calls.Go(func() {
					switch err := s.Take(context.Background(), check(greedy, i%1000)); {
					case err == nil:
						decided.Add(1)
					case errors.Is(err, combine.ErrOverloaded), errors.Is(err, combine.ErrNoTurn):
						shed.Add(1)
						if !errors.Is(err, enforce.ErrNothingTaken) {
							t.Errorf("a check that was shed may have taken: %v", err)
						}
					}
				})
			}
		}
	})
	eventually(t, "the greedy tenant's checks are shed at once", testTimeout,
		func() bool { return seen.early.Load() > 0 })
	early, late := seen.early.Load(), seen.late.Load()
	failed := 0
	const quietChecks = 50
	for i := range quietChecks {
		if err := s.Take(context.Background(), check(quiet, i)); err != nil {
			t.Log(err)
			failed++
		}
	}
	early, late = seen.early.Load()-early, seen.late.Load()-late
	close(stop)
	calls.Wait()
	t.Logf("%d checks of the greedy tenant were decided and %d shed; meanwhile %d at once and %d after they waited",
		decided.Load(), shed.Load(), early, late)
	if failed > 1 { // of a process that got no processor for a quarter of the budget
		t.Errorf("%d of %d checks of the quiet tenant failed", failed, quietChecks)
	}
	if decided.Load() == 0 || late > early { // on an idle machine far fewer are late
		t.Errorf("%d checks were decided, %d shed at once and %d only after they had waited", decided.Load(), early,
			late)
	}

	if err := proxy.Toxics.RemoveToxic(t.Context(), "narrow"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a burst of the greedy tenant is decided again", testTimeout, func() bool {
		var burst sync.WaitGroup
		var failures atomic.Int64
		for i := range 100 {
			burst.Go(func() {
				if s.Take(context.Background(), check(greedy, i)) != nil {
					failures.Add(1)
				}
			})
		}
		burst.Wait()
		return failures.Load() == 0
	})
}
