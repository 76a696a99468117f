package enforce

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// Observer observes the Limiter. Its methods are called concurrently and must not block.
type Observer interface {
	// Decided is called for each decided check, except explanations and uncharged records. Clients' decisions can be
	// for many checks; see Decision.Times. The memory of check and decision is reused; their rules and strings can be
	// kept.
	Decided(tenant *snapshot.Tenant, check *Check, decision *Decision)
	StoreAnswered(took time.Duration, err error)
}

// SettlementObserver also observes settlements.
type SettlementObserver interface {
	// Settled is called for settled or extended reservations; Buckets is nil from the process's own buckets.
	Settled(tenant *snapshot.Tenant, settled *Settled)
}

// ReservingBuckets keep reservations.
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
	restorer LocalRestorer
}

// NewLimiter returns a Limiter over all processes' shared buckets; local serves rules that fail local, and must always
// answer. Both can be the same. now decides when overrides expire; nil is time.Now.
func NewLimiter(shared, local ReservingBuckets, observer Observer, now func() time.Time) *Limiter {
	if now == nil {
		now = time.Now
	}
	return &Limiter{shared: shared, local: local, observer: observer, now: now}
}

// RestoreLocalBy sets the source of local buckets, before the first decision.
func (l *Limiter) RestoreLocalBy(r LocalRestorer) { l.restorer = r }

// Decide decides checks of one tenant in order: decisions[i] answers checks[i], in reused memory.
//
// If the shared buckets do not answer within their budget, failure modes decide, but a Record is denied, although it
// may be charged.
func (l *Limiter) Decide(ctx context.Context, tenant *snapshot.Tenant, checks []Check, decisions []Decision) {
	_ = l.decide(ctx, tenant, checks, decisions, 1) // the cap is not for single checks
}

// MaxTogether caps the buckets of a DecideTogether, because one script blocks the store for all.
const MaxTogether = 256

// ErrTooManyBuckets means more than MaxTogether buckets in a DecideTogether, which took nothing.
var ErrTooManyBuckets = errors.New("the checks reach too many buckets")

// DecideTogether decides the parts of one request, all of them records or none. Tokens are taken for all or, if one is
// denied, for none; decisions[i] answers checks[i] either way, in reused memory.
//
// A bucket that several checks share is charged once, at the largest of their costs. The observer gets all checks of an
// allowed request, else only the denied ones.
func (l *Limiter) DecideTogether(
	ctx context.Context, tenant *snapshot.Tenant, checks []Check, decisions []Decision,
) (allowed bool, err error) {
	if err := l.decide(ctx, tenant, checks, decisions, len(checks)); err != nil {
		return false, err
	}
	return allAllowed(decisions), nil
}

func (l *Limiter) decide(
	ctx context.Context, tenant *snapshot.Tenant, checks []Check, decisions []Decision, size int,
) error {
	d := startDeciding(tenant, checks, decisions, size)
	defer d.release()
	d.match(l.now())
	if err := d.collect(); err != nil {
		return err
	}
	var err error // of the shared buckets
	if sent := d.bucketChecks(); len(sent) > 0 {
		err = l.takeShared(ctx, sent)
		l.answer(ctx, d, err)
	}
	d.conclude()
	d.observe(l.observer)
	l.releaseLost(d, err)
	return nil
}

// answer reads the store's answers, and degrades the groups without one.
func (l *Limiter) answer(ctx context.Context, d *deciding, err error) {
	for k := range d.sent {
		sent := &d.sent[k]
		checks, decisions := d.group(d.froms[k])
		switch {
		case sent.Recalled:
			d.read(decisions, sent, (*Decision).recall)
		case err == nil || sent.Answered:
			d.read(decisions, sent, (*Decision).read)
		case sent.Record:
			for i := range decisions {
				decisions[i].refuseRecord()
			}
		default:
			l.degrade(ctx, d.tenant, checks, decisions, sent.Reserve, false)
		}
	}
}

