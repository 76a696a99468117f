package enforce

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

const (
	// LesseeAnswerLife starts with the request.
	LesseeAnswerLife = LeaseLife
	// MaxLeasedTiers is by check.
	MaxLeasedTiers = 8

	// Smaller limits are not lent to clients, because a killed client would cost them too much.
	lesseeLeastBurst = 16
	lesseeLeastRate  = 1.6
	// lesseeShare caps what all clients hold of a burst, and lesseeLot one client's time of the rate.
	lesseeShare = 0.5
	lesseeLot   = 5 * time.Second
	// inOneLease caps a call's buckets, because the store runs one script at a time.
	inOneLease = 32
)

// Lessor matches the checks of clients, which need no rules, and lends them tokens of the store.
//
// Clients' reports are trusted, because they concern their own tenant; lessees bounds their demand.
type Lessor struct {
	lender   Lender      // nil lends nothing
	isOn     func() bool // nil is always
	observer Observer
	now      func() time.Time
	log      func(error)
	lessees  lessees
	stats    struct{ lent, spent, returned, allowed, denied, unplaced atomic.Int64 }
}

// NewLessor returns a Lessor. observer gets clients' decisions in bulk (see Decision.Times), and log the store's
// errors. Without a lender clients ask for every limited check; a nil now is time.Now.
func NewLessor(lender Lender, observer Observer, now func() time.Time, log func(error)) *Lessor {
	if now == nil {
		now = time.Now
	}
	l := &Lessor{lender: lender, observer: observer, now: now, log: log}
	l.lessees.init(now)
	return l
}

// LendWhile lends only while isOn; call it before the first Lease.
func (l *Lessor) LendWhile(isOn func() bool) { l.isOn = isOn }

func (l *Lessor) lends() bool { return l.lender != nil && (l.isOn == nil || l.isOn()) }

// LesseeRequest is also the client's report.
type LesseeRequest struct {
	Holder  string
	Checks  []LesseeCheck
	Buckets []LesseeBucket // their keys are of the tenant, and distinct
}

// LesseeCheck has the client's decisions since its last request.
type LesseeCheck struct {
	Check   Check
	Allowed int64
	Denied  []LesseeDenials
}

func (c *LesseeCheck) decided() int64 {
	n := c.Allowed
	for i := range c.Denied {
		n += c.Denied[i].Count
	}
	return n
}

// LesseeDenials counts the denials by a rule.
type LesseeDenials struct {
	Rule  rules.RuleID
	Count int64
}

// LesseeBucket reports on a bucket; Need and Since are ignored, because a client in need sends a check.
type LesseeBucket struct {
	Key Key
	Ask Ask
}

// LesseeAnswer holds for LesseeAnswerLife.
type LesseeAnswer struct {
	Checks  []CheckAnswer // in the order of the request
	Buckets []BucketAnswer
}

// CheckAnswer is how to decide a check.
type CheckAnswer struct {
	How     How
	Plan    string
	Buckets []int        // if HowLease: what it takes from, as indices
	Block   *rules.Match // if HowBlock
}

// How is how to decide a check.
type How string

// Ask the server; spend leased tokens, or deny while a bucket has none; let pass what no rule limits; deny what a rule
// blocks.
const (
	HowAsk   How = "ask"
	HowLease How = "lease"
	HowPass  How = "pass"
	HowBlock How = "block"
)

// BucketAnswer is a bucket that checks of the request take from.
type BucketAnswer struct {
	Key      Key
	Match    rules.Match
	Answered bool
	Grant    Grant
	Pause    time.Duration
}

// Lease counts the client's decisions even if the store does not answer.
func (l *Lessor) Lease(ctx context.Context, tenant *snapshot.Tenant, request *LesseeRequest) LesseeAnswer {
	now := l.now()
	a := answering{lessor: l, tenant: tenant, request: request, now: now, indexes: map[Key]int{}}
	a.decisions = make([]Decision, len(request.Checks))
	a.answer.Checks = make([]CheckAnswer, len(request.Checks))
	for i := range request.Checks {
		a.match(i)
	}
	a.lend(ctx)
	for i := range request.Checks {
		a.reported += request.Checks[i].decided()
	}
	for i := range request.Checks {
		a.report(i)
	}
	return a.answer
}

