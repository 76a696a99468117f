package enforce

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// Observer is told what the Limiter does. Its methods are called from many goroutines at once and
// must not block.
type Observer interface {
	// Decided is called once for each check that was decided; not for explanations. The memory of
	// check and decision is used again after the call; the rules and strings in it can be kept.
	Decided(tenant *snapshot.Tenant, check *Check, decision *Decision)
	// StoreAnswered is called once for each question to the shared buckets, with the error if they
	// could not answer.
	StoreAnswered(took time.Duration, err error)
}

// Limiter decides checks.
type Limiter struct {
	shared   Buckets
	local    Buckets
	observer Observer
	now      func() time.Time
}

// NewLimiter returns a Limiter over the buckets that all processes share. When those cannot answer,
// local holds this process's own for rules that fail local. It must answer always; where the
// shared buckets are themselves in this process the same store can serve as both. A nil now is
// time.Now; it judges when overrides expire, never how buckets fill.
func NewLimiter(shared, local Buckets, observer Observer, now func() time.Time) *Limiter {
	if now == nil {
		now = time.Now
	}
	return &Limiter{shared: shared, local: local, observer: observer, now: now}
}

// Decide decides checks of one tenant in order: decisions[i] answers checks[i]. It reuses the memory of the decisions.
//
// Decide always answers within the time budget of the shared buckets: if those fail, each rule's failure mode decides. It
// ignores the cancellation of ctx, so that a caller who leaves does not look like a failure of the store.
func (l *Limiter) Decide(ctx context.Context, tenant *snapshot.Tenant, checks []Check, decisions []Decision) {
	s := scratches.Get().(*scratch)
	defer s.release()
	now := l.now()
	for i := range checks {
		d := &decisions[i]
		d.matches = tenant.Match(&checks[i].Request, checks[i].EffectivePlan, now, d.matches[:0])
		d.begin(checks[i].EffectivePlan)
		d.failUnknown(checks[i].Cost)
		s.add(tenant, i, checks[i].Cost, d.Tiers)
	}
	if sent := s.bucketChecks(); len(sent) > 0 {
		ctx = context.WithoutCancel(ctx)
		err := l.takeShared(ctx, sent)
		for k, i := range s.indices {
			switch {
			case sent[k].Recalled:
				decisions[i].recall(sent[k].Tiers, checks[i].Cost)
			case err == nil || sent[k].Answered:
				decisions[i].read(sent[k].Tiers, checks[i].Cost)
			default:
				l.degrade(ctx, tenant, checks[i].Cost, &decisions[i], false)
			}
		}
	}
	for i := range checks {
		decisions[i].conclude()
		l.observer.Decided(tenant, &checks[i], &decisions[i])
	}
}

// Explain answers what Decide would, without taking anything. While the buckets can be read, it has
// every matched rule's tier as it stands: limits behind a block or a bypass too.
func (l *Limiter) Explain(ctx context.Context, tenant *snapshot.Tenant, check *Check) Decision {
	matches := tenant.Match(&check.Request, check.EffectivePlan, l.now(), nil)
	d := Decision{Plan: check.EffectivePlan, matches: matches}
	d.keepMatches(all)
	d.Bypassed = anyEnforced(matches, rules.ActionBypass)
	if !d.Bypassed && !anyEnforced(matches, rules.ActionBlock) {
		d.denyUnknown()
	}
	tiers := bucketTiers(tenant, d.Tiers, nil)
	if len(tiers) > 0 {
		ctx = context.WithoutCancel(ctx)
		looks := []BucketCheck{{Tiers: tiers, ReadAt: tenant.ReadAt()}}
		switch err := l.takeShared(ctx, looks); {
		case err == nil:
			markHolding(tiers, check.Cost)
			d.read(tiers, check.Cost)
		case !d.Bypassed && !anyEnforced(matches, rules.ActionBlock):
			l.degrade(ctx, tenant, check.Cost, &d, true)
		}
	}
	d.conclude()
	return d
}

// takeShared takes from the shared buckets and tells the observer, unless the DenialCache answered every check.
func (l *Limiter) takeShared(ctx context.Context, checks []BucketCheck) error {
	start := time.Now()
	err := l.shared.Take(ctx, checks)
	if slices.ContainsFunc(checks, func(check BucketCheck) bool { return !check.Recalled }) {
		l.observer.StoreAnswered(time.Since(start), err)
	}
	return err
}

