package enforce_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func costs(pairs ...any) (all []enforce.MeterCost) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, enforce.MeterCost{
			Meter: rules.Meter(pairs[i].(string)), Cost: enforce.Token * enforce.Tokens(pairs[i+1].(int)),
		})
	}
	return all
}

func metered(id rules.RuleID, meter rules.Meter, burst int64, after bool) rule {
	return rule{
		ID: id, Pattern: must(rules.ParsePattern("user:{user_id}")), Name: string(meter), Meter: meter,
		RatePerSecond: 1, Burst: burst, ChargedAfter: after,
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (w *world) spend(requests int, others ...any) enforce.Decision {
	w.t.Helper()
	return w.decide(enforce.Check{
		Request: request(), EffectivePlan: "free", Cost: enforce.Tokens(requests) * enforce.Token,
		Costs: costs(others...),
	})
}

func levels(d enforce.Decision) (left []int64) {
	for i := range d.Tiers {
		left = append(left, int64(d.Tiers[i].Remaining/enforce.Token))
	}
	return left
}

func TestACheckTakesFromAllItsMetersOrFromNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rules.Rule{
		metered(1, "", 10, false), metered(2, "tokens", 100, false), metered(3, "usd", 5, false),
	}})
	d := w.spend(1, "tokens", 60, "usd", 2)
	w.wantAllowed(d)
	if got := levels(d); !slices.Equal(got, []int64{9, 40, 3}) {
		t.Fatalf("left %v, want 9, 40 and 3", got)
	}
	w.wantDenied(w.spend(1, "tokens", 60, "usd", 2), 2, enforce.LimitExceeded, 20*time.Second)
	w.wantDenied(w.spend(1, "tokens", 101), 2, enforce.CostExceedsLimit, 0)
	d = w.spend(1)
	if w.wantAllowed(d); !slices.Equal(levels(d), []int64{8}) {
		t.Fatalf("a check of requests met tiers with %v left, want the one of requests with 8", levels(d))
	}
	d = w.spend(0, "tokens", 40)
	if w.wantAllowed(d); !slices.Equal(levels(d), []int64{8, 0}) {
		t.Fatalf("left %v, want 8 and 0", levels(d))
	}
}

func TestARuleThatIsChargedAfterPassesAnyCostWhileSomethingIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rules.Rule{metered(1, "", 10, false), metered(2, "tokens", 100, true)}})
	w.wantAllowed(w.spend(1)) // a look
	d := w.spend(1, "tokens", 130)
	if w.wantAllowed(d); !slices.Equal(levels(d), []int64{8, -30}) || d.Tiers[1].Charged != 130*enforce.Token {
		t.Fatalf("left %v, charged %d, want 8 and a debt of 30, charged 130", levels(d), d.Tiers[1].Charged)
	}
	w.wantDenied(w.spend(1), 2, enforce.LimitExceeded, 30*time.Second+time.Microsecond)
	w.now = w.now.Add(30*time.Second + time.Microsecond)
	d = w.spend(1)
	if w.wantAllowed(d); d.Tiers[0].Remaining != 9*enforce.Token {
		t.Fatalf("%d left of requests, want 9: denied checks take nothing", d.Tiers[0].Remaining)
	}
}

func TestTheFailureModesOfMetersDecideWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rules.Rule{
		metered(1, "", 10, false), metered(2, "tokens", 100, true), metered(3, "usd", 5, false),
	}})
	w.shared.err = errAway
	d := w.spend(1, "tokens", 130, "usd", 1)
	if w.wantAllowed(d); !d.Degraded || !slices.Equal(levels(d), []int64{9, -30, 4}) {
		t.Fatalf("degraded %t, left %v, want this process's buckets with 9, -30 and 4", d.Degraded, levels(d))
	}
	w.wantDenied(w.spend(1, "usd", 6), 3, enforce.CostExceedsLimit, 0)
	w.wantDenied(w.spend(1, "usd", 1), 2, enforce.LimitExceeded, 30*time.Second+time.Microsecond)
}

func TestTheTopLevelDescribesRequestsElseTheSmallestShareLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rules.Rule{
		metered(1, "usd", 5, false), metered(2, "tokens", 100, false),
		{ID: 3, Pattern: must(rules.ParsePattern("endpoint:/api/search")), RatePerSecond: 1, Burst: 1000},
	}})
	if d := w.spend(1, "tokens", 90, "usd", 1); d.DecidingTier().Match.Rule.ID != 3 {
		t.Errorf("rule %d decides, want 3, which counts requests", d.DecidingTier().Match.Rule.ID)
	}
	elsewhere := request()
	elsewhere.Endpoint = "/other"
	d := w.decide(enforce.Check{Request: elsewhere, EffectivePlan: "free", Costs: costs("tokens", 1, "usd", 1)})
	if d.DecidingTier().Match.Rule.ID != 2 {
		t.Errorf("rule %d decides, want 2, which has 9 of 100 left beside 3 of 5", d.DecidingTier().Match.Rule.ID)
	}
}

