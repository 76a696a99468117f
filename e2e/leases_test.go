package e2e_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"syscall"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

const sharedRate, sharedBurst = 50, 600

// TestLeasedTokensAreSpentOnceWhateverHappensToAProcess: a process under load is killed, or stopped for longer than its tokens live,
// and another process and the one that goes on admit no more than the limit in any interval.
func TestLeasedTokensAreSpentOnceWhateverHappensToAProcess(t *testing.T) {
	t.Parallel()
	testLeasesOfTwo(t, func(t *testing.T) *leasesOfTwo {
		t.Helper()
		return newLeasesOfTwo(t, newTenant(t, `
rules:
  - {key_pattern: global, rate: 50/second, burst_capacity: 600, failure_mode: closed}
`), devdbtest.Redis(t).URL())
	}, func(*testing.T, *leasesOfTwo) {})
}

// TestColdUsersOfASpreadTenantKeepTheirLimits: likewise, in a Redis Cluster, where the shared bucket is leased and those of the users,
// on other shards, are asked for each check. No user gets more than the user's own limit either.
func TestColdUsersOfASpreadTenantKeepTheirLimits(t *testing.T) {
	t.Parallel()
	const rate, burst = 1, 5
	testLeasesOfTwo(t, func(t *testing.T) *leasesOfTwo {
		t.Helper()
		cluster, err := devdb.StartRedisCluster(t.Context(), t.TempDir(), 3, false)
		mustHappen(t, err)
		t.Cleanup(cluster.Kill)
		l := newLeasesOfTwo(t, newTenantIn(t, devdbtest.Postgres(t), `
rules:
  - {key_pattern: global, rate: 50/second, burst_capacity: 600, failure_mode: closed}
  - {key_pattern: "user:{user_id}", rate: 1/second, burst_capacity: 5, failure_mode: closed}
`, "--spread"), cluster.URL())
		// The victim's users ask too seldom to be denied, so that what it spent is what it allowed. Half of the survivor's checks are of
		// ten users that ask for far more than their limits.
		l.ofVictim = func(caller, n int) string { return fmt.Sprint("cold-", (caller+3*n)%500) }
		l.ofSurvivor = func(caller, n int) string {
			if n%2 == 0 {
				return fmt.Sprint("greedy-", (caller+n/2)%10)
			}
			return fmt.Sprint("cold-", (caller+4*n)%500)
		}
		return l
	}, func(t *testing.T, l *leasesOfTwo) {
		t.Helper()
		if denied := l.denied.Load() - l.exhausted.Load(); denied < 100 {
			t.Errorf("limits of users denied %d checks, too few to tell that they hold", denied)
		}
		l.wantLimitOfUsers(t, rate, burst)
	})
}

// testLeasesOfTwo kills or stops one of two processes. At the end it wants the shared limit and what a function wants besides.
func testLeasesOfTwo(t *testing.T, start func(*testing.T) *leasesOfTwo, want func(*testing.T, *leasesOfTwo)) {
	t.Helper()
	// What the victim spent without a report must not come back when Redis forgets that it lent it. The bucket is never full from then on,
	// so it loses nothing that it earns, and tokens that come back would exceed the limit.
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		l := start(t)
		l.await(t, func(_, unreported float64) bool { return unreported > 60 })
		l.victim.kill()
		l.exhaust(t)
		enough := l.passed.Load() + int64(2*l.rate) // what the limit lets pass in two seconds; Redis forgets after one and a half what it lent
		eventually(t, patience, "the other process to go on", func() bool { return l.passed.Load() >= enough })
		l.wantLimit(t, 0)
		want(t, l)
	})
	// What the victim holds must not be spent once the bucket has earned it again. So the bucket is full when the victim goes on, and all of
	// it is asked for: in a bucket that is empty all the time, what died was not earned again, and to spend it would exceed no limit.
	t.Run("stopped for a while", func(t *testing.T) {
		t.Parallel()
		l := start(t)
		l.await(t, func(held, _ float64) bool { return held > 60 })
		spent := l.spent(t)
		l.victim.signal(t, syscall.SIGSTOP)
		l.wantFull(t) // the bucket is full once Redis has forgotten what it lent, and has earned those tokens again
		l.victim.signal(t, syscall.SIGCONT)
		l.exhaust(t)
		eventually(t, patience, "the process to spend leased tokens again", func() bool { return l.spent(t) > spent+100 })
		l.wantLimit(t, 0)
		want(t, l)
	})
}

