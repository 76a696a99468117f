package enforce_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

const tenantID rules.TenantID = 7

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type world struct {
	t       *testing.T
	limiter *enforce.Limiter
	tenant  *snapshot.Tenant
	now     time.Time
	shared  *outage
	seen    observed
}

type rule = rules.Rule

func newWorld(t *testing.T, rows snapshot.Rows) *world {
	t.Helper()
	tenant := rules.Tenant{
		ID: tenantID, Slug: "acme", Settings: rules.DefaultSettings(), DefaultPlan: "free",
		Revision: 1,
	}
	rows.Tenants = []rules.Tenant{tenant}
	for _, plan := range []string{"free", "pro"} {
		rows.Plans = append(rows.Plans, rules.Plan{TenantID: tenantID, Name: plan, Revision: 1})
	}
	rows.Rules = slices.Clone(rows.Rules) // parallel tests share theirs
	for i := range rows.Rules {
		complete(&rows.Rules[i])
	}
	w := &world{t: t, now: start, tenant: snapshot.New(rows).Tenant(tenantID)}
	clock := func() int64 { return w.now.UnixMicro() }
	w.shared = &outage{ReservingBuckets: membucket.New(membucket.Options{Clock: clock})}
	local := membucket.New(membucket.Options{Clock: clock})
	w.limiter = enforce.NewLimiter(w.shared, local, &w.seen, func() time.Time { return w.now })
	return w
}

func complete(r *rules.Rule) {
	r.TenantID, r.Active, r.Algorithm, r.Revision = tenantID, true, rules.TokenBucket, 1
	if r.Action == "" {
		r.Action = rules.ActionLimit
	}
	if r.Mode == "" {
		r.Mode = rules.ModeEnforce
	}
	if r.InForceSince.IsZero() {
		r.InForceSince = start.Add(-time.Hour)
	}
}

func pattern(t *testing.T, text string) rules.Pattern {
	t.Helper()
	p, err := rules.ParsePattern(text)
	if err != nil {
		t.Fatalf("pattern %q: %v", text, err)
	}
	return p
}

type outage struct {
	enforce.ReservingBuckets
	err      error
	reserved *enforce.Reservation // of the last Take
}

func (o *outage) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	if o.err != nil {
		return o.err
	}
	if len(checks) > 0 {
		o.reserved = checks[0].Reserve
	}
	return o.ReservingBuckets.Take(ctx, checks)
}

var errAway = errors.New("the store is away")

type observed struct{ decided, answered, failed atomic.Int64 }

func (o *observed) Decided(*snapshot.Tenant, *enforce.Check, *enforce.Decision) { o.decided.Add(1) }

func (o *observed) StoreAnswered(_ time.Duration, err error) {
	o.answered.Add(1)
	if err != nil {
		o.failed.Add(1)
	}
}

func request() rules.Request {
	return rules.Request{
		UserID: "42", Plan: "free", Endpoint: "/api/search", Method: "GET",
		IP: netip.MustParseAddr("203.0.113.9"),
	}
}

func (w *world) check(cost enforce.Tokens) enforce.Decision {
	w.t.Helper()
	return w.decide(enforce.Check{Request: request(), EffectivePlan: "free", Cost: cost})
}

func (w *world) decide(checks ...enforce.Check) enforce.Decision {
	w.t.Helper()
	decisions := make([]enforce.Decision, len(checks))
	w.limiter.Decide(w.t.Context(), w.tenant, checks, decisions)
	return decisions[len(decisions)-1]
}

func (w *world) wantAllowed(d enforce.Decision) {
	w.t.Helper()
	if !d.Allowed || d.Reason != "" {
		w.t.Fatalf("denied for %q, want allowed", d.Reason)
	}
}

