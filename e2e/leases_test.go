package e2e_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// TestLeasedTokensAreSpentOnceWhateverHappensToAProcess: two processes spend tokens that Redis has lent to them, one is
// killed, or stopped for longer than its tokens live, and together they admit no more than the limit.
func TestLeasedTokensAreSpentOnceWhateverHappensToAProcess(t *testing.T) {
	t.Parallel()
	for what, happens := range map[string]func(t *testing.T, p *process, others func(seconds float64)){
		"killed": func(t *testing.T, p *process, _ func(float64)) {
			t.Helper()
			if err := p.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-p.ended
		},
		"stopped for a while": func(t *testing.T, p *process, others func(float64)) {
			t.Helper()
			if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
					t.Error(err)
				}
			}()
			others(2.5) // a lot lives for a second, and its slot in Redis for half a second more
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			testLeasesOfTwo(t, happens)
		})
	}
}

func testLeasesOfTwo(t *testing.T, happens func(t *testing.T, p *process, others func(seconds float64))) {
	t.Helper()
	const rate, burst, callers = 300, 300, 4
	tn := newTenant(t, `
rules:
  - {key_pattern: "user:{user_id}", rate: 300/second, burst_capacity: 300}
`)
	redis := devdbtest.Redis(t).URL()
	survivor := tn.startAPI(t, redis, unhurried)
	victim := tn.spawnAPI(t, redis, unhurried)
	eventually(t, patience, "the process to be ready", func() bool { return victim.ready(t).status == http.StatusOK })

	var admitted atomic.Int64
	var load sync.WaitGroup
	stop := make(chan struct{})
	began := time.Now()
	for _, a := range []*api{survivor, victim} {
		for range callers {
			load.Go(func() {
				every := time.NewTicker(15 * time.Millisecond) // a little less than the limit, so that lots are filled
				defer every.Stop()
				for {
					select {
					case <-stop:
						return
					case <-every.C:
					}
					got, err := a.try(`{"user_id":"42"}`)
					if err != nil {
						return // killed
					}
					if got.status == http.StatusOK {
						admitted.Add(1)
					}
				}
			})
		}
	}
	leased := func(a *api) bool { return a.metric(t, "sluice_leased_checks_total") > 50 }
	eventually(t, patience, "both processes to serve checks from leased tokens", func() bool { return leased(survivor) && leased(victim) })
	happens(t, victim.process, func(seconds float64) {
		enough := admitted.Load() + int64(rate*seconds)
		eventually(t, patience, "the other process to admit more", func() bool { return admitted.Load() >= enough })
	})
	before := survivor.metric(t, "sluice_leased_checks_total")
	eventually(t, patience, "the other process to go on", func() bool {
		return survivor.metric(t, "sluice_leased_checks_total") > before+50
	})
	close(stop)
	load.Wait()
	most := burst + rate*time.Since(began).Seconds()
	t.Logf("admitted %d of at most %.0f in %v", admitted.Load(), most, time.Since(began).Round(time.Millisecond))
	if float64(admitted.Load()) > most {
		t.Errorf("%d checks were admitted, more than %.0f", admitted.Load(), most)
	}

	// What is held is given back when nobody asks any more, and what died with its holder is earned again.
	eventually(t, patience, "the bucket to be full", func() bool {
		got := survivor.want(t, `{"user_id":"42","cost":0}`, http.StatusOK)
		return got.remaining(t, "user:{user_id}") == burst
	})
}
