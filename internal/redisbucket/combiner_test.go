package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const panicText = "a panic in send"

func TestAPanicReachesACallerThatCanLeave(t *testing.T) {
	t.Parallel()
	s := New(client(t, "redis://127.0.0.1:1", patience), patience)
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
	s := New(client(t, server.URL(), patience), patience)
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
	eventually(t, "all have come", patience, func() bool { return came.Load() == 1000 })
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

func TestACallerThatLeavesDisturbsNoneOfThoseItWentWith(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	s := New(client(t, server.URL(), patience), patience)
	mustTake(t, s, one(user("42", still)))
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	var stay, leave sync.WaitGroup
	leaving, cancel := context.WithCancel(t.Context())
	for i := range 20 {
		stay.Go(func() { mustTake(t, s, one(user(fmt.Sprint(i), still))) })
		leave.Go(func() {
			checks := one(user(fmt.Sprint(i), still))
			if err := s.Take(leaving, checks); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that left: %v", err)
			}
			checks[0] = enforce.BucketCheck{} // it is the caller's again; the race detector looks on
		})
	}
	cancel()
	leave.Wait()
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	stay.Wait()
}
