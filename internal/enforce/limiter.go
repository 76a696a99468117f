package enforce

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// Observer is told what the Limiter does. Its methods are called concurrently and must not block.
type Observer interface {
	// Decided is called once for each decided check, but not for explanations. A decision that a client made itself may be
	// for many: see Decision.Times. The memory of check and decision is reused after the call; the rules and strings in it can be kept.
	Decided(tenant *snapshot.Tenant, check *Check, decision *Decision)
	// StoreAnswered is called once for each Take of the shared buckets, with its error.
	StoreAnswered(took time.Duration, err error)
}

// SettlementObserver is an Observer that is told of settlements too.
type SettlementObserver interface {
	// WindowSettled is called for each fixed window of the shared buckets from which a settlement took more.
	WindowSettled(tenant *snapshot.Tenant, match *rules.Match, window *SettledWindow)
}

// ReservingBuckets is a store of buckets with reservations.
type ReservingBuckets interface {
	Buckets
	Reserver
}

// Limiter decides checks.
type Limiter struct {
	shared   ReservingBuckets
	local    ReservingBuckets
	observer Observer
	now      func() time.Time
	lost     lostReservations
}

// NewLimiter returns a Limiter over the buckets that all processes share. Rules that fail local use local when those do not
// answer; it must always answer. If the shared buckets are in this process, they can serve as both. now judges only when
// overrides expire; nil is time.Now.
func NewLimiter(shared, local ReservingBuckets, observer Observer, now func() time.Time) *Limiter {
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
	var err error // of the shared buckets
	for i := range checks {
		d := &decisions[i]
		d.matches = tenant.Match(&checks[i].Request, checks[i].EffectivePlan, now, d.matches[:0])
		d.begin(&checks[i])
		d.failUnknown(checks[i].Cost)
		s.add(tenant, i, &checks[i], d.Tiers)
	}
	if sent := s.bucketChecks(); len(sent) > 0 {
		ctx = context.WithoutCancel(ctx)
		err = l.takeShared(ctx, sent)
		for k, i := range s.indices {
			switch {
			case sent[k].Recalled:
				decisions[i].recall(&sent[k])
			case err == nil || sent[k].Answered:
				decisions[i].read(&sent[k])
			default:
				l.degrade(ctx, tenant, &checks[i], &decisions[i], sent[k].Reserve, false)
			}
		}
	}
	for i := range checks {
		decisions[i].conclude()
		l.observer.Decided(tenant, &checks[i], &decisions[i])
	}
	if err != nil && !errors.Is(err, ErrNothingTaken) {
		for k, i := range s.indices {
			if !s.checks[k].Answered && !s.checks[k].Recalled && !(decisions[i].HasReservation && decisions[i].Allowed) {
				l.lost.add(tenant.Tenant.ID, s.checks[k].Reserve, decisions[i].Allowed)
			}
		}
	}
}

// Explain decides like Decide, but takes nothing. While the buckets can be read, the decision has a tier for every matched
// rule, even for limits behind a block or a bypass.
func (l *Limiter) Explain(ctx context.Context, tenant *snapshot.Tenant, check *Check) Decision {
	matches := tenant.Match(&check.Request, check.EffectivePlan, l.now(), nil)
	d := Decision{Plan: check.EffectivePlan, matches: matches}
	d.keepMatches(met(check))
	d.Bypassed = anyEnforced(matches, rules.ActionBypass)
	if !d.Bypassed && !anyEnforced(matches, rules.ActionBlock) {
		d.denyUnknown()
	}
	tiers := bucketTiers(tenant, d.Tiers, nil)
	if len(tiers) > 0 {
		ctx = context.WithoutCancel(ctx)
		look := bucketCheck(tenant, check, tiers)
		look.Tiers, look.Look, look.Reserve = tiers, true, nil
		looks := []BucketCheck{look}
		switch err := l.takeShared(ctx, looks); {
		case err == nil:
			d.read(&looks[0])
		case !d.Bypassed && !anyEnforced(matches, rules.ActionBlock):
			l.degrade(ctx, tenant, check, &d, nil, true)
		}
	}
	d.conclude()
	return d
}