// releaseLost queues the reservations that the store may have kept without an answer.
func (l *Limiter) releaseLost(d *deciding, err error) {
	if err == nil || errors.Is(err, ErrNothingTaken) {
		return
	}
	for k, i := range d.froms {
		sent, decision := &d.sent[k], &d.decisions[i]
		if !sent.Answered && !sent.Recalled && !(decision.HasReservation && decision.Allowed) {
			l.lost.add(d.tenant.Tenant.ID, sent.Reserve, decision.Allowed)
		}
	}
}

// Refund gives the check's cost back to all matching limits, up to their bursts, after an earlier check took it.
//
// After an error some buckets may have their refund.
func (l *Limiter) Refund(ctx context.Context, to Creditor, tenant *snapshot.Tenant, check *Check) (d Decision,
	err error,
) {
	d = Decision{Plan: check.EffectivePlan, matches: match(tenant, check, l.now(), nil)}
	d.keepMatches(func(m *rules.Match) bool { return isLimit(m) && check.meets(m) })
	given := BucketCheck{Tiers: bucketTiers(tenant, check, d.Tiers, nil)}
	for i := range given.Tiers {
		tier := &given.Tiers[i]
		if _, tier.Bucket, err = to.Credit(ctx, tier.Key, tier.Limit, tier.Cost); err != nil {
			return d, err
		}
		tier.Holds = true
	}
	d.read(&given)
	d.conclude()
	return d, nil
}

// Explain decides like Decide without taking. With readable buckets the decision has a tier for every matched rule,
// even behind a block or bypass.
func (l *Limiter) Explain(ctx context.Context, tenant *snapshot.Tenant, check *Check) Decision {
	matches := match(tenant, check, l.now(), nil)
	d := Decision{Plan: check.EffectivePlan, matches: matches}
	d.keepMatches(check.meets)
	d.Bypassed = anyEnforced(matches, rules.ActionBypass)
	if !d.Bypassed && !anyEnforced(matches, rules.ActionBlock) {
		d.denyUnknown()
	}
	tiers := bucketTiers(tenant, check, d.Tiers, nil)
	if len(tiers) > 0 {
		look := bucketCheck(tenant, check, tiers)
		look.Tiers, look.Look, look.Reserve = tiers, true, nil
		looks := []BucketCheck{look}
		switch err := l.takeShared(ctx, looks); {
		case err == nil:
			d.read(&looks[0])
		case !d.Bypassed && !anyEnforced(matches, rules.ActionBlock):
			one := []Decision{d}
			l.degrade(ctx, tenant, []Check{*check}, one, nil, true)
			d = one[0]
		}
	}
	d.conclude()
	return d
}

// Unnamed returns the matched rules whose meter has no cost in the check, and the meters of costs that no matched rule
// counts.
func (d *Decision) Unnamed(check *Check) (unnamed []*rules.Rule, unmatched []rules.Meter) {
	for i := range d.matches {
		if !check.counts(&d.matches[i]) {
			unnamed = append(unnamed, d.matches[i].Rule)
		}
	}
	for _, cost := range check.Costs {
		if !slices.ContainsFunc(d.matches, func(m rules.Match) bool { return m.Rule.Meter == cost.Meter }) {
			unmatched = append(unmatched, cost.Meter)
		}
	}
	return unnamed, unmatched
}

// takeShared outlives ctx, because a caller that leaves must not look like a failure of the store.
func (l *Limiter) takeShared(ctx context.Context, checks []BucketCheck) error {
	start := time.Now()
	err := l.shared.Take(context.WithoutCancel(ctx), checks)
	if slices.ContainsFunc(checks, func(check BucketCheck) bool { return !check.Recalled && !check.Leased }) {
		l.observer.StoreAnswered(time.Since(start), err)
	}
	return err
}

