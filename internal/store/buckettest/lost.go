package buckettest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

type unobserved struct{}

func (unobserved) Decided(*snapshot.Tenant, *enforce.Check, *enforce.Decision) {}
func (unobserved) StoreAnswered(time.Duration, error)                          {}

// RunLostReplies loses replies after their execution, by lose; local are buckets of the process.
//
// Slots without a known reservation are released in the background, and denied checks get their cost back.
func RunLostReplies(t *testing.T, s, local enforce.ReservingBuckets, lose func()) {
	pattern := func(text string) rules.Pattern {
		parsed, err := rules.ParsePattern(text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	rule := func(id rules.RuleID, text string, mode rules.FailureMode) rules.Rule {
		return rules.Rule{
			TenantID: 1, ID: id, Pattern: pattern(text), Algorithm: rules.Concurrency, Action: rules.ActionLimit,
			Mode:        rules.ModeEnforce,
			FailureMode: mode, Burst: 1, MaxHold: time.Hour, Active: true, InForceSince: time.Unix(1, 0),
		}
	}
	tokens := rule(3, "user:closed", rules.FailClosed)
	tokens.Name, tokens.Algorithm, tokens.RatePerSecond, tokens.Burst, tokens.MaxHold = "tokens", rules.TokenBucket,
		1e-6, 10, 0
	tenant := snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "a", Settings: rules.DefaultSettings()}},
		Rules: []rules.Rule{
			rule(1, "user:local", rules.FailLocal), rule(2, "user:closed", rules.FailClosed), tokens,
			rule(4, "user:open", rules.FailOpen),
		},
	}).Tenant(1)
	limiter := enforce.NewLimiter(s, local, unobserved{}, nil)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	decide := func(user string) enforce.Decision {
		t.Helper()
		decisions := make([]enforce.Decision, 1)
		checks := []enforce.Check{{Request: rules.Request{UserID: user}, Cost: enforce.Token, Key: reserver}}
		limiter.Decide(ctx, tenant, checks, decisions)
		return decisions[0]
	}
	left := func(rule rules.RuleID) int64 {
		m, _ := tenant.Bucket(rule, "", time.Now())
		look := []enforce.BucketCheck{{
			Look:  true,
			Tiers: []enforce.Tier{{Key: enforce.Key{Tenant: 1, Rule: rule}, Limit: m.Limit}},
		}}
		if err := s.Take(context.Background(), look); err != nil {
			t.Fatalf("look: %v", err)
		}
		return int64(look[0].Tiers[0].Bucket.Level.Micros+enforce.Token/1000) / int64(enforce.Token)
	}
	decide("nobody") // connects
	var passed enforce.Decision
	for user, rule := range map[string]rules.RuleID{"local": 1, "closed": 2, "open": 4} {
		if left(rule) != 1 {
			t.Fatalf("rule %d has %d slots at the start", rule, left(rule))
		}
		lose()
		d := decide(user)
		if !d.Degraded || d.Allowed != (user != "closed") || d.HasReservation != (user == "local") {
			t.Errorf("%s: degraded %t, allowed %t, has a reservation %t", user, d.Degraded, d.Allowed, d.HasReservation)
		}
		if left(rule) != 0 {
			t.Errorf("%s: the check whose reply was lost holds no slot", user)
		}
		if user == "local" {
			passed = d
		}
	}
	if left(3) != 9 {
		t.Errorf("%d tokens are left after a lost reply, want 9", left(3))
	}
	var running sync.WaitGroup
	// Run starts late, because it releases slots a second after lost replies.
	running.Go(func() { limiter.Run(ctx) })
	defer running.Wait()
	defer stop()
	deadline, tick := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for left(2) != 1 || left(4) != 1 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the slots of rules 2 and 4 are not released: %d and %d are free", left(2), left(4))
		}
	}
	if left(3) != 10 {
		t.Errorf("%d tokens are left after the release of a denied check, want 10", left(3))
	}
	if left(1) != 0 {
		t.Error("a check that passed with a reservation has lost its slot")
	}
	if settled, err := limiter.SettleReservation(ctx, tenant, passed.Reservation,
		enforce.Settlement{Key: reserver}); err != nil || !settled.Found || left(1) != 1 {
		t.Errorf("it is settled as %+v, %v; %d slots are free", settled, err, left(1))
	}
}

// RunLostSettlements loses replies to settlements, by lose; their changes are known all the same.
func RunLostSettlements(t *testing.T, s enforce.ReservingBuckets, lose func()) {
	ctx := context.Background()
	tier := enforce.Tier{Key: enforce.Key{Tenant: 1, Rule: 9, Subject: "settled"}, Limit: limit(1e-6, 1000, 0)}
	check := checkOf(10, tier)
	check.Reserve = &enforce.Reservation{
		ID: enforce.ReservationID{9}, Life: time.Hour, Key: reserver, User: "42",
		Costs: []enforce.MeterCost{{Cost: check.Cost}},
	}
	if err := s.Take(ctx, []enforce.BucketCheck{check}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		extend     bool
		cost, more enforce.Tokens
	}{{true, 15, 5}, {false, 40, 25}} {
		lose()
		settled, err := s.SettleReservation(ctx, 1, check.Reserve.ID, enforce.Settlement{
			Extend: step.extend, Cost: step.cost * enforce.Token, HasCost: true, Key: reserver,
		})
		if err == nil || !settled.Found || settled.User != "42" || len(settled.Changes) != 1 ||
			settled.Changes[0].Cost != step.more*enforce.Token {
			t.Errorf("a cost of %d without a reply: %+v, error %v; want a change of %d", step.cost, settled, err,
				step.more)
		}
	}
}
