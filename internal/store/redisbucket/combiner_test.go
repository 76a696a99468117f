package redisbucket

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const panicText = "a panic in send"

func TestAPanicInABatchReachesItsCaller(t *testing.T) {
	t.Parallel()
	s := New(client(t, "redis://127.0.0.1:1", testTimeout), testTimeout)
	s.stamp = func() int64 { panic(panicText) }
	defer func() {
		if cause := recover(); cause != panicText {
			t.Errorf("recovered %v", cause)
		}
	}()
	_ = s.Take(t.Context(), one(user("42", still)))
	t.Error("no panic")
}

func TestAThousandChecksAtOnceAreAllAnsweredInAFewBatches(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	s := New(client(t, server.URL(), testTimeout), testTimeout)
	mustTake(t, s, one(user("warm", still)))
	before := scriptCalls(t, s)
	limit := enforce.Limit{Rate: rules.MinRate, Burst: 700}
	if err := server.Freeze(); err != nil { // until all have come, however slowly
		t.Fatal(err)
	}
	var mu sync.Mutex
	allowed := 0
	var came atomic.Int64
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			came.Add(1)
			checks := []enforce.BucketCheck{fourTiers(i, limit)}
			if err := s.Take(context.Background(), checks); err != nil {
				t.Errorf("check %d was not answered: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if checks[0].Allowed {
				allowed++
			}
		})
	}
	eventually(t, "all have come", testTimeout, func() bool { return came.Load() == 1000 })
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if allowed != 700 {
		t.Errorf("%d of 1000 passed a burst of 700", allowed)
	}
	calls := scriptCalls(t, s) - before
	t.Logf("%d scripts for 1000 checks", calls)
	if calls > 100 { // of up to 64 checks; the last who came may have sent their own
		t.Errorf("%d scripts for 1000 checks at once", calls)
	}
}