// takeShared takes from the shared buckets and tells the observer, unless no check reached them.
func (l *Limiter) takeShared(ctx context.Context, checks []BucketCheck) error {
	start := time.Now()
	err := l.shared.Take(ctx, checks)
	if slices.ContainsFunc(checks, func(check BucketCheck) bool { return !check.Recalled && !check.Leased }) {
		l.observer.StoreAnswered(time.Since(start), err)
	}
	return err
}

// begin starts a decision with the tiers that matter. If an enforced bypass or block matched, only those do.
func (d *Decision) begin(check *Check) {
	*d = Decision{Plan: check.EffectivePlan, matches: d.matches, Tiers: d.Tiers[:0]}
	switch {
	case anyEnforced(d.matches, rules.ActionBypass):
		d.Bypassed = true
		d.keepMatches(enforced(rules.ActionBypass))
	case anyEnforced(d.matches, rules.ActionBlock):
		d.keepMatches(enforced(rules.ActionBlock))
	default:
		d.keepMatches(met(check))
	}
}

// failUnknown applies the failure modes of rules that this process cannot apply, before any take: closed denies; open and
// local skip the tier, because this process has no buckets for such a rule.
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

// denyUnknown denies the tiers that fail closed because this process cannot apply them, and reports whether an enforced
// one is among them.
func (d *Decision) denyUnknown() bool {
	d.Degraded = d.hasUnknown()
	return denyWhere(d.Tiers, StoreUnavailable, func(t *TierDecision) bool {
		return isUnknown(t.Match) && t.Match.FailureMode == rules.FailClosed
	})
}

// denyTooLarge denies a cost above an enforced limit's burst, and reports whether it did.
func (d *Decision) denyTooLarge(cost Tokens) bool {
	if !denyWhere(d.Tiers, CostExceedsLimit, func(t *TierDecision) bool {
		return isLimit(t.Match) && charge(t.Match.Limit, cost) > capacity(t.Match.Limit)
	}) {
		return false
	}
	d.keep(func(t *TierDecision) bool { return t.Reason == CostExceedsLimit })
	return true
}

// degrade decides a check whose shared buckets did not answer, by the failure mode of each tier. A look takes nothing
// from this process's own buckets.
func (l *Limiter) degrade(
	ctx context.Context, tenant *snapshot.Tenant, check *Check, d *Decision, reserve *Reservation, look bool,
) {
	if !d.failOver(check.Cost) {
		return
	}
	tiers := bucketTiers(tenant, d.Tiers, nil)
	if len(tiers) == 0 {
		return
	}
	local := bucketCheck(tenant, check, tiers)
	local.Tiers, local.Look = tiers, look
	local.Reserve = reserve // of the same id: the shared buckets may have taken
	if reserve != nil {
		local.Holder = reserve.ID.Holder()
	}
	checks := []BucketCheck{local}
	if err := l.local.Take(ctx, checks); err != nil {
		denyWhere(d.Tiers, StoreUnavailable, func(t *TierDecision) bool { return isLimit(t.Match) })
		return
	}
	d.read(&checks[0])
}

