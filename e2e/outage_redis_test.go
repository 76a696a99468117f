package e2e_test

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

const failureModes = `
rules:
  - {key_pattern: "endpoint:/local", rate: 6/hour, burst_capacity: 5, failure_mode: local}
  - {key_pattern: "endpoint:/open", rate: 1/hour, burst_capacity: 5, failure_mode: open}
  - {key_pattern: "endpoint:/closed", rate: 1/hour, burst_capacity: 5, failure_mode: closed}
`

const (
	askLocal  = `{"endpoint":"/local"}`
	askOpen   = `{"endpoint":"/open"}`
	askClosed = `{"endpoint":"/closed"}`
)

func TestARedisOutageIsAnsweredByFailureModes(t *testing.T) {
	t.Parallel()
	lasts := 2 * time.Second
	if *soak {
		lasts = 30 * time.Second
	}
	outages := map[string]struct {
		begin, end func(*testing.T, *devdb.Redis) error
	}{
		"a server that crashed": {
			func(_ *testing.T, r *devdb.Redis) error { r.Kill(); return nil },
			func(t *testing.T, r *devdb.Redis) error { return r.Restart(t.Context()) },
		},
		"a server that is frozen": {
			func(_ *testing.T, r *devdb.Redis) error { return r.Freeze() },
			func(_ *testing.T, r *devdb.Redis) error { return r.Thaw() },
		},
	}
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := devdbtest.Redis(t)
			a := newTenant(t, failureModes).startAPI(t, server.URL(), "--store-budget=50ms")
			watch := awake.Start()
			defer watch.Stop()
			loaded, stop := make(chan []asked), make(chan struct{})
			go func() { loaded <- a.load(watch, []string{askLocal, askOpen, askClosed}, 8, 5*time.Millisecond, stop) }()
			eventually(t, patience, "the load to be answered by Redis", func() bool {
				got := a.check(t, `{"endpoint":"/local","cost":0}`) // for its own part it takes nothing
				measured := watch.Now() > 100*time.Millisecond      // how long answers take while Redis is there
				return measured && !got.Degraded && *got.Remaining == 0
			})
			err := outage.begin(t, server)
			began := watch.Now()
			if err == nil {
				eventually(t, patience, "Redis to be reported down", func() bool { return a.ready(t).Redis == "down" })
				<-time.After(lasts) // the load goes on meanwhile
			}
			close(stop)
			all := <-loaded
			if err != nil {
				t.Fatal(err)
			}
			wantFailureModes(t, all, began)

			if err := outage.end(t, server); err != nil {
				t.Fatal(err)
			}
			eventually(t, changesArriveIn, "Redis to decide again", func() bool {
				for _, endpoint := range []string{"/local", "/open", "/closed"} {
					got := a.check(t, `{"endpoint":"`+endpoint+`","cost":0}`)
					if got.Degraded || got.status != http.StatusOK {
						return false
					}
				}
				return true
			})
		})
	}
}

func wantFailureModes(t *testing.T, all []asked, began time.Duration) {
	t.Helper()
	const moment = 250 * time.Millisecond
	// Recent denials are repeated from memory for a second.
	const remembered = moment + time.Second
	var times, usual []time.Duration
	degraded, locally := 0, 0
	for i := range all {
		one, got := &all[i], &all[i].got
		switch {
		case one.err != nil:
			t.Fatalf("check %s was not answered: %v", one.body, one.err)
		case !got.Degraded && one.at > began+moment && (got.Allowed || one.at > began+remembered):
			t.Fatalf("check %s, %s after the outage began, is not degraded: %s", one.body, one.at-began, got.text)
		case !got.Degraded:
			if one.at < began {
				usual = append(usual, one.took)
			}
			continue
		}
		degraded++
		times = append(times, one.took)
		if one.body == askLocal && got.Allowed {
			locally++
		}
		if wrong := wrongAnswer(one.body, got); wrong != "" {
			t.Fatalf("check %s without Redis: %d %v %s: want %s", one.body, got.status, got.header, got.text, wrong)
		}
	}
	if degraded < 100 {
		t.Fatalf("only %d checks were decided without Redis; that is no load", degraded)
	}
	// Beside the store budget, a busy machine needs time for HTTP, JSON and two processes. One check in a hundred may
	// wait longer for a processor, which the watch does not see.
	const budget, starved = 50 * time.Millisecond, 200 * time.Millisecond
	beside := max(25*time.Millisecond, 3*quantile(usual, 0.99))
	median, most, worst := quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1)
	t.Logf("%d checks without Redis: median %s, 99 %% %s, worst %s", degraded, median, most, worst)
	if median > beside || most > budget+beside || worst > budget+max(starved, beside) {
		t.Errorf("checks without Redis took %s in the median, 99 %% at most %s and the worst %s; want at most %s, %s "+
			"and %s",
			median, most, worst, beside, budget+beside, budget+max(starved, beside))
	}
	if locally != 5 {
		t.Errorf("this process's own bucket of 5 allowed %d checks", locally)
	}
}