func (d *Decision) begin(check *Check) {
	*d = Decision{Plan: check.EffectivePlan, matches: d.matches, Tiers: d.Tiers[:0], Record: check.Record}
	switch {
	case anyEnforced(d.matches, rules.ActionBypass):
		d.Bypassed = true
		d.keepMatches(enforced(rules.ActionBypass))
	case check.Record:
		d.keepMatches(func(m *rules.Match) bool {
			_, isNamed := check.CostOf(m.Rule)
			return isNamed && (isUnknown(m) || isLimit(m) && m.Limit.Kind != rules.KindConcurrency)
		})
	case anyEnforced(d.matches, rules.ActionBlock):
		d.keepMatches(enforced(rules.ActionBlock))
	default:
		d.keepMatches(check.meets)
	}
}

// failUnknown fails rules that this process cannot apply: closed denies; open and local skip the tier, which has no
// bucket here.
func (d *Decision) failUnknown(check *Check) {
	switch {
	case d.Bypassed || !d.hasUnknown():
		return
	case d.Record: // another process may charge all of its rules
		d.refuseRecord()
		return
	case d.denyTooLarge(check):
		return
	}
	if d.denyUnknown() {
		d.keep(func(t *TierDecision) bool { return t.Reason == StoreUnavailable })
		return
	}
	d.keep(func(t *TierDecision) bool { return !isUnknown(t.Match) })
}

func (d *Decision) refuseRecord() { d.Tiers, d.isUncharged = d.Tiers[:0], true }

func (d *Decision) hasUnknown() bool {
	for i := range d.Tiers {
		if isUnknown(d.Tiers[i].Match) {
			return true
		}
	}
	return false
}

// denyUnknown denies tiers that fail closed because this process cannot apply them; decides: one is enforced.
func (d *Decision) denyUnknown() bool {
	d.Degraded = d.hasUnknown()
	return denyWhere(d.Tiers, StoreUnavailable, func(t *TierDecision) bool {
		return isUnknown(t.Match) && t.Match.FailureMode == rules.FailClosed
	})
}

func (d *Decision) denyTooLarge(check *Check) bool {
	if !denyWhere(d.Tiers, CostExceedsLimit, func(t *TierDecision) bool {
		if !isLimit(t.Match) || t.Match.Rule.ChargedAfter {
			return false
		}
		cost, _ := check.CostOf(t.Match.Rule)
		return charge(t.Match.Limit, cost) > capacity(t.Match.Limit)
	}) {
		return false
	}
	d.keep(func(t *TierDecision) bool { return t.Reason == CostExceedsLimit })
	return true
}

func (l *Limiter) degrade(
	ctx context.Context, tenant *snapshot.Tenant, checks []Check, decisions []Decision, reserve *Reservation, look bool,
) {
	undecided := false
	for i := range decisions {
		if d := &decisions[i]; slices.ContainsFunc(d.Tiers, func(t TierDecision) bool { return isLimit(t.Match) }) {
			undecided = d.failOver(&checks[i]) || undecided
		}
	}
	if !undecided {
		return
	}
	d := startDeciding(tenant, checks, decisions, len(checks))
	defer d.release()
	d.add(0)
	local := d.bucketChecks()
	if len(local) == 0 {
		return
	}
	if l.restorer != nil {
		unknown := l.restorer.RestoreLocal(local[0].Tiers)
		if len(unknown) > 0 && denyKeys(tenant, decisions, unknown) {
			return
		}
	}
	local[0].Look = local[0].Look || look
	local[0].Reserve = reserve // of the same id: the shared buckets may have taken
	if reserve != nil {
		local[0].Holder = reserve.ID.Holder()
	}
	if err := l.local.Take(context.WithoutCancel(ctx), local); err != nil {
		for i := range decisions {
			denyWhere(decisions[i].Tiers, StoreUnavailable,
				func(t *TierDecision) bool { return isLimit(t.Match) && t.Allowed })
		}
		return
	}
	d.read(decisions, &local[0], (*Decision).read)
}

func denyKeys(tenant *snapshot.Tenant, decisions []Decision, of []Tier) (decides bool) {
	for i := range decisions {
		denied := denyWhere(decisions[i].Tiers, StoreUnavailable, func(t *TierDecision) bool {
			return isLimit(t.Match) && slices.ContainsFunc(of, func(other Tier) bool {
				return other.Key == KeyOf(&tenant.Tenant, t.Match)
			})
		})
		decides = decides || denied
	}
	return decides
}