type answering struct {
	lessor    *Lessor
	tenant    *snapshot.Tenant
	request   *LesseeRequest
	now       time.Time
	decisions []Decision // what the server makes of each check, before what the client did
	indexes   map[Key]int
	answer    LesseeAnswer
	reported  int64 // checks that the client decided
}

func (a *answering) match(i int) {
	check, d := &a.request.Checks[i].Check, &a.decisions[i]
	d.matches = a.tenant.Match(&check.Request, check.EffectivePlan, a.now, nil)
	d.begin(check)
	answer := &a.answer.Checks[i]
	answer.Plan = check.EffectivePlan
	switch answer.How = a.howTo(check, d); answer.How {
	case HowBlock:
		answer.Block = d.Tiers[0].Match
	case HowLease:
		for j := range d.Tiers {
			if t := &d.Tiers[j]; isLimit(t.Match) {
				answer.Buckets = append(answer.Buckets, a.index(t.Match))
			}
		}
	}
}

func (a *answering) howTo(check *Check, d *Decision) How {
	switch {
	case d.Bypassed:
		return HowPass
	case d.hasUnknown():
		return HowAsk
	case anyEnforced(d.matches, rules.ActionBlock):
		return HowBlock
	}
	limits := 0
	for i := range d.Tiers {
		t := &d.Tiers[i]
		if !isLimit(t.Match) {
			continue // a block in shadow
		}
		limits++
		if !a.lessor.lends() || t.Match.Rule.NeverLeased || limits > MaxLeasedTiers || check.Reserve || check.Proxied ||
			t.Match.Rule.ChargedAfter || len(check.Costs) > 0 || check.Cost == 0 || check.Cost > capacity(t.Limit) ||
			!isWorthLending(t.Limit) {
			return HowAsk
		}
	}
	if limits == 0 {
		return HowPass
	}
	return HowLease
}

func isWorthLending(limit Limit) bool {
	return CanLease(limit) && limit.Burst >= lesseeLeastBurst && limit.Rate >= lesseeLeastRate
}

func (a *answering) index(m *rules.Match) int {
	key := KeyOf(&a.tenant.Tenant, m)
	at, known := a.indexes[key]
	if !known {
		at = len(a.answer.Buckets)
		a.indexes[key] = at
		a.answer.Buckets = append(a.answer.Buckets, BucketAnswer{Key: key, Match: *m})
	}
	return at
}

// A bucket that no check of the request takes from is only reported.
func (a *answering) lend(ctx context.Context) {
	if a.lessor.lender == nil {
		return
	}
	var leases []Lease
	for i := range a.request.Buckets {
		b := &a.request.Buckets[i]
		var limit Limit
		ask := b.Ask
		if at, wanted := a.indexes[b.Key]; wanted {
			limit = a.answer.Buckets[at].Match.Limit
		} else if m, found := a.tenant.Bucket(b.Key.Rule, b.Key.Subject, a.now); found && CanLease(m.Limit) {
			limit, ask.Want = m.Limit, 0
		} else {
			continue // the rule is gone, or another one
		}
		if ask, ok := a.lessor.lessees.ask(lesseeOf(b.Key, a.request.Holder), ask, limit); ok {
			leases = append(leases, Lease{Key: b.Key, Limit: limit, Ask: ask})
		}
	}
	for some := range slices.Chunk(leases, inOneLease) {
		err := a.lessor.lender.Lease(ctx, some)
		for i := range some {
			a.granted(&some[i])
		}
		if err != nil {
			a.lessor.log(err)
			break // the asks that were not made are forgotten by lessees as if their answers were lost
		}
	}
}