// failOver applies the failure modes of the tiers, and leaves those that this process's own buckets decide. It reports
// whether the check is not denied yet.
func (d *Decision) failOver(cost Tokens) (open bool) {
	// A store would deny such a cost too, so the decision is not degraded.
	if d.denyTooLarge(cost) {
		return false
	}
	d.Degraded = true
	if denyWhere(d.Tiers, StoreUnavailable, func(t *TierDecision) bool {
		return isLimit(t.Match) && t.Match.FailureMode == rules.FailClosed
	}) {
		d.keep(func(t *TierDecision) bool { return t.Reason == StoreUnavailable })
		return false
	}
	d.keep(func(t *TierDecision) bool {
		return !isLimit(t.Match) || t.Match.FailureMode == rules.FailLocal
	})
	return true
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

func (d *Decision) keep(wanted func(*TierDecision) bool) {
	kept := d.Tiers[:0]
	for i := range d.Tiers {
		if wanted(&d.Tiers[i]) {
			kept = append(kept, d.Tiers[i])
		}
	}
	d.Tiers = kept
}

// read copies the store's answer into the decision. The check's tiers are those of the limits among d.Tiers, in the same
// order.
func (d *Decision) read(check *BucketCheck) {
	d.isExhausted = check.Exhausted
	if check.Reserve != nil && check.Allowed {
		d.Reservation, d.HasReservation = check.Reserve.ID, true
	}
	next := 0
	for i := range d.Tiers {
		t := &d.Tiers[i]
		if !isLimit(t.Match) {
			continue
		}
		answer := &check.Tiers[next]
		next++
		t.BucketRead = true
		t.Limit = answer.Bucket.Limit
		t.Remaining, t.Out, t.Holders = answer.Bucket.Level.Micros, answer.Out, answer.Holders
		t.Stamp = answer.Bucket.Stamp
		t.ResetAfter = answer.TimeToFull()
		t.Delay = answer.Delay(check)
		t.Allowed, t.Reason = true, ""
		if answer.Holds {
			continue
		}
		switch wait, ok := answer.Wait(check); {
		case !ok:
			t.deny(CostExceedsLimit)
		case t.Limit.Kind == rules.KindConcurrency:
			t.deny(ConcurrencyExceeded)
			t.RetryAfter = wait
		default:
			t.deny(LimitExceeded)
			t.RetryAfter = wait
		}
	}
}

// recall is read for a recalled denial, in which a limit that does not deny has no answer.
func (d *Decision) recall(check *BucketCheck) {
	d.Recalled = true
	d.read(check)
	d.keep(func(t *TierDecision) bool { return !isLimit(t.Match) || !t.Allowed })
}

func (d *Decision) conclude() {
	d.Allowed, d.Reason, d.Deciding = true, "", -1
	if d.Bypassed {
		return
	}
	for i := range d.Tiers {
		t := &d.Tiers[i]
		if !t.Enforced() || t.Allowed && (!t.BucketRead || t.Limit.Kind == rules.KindConcurrency) {
			continue
		}
		d.Delay = max(d.Delay, t.Delay)
		if d.Deciding < 0 || decidesBefore(t, &d.Tiers[d.Deciding]) {
			d.Deciding = i
		}
	}
	switch t := d.DecidingTier(); {
	case t != nil && !t.Allowed:
		d.Allowed, d.Reason = false, t.Reason
	case d.isExhausted:
		d.Allowed, d.Reason, d.Deciding = false, ReservationsExhausted, -1
	}
	if !d.Allowed {
		d.Delay = 0
	}
}

// decidesBefore reports whether a decides rather than b. Ties are left to the lower rule id, which comes first.
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

// precedence orders the reasons; the highest decides.
func precedence(r Reason) int {
	switch r {
	case Blocked:
		return 5
	case CostExceedsLimit:
		return 4
	case StoreUnavailable:
		return 3
	case LimitExceeded:
		return 2
	case ConcurrencyExceeded:
		return 1
	}
	return 0
}

func (t *TierDecision) deny(reason Reason) { t.Allowed, t.Reason = false, reason }

// keepMatches starts one tier for each wanted match. Limits allow until their buckets are read.
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

// met selects the rules that apply to a check.
func met(check *Check) func(*rules.Match) bool {
	if check.Proxied {
		return func(m *rules.Match) bool { return !isLimit(m) || m.Limit.Kind != rules.KindConcurrency }
	}
	return all
}

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