func (w *world) wantDenied(d enforce.Decision, by rules.RuleID, reason enforce.Reason, retryAfter time.Duration) {
	w.t.Helper()
	tier := d.DecidingTier()
	if d.Allowed || tier == nil || tier.Match.Rule.ID != by || d.Reason != reason || tier.RetryAfter != retryAfter {
		w.t.Fatalf("got %+v deciding tier %+v, want denied by rule %d for %s with a wait of %s", d, tier, by, reason,
			retryAfter)
	}
}

func (w *world) remaining(id rules.RuleID) enforce.Tokens {
	w.t.Helper()
	d := w.check(0)
	i := slices.IndexFunc(d.Tiers, func(t enforce.TierDecision) bool { return t.Match.Rule.ID == id })
	if i < 0 || !d.Tiers[i].BucketRead {
		w.t.Fatalf("rule %d was not read: %+v", id, d.Tiers)
	}
	return d.Tiers[i].Remaining
}

func TestADeniedCheckTakesNothingFromTheTiersThatPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 10, Burst: 50},
		{ID: 2, Pattern: pattern(t, "endpoint:/api/search"), RatePerSecond: 1, Burst: 3},
	}})
	for range 3 {
		w.wantAllowed(w.check(enforce.Token))
	}
	w.wantDenied(w.check(enforce.Token), 2, enforce.LimitExceeded, time.Second)
	if got := w.remaining(1); got != 47*enforce.Token {
		t.Errorf("the user's bucket holds %s, want the 47 that three allowed checks left", got)
	}
}

func TestTheLongestWaitDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 10, Burst: 1},
		{ID: 2, Pattern: pattern(t, "endpoint:/api/search"), RatePerSecond: 1, Burst: 1},
		{ID: 3, Pattern: pattern(t, "global"), RatePerSecond: 1, Burst: 1},
	}})
	w.wantAllowed(w.check(enforce.Token))
	w.wantDenied(w.check(enforce.Token), 2, enforce.LimitExceeded, time.Second)
	w.now = w.now.Add(time.Second)
	w.wantAllowed(w.check(enforce.Token))
}

func TestAnAllowedCheckIsDescribedByTheTierWithTheFewestWholeTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 10, Burst: 50},
		{ID: 2, Pattern: pattern(t, "endpoint:/api/search"), RatePerSecond: 1, Burst: 20},
		{ID: 3, Pattern: pattern(t, "ip:{ip}"), RatePerSecond: 0.5, Burst: 20},
		{ID: 4, Pattern: pattern(t, "global"), RatePerSecond: 1, Burst: 5, Mode: rules.ModeShadow},
	}})
	d := w.check(enforce.Token)
	if tier := d.DecidingTier(); tier == nil || tier.Match.Rule.ID != 3 {
		t.Fatalf("described by %+v, want rule 3: as few tokens as rule 2, a longer reset, and rule 4 is a shadow", tier)
	}
}

func TestACostAboveTheBurstHasNoWaitAndTakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 0.001, Burst: 10},
		{ID: 2, Pattern: pattern(t, "global"), RatePerSecond: 1, Burst: 5},
	}})
	w.wantAllowed(w.check(5 * enforce.Token))
	d := w.check(6 * enforce.Token)
	w.wantDenied(d, 2, enforce.CostExceedsLimit, 0)
	if got := w.remaining(1); got != 5*enforce.Token {
		t.Errorf("rule 1 holds %s after a refused cost, want 5", got)
	}
}