// begin sorts out what can be said of the matches without asking any bucket. An enforced bypass stands
// alone, and so do enforced blocks.
func (d *Decision) begin(plan string) {
	*d = Decision{Plan: plan, matches: d.matches, Tiers: d.Tiers[:0]}
	switch {
	case anyEnforced(d.matches, rules.ActionBypass):
		d.Bypassed = true
		d.keepMatches(enforced(rules.ActionBypass))
	case anyEnforced(d.matches, rules.ActionBlock):
		d.keepMatches(enforced(rules.ActionBlock))
	default:
		d.keepMatches(all)
	}
}

// failUnknown lets rules that this process cannot apply act by their failure mode, before any bucket is asked:
// closed denies, and all else skips the tier, because this process has no buckets of such a rule either. Rules
// beside an enforced bypass or block do not act.
func (d *Decision) failUnknown(cost Tokens) {
	if d.Bypassed || !d.hasUnknown() || d.denyTooLarge(cost) {
		return
	}
	if d.denyUnknown() {
		d.keep(func(t *TierDecision) bool { return t.Reason == StoreUnavailable })
		return
	}
	d.keep(func(t *TierDecision) bool { return !isUnknown(t.Match) })
}

func (d *Decision) hasUnknown() bool {
	for i := range d.Tiers {
		if isUnknown(d.Tiers[i].Match) {
			return true
		}
	}
	return false
}

// denyUnknown denies the tiers that this process cannot apply and that fail closed, and reports whether an enforced
// one is among them.
func (d *Decision) denyUnknown() bool {
	d.Degraded = d.hasUnknown()
	return denyWhere(d.Tiers, StoreUnavailable, func(t *TierDecision) bool {
		return isUnknown(t.Match) && t.Match.FailureMode == rules.FailClosed
	})
}

// denyTooLarge refuses a cost that can never pass, whatever the buckets hold, and reports whether it has.
func (d *Decision) denyTooLarge(cost Tokens) bool {
	if !denyWhere(d.Tiers, CostExceedsLimit, func(t *TierDecision) bool {
		return isLimit(t.Match) && cost > capacity(t.Match.Limit)
	}) {
		return false
	}
	d.keep(func(t *TierDecision) bool { return t.Reason == CostExceedsLimit })
	return true
}

// degrade decides a check whose shared buckets did not answer, by the failure mode of each tier. A look takes nothing
// from this process's own buckets.
func (l *Limiter) degrade(ctx context.Context, tenant *snapshot.Tenant, cost Tokens, d *Decision, look bool) {
	// A cost that can never pass is refused without any bucket, whatever the failure mode. No
	// store would have said otherwise, so this is not a degraded decision.
	if d.denyTooLarge(cost) {
		return
	}
	d.Degraded = true
	if denyWhere(d.Tiers, StoreUnavailable, func(t *TierDecision) bool {
		return isLimit(t.Match) && t.Match.FailureMode == rules.FailClosed
	}) {
		d.keep(func(t *TierDecision) bool { return t.Reason == StoreUnavailable })
		return
	}
	d.keep(func(t *TierDecision) bool {
		return !isLimit(t.Match) || t.Match.FailureMode == rules.FailLocal
	})
	tiers := bucketTiers(tenant, d.Tiers, nil)
	if len(tiers) == 0 {
		return
	}
	check := BucketCheck{Cost: cost, Tiers: tiers, ReadAt: tenant.ReadAt()}
	if look {
		check.Cost = 0
	}
	if err := l.local.Take(ctx, []BucketCheck{check}); err != nil {
		denyWhere(d.Tiers, StoreUnavailable, func(t *TierDecision) bool { return isLimit(t.Match) })
		return
	}
	if look {
		markHolding(tiers, cost)
	}
	d.read(tiers, cost)
}

// markHolding marks the tiers whose buckets, looked at without a cost, hold one.
func markHolding(tiers []Tier, cost Tokens) {
	for i := range tiers {
		tiers[i].Holds = tiers[i].Bucket.Level.Holds(cost)
	}
}

// denyWhere denies the matching tiers and reports whether an enforced one is among them.
func denyWhere(tiers []TierDecision, reason Reason, where func(*TierDecision) bool) (decides bool) {
	for i := range tiers {
		if t := &tiers[i]; where(t) {
			t.deny(reason)
			decides = decides || t.Enforced()
		}
	}
	return decides
}