func TestChecksOfOneRequestShareABucketOfAMeterOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rules.Rule{metered(1, "", 10, false), metered(2, "tokens", 100, false)}})
	checks := []enforce.Check{
		{Request: request(), EffectivePlan: "free", Cost: enforce.Token, Costs: costs("tokens", 30)},
		{Request: request(), EffectivePlan: "free", Cost: 2 * enforce.Token, Costs: costs("tokens", 20)},
		{Request: request(), EffectivePlan: "free", Cost: enforce.Token},
	}
	decisions := make([]enforce.Decision, len(checks))
	allowed, err := w.limiter.DecideTogether(t.Context(), w.tenant, checks, decisions)
	if err != nil || !allowed || !slices.Equal(levels(decisions[0]), []int64{8, 70}) ||
		!slices.Equal(levels(decisions[2]), []int64{8}) {
		t.Fatalf("allowed %t, %v: left %v and %v, want 8 and 70, and 8", allowed, err, levels(decisions[0]),
			levels(decisions[2]))
	}
}

func TestAnExplanationNamesRulesWhoseMeterACheckLacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rules.Rule{metered(1, "", 10, false), metered(2, "tokens", 100, false)}})
	check := enforce.Check{Request: request(), EffectivePlan: "free", Cost: enforce.Token, Costs: costs("usd", 1)}
	d := w.limiter.Explain(t.Context(), w.tenant, &check)
	unnamed, unmatched := d.Unnamed(&check)
	if len(unnamed) != 1 || unnamed[0].ID != 2 || !slices.Equal(unmatched, []rules.Meter{"usd"}) ||
		!slices.Equal(levels(d), []int64{10}) {
		t.Fatalf("rules %v unnamed, meters %v unmatched, left %v", unnamed, unmatched, levels(d))
	}
}

func TestAReservationIsSettledByMeter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rules.Rule{
		metered(1, "", 10, false), metered(2, "tokens", 100, false), metered(3, "usd", 5, true),
	}})
	reserve := func() enforce.ReservationID {
		t.Helper()
		d := w.decide(enforce.Check{
			Request: request(), EffectivePlan: "free", Cost: enforce.Token, Costs: costs("tokens", 60), Reserve: true,
			Key: "k",
		})
		w.wantAllowed(d)
		return d.Reservation
	}
	left := func() []int64 {
		t.Helper()
		return levels(w.decide(enforce.Check{Request: request(), EffectivePlan: "free", Costs: costs("tokens", 0)}))
	}
	settle := func(id enforce.ReservationID, with enforce.Settlement) enforce.Settled {
		t.Helper()
		return must(w.limiter.SettleReservation(t.Context(), w.tenant, id, with))
	}
	settled := settle(reserve(), enforce.Settlement{Key: "k", Costs: costs("tokens", 20, "usd", 7)})
	if settled.Charged != enforce.Token || !slices.Equal(settled.Costs, costs("tokens", 20, "usd", 7)) {
		t.Errorf("settled as %+v, want 1 request, 20 tokens and 7 dollars", settled)
	}
	w.wantDenied(w.spend(1), 3, enforce.LimitExceeded, 2*time.Second+time.Microsecond)
	w.now = w.now.Add(3 * time.Second)
	if got := left(); !slices.Equal(got, []int64{10, 83, 1}) {
		t.Errorf("%v left, want 10 requests, 83 tokens and 1 dollar", got)
	}
	settled = settle(reserve(), enforce.Settlement{Key: "k", Cancel: true})
	if got := left(); settled.Charged != 0 || !slices.Equal(got, []int64{10, 83, 1}) {
		t.Errorf("canceled as %+v, %v left, want all back", settled, got)
	}
	other := reserve()
	if _, err := w.limiter.SettleReservation(t.Context(), w.tenant, other,
		enforce.Settlement{Key: "another", Costs: costs("tokens", 59)}); !errors.Is(err, enforce.ErrRefundForbidden) {
		t.Errorf("another key gives a token back: %v, want %v", err, enforce.ErrRefundForbidden)
	}
	settle(other, enforce.Settlement{Key: "another", Costs: costs("usd", 1)})
	if got := left(); !slices.Equal(got, []int64{9, 23, 0}) {
		t.Errorf("%v left, want 9 requests, 23 tokens and nothing", got)
	}
}

func TestADescriptorsLimitReplacesNoBudgetOfAnotherMeter(t *testing.T) {
	t.Parallel()
	budget := metered(1, "usd", 5, true)
	budget.Pattern = must(rules.ParsePattern("attr." + rules.DescriptorAttribute + ":ai"))
	w := newWorld(t, snapshot.Rows{Rules: []rules.Rule{budget}})
	check := enforce.Check{
		Request: request(), EffectivePlan: "free", Cost: enforce.Token, Costs: costs("usd", 9),
		OwnLimit: &rules.Limit{Kind: rules.KindFixedWindow, Burst: 1000, Interval: time.Hour.Microseconds()},
	}
	check.Attributes = []rules.Attribute{{Name: rules.DescriptorAttribute, Value: "ai"}}
	w.wantAllowed(w.decide(check))
	check.Costs = nil
	if d := w.decide(check); d.Allowed {
		t.Error("a spent budget lets a descriptor with a limit of its own pass")
	}
}
