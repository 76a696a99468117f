package enforce_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func record(cost enforce.Tokens) enforce.Check {
	return enforce.Check{Request: request(), EffectivePlan: "free", Cost: cost, Record: true}
}

func (w *world) wantCharged(d enforce.Decision, tokens ...enforce.Tokens) {
	w.t.Helper()
	if len(d.Tiers) != len(tokens) {
		w.t.Fatalf("%d tiers, want %d: %+v", len(d.Tiers), len(tokens), d.Tiers)
	}
	for i, want := range tokens {
		if got := d.Tiers[i].Charged; got != want*enforce.Token {
			w.t.Errorf("tier %d was charged %s, want %d", i, got, want)
		}
	}
}

func TestARecordIsChargedToEveryRuleWhateverIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 0.001, Burst: 50},
		{ID: 2, Pattern: pattern(t, "endpoint:/api/search"), RatePerSecond: 0.001, Burst: 3},
		{ID: 3, Pattern: pattern(t, "ip:{ip}"), RatePerSecond: 0.001, Burst: 10, Mode: rules.ModeShadow},
		{ID: 4, Pattern: pattern(t, "global"), Action: rules.ActionBlock},
	}})
	d := w.decide(record(5 * enforce.Token))
	w.wantAllowed(d)
	w.wantCharged(d, 5, 5, 5)
	d = w.decide(record(30 * enforce.Token))
	w.wantAllowed(d)
	w.wantCharged(d, 30, 1, 15) // the endpoint's and the address's buckets go into debt by a burst
	if d.Tiers[1].Remaining != -3*enforce.Token || d.Delay != 0 {
		t.Errorf("the endpoint's bucket holds %s, want a debt of 3", d.Tiers[1].Remaining)
	}
	if got := w.seen.decided.Load(); got != 2 {
		t.Errorf("%d records were observed, want 2", got)
	}
	w.wantDenied(w.check(enforce.Token), 4, enforce.Blocked, 0)
}

func TestNothingIsChargedBehindABypass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 0.001, Burst: 50},
		{ID: 2, Pattern: pattern(t, "ip:{ip}"), Action: rules.ActionBypass},
	}})
	d := w.decide(record(5 * enforce.Token))
	w.wantAllowed(d)
	if !d.Bypassed {
		t.Error("the record was not bypassed")
	}
	w.wantCharged(d, 0)
}

func TestARecordIsNeverDecidedWithoutTheStore(t *testing.T) {
	t.Parallel()
	for _, mode := range []rules.FailureMode{rules.FailOpen, rules.FailLocal, rules.FailClosed} {
		for _, err := range []error{errAway, fmt.Errorf("%w: %w", errAway, enforce.ErrNothingTaken)} {
			w := newWorld(t, snapshot.Rows{Rules: []rule{
				{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 0.001, Burst: 50, FailureMode: mode},
			}})
			w.shared.err = err
			d := w.decide(record(enforce.Token))
			if d.Allowed || d.Reason != enforce.StoreUnavailable || len(d.Tiers) > 0 || d.Degraded {
				t.Errorf("%s, %v: decided as %+v", mode, err, d)
			}
			if w.seen.decided.Load() != 0 {
				t.Errorf("%s, %v: a record that was not charged was observed", mode, err)
			}
		}
	}
}

func TestARecordThatThisProcessCannotChargeWhollyIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 0.001, Burst: 50},
		{ID: 2, Pattern: pattern(t, "global"), RatePerSecond: 0.001, Burst: 50, FailureMode: "newer"},
	}})
	if d := w.decide(record(enforce.Token)); d.Allowed || d.Reason != enforce.StoreUnavailable {
		t.Errorf("decided as %+v", d)
	}
	if got := w.remaining(1); got != 50*enforce.Token {
		t.Errorf("the user's bucket holds %s, want all", got)
	}
}

func TestARepeatedRecordIsNotObserved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 0.001, Burst: 50},
	}})
	once := record(5 * enforce.Token)
	once.RecordID = enforce.RecordIDOf("a record's id")
	w.wantCharged(w.decide(once), 5)
	once.Cost *= 2
	d := w.decide(once)
	w.wantAllowed(d)
	w.wantCharged(d, 0)
	if !d.Repeated || d.Tiers[0].Remaining != 45*enforce.Token || w.seen.decided.Load() != 1 {
		t.Errorf("repeated: %t, %s left, %d observed", d.Repeated, d.Tiers[0].Remaining, w.seen.decided.Load())
	}
}

func TestAUserWithoutLimitsReservesAndRecordsOnce(t *testing.T) {
	t.Parallel()
	limited := rule{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 1, Burst: 3, Plan: "free"}
	bypass := rule{ID: 2, Pattern: pattern(t, "user:42"), Action: rules.ActionBypass}
	block := rule{ID: 3, Pattern: pattern(t, "global"), Action: rules.ActionBlock}
	for name, test := range map[string]struct {
		rules   []rule
		blocked bool
	}{
		"no rule matches":     {rules: []rule{limited}},
		"the user bypasses":   {rules: []rule{limited, bypass}},
		"the user is blocked": {rules: []rule{block}, blocked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, snapshot.Rows{Rules: test.rules})
			counting := *w.tenant
			counting.Tenant.Settings.RecordDays = 7
			w.tenant = &counting
			check := enforce.Check{
				Request: request(), EffectivePlan: "enterprise", Cost: enforce.Token, Reserve: true, Key: "k",
			}
			d := w.decide(check)
			if d.Allowed == test.blocked || d.HasReservation == test.blocked || d.Degraded {
				t.Fatalf("decided %+v", d)
			}
			if test.blocked {
				return
			}
			settled := must(w.limiter.SettleReservation(t.Context(), w.tenant, d.Reservation,
				enforce.Settlement{Cost: 40 * enforce.Token, HasCost: true, Key: "k"}))
			if want := []enforce.MeterCost{{Cost: 39 * enforce.Token}}; !slices.Equal(settled.Changes, want) ||
				settled.Charged != 40*enforce.Token {
				t.Errorf("settled as %+v", settled)
			}

			check.Reserve, check.Record, check.RecordID = false, true, enforce.RecordIDOf("once")
			before := w.seen.decided.Load()
			for i := range 2 {
				if d := w.decide(check); !d.Allowed || d.Repeated != (i == 1) {
					t.Errorf("record %d is decided %+v", i, d)
				}
			}
			if counted := w.seen.decided.Load() - before; counted != 1 {
				t.Errorf("it is counted %d times", counted)
			}
			w.shared.err = errAway
			check.Record, check.Reserve = false, true
			if d := w.decide(check); !d.Allowed || d.HasReservation {
				t.Errorf("without the store it is decided %+v", d)
			}
		})
	}
}
