package sluice

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newTestLimiter(perSecond float64, burst int) (*Limiter, func(time.Duration)) {
	l := NewLimiter(perSecond, burst)
	now := l.start
	l.now = func() time.Time { return now }
	return l, func(by time.Duration) { now = now.Add(by) }
}

func TestLimiterAllowsABurstAndThenTheRate(t *testing.T) {
	t.Parallel()
	l, pass := newTestLimiter(5, 20) // 20 at once, then 5 a second
	count := func() (n int) {
		for l.Allow() {
			n++
		}
		return n
	}
	if n := count(); n != 20 {
		t.Errorf("%d pass at once, want 20", n)
	}
	pass(time.Second)
	if n := count(); n != 5 {
		t.Errorf("%d pass after a second, want 5", n)
	}
	pass(time.Hour)
	if n := count(); n != 20 {
		t.Errorf("%d pass after an hour, want the burst of 20", n)
	}
	pass(100 * time.Millisecond)
	if n := count(); n != 0 {
		t.Errorf("%d pass after half a token's time", n)
	}
	if l.AllowN(21) || l.AllowN(-1) {
		t.Error("more than the burst, or less than nothing, was allowed")
	}
}

func TestLimiterReservesAheadAndCancels(t *testing.T) {
	t.Parallel()
	l, pass := newTestLimiter(10, 2)
	var last *Reservation
	for i, want := range []time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond} {
		last = l.Reserve()
		if !last.OK() || last.Delay() != want {
			t.Errorf("reservation %d: %v, %v, want a delay of %v", i, last.OK(), last.Delay(), want)
		}
	}
	last.Cancel()
	last.Cancel() // counts once
	if again := l.Reserve(); again.Delay() != 200*time.Millisecond {
		t.Errorf("after a cancel the delay is %v, want 200ms", again.Delay())
	}
	if tokens := l.Tokens(); math.Abs(tokens+2) > 1e-9 {
		t.Errorf("%v tokens, want -2", tokens)
	}
	pass(150 * time.Millisecond)
	if last.Delay() != 50*time.Millisecond {
		t.Errorf("the delay is now %v, want 50ms", last.Delay())
	}
	if r := l.ReserveN(3); r.OK() || r.Delay() != math.MaxInt64 {
		t.Error("more than the burst was reserved")
	}
}

func TestLimiterWaits(t *testing.T) {
	t.Parallel()
	l := NewLimiter(1000, 1)
	began := time.Now()
	for range 21 {
		if err := l.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 19*time.Millisecond {
		t.Errorf("21 passed in %v, want 20 ms or more", took)
	}
	slow := NewLimiter(0.001, 1)
	slow.Allow()
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := slow.Wait(soon); !errors.Is(err, errDeadlineSoon) || soon.Err() != nil {
		t.Errorf("%v, want to be told at once that the deadline is too soon", err)
	}
	if err := slow.WaitN(t.Context(), 2); !errors.Is(err, errAboveBurst) {
		t.Errorf("%v, want to be told that the bucket holds less", err)
	}
	leaving, leave := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- slow.Wait(leaving) }()
	for slow.Tokens() > -0.5 { // until it waits
	}
	leave()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
	if tokens := slow.Tokens(); tokens < 0 {
		t.Errorf("%v tokens: the one that was not used is lost", tokens)
	}
}

func TestLimiterHoldsForManyGoroutines(t *testing.T) {
	t.Parallel()
	l, _ := newTestLimiter(1, 1000)
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if l.Allow() {
					passed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if passed.Load() != 1000 {
		t.Errorf("%d passed, want 1000", passed.Load())
	}
}

func TestLimiterRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct {
		rate  float64
		burst int
	}{{0, 1}, {-1, 1}, {math.NaN(), 1}, {math.Inf(1), 1}, {1, 0}, {1e-6, 1e6}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("NewLimiter(%v, %d) is accepted", bad.rate, bad.burst)
				}
			}()
			NewLimiter(bad.rate, bad.burst)
		}()
	}
}

func BenchmarkLimiterAllow(b *testing.B) {
	l := NewLimiter(1e6, 1e6)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Allow()
		}
	})
}
