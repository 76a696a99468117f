package e2e_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// TestLeasedTokensAreSpentOnceThoughAProcessIsKilled: two processes spend tokens that Redis has lent to them, one is killed
// with what it holds, and together they admit no more than the limit.
func TestLeasedTokensAreSpentOnceThoughAProcessIsKilled(t *testing.T) {
	t.Parallel()
	const rate, burst, callers = 300, 300, 4
	tn := newTenant(t, `
rules:
  - {key_pattern: "user:{user_id}", rate: 300/second, burst_capacity: 300}
`)
	redis := devdbtest.Redis(t).URL()
	survivor := tn.startAPI(t, redis, unhurried)
	killed := tn.spawnAPI(t, redis, unhurried)
	eventually(t, patience, "the process to be ready", func() bool { return killed.ready(t).status == http.StatusOK })

	var admitted atomic.Int64
	var load sync.WaitGroup
	stop := make(chan struct{})
	began := time.Now()
	for _, a := range []*api{survivor, killed} {
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
	eventually(t, patience, "both processes to serve checks from leased tokens", func() bool { return leased(survivor) && leased(killed) })
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-killed.ended
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