// leasesOfTwo is a load on two processes. A test kills or stops one of them.
type leasesOfTwo struct {
	*faultLoad
	survivor             *api
	ofVictim, ofSurvivor func(caller, n int) string // the users of checks
}

// newLeasesOfTwo starts the processes. The rules of the tenant have the shared limit.
func newLeasesOfTwo(t *testing.T, tn tenant, redis string) *leasesOfTwo {
	t.Helper()
	survivor := tn.startAPI(t, redis, unhurried)
	l := &leasesOfTwo{newFaultLoad(t, sharedRate, sharedBurst), survivor, ownUser, ownUser} // ends after the victim, which may leave its callers waiting
	l.victim = tn.spawnAPI(t, redis, unhurried)
	eventually(t, patience, "the process to be ready", func() bool { return l.victim.ready(t).status == http.StatusOK })
	return l
}

// await returns when the victim holds as many tokens of the shared bucket as wanted, or has spent as many without a report.
//
// Its callers ask for several times the rate, so that the bucket falls short of full, and the burst lasts for a few seconds.
func (l *leasesOfTwo) await(t *testing.T, wanted func(held, unreported float64) bool) {
	t.Helper()
	l.add(t, l.victim, 3, l.ofVictim)
	eventually(t, patience, "the process to have leased tokens", func() bool {
		tokens := func(fate string) float64 { return l.victim.metric(t, `sluice_leased_tokens_total{fate="`+fate+`"}`) }
		lent, reported, spent := tokens("lent"), tokens("spent"), l.spent(t)
		return wanted(lent-spent-tokens("given_back")-tokens("forfeited"), spent-reported)
	})
}

// spent returns how many leased tokens the victim has spent, provided that it denied nothing.
func (l *leasesOfTwo) spent(t *testing.T) float64 {
	t.Helper()
	return l.victim.metric(t, "sluice_leased_checks_total") + l.victim.metric(t, "sluice_split_checks_total")
}

// exhaust has eight callers ask the survivor until the bucket is empty.
func (l *leasesOfTwo) exhaust(t *testing.T) {
	t.Helper()
	l.add(t, l.survivor, 8, l.ofSurvivor)
	eventually(t, patience, "the bucket to be empty", func() bool { return l.exhausted.Load() > 20 })
}

func (l *leasesOfTwo) wantFull(t *testing.T) {
	t.Helper()
	eventually(t, patience, "the bucket to be full", func() bool {
		got := l.survivor.want(t, `{"user_id":"42","cost":0}`, http.StatusOK)
		return got.remaining(t, "global") == l.burst
	})
}

// wantLimitOfUsers wants no interval in which a user got more than a limit.
func (l *leasesOfTwo) wantLimitOfUsers(t *testing.T, rate, burst float64) {
	t.Helper()
	of := map[string][]admittedCheck{}
	for _, one := range l.admitted {
		of[one.user] = append(of[one.user], one)
	}
	for user, admitted := range of {
		if over, from, to := mostOver(admitted, rate, burst); over > 0 {
			t.Errorf("%s got %.1f more than the limit from %v to %v", user, over, from, to)
		}
	}
	most := slices.MaxFunc(slices.Collect(maps.Values(of)), func(a, b []admittedCheck) int { return cmp.Compare(len(a), len(b)) })
	t.Logf("%d users got tokens, one of them %d", len(of), len(most))
}