// keep drops the tiers of which wanted says false.
func (d *Decision) keep(wanted func(*TierDecision) bool) {
	kept := d.Tiers[:0]
	for i := range d.Tiers {
		if wanted(&d.Tiers[i]) {
			kept = append(kept, d.Tiers[i])
		}
	}
	d.Tiers = kept
}

// read takes over what the buckets answered: tiers are those of the limits among d.Tiers, in the
// same order.
func (d *Decision) read(tiers []Tier, cost Tokens) {
	next := 0
	for i := range d.Tiers {
		t := &d.Tiers[i]
		if !isLimit(t.Match) {
			continue
		}
		answer := &tiers[next]
		next++
		t.BucketRead = true
		t.Limit = answer.Bucket.Limit
		t.Remaining = answer.Bucket.Level.Micros
		t.ResetAfter = answer.Bucket.TimeToFull()
		t.Allowed, t.Reason = true, ""
		if answer.Holds {
			continue
		}
		wait, ok := answer.Bucket.Wait(cost)
		if !ok {
			t.deny(CostExceedsLimit)
			continue
		}
		t.deny(LimitExceeded)
		t.RetryAfter = wait
	}
}

// recall takes over a denial that was remembered: nothing is known of the limits that may allow.
func (d *Decision) recall(tiers []Tier, cost Tokens) {
	d.Recalled = true
	d.read(tiers, cost)
	d.keep(func(t *TierDecision) bool { return !isLimit(t.Match) || !t.Allowed })
}

// conclude draws the decision from its tiers.
func (d *Decision) conclude() {
	d.Allowed, d.Reason, d.Deciding = true, "", -1
	if d.Bypassed {
		return
	}
	for i := range d.Tiers {
		t := &d.Tiers[i]
		if !t.Enforced() || (t.Allowed && !t.BucketRead) {
			continue
		}
		if d.Deciding < 0 || decidesBefore(t, &d.Tiers[d.Deciding]) {
			d.Deciding = i
		}
	}
	if t := d.DecidingTier(); t != nil && !t.Allowed {
		d.Allowed, d.Reason = false, t.Reason
	}
}

// decidesBefore orders the enforced tiers of one decision: the first of them decides. Tiers come
// in order of rule id, so a tie leaves the lowest in place.
func decidesBefore(a, b *TierDecision) bool {
	if order := cmp.Compare(precedence(a.Reason), precedence(b.Reason)); order != 0 {
		return order > 0
	}
	if !a.Allowed {
		return a.RetryAfter > b.RetryAfter
	}
	if order := cmp.Compare(a.Remaining.Whole(), b.Remaining.Whole()); order != 0 {
		return order < 0
	}
	return a.ResetAfter > b.ResetAfter
}

// precedence is the order in which reasons to deny are looked for; the highest decides.
func precedence(r Reason) int {
	switch r {
	case Blocked:
		return 4
	case CostExceedsLimit:
		return 3
	case StoreUnavailable:
		return 2
	case LimitExceeded:
		return 1
	}
	return 0
}

func (t *TierDecision) deny(reason Reason) { t.Allowed, t.Reason = false, reason }

// keepMatches starts one tier for each match that is wanted. Limits allow until their bucket
// says otherwise.
func (d *Decision) keepMatches(wanted func(*rules.Match) bool) {
	d.Tiers = slices.Grow(d.Tiers[:0], len(d.matches))
	for i := range d.matches {
		m := &d.matches[i]
		if !wanted(m) {
			continue
		}
		t := TierDecision{Match: m, Limit: m.Limit, Allowed: true}
		if m.Rule.Action == rules.ActionBlock {
			t.deny(Blocked)
		}
		d.Tiers = append(d.Tiers, t)
	}
}

func isLimit(m *rules.Match) bool { return m.Rule.Action == rules.ActionLimit && !isUnknown(m) }

// isUnknown reports whether this process cannot apply the rule.
func isUnknown(m *rules.Match) bool { return m.Rule.Unknown != "" }

func all(*rules.Match) bool { return true }

func enforced(action rules.Action) func(*rules.Match) bool {
	return func(m *rules.Match) bool {
		return m.Mode == rules.ModeEnforce && m.Rule.Action == action
	}
}

func anyEnforced(matches []rules.Match, action rules.Action) bool {
	wanted := enforced(action)
	for i := range matches {
		if wanted(&matches[i]) {
			return true
		}
	}
	return false
}