func wrongAnswer(body string, got *answer) string {
	switch body {
	case askLocal:
		if got.status != http.StatusOK &&
			(got.status != http.StatusTooManyRequests || *got.Reason != "limit_exceeded") {
			return "200, or 429 and limit_exceeded"
		}
	case askOpen:
		if got.status != http.StatusOK || !got.Allowed {
			return "200"
		}
	case askClosed:
		if got.status != http.StatusServiceUnavailable || *got.Reason != "store_unavailable" ||
			got.header.Get("Retry-After") != "1" || got.header.Get("X-Sluice-Reason") != "store_unavailable" {
			return "503, Retry-After: 1 and store_unavailable"
		}
	}
	return ""
}

func TestAProcessStartsWithoutRedisAndEnforcesWhenItComes(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	server.Kill()
	a := newTenant(t, failureModes).startAPI(t, server.URL())
	if got := a.check(t, askOpen); got.status != http.StatusOK || !got.Degraded {
		t.Fatalf("%d %s, want 200 and degraded", got.status, got.text)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, changesArriveIn, "Redis to decide", func() bool {
		return !a.check(t, `{"endpoint":"/open","cost":0}`).Degraded
	})
	for range 5 {
		a.want(t, askOpen, http.StatusOK)
	}
	a.want(t, askOpen, http.StatusTooManyRequests)
}

func TestAReplyLostOnTheWayChargesAtMostOnce(t *testing.T) {
	t.Parallel()
	losses := map[string]func(p *proxy, losing bool){
		"in silence":                     func(p *proxy, losing bool) { p.silent.Store(losing) },
		"with the connection it came by": func(p *proxy, losing bool) { p.cutsScript.Store(losing) },
	}
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := devdbtest.Redis(t)
			tn := newTenant(t,
				`rules: [{key_pattern: "user:{user_id}", rate: 1/hour, burst_capacity: 10, failure_mode: open}]`)
			lossy := newProxy(t, server.Addr())
			a := tn.startAPI(t, lossy.url(t, server.URL()), "--store-budget=2s")
			direct := tn.startAPI(t, server.URL())

			const users = 4 // fewer than the failures in a row after which Redis is not asked any more
			for user := range users {
				a.want(t, fmt.Sprintf(`{"user_id":"%d"}`, user), http.StatusOK)
			}
			for user := range users {
				lose(lossy, true)
				got := a.check(t, fmt.Sprintf(`{"user_id":"%d"}`, user))
				if got.status != http.StatusOK || !got.Degraded {
					t.Errorf("user %d: %d %s, want 200 and degraded, as the reply was lost", user, got.status, got.text)
				}
			}
			lose(lossy, false)
			eventually(t, changesArriveIn, "replies to arrive again", func() bool {
				return !a.check(t, `{"user_id":"none","cost":0}`).Degraded
			})
			wantChargedAtMostOnce(t, direct, users)
		})
	}
}

func wantChargedAtMostOnce(t *testing.T, direct *api, users int) {
	t.Helper()
	executed := 0
	for user := range users {
		got := direct.want(t, fmt.Sprintf(`{"user_id":"%d","cost":0}`, user), http.StatusOK)
		// In an hour one token is earned.
		taken := int(math.Round(10-got.remaining(t, "user:{user_id}"))) - 1
		if taken < 0 || taken > 1 {
			t.Errorf("user %d: a check whose reply was lost took %d tokens, want at most 1", user, taken)
		}
		executed += taken
	}
	if executed == 0 {
		t.Error("no check whose reply was lost was executed: the test lost requests, not replies")
	}
}
