package e2e_test

import (
	"net/http"
	"syscall"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

const sharedRate, sharedBurst = 50, 600

func TestLeasedTokensAreSpentOnceWhateverHappensToAProcess(t *testing.T) {
	t.Parallel()
	testLeasesOfTwo(t, func(t *testing.T) *leasesOfTwo {
		t.Helper()
		return newLeasesOfTwo(t, newTenant(t, `
rules:
  - {key_pattern: global, rate: 50/second, burst_capacity: 600, failure_mode: closed}
`), devdbtest.Redis(t).URL())
	})
}

func testLeasesOfTwo(t *testing.T, start func(*testing.T) *leasesOfTwo) {
	t.Helper()
	// Tokens that the victim spent without a report must not come back when Redis forgets the loan. The bucket is
	// never full from then on, so tokens that come back would exceed the limit.
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		l := start(t)
		l.await(t, func(_, unreported float64) bool { return unreported > 60 })
		l.victim.kill()
		l.exhaust(t)
		enough := l.passed.Load() + int64(2*l.rate) // of two seconds; Redis forgets loans after one and a half
		eventually(t, patience, "the other process to go on", func() bool { return l.passed.Load() >= enough })
		l.wantLimit(t, 0)
	})
	// Tokens that the victim holds must not be spent once the bucket has earned them again. The bucket is full when
	// the victim goes on, because an empty bucket would not have earned the lost tokens.
	t.Run("stopped for a while", func(t *testing.T) {
		t.Parallel()
		l := start(t)
		l.await(t, func(held, _ float64) bool { return held > 60 })
		spent := l.spent(t)
		l.victim.signal(t, syscall.SIGSTOP)
		l.wantFull(t) // the bucket is full once Redis has forgotten what it lent, and has earned those tokens again
		l.victim.signal(t, syscall.SIGCONT)
		l.exhaust(t)
		eventually(t, patience, "the process to spend leased tokens again",
			func() bool { return l.spent(t) > spent+100 })
		l.wantLimit(t, 0)
	})
}

type leasesOfTwo struct {
	*faultLoad
	survivor *api
}

func newLeasesOfTwo(t *testing.T, tn tenant, redis string) *leasesOfTwo {
	t.Helper()
	survivor := tn.startAPI(t, redis)
	// ends after the victim, which may leave its callers waiting
	l := &leasesOfTwo{newFaultLoad(t, sharedRate, sharedBurst), survivor}
	l.victim = tn.spawnAPI(t, redis)
	eventually(t, patience, "the process to be ready", func() bool { return l.victim.ready(t).status == http.StatusOK })
	return l
}

// await returns when the victim holds as many tokens as wanted, or has spent as many without a report. The callers
// ask for
// several times the rate, so that the bucket falls short of full.
func (l *leasesOfTwo) await(t *testing.T, wanted func(held, unreported float64) bool) {
	t.Helper()
	l.add(t, l.victim, 3, ownUser)
	eventually(t, patience, "the process to have leased tokens", func() bool {
		tokens := func(fate string) float64 { return l.victim.metric(t, `sluice_leased_tokens_total{fate="`+fate+`"}`) }
		lent, reported, spent := tokens("lent"), tokens("spent"), l.spent(t)
		return wanted(lent-spent-tokens("given_back")-tokens("forfeited"), spent-reported)
	})
}

func (l *leasesOfTwo) spent(t *testing.T) float64 {
	t.Helper()
	return l.victim.metric(t, "sluice_leased_checks_total") + l.victim.metric(t, "sluice_split_checks_total")
}

func (l *leasesOfTwo) exhaust(t *testing.T) {
	t.Helper()
	l.add(t, l.survivor, 8, ownUser)
	eventually(t, patience, "the bucket to be empty", func() bool { return l.exhausted.Load() > 20 })
}

func (l *leasesOfTwo) wantFull(t *testing.T) {
	t.Helper()
	eventually(t, patience, "the bucket to be full", func() bool {
		got := l.survivor.want(t, `{"user_id":"42","cost":0}`, http.StatusOK)
		return got.remaining(t, "global") == l.burst
	})
}