func (a *answering) granted(lease *Lease) {
	l := a.lessor
	for _, r := range lease.Ask.Returns {
		l.stats.spent.Add(int64(r.Spent))
		l.stats.returned.Add(int64(r.Back))
	}
	if !lease.Answered {
		return
	}
	l.stats.lent.Add(int64(lease.Grant.Amount))
	l.lessees.granted(lesseeOf(lease.Key, a.request.Holder), lease)
	at, wanted := a.indexes[lease.Key]
	if !wanted || lease.Ask.Want == 0 {
		return
	}
	b := &a.answer.Buckets[at]
	b.Answered, b.Grant = true, lease.Grant
	b.Pause = lease.Grant.Pause()
}

// A denial by a rule that no longer limits the check counts for its first enforced rule: rules may have changed.
func (a *answering) report(i int) {
	r, d := &a.request.Checks[i], &a.decisions[i]
	if r.Allowed > 0 {
		d.Times = r.Allowed
		a.observe(&r.Check, d, func(t *TierDecision) { t.Allowed = t.Enforced() || isLimit(t.Match) })
		a.lessor.stats.allowed.Add(r.Allowed)
	}
	for _, denials := range r.Denied {
		if denials.Count == 0 {
			continue
		}
		by := slices.IndexFunc(d.Tiers,
			func(t TierDecision) bool { return t.Match.Rule.ID == denials.Rule && t.Enforced() })
		if by < 0 {
			by = slices.IndexFunc(d.Tiers, func(t TierDecision) bool { return t.Enforced() })
		}
		if by < 0 || d.Bypassed {
			a.lessor.stats.unplaced.Add(denials.Count)
			continue
		}
		d.Times = denials.Count
		decided := d.Tiers[by].Match
		a.observe(&r.Check, d, func(t *TierDecision) {
			if t.Allowed = t.Match != decided && isLimit(t.Match); !t.Allowed && isLimit(t.Match) {
				t.deny(LimitExceeded)
			}
		})
		a.lessor.stats.denied.Add(denials.Count)
	}
}

func (a *answering) observe(check *Check, d *Decision, judge func(*TierDecision)) {
	for i := range d.Tiers {
		t := &d.Tiers[i]
		t.Reason = ""
		if t.Match.Rule.Action == rules.ActionBlock {
			t.deny(Blocked)
		}
		if isLimit(t.Match) {
			var bucket BucketAnswer
			if at, known := a.indexes[KeyOf(&a.tenant.Tenant, t.Match)]; known {
				bucket = a.answer.Buckets[at]
			}
			bucket.describe(t, check.Cost)
		}
		if judge(t); t.Allowed {
			t.Reason, t.RetryAfter = "", 0
		}
	}
	d.conclude()
	d.Reported = a.reported
	a.lessor.observer.Decided(a.tenant, check, d)
}

func (b *BucketAnswer) describe(t *TierDecision, cost Tokens) {
	bucket := Bucket{Limit: t.Limit}
	if b.Answered {
		bucket.Level, bucket.Limit = b.Grant.Level, b.Grant.Limit
	}
	t.BucketRead, t.Limit, t.Remaining = b.Answered, bucket.Limit, bucket.Level.Micros
	t.RetryAfter, t.ResetAfter = bucket.until(cost, 0), bucket.until(capacity(bucket.Limit), 0)
}

// LessorStats counts since the start, tokens in millionths.
type LessorStats struct {
	Lent, Spent, Returned int64
	// Unplaced are denials that no rule in force explains, counted nowhere else.
	Allowed, Denied, Unplaced int64
	Lessees                   int
}

// Stats returns the counts.
func (l *Lessor) Stats() LessorStats {
	return LessorStats{
		Lent: l.stats.lent.Load(), Spent: l.stats.spent.Load(), Returned: l.stats.returned.Load(),
		Allowed: l.stats.allowed.Load(), Denied: l.stats.denied.Load(), Unplaced: l.stats.unplaced.Load(),
		Lessees: l.lessees.len(),
	}
}
