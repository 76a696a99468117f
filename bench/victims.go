package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"time"
)

// victimTimeout is when a caller gives up. The request then counts as failed, with this latency.
const victimTimeout = 10 * time.Second

// victim is a request of the quiet tenant that is repeated at a constant rate. The rates are low, so that alone the
// victims leave most of the processors idle.
type victim struct {
	what  string
	every time.Duration
	// once makes the request until ctx ends.
	once func(ctx context.Context) error
	// oneByOne postpones a request until the one before has ended, and counts its latency from then. Other requests are
	// made when they are due, whether or not earlier ones have ended.
	oneByOne bool
}

// answers are the latencies of requests in milliseconds, and how many of them failed.
type answers struct {
	took   []float64
	failed int
}

func (a *answers) sort() { slices.Sort(a.took) }

// percentile returns the latency that so many of 100 requests kept within. The latencies are in order.
func (a *answers) percentile(of int) float64 {
	if len(a.took) == 0 {
		return 0
	}
	return a.took[min(len(a.took)*of/100, len(a.took)-1)]
}

// timeVictims repeats each request for the length of a round, and waits until all have ended.
func timeVictims(ctx context.Context, victims []victim, round time.Duration, to func(i int) *answers) error {
	var mu sync.Mutex
	var requests sync.WaitGroup
	told := map[string]bool{}
	measure := func(i int, due time.Time) {
		limited, cancel := context.WithDeadlineCause(ctx, due.Add(victimTimeout), fmt.Errorf("no answer within %v", victimTimeout))
		defer cancel()
		err := victims[i].once(limited)
		took := time.Since(due)
		if err != nil && limited.Err() != nil {
			err = context.Cause(limited)
		}
		mu.Lock()
		defer mu.Unlock()
		a := to(i)
		a.took = append(a.took, float64(took.Microseconds())/1000)
		if err == nil {
			return
		}
		a.failed++
		if what := victims[i].what; ctx.Err() == nil && !told[what] {
			told[what] = true
			fmt.Fprintf(os.Stderr, "%s: the first failure of this round: %v\n", what, err)
		}
	}
	start := time.Now()
	for i, v := range victims {
		requests.Go(func() {
			// Victims begin one after the other, so that they do not meet at every tick.
			for due := start.Add(v.every * time.Duration(i) / time.Duration(len(victims))); due.Sub(start) < round; due = due.Add(v.every) {
				if v.oneByOne && time.Since(due) > 0 {
					due = time.Now()
				}
				if waitUntil(ctx, due) != nil {
					return
				}
				if v.oneByOne {
					measure(i, due)
				} else {
					requests.Go(func() { measure(i, due) })
				}
			}
		})
	}
	requests.Wait()
	return context.Cause(ctx)
}

func waitUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// victims are what the quiet tenant asks for. The webhooks of all its alerts are one kind.
func (n *neighbourhood) victims(t *neighbour, hooks *hooks) []victim {
	ask := func(want int, q func() adminRequest) func(context.Context) error {
		return func(ctx context.Context) error { return n.call(ctx, t, q(), want, nil) }
	}
	signIn := func(from, email, password string) adminRequest {
		q := post("/api/v1/session", fmt.Sprintf(`{"email":%q,"password":%q}`, email, password))
		q.from = from
		return q
	}
	victims := []victim{
		{what: "reads", every: 50 * time.Millisecond, once: ask(http.StatusOK, func() adminRequest {
			return adminRequest{method: "GET", path: t.path("/rules")}
		})},
		{what: "writes", every: 100 * time.Millisecond, once: ask(http.StatusCreated, func() adminRequest {
			return post(t.path("/plans"), fmt.Sprintf(`{"name":"%d"}`, time.Now().UnixNano()))
		})},
		{what: "sign-ins", every: 200 * time.Millisecond, once: ask(http.StatusOK, func() adminRequest {
			return signIn("198.51.100.1", signsInEmail, neighbourPassword)
		})},
		// Each has an address and a network of its own, because failures for one address, or from one network, have to wait.
		{what: "sign-ins with a wrong password", every: 200 * time.Millisecond, once: ask(http.StatusUnauthorized, func() adminRequest {
			from := fmt.Sprintf("10.%d.%d.1", rand.IntN(256), rand.IntN(256))
			return signIn(from, fmt.Sprintf("%d@example.com", time.Now().UnixNano()), "a wrong password")
		})},
	}
	for _, alert := range t.Alerts {
		victims = append(victims, victim{
			what: "webhooks, test to arrival", every: 1500 * time.Millisecond, oneByOne: true,
			once: func(ctx context.Context) error { return n.testAlert(ctx, t, alert, hooks) },
		})
	}
	return victims
}

// testAlert asks for a test of an alert and waits until its webhook arrives.
func (n *neighbourhood) testAlert(ctx context.Context, t *neighbour, alert int64, hooks *hooks) error {
	test := post(t.path(fmt.Sprintf("/alerts/%d/test", alert)), "")
	for {
		var made struct {
			Delivery int64 `json:"delivery_id"`
		}
		err := n.call(ctx, t, test, http.StatusCreated, &made)
		if err == nil {
			return hooks.await(ctx, alert, made.Delivery)
		}
		if refused, ok := errors.AsType[*statusError](err); !ok || refused.status != http.StatusConflict {
			return err
		}
		// The test before arrived, or was given up, and its end is not stored yet.
		if err := waitUntil(ctx, time.Now().Add(conflictPause)); err != nil {
			return err
		}
	}
}

const conflictPause = 250 * time.Millisecond

// hooks receive webhooks: those of the quiet tenant are noted, others get no answer.
type hooks struct {
	quiet, blackHole *httptest.Server
	closing          chan struct{}
	arrived          map[int64]chan int64 // the deliveries of an alert
}

func newHooks() *hooks {
	h := &hooks{closing: make(chan struct{}), arrived: map[int64]chan int64{}}
	h.quiet = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if alert, delivery, err := readWebhook(r.Body); err == nil {
			select {
			case h.arrived[alert] <- delivery:
			default:
			}
		}
	}))
	h.blackHole = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-h.closing:
		case <-r.Context().Done():
		}
	}))
	return h
}

// await waits until a delivery of an alert arrives. Late ones of earlier tests are passed over.
func (h *hooks) await(ctx context.Context, alert, delivery int64) error {
	for {
		select {
		case arrived := <-h.arrived[alert]:
			if arrived == delivery {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (h *hooks) close() {
	close(h.closing)
	h.quiet.Close()
	h.blackHole.Close()
}