func TestBypassPassesAndBlockDeniesBeforeAnyBucketIsAsked(t *testing.T) {
	t.Parallel()
	limit := rule{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 1, Burst: 1}
	block := rule{ID: 2, Pattern: pattern(t, "endpoint:/api/search"), Action: rules.ActionBlock}
	bypass := rule{ID: 3, Pattern: pattern(t, "ip:203.0.113.0/24"), Action: rules.ActionBypass}

	t.Run("block", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, snapshot.Rows{Rules: []rule{limit, block}})
		d := w.check(enforce.Token)
		w.wantDenied(d, 2, enforce.Blocked, 0)
		if len(d.Tiers) != 1 || w.seen.answered.Load() != 0 {
			t.Errorf("a blocked check asked %d stores and lists %d tiers, want none and the block alone",
				w.seen.answered.Load(), len(d.Tiers))
		}
	})
	t.Run("bypass wins over block", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, snapshot.Rows{Rules: []rule{limit, block, bypass}})
		for range 3 {
			d := w.check(enforce.Token)
			w.wantAllowed(d)
			if !d.Bypassed || d.Deciding != -1 || w.seen.answered.Load() != 0 {
				t.Fatalf("got %+v, want a bypass that asks no bucket", d)
			}
		}
	})
	t.Run("a shadow block only reports", func(t *testing.T) {
		t.Parallel()
		shadow := block
		shadow.Mode = rules.ModeShadow
		w := newWorld(t, snapshot.Rows{Rules: []rule{limit, shadow}})
		d := w.check(enforce.Token)
		w.wantAllowed(d)
		if got := d.Tiers[1]; got.Allowed || got.Reason != enforce.Blocked {
			t.Errorf("the shadow block says %+v, want that it would have denied", got)
		}
	})
}

func TestAShadowTierCountsAndNeverDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 1, Burst: 3},
		{
			ID: 2, Pattern: pattern(t, "user:{user_id}"), Name: "half", RatePerSecond: 1, Burst: 2,
			Mode: rules.ModeShadow,
		},
	}})
	for i := range 3 {
		d := w.check(enforce.Token)
		w.wantAllowed(d)
		if want := i < 2; d.Tiers[1].Allowed != want {
			t.Fatalf("check %d: the shadow tier allows: %v, want %v", i, d.Tiers[1].Allowed, want)
		}
	}
	w.wantDenied(w.check(enforce.Token), 1, enforce.LimitExceeded, time.Second)
}

func TestAnOverrideHoldsUntilItExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{
		Rules: []rule{{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 1, Burst: 2}},
		Overrides: []rules.Override{{
			TenantID: tenantID, RuleID: 1, UserID: "42", RatePerSecond: 10, Burst: 20,
			InForceSince: start.Add(-time.Minute), ExpiresAt: start.Add(10 * time.Second), Revision: 1,
		}},
	})
	w.wantAllowed(w.check(20 * enforce.Token))
	w.wantDenied(w.check(enforce.Token), 1, enforce.LimitExceeded, 100*time.Millisecond)

	w.now = start.Add(10 * time.Second)
	w.wantDenied(w.check(3*enforce.Token), 1, enforce.CostExceedsLimit, 0)
	w.wantAllowed(w.check(2 * enforce.Token)) // earned at the override's rate, cut to the rule's burst
	w.wantDenied(w.check(enforce.Token), 1, enforce.LimitExceeded, time.Second)
}

func TestChecksOfOneBatchAreDecidedInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "global"), RatePerSecond: 1, Burst: 2},
		{ID: 2, Pattern: pattern(t, "endpoint:/blocked"), Action: rules.ActionBlock},
	}})
	blocked := enforce.Check{Request: rules.Request{Endpoint: "/blocked"}, Cost: enforce.Token}
	usual := enforce.Check{Request: request(), EffectivePlan: "free", Cost: enforce.Token}
	checks := []enforce.Check{usual, blocked, usual, usual}
	decisions := make([]enforce.Decision, len(checks))
	w.limiter.Decide(t.Context(), w.tenant, checks, decisions)
	for i, want := range []enforce.Reason{"", enforce.Blocked, "", enforce.LimitExceeded} {
		if decisions[i].Reason != want {
			t.Errorf("check %d: reason %q, want %q", i, decisions[i].Reason, want)
		}
	}
	if asked, decided := w.seen.answered.Load(), w.seen.decided.Load(); asked != 1 || decided != 4 {
		t.Errorf("%d calls of the store and %d decisions reported, want 1 and 4", asked, decided)
	}
}

func TestFailureModesDecideWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	user := rule{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 1, Burst: 2}
	global := rule{ID: 2, Pattern: pattern(t, "global"), RatePerSecond: 1, Burst: 1}
	with := func(r rule, mode rules.FailureMode) rule {
		r.FailureMode = mode
		return r
	}
	shadowed := func(r rule) rule {
		r.Mode = rules.ModeShadow
		return r
	}
	away := func(t *testing.T, rs ...rule) *world {
		w := newWorld(t, snapshot.Rows{Rules: rs})
		w.shared.err = errAway
		return w
	}
	wantDegraded := func(t *testing.T, d enforce.Decision, tiers int) {
		t.Helper()
		if !d.Degraded || len(d.Tiers) != tiers {
			t.Errorf("degraded: %v with %d tiers, want true with %d", d.Degraded, len(d.Tiers), tiers)
		}
	}

	t.Run("local limits by this process's own buckets", func(t *testing.T) {
		t.Parallel()
		w := away(t, user) // local is the tenant's default
		w.wantAllowed(w.check(2 * enforce.Token))
		d := w.check(enforce.Token)
		w.wantDenied(d, 1, enforce.LimitExceeded, time.Second)
		wantDegraded(t, d, 1)
	})
	t.Run("local is all or nothing", func(t *testing.T) {
		t.Parallel()
		w := away(t, user, with(global, rules.FailLocal))
		w.wantAllowed(w.check(enforce.Token))
		w.wantDenied(w.check(enforce.Token), 2, enforce.LimitExceeded, time.Second)
		if got := w.remaining(1); got != enforce.Token {
			t.Errorf("the user's local bucket holds %s, want 1", got)
		}
	})
	t.Run("open is skipped", func(t *testing.T) {
		t.Parallel()
		w := away(t, user, with(global, rules.FailOpen))
		w.wantAllowed(w.check(enforce.Token))
		d := w.check(enforce.Token)
		w.wantAllowed(d)
		wantDegraded(t, d, 1)
	})
	t.Run("closed denies before the others are asked", func(t *testing.T) {
		t.Parallel()
		w := away(t, user, with(global, rules.FailClosed))
		d := w.check(enforce.Token)
		w.wantDenied(d, 2, enforce.StoreUnavailable, 0)
		wantDegraded(t, d, 1)
		w.tenant = newWorld(t, snapshot.Rows{Rules: []rule{user}}).tenant
		w.wantAllowed(w.check(2 * enforce.Token)) // nothing was taken from the user's bucket
	})
	t.Run("a closed shadow does not deny", func(t *testing.T) {
		t.Parallel()
		w := away(t, user, shadowed(with(global, rules.FailClosed)))
		w.wantAllowed(w.check(enforce.Token))
	})
	t.Run("a cost above the burst is refused whatever the mode", func(t *testing.T) {
		t.Parallel()
		w := away(t, with(user, rules.FailOpen))
		d := w.check(3 * enforce.Token)
		w.wantDenied(d, 1, enforce.CostExceedsLimit, 0)
		if d.Degraded {
			t.Error("no store would have allowed it, yet the decision is degraded")
		}
	})
	t.Run("explain says what a check would be told", func(t *testing.T) {
		t.Parallel()
		w := away(t, user, with(global, rules.FailOpen))
		w.wantAllowed(w.check(enforce.Token))
		w.wantAllowed(w.check(enforce.Token))
		for _, cost := range []enforce.Tokens{0, enforce.Token, 3 * enforce.Token} {
			check := enforce.Check{Request: request(), EffectivePlan: "free", Cost: cost}
			explained := w.limiter.Explain(t.Context(), w.tenant, &check)
			if told := w.decide(check); explained.Allowed != told.Allowed || explained.Reason != told.Reason ||
				explained.Degraded != told.Degraded {
				t.Errorf("cost %s: explained as %+v, and a check was told %+v", cost, explained, told)
			}
		}
	})
	t.Run("what was answered before a failure counts", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, snapshot.Rows{Rules: []rule{with(user, rules.FailClosed)}})
		w.limiter = enforce.NewLimiter(breaksOff{w.shared}, w.shared, &w.seen, nil)
		check := enforce.Check{Request: request(), EffectivePlan: "free", Cost: enforce.Token}
		decisions := make([]enforce.Decision, 2)
		w.limiter.Decide(t.Context(), w.tenant, []enforce.Check{check, check}, decisions)
		w.wantAllowed(decisions[0])
		w.wantDenied(decisions[1], 1, enforce.StoreUnavailable, 0)
		if decisions[0].Degraded || !decisions[1].Degraded {
			t.Errorf("degraded: %v and %v, want the second alone", decisions[0].Degraded, decisions[1].Degraded)
		}
	})
	t.Run("block and bypass act as ever and are not degraded", func(t *testing.T) {
		t.Parallel()
		w := away(t, with(user, rules.FailClosed),
			rule{ID: 3, Pattern: pattern(t, "endpoint:/api/*"), Action: rules.ActionBlock})
		d := w.check(enforce.Token)
		w.wantDenied(d, 3, enforce.Blocked, 0)
		if d.Degraded {
			t.Error("a block needs no bucket, yet the decision is degraded")
		}
	})
	t.Run("the shared buckets decide again when they are back", func(t *testing.T) {
		t.Parallel()
		w := away(t, user)
		w.wantAllowed(w.check(2 * enforce.Token))
		w.shared.err = nil
		d := w.check(enforce.Token)
		w.wantAllowed(d)
		if d.Degraded || d.Tiers[0].Remaining != enforce.Token {
			t.Errorf("got %+v, want the shared bucket with 1 of 2 left", d)
		}
	})
}

