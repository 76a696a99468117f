package enforce_test

import (
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func (w *world) setShadow(inShadow bool) {
	turned := *w.tenant
	turned.Tenant.InShadow = inShadow
	w.tenant = &turned
}

func TestInShadowEveryRuleActsAsAShadowRule(t *testing.T) {
	t.Parallel()
	user := rule{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 1, Burst: 2}
	global := rule{ID: 2, Pattern: pattern(t, "global"), RatePerSecond: 1, Burst: 5}
	with := func(r rule, action rules.Action, mode rules.FailureMode) rule {
		r.Action, r.FailureMode = action, mode
		return r
	}
	tests := map[string]struct {
		rules    []rule
		away     bool // the shared buckets
		cost     enforce.Tokens
		wasFor   enforce.Reason // what the second check is denied for while the switch is on
		reported enforce.Reason // by rule 1 in shadow; "" if its tier is left out or allows
		left     enforce.Tokens // in the bucket of rule 2 after two checks
	}{
		"a limit reports and the others are taken from": {
			rules: []rule{user, global}, cost: 2 * enforce.Token,
			wasFor: enforce.LimitExceeded, reported: enforce.LimitExceeded, left: enforce.Token,
		},
		"a block reports and the others are taken from": {
			rules: []rule{with(user, rules.ActionBlock, ""), global}, cost: 2 * enforce.Token,
			wasFor: enforce.Blocked, reported: enforce.Blocked, left: enforce.Token,
		},
		"a cost above the burst reports": {
			rules: []rule{user, global}, cost: 2*enforce.Token + 1,
			wasFor: enforce.CostExceedsLimit, reported: enforce.CostExceedsLimit, left: enforce.Token - 2,
		},
		"a closed tier passes": {
			rules: []rule{with(user, rules.ActionLimit, rules.FailClosed)}, away: true, cost: enforce.Token,
			wasFor: enforce.StoreUnavailable,
		},
		"a local tier reports": {
			rules: []rule{user}, away: true, cost: 2 * enforce.Token,
			wasFor: enforce.LimitExceeded, reported: enforce.LimitExceeded,
		},
		"a cost above the burst reports without the shared buckets": {
			rules: []rule{user}, away: true, cost: 3 * enforce.Token,
			wasFor: enforce.CostExceedsLimit, reported: enforce.CostExceedsLimit,
		},
		"a bypass passes as ever": {
			rules: []rule{with(user, rules.ActionBypass, ""), global}, cost: 4 * enforce.Token, left: 5 * enforce.Token,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, inShadow := range []bool{false, true} {
				w := newWorld(t, snapshot.Rows{Rules: test.rules})
				w.setShadow(inShadow)
				if test.away {
					w.shared.err = errAway
				}
				w.check(test.cost)
				check := enforce.Check{Request: request(), EffectivePlan: "free", Cost: test.cost}
				explained := w.limiter.Explain(t.Context(), w.tenant, &check)
				d := w.decide(check)
				if explained.Allowed != d.Allowed || explained.Reason != d.Reason {
					t.Errorf("in shadow %v: explained as %v %q, and decided %v %q", inShadow, explained.Allowed,
						explained.Reason, d.Allowed, d.Reason)
				}
				if !inShadow {
					if d.Reason != test.wasFor {
						t.Errorf("while the switch is on it is denied for %q, want %q", d.Reason, test.wasFor)
					}
					continue
				}
				w.wantAllowed(d)
				if d.Deciding != -1 {
					t.Errorf("tier %d decides, want none", d.Deciding)
				}
				var reported enforce.Reason
				for _, tier := range d.Tiers {
					if tier.Enforced() && tier.Match.Rule.Action != rules.ActionBypass {
						t.Errorf("rule %d is enforced", tier.Match.Rule.ID)
					}
					if tier.Match.Rule.ID == 1 {
						reported = tier.Reason
					}
				}
				if reported != test.reported {
					t.Errorf("rule 1 reports %q, want %q", reported, test.reported)
				}
				if len(test.rules) < 2 {
					continue
				}
				w.tenant = newWorld(t, snapshot.Rows{Rules: test.rules[1:]}).tenant // to look behind a bypass
				if left := w.remaining(2); left != test.left {
					t.Errorf("the bucket of rule 2 holds %s, want %s", left, test.left)
				}
			}
		})
	}
}

