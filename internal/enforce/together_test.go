package enforce_test

import (
	"fmt"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func togetherWorld(t *testing.T, failure rules.FailureMode) *world {
	return newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 1, Burst: 3, FailureMode: failure},
		{ID: 2, Pattern: pattern(t, "global"), RatePerSecond: 1, Burst: 5},
		{ID: 3, Pattern: pattern(t, "user:mallory"), Action: rules.ActionBlock},
		{ID: 4, Pattern: pattern(t, "endpoint:/health"), Action: rules.ActionBypass},
	}})
}

func ofUser(user string, tokens int) enforce.Check {
	return enforce.Check{
		Request: rules.Request{UserID: user}, Cost: enforce.Tokens(tokens) * enforce.Token,
		Proxied: true,
	}
}

func (w *world) together(checks ...enforce.Check) (bool, []enforce.Decision) {
	w.t.Helper()
	decisions := make([]enforce.Decision, len(checks))
	allowed, err := w.limiter.DecideTogether(w.t.Context(), w.tenant, checks, decisions)
	if err != nil {
		w.t.Fatal(err)
	}
	return allowed, decisions
}

func expectLeft(t *testing.T, decisions []enforce.Decision, want ...[]int64) {
	t.Helper()
	for i := range want {
		var left []int64
		for j := range decisions[i].Tiers {
			left = append(left, decisions[i].Tiers[j].Remaining.Whole())
		}
		if fmt.Sprint(left) != fmt.Sprint(want[i]) {
			t.Errorf("decision %d leaves %v, want %v", i, left, want[i])
		}
	}
}

func TestChecksTogetherTakeOnceFromASharedBucketAtTheLargestCost(t *testing.T) {
	t.Parallel()
	w := togetherWorld(t, rules.FailLocal)
	allowed, decisions := w.together(ofUser("a", 1), ofUser("b", 2), ofUser("c", 0))
	if !allowed {
		t.Fatal("denied")
	}
	expectLeft(t, decisions, []int64{2, 3}, []int64{1, 3}, []int64{3, 3})
	if seen := w.seen.decided.Load(); seen != 3 {
		t.Errorf("the observer saw %d decisions, want 3", seen)
	}
}

func TestChecksTogetherTakeNothingIfOneIsDenied(t *testing.T) {
	t.Parallel()
	w := togetherWorld(t, rules.FailLocal)
	w.together(ofUser("b", 3))
	before := w.seen.decided.Load()
	allowed, decisions := w.together(ofUser("a", 1), ofUser("b", 1))
	if allowed || !decisions[0].Allowed || decisions[1].Allowed || decisions[1].Reason != enforce.LimitExceeded {
		t.Fatalf("allowed %t: %t, %t %s", allowed, decisions[0].Allowed, decisions[1].Allowed, decisions[1].Reason)
	}
	expectLeft(t, decisions, []int64{3, 2}, []int64{0, 2})
	if seen := w.seen.decided.Load() - before; seen != 1 {
		t.Errorf("the observer saw %d decisions, want the denied one", seen)
	}
}

func TestABlockAndABypassDecideTheirOwnCheck(t *testing.T) {
	t.Parallel()
	w := togetherWorld(t, rules.FailLocal)
	health := ofUser("a", 1)
	health.Request.Endpoint = "/health"
	allowed, decisions := w.together(health, ofUser("a", 1))
	if !allowed || !decisions[0].Bypassed {
		t.Error("a bypassed check beside an allowed one")
	}
	expectLeft(t, decisions[1:], []int64{2, 4})
	allowed, decisions = w.together(ofUser("mallory", 1), ofUser("a", 1))
	if allowed || decisions[0].Reason != enforce.Blocked || !decisions[1].Allowed {
		t.Errorf("allowed %t, %s, %t", allowed, decisions[0].Reason, decisions[1].Allowed)
	}
	expectLeft(t, decisions[1:], []int64{2, 4}) // nothing taken
}

func TestChecksTogetherFailAsTheirRulesSay(t *testing.T) {
	t.Parallel()
	w := togetherWorld(t, rules.FailLocal)
	w.shared.err = errAway
	for i, want := range []bool{true, true, true, false} {
		if allowed, decisions := w.together(ofUser("a", 1), ofUser("a", 0)); allowed != want || !decisions[0].Degraded {
			t.Errorf("request %d: allowed %t, degraded %t", i, allowed, decisions[0].Degraded)
		}
	}
	w = togetherWorld(t, rules.FailClosed)
	w.shared.err = errAway
	allowed, decisions := w.together(enforce.Check{Cost: enforce.Token}, ofUser("a", 1))
	if allowed || decisions[1].Reason != enforce.StoreUnavailable || !decisions[0].Allowed {
		t.Errorf("allowed %t, %s", allowed, decisions[1].Reason)
	}
	expectLeft(t, decisions[:1], []int64{5})
}

func TestChecksTogetherReachABoundedNumberOfBuckets(t *testing.T) {
	t.Parallel()
	w := togetherWorld(t, rules.FailLocal)
	checks := make([]enforce.Check, enforce.MaxTogether) // and the one bucket of all
	for i := range checks {
		checks[i] = ofUser(fmt.Sprint(i), 1)
	}
	decisions := make([]enforce.Decision, len(checks))
	if _, err := w.limiter.DecideTogether(t.Context(), w.tenant, checks, decisions); err == nil {
		t.Error("no error")
	}
	if _, decisions := w.together(checks[:len(checks)-1]...); len(decisions[0].Tiers) != 2 {
		t.Error("the largest number of buckets has no answer")
	}
}
