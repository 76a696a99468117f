package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

func TestFourProcessesTogetherAllowWhatOneBucketHolds(t *testing.T) {
	t.Parallel()
	const burst, rate, connections = 1000, 100, 32
	lasts := 5 * time.Second
	if *soak {
		lasts = time.Minute
	}
	tn := newTenant(t, `rules: [{key_pattern: global, rate: 100/second, burst_capacity: 1000}]`)
	var allowed, denied atomic.Int64
	var first, last atomic.Int64 // nanoseconds since all began
	stop := make(chan struct{})
	var callers sync.WaitGroup
	apis := tn.startAPIs(t, 4, devdbtest.Redis(t).URL())
	began := time.Now()
	for _, a := range apis {
		for range connections {
			callers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					asked := time.Since(began)
					got, err := a.try(`{}`)
					first.CompareAndSwap(0, int64(time.Since(began)))
					switch {
					case err != nil || got.Degraded:
						t.Errorf("not decided on Redis: %d %s (%v)", got.status, got.text, err)
						return
					case got.status == http.StatusOK:
						allowed.Add(1)
					case got.status == http.StatusTooManyRequests:
						denied.Add(1)
						for at := last.Load(); int64(asked) > at &&
							!last.CompareAndSwap(at, int64(asked)); at = last.Load() {
						}
					default:
						t.Errorf("status %d: %s", got.status, got.text)
						return
					}
				}
			})
		}
	}
	time.AfterFunc(lasts, func() { close(stop) })
	callers.Wait()
	until, asking := time.Since(began), time.Duration(last.Load()-first.Load())

	most, least := burst+rate*until.Seconds()+1, 0.99*(burst+rate*asking.Seconds())
	t.Logf("%d allowed and %d denied in %s; from %.0f to %.0f were to be allowed", allowed.Load(), denied.Load(), until,
		least, most)
	if n := float64(allowed.Load()); n > most || n < least {
		t.Errorf("%.0f checks were allowed, want from %.0f to %.0f", n, least, most)
	}
	if denied.Load() == 0 {
		t.Error("nothing was denied: the load was too small to test anything")
	}
}

func TestAChangedRuleIsInForceInEveryProcessWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	const user = `{key_pattern: "user:{user_id}", rate: 1/second, burst_capacity: %d}`
	rules := func(list ...string) string { return "rules: [" + strings.Join(list, ", ") + "]" }
	five, seven := fmt.Sprintf(user, 5), fmt.Sprintf(user, 7)
	const block = `{key_pattern: "endpoint:/closed", action: block}`

	tn := newTenant(t, rules(five))
	apis := tn.startAPIs(t, 4, devdbtest.Redis(t).URL())
	const check = `{"user_id":"42","endpoint":"/closed","cost":0}`
	steps := []struct {
		name, rules string
		holds       func(*answer) bool
	}{
		{"a raised burst", rules(seven), func(got *answer) bool { return got.Allowed && *got.Limit == 7 }},
		{"a new rule", rules(seven, block), func(got *answer) bool { return !got.Allowed && *got.Reason == "blocked" }},
		{"a rule that is gone", rules(seven), func(got *answer) bool { return got.Allowed }},
		{"a lowered burst", rules(five), func(got *answer) bool { return got.Allowed && *got.Limit == 5 }},
	}
	for _, a := range apis {
		if got := a.want(t, check, http.StatusOK); *got.Limit != 5 {
			t.Fatalf("limit %d at the start, want 5", *got.Limit)
		}
	}
	for _, step := range steps {
		if tn.apply(t, step.rules, "--prune") == "" {
			t.Fatalf("%s: apply changed nothing", step.name)
		}
		eventually(t, changesArriveIn, step.name+" in every process", func() bool {
			return !slices.ContainsFunc(apis, func(a *api) bool {
				got := a.check(t, check)
				return !step.holds(&got)
			})
		})
	}
}

func TestScriptFlushUnderLoadDisturbsNoCheck(t *testing.T) {
	t.Parallel()
	lasts := 2 * time.Second
	if *soak {
		lasts = 10 * time.Second
	}
	tn := newTenant(t, `rules: [{key_pattern: "user:{user_id}", rate: 12/hour, burst_capacity: 100000}]`)
	server := devdbtest.Redis(t)
	a := tn.startAPI(t, server.URL())
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()

	stop := make(chan struct{})
	time.AfterFunc(lasts, func() { close(stop) })
	loaded := make(chan []asked)
	watch := awake.Start()
	defer watch.Stop()
	go func() {
		loaded <- a.load(watch, []string{`{"user_id":"1"}`, `{"user_id":"2"}`}, 8, time.Millisecond, stop)
	}()
	flushes := 0
	for running := true; running; flushes++ {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-stop:
			running = false
		default:
		}
	}
	all := <-loaded
	t.Logf("%d checks among %d flushes", len(all), flushes)
	for i := range all {
		if got := &all[i].got; all[i].err != nil || got.status != http.StatusOK || got.Degraded {
			t.Fatalf("check %d: %d %s (%v), want 200 and not degraded", i, got.status, got.text, all[i].err)
		}
	}
	// A script that is sent again, by its source, must not be charged twice.
	left := 0.0
	for _, user := range []string{"1", "2"} {
		got := a.want(t, `{"user_id":"`+user+`","cost":0}`, http.StatusOK)
		left += got.remaining(t, "user:{user_id}")
	}
	if taken := 200_000 - left; taken < float64(len(all))-1 || taken > float64(len(all)) {
		t.Errorf("%d checks took %.6f tokens", len(all), taken)
	}
}

func TestACheckDeniedByOneTierTakesFromNone(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, `
rules:
  - {key_pattern: "user:{user_id}", rate: 1/hour, burst_capacity: 10}
  - {key_pattern: "endpoint:/api/search", rate: 1/hour, burst_capacity: 2}
  - {key_pattern: global, rate: 1/hour, burst_capacity: 100}
`)
	stores := map[string]string{"in Redis": devdbtest.Redis(t).URL(), "in memory": ""}
	for name, redisURL := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := tn.startAPI(t, redisURL)
			const check = `{"user_id":"42","endpoint":"/api/search"`
			a.want(t, check+`,"cost":2}`, http.StatusOK)
			for range 5 {
				got := a.want(t, check+`}`, http.StatusTooManyRequests)
				if *got.ViolatedRule != "endpoint:/api/search" || *got.Reason != "limit_exceeded" {
					t.Fatalf("denied by %s for %s, want endpoint:/api/search for its limit", *got.ViolatedRule,
						*got.Reason)
				}
			}
			got := a.want(t, check+`,"cost":0}`, http.StatusOK)
			for pattern, want := range map[string]float64{
				"user:{user_id}": 8, "endpoint:/api/search": 0,
				"global": 98,
			} {
				// In an hour one token is earned, in this test a small part of it.
				if left := got.remaining(t, pattern); left < want || left > want+0.1 {
					t.Errorf("%s has %g tokens left, want %g: denied checks took some", pattern, left, want)
				}
			}
		})
	}
}