func TestTheSwitchIsInForceAtOnceForWhatADenialCacheRemembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{{
		ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 0.01,
		Burst: 1,
	}}})
	cache := &remembering{w.shared, enforce.NewDenialCache(func() time.Duration { return w.now.Sub(start) })}
	w.limiter = enforce.NewLimiter(cache, w.shared, &w.seen, func() time.Time { return w.now })
	w.wantAllowed(w.check(enforce.Token))
	w.check(enforce.Token)
	if d := w.check(enforce.Token); !d.Recalled || d.Allowed {
		t.Fatalf("recalled %v, allowed %v: the denial is not remembered", d.Recalled, d.Allowed)
	}
	w.setShadow(true)
	d := w.check(enforce.Token)
	w.wantAllowed(d)
	if d.Recalled || len(d.Tiers) != 1 || d.Tiers[0].Reason != enforce.LimitExceeded {
		t.Errorf("got %+v, want an answer of the store that reports", d)
	}
	w.setShadow(false)
	if d := w.check(enforce.Token); d.Allowed {
		t.Error("the limit is not enforced again")
	}
}

func TestTheSwitchIsInForceForOpenReservations(t *testing.T) {
	t.Parallel()
	limited := rule{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 0.01, Burst: 10}
	becomes := func(change func(r *rule)) func(w *world) {
		changed := limited
		change(&changed)
		return func(w *world) { w.tenant = newWorld(t, snapshot.Rows{Rules: []rule{changed}}).tenant }
	}
	tests := map[string]struct {
		turn func(w *world)
		pass bool
	}{
		"nothing changed":        {turn: func(*world) {}},
		"the tenant in shadow":   {turn: func(w *world) { w.setShadow(true) }, pass: true},
		"the rule in shadow":     {turn: becomes(func(r *rule) { r.Mode = rules.ModeShadow }), pass: true},
		"the rule has ended":     {turn: becomes(func(r *rule) { r.ExpiresAt = start }), pass: true},
		"the rule is removed":    {turn: func(w *world) { w.tenant = newWorld(t, snapshot.Rows{}).tenant }, pass: true},
		"the rule blocks by now": {turn: becomes(func(r *rule) { r.Action = rules.ActionBlock })},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, snapshot.Rows{Rules: []rule{limited}})
			d := w.decide(enforce.Check{
				Request: request(), EffectivePlan: "free", Cost: 5 * enforce.Token, Reserve: true, Key: "k",
			})
			w.wantAllowed(d)
			test.turn(w)
			settled := must(w.limiter.SettleReservation(t.Context(), w.tenant, d.Reservation,
				enforce.Settlement{Extend: true, Cost: 20 * enforce.Token, HasCost: true, Key: "k"}))
			if !settled.Found || settled.Denied == test.pass {
				t.Errorf("the extension is answered %+v", settled)
			}
		})
	}
}

func TestAReservationIsOptionalWhereNothingDenies(t *testing.T) {
	t.Parallel()
	limited := rule{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 0.01, Burst: 10}
	tried := limited
	tried.ID, tried.Name, tried.Mode = 2, "tried", rules.ModeShadow
	for name, test := range map[string]struct {
		rules    []rule
		inShadow bool
		want     bool
	}{
		"an enforced rule":   {rules: []rule{limited, tried}},
		"a shadow rule":      {rules: []rule{tried}, want: true},
		"a tenant in shadow": {rules: []rule{limited, tried}, inShadow: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, snapshot.Rows{Rules: test.rules})
			w.setShadow(test.inShadow)
			w.wantAllowed(w.decide(enforce.Check{
				Request: request(), EffectivePlan: "free", Cost: enforce.Token, Reserve: true, Key: "k",
			}))
			if got := w.shared.reserved.Optional; got != test.want {
				t.Errorf("the store is told that it is optional: %t", got)
			}
		})
	}
}