func (d *Decision) failOver(check *Check) (undecided bool) {
	// A store would deny this cost, so the decision is not degraded.
	if d.denyTooLarge(check) {
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

// isUndecided reports whether buckets still have to decide.
func (d *Decision) isUndecided() bool {
	return !d.isUncharged &&
		!slices.ContainsFunc(d.Tiers, func(t TierDecision) bool { return t.Enforced() && !t.Allowed })
}

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

// read copies the store's answer; the check's tiers are the limits among d.Tiers, in order.
func (d *Decision) read(check *BucketCheck) {
	d.isExhausted, d.Repeated = check.Exhausted, check.Repeated
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
		t.Stamp, t.Charged = answer.Bucket.Stamp, answer.Charged
		t.ResetAfter = answer.TimeToFull()
		if t.Delay = answer.Delay(); d.Record {
			t.Delay = 0
		}
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
	case d.isUncharged:
		d.Allowed, d.Reason = false, StoreUnavailable
	case d.isExhausted && d.Record:
		d.Allowed, d.Reason, d.Deciding = false, RecordIDsExhausted, -1
	case d.isExhausted:
		d.Allowed, d.Reason, d.Deciding = false, ReservationsExhausted, -1
	}
	if !d.Allowed {
		d.Delay = 0
	}
}

// The lower rule id, which comes first, wins a tie.
func decidesBefore(a, b *TierDecision) bool {
	if order := cmp.Compare(precedence(a.Reason), precedence(b.Reason)); order != 0 {
		return order > 0
	}
	if !a.Allowed {
		return a.RetryAfter > b.RetryAfter
	}
	if a.Match.Rule.Meter != "" || b.Match.Rule.Meter != "" {
		return a.IsScarcer(b)
	}
	if order := cmp.Compare(a.Remaining.Whole(), b.Remaining.Whole()); order != 0 {
		return order < 0
	}
	return a.ResetAfter > b.ResetAfter
}

// IsScarcer reports whether an answer describes this tier: limits of requests come first, and compare Remaining. Other
// limits compare the shares of their limits.
func (t *TierDecision) IsScarcer(other *TierDecision) bool {
	countsRequests, otherDoes := t.Match.Rule.Meter == "", other.Match.Rule.Meter == ""
	switch {
	case countsRequests != otherDoes:
		return countsRequests
	case countsRequests:
		return t.Remaining < other.Remaining
	}
	return t.shareLeft() < other.shareLeft()
}

func (t *TierDecision) shareLeft() float64 { return float64(t.Remaining) / float64(t.Limit.Burst) }

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

func (d *Decision) keepMatches(wanted func(*rules.Match) bool) {
	d.Tiers = slices.Grow(d.Tiers[:0], len(d.matches))
	for i := range d.matches {
		m := &d.matches[i]
		if !wanted(m) {
			continue
		}
		t := TierDecision{Match: m, Limit: m.Limit, Allowed: true}
		if actionOf(m) == rules.ActionBlock {
			t.deny(Blocked)
		}
		d.Tiers = append(d.Tiers, t)
	}
}

func isLimit(m *rules.Match) bool { return actionOf(m) == rules.ActionLimit && !isUnknown(m) }

// A check's own limit of 0 blocks.
func actionOf(m *rules.Match) rules.Action {
	if m.IsOwn && m.Limit.Burst == 0 {
		return rules.ActionBlock
	}
	return m.Rule.Action
}

func isUnknown(m *rules.Match) bool { return m.Rule.Unknown != "" }

func (c *Check) meets(m *rules.Match) bool {
	return c.counts(m) && (!c.Proxied || !isLimit(m) || m.Limit.Kind != rules.KindConcurrency)
}

func enforced(action rules.Action) func(*rules.Match) bool {
	return func(m *rules.Match) bool {
		return m.Mode == rules.ModeEnforce && actionOf(m) == action
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