func TestACallerThatGoesAwayIsStillDecided(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{{ID: 1, Pattern: pattern(t, "global"), RatePerSecond: 1, Burst: 2}}})
	w.shared.ReservingBuckets = cancellable{w.shared.ReservingBuckets}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	decisions := make([]enforce.Decision, 1)
	w.limiter.Decide(ctx, w.tenant, []enforce.Check{{Request: request(), EffectivePlan: "free", Cost: enforce.Token}},
		decisions)
	if decisions[0].Degraded {
		t.Error("the caller's own cancellation looked like a failing store")
	}
}

type breaksOff struct{ enforce.ReservingBuckets }

func (b breaksOff) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	if err := b.ReservingBuckets.Take(ctx, checks[:1]); err != nil {
		return err
	}
	checks[0].Answered = true
	return errAway
}

type cancellable struct{ enforce.ReservingBuckets }

func (c cancellable) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.ReservingBuckets.Take(ctx, checks)
}

func TestExplainTakesNothingAndShowsEveryTier(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 1, Burst: 3},
		{ID: 2, Pattern: pattern(t, "global"), RatePerSecond: 1, Burst: 1},
		{ID: 3, Pattern: pattern(t, "endpoint:/api/*"), Action: rules.ActionBlock},
	}})
	check := enforce.Check{Request: request(), EffectivePlan: "free", Cost: 2 * enforce.Token}
	for range 2 {
		d := w.limiter.Explain(t.Context(), w.tenant, &check)
		w.wantDenied(d, 3, enforce.Blocked, 0)
		if len(d.Tiers) != 3 || d.Tiers[0].Remaining != 3*enforce.Token ||
			d.Tiers[1].Reason != enforce.CostExceedsLimit {
			t.Fatalf("got %+v, want three tiers, the first full and the second too small", d.Tiers)
		}
	}
	if n := w.seen.decided.Load(); n != 0 {
		t.Errorf("%d explanations were reported as decisions", n)
	}
}

func TestACheckThatMeetsNoRuleIsAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rule{{ID: 1, Pattern: pattern(t, "user:7"), RatePerSecond: 1, Burst: 1}}})
	d := w.check(enforce.Token)
	w.wantAllowed(d)
	if d.Deciding != -1 || len(d.Tiers) != 0 || d.DecidingTier() != nil {
		t.Errorf("got %+v, want no tiers", d)
	}
}
