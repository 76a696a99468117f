package enforce

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

const (
	// LesseeAnswerLife is how long a client may act on a LesseeAnswer, from when it asked.
	LesseeAnswerLife = LeaseLife
	// MaxLeasedTiers caps the limits of a check that a client can decide.
	MaxLeasedTiers = 8

	// lesseeLeastBurst and lesseeLeastRate (tokens per second) are of the smallest limits that clients hold tokens of. With
	// a smaller one, a client that is killed costs its limit too much.
	lesseeLeastBurst = 16
	lesseeLeastRate  = 1.6
	// lesseeShare is the part of a burst that the clients of a bucket hold together at most, and lesseeLot the longest time
	// of its rate that one of them holds.
	lesseeShare = 0.5
	lesseeLot   = 5 * time.Second
	// inOneLease caps the buckets of one call to the store, so that it is never busy with one for long.
	inOneLease = 32
)

// Lessor lends tokens to clients that decide checks in their own process. It matches their checks, so that a client needs no
// rules, and asks the store for what they may spend, never a Buckets of this process that holds tokens itself.
//
// A client is believed: what it reports as spent, denied or given back is its word, about its own tenant. Its greed is not:
// see lessees.
type Lessor struct {
	lender   Lender      // nil lends nothing
	isOn     func() bool // nil is always
	observer Observer
	now      func() time.Time
	log      func(error)
	lessees  lessees
	stats    struct{ lent, spent, returned, allowed, denied, unplaced atomic.Int64 }
}

// NewLessor returns a Lessor. Without a lender every check with a limit is for the client to ask. observer is told of what
// clients decided, in bulk: see Decision.Times. log is told when the store does not answer. A nil now is time.Now.
func NewLessor(lender Lender, observer Observer, now func() time.Time, log func(error)) *Lessor {
	if now == nil {
		now = time.Now
	}
	l := &Lessor{lender: lender, observer: observer, now: now, log: log}
	l.lessees.init(now)
	return l
}

// LendWhile lends only while a function says so. It is called for each check of a client, and must be called before the first.
func (l *Lessor) LendWhile(isOn func() bool) { l.isOn = isOn }

func (l *Lessor) lends() bool { return l.lender != nil && (l.isOn == nil || l.isOn()) }

// LesseeRequest is what a client asks and reports.
type LesseeRequest struct {
	// Holder names the client's process, among the keys of a tenant.
	Holder  string
	Checks  []LesseeCheck
	Buckets []LesseeBucket // their keys are of the tenant, and distinct
}

// LesseeCheck is one check that a client decides itself, and how often it did since its last request.
type LesseeCheck struct {
	Check   Check
	Allowed int64
	Denied  []LesseeDenials
}

// LesseeDenials counts the denials of a rule.
type LesseeDenials struct {
	Rule  rules.RuleID
	Count int64
}

// LesseeBucket is what a client reports of a bucket, and what it would like to hold. Need and Since of the ask are ignored: a
// client that needs tokens at once sends a check, and the Lessor knows when it asked last.
type LesseeBucket struct {
	Key Key
	Ask Ask
}

// LesseeAnswer answers a LesseeRequest, for LesseeAnswerLife.
type LesseeAnswer struct {
	Checks  []CheckAnswer // in the order of the request
	Buckets []BucketAnswer
}

// CheckAnswer says how a client decides a check.
type CheckAnswer struct {
	How     How
	Plan    string
	Buckets []int        // if HowLease: what it takes from, as indices
	Block   *rules.Match // if HowBlock
}

// How is how a client decides a check.
type How string

// The ways to decide a check: ask for it; spend tokens of its buckets, or deny while one has none; let it pass, because no
// rule limits it; deny it, because a rule blocks it.
const (
	HowAsk   How = "ask"
	HowLease How = "lease"
	HowPass  How = "pass"
	HowBlock How = "block"
)

// BucketAnswer is a bucket that checks of the request take from.
type BucketAnswer struct {
	Key   Key
	Match rules.Match
	// Answered: the request asked for the bucket, and the store answered with a Grant.
	Answered bool
	Grant    Grant
	// Pause is how long the bucket is left alone, because it is empty: until then the client denies what it has no tokens for.
	Pause time.Duration
}

// lesseePause is how long an empty bucket is left alone at most.
const lesseePause = 100 * time.Millisecond

// Lease answers a client. It counts what the client reports even if the store does not answer; the buckets say whether it did.
func (l *Lessor) Lease(ctx context.Context, tenant *snapshot.Tenant, request *LesseeRequest) LesseeAnswer {
	now := l.now()
	a := answering{lessor: l, tenant: tenant, request: request, now: now, places: map[Key]int{}}
	a.decisions = make([]Decision, len(request.Checks))
	a.answer.Checks = make([]CheckAnswer, len(request.Checks))
	for i := range request.Checks {
		a.match(i)
	}
	a.lend(ctx)
	for i := range request.Checks {
		a.report(i)
	}
	return a.answer
}

// answering is one call of Lease.
type answering struct {
	lessor    *Lessor
	tenant    *snapshot.Tenant
	request   *LesseeRequest
	now       time.Time
	decisions []Decision // what the server makes of each check, before what the client did
	places    map[Key]int
	answer    LesseeAnswer
}

// match says how a check is decided.
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
				answer.Buckets = append(answer.Buckets, a.place(t.Match))
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
		if !a.lessor.lends() || t.Match.Rule.NeverLeased || limits > MaxLeasedTiers || check.Reserve || check.Proxied || check.Cost == 0 ||
			check.Cost > capacity(t.Limit) || !isWorthLending(t.Limit) {
			return HowAsk
		}
	}
	if limits == 0 {
		return HowPass
	}
	return HowLease
}

// isWorthLending reports whether clients can hold tokens of a limit's buckets, and should.
func isWorthLending(limit Limit) bool {
	return CanLease(limit) && limit.Burst >= lesseeLeastBurst && limit.Rate >= lesseeLeastRate
}

// place returns the index of a match's bucket in the answer.
func (a *answering) place(m *rules.Match) int {
	key := KeyOf(&a.tenant.Tenant, m)
	at, known := a.places[key]
	if !known {
		at = len(a.answer.Buckets)
		a.places[key] = at
		a.answer.Buckets = append(a.answer.Buckets, BucketAnswer{Key: key, Match: *m})
	}
	return at
}

// lend makes the asks of the client's buckets. One that no check of the request takes from only gets reported.
func (a *answering) lend(ctx context.Context) {
	if a.lessor.lender == nil {
		return
	}
	var leases []Lease
	for i := range a.request.Buckets {
		b := &a.request.Buckets[i]
		if m, found := a.tenant.Bucket(b.Key.Rule, b.Key.Subject, a.now); found { // a client does not know the shard
			b.Key = KeyOf(&a.tenant.Tenant, &m)
		}
		var limit Limit
		ask := b.Ask
		if at, wanted := a.places[b.Key]; wanted {
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
	at, wanted := a.places[lease.Key]
	if !wanted || lease.Ask.Want == 0 {
		return
	}
	b := &a.answer.Buckets[at]
	b.Answered, b.Grant = true, lease.Grant
	holders := float64(max(1, b.Grant.Holders))
	if b.Grant.Refused || float64(b.Grant.Level.Micros)/2/holders < float64(Token) {
		b.Pause = min(time.Duration(holders/b.Grant.Limit.Rate*float64(time.Second)), lesseePause)
	}
}

// report tells the observer what a client decided. What a rule denied that no longer limits the check is counted for
// the first enforced rule that does, because a rule that changed since cannot be blamed any more.
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
		by := slices.IndexFunc(d.Tiers, func(t TierDecision) bool { return t.Match.Rule.ID == denials.Rule && t.Enforced() })
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

// observe tells of a decision on a check after setting its tiers' verdicts.
func (a *answering) observe(check *Check, d *Decision, judge func(*TierDecision)) {
	for i := range d.Tiers {
		t := &d.Tiers[i]
		t.Reason = ""
		if t.Match.Rule.Action == rules.ActionBlock {
			t.deny(Blocked)
		}
		if isLimit(t.Match) {
			var bucket BucketAnswer
			if at, known := a.places[KeyOf(&a.tenant.Tenant, t.Match)]; known {
				bucket = a.answer.Buckets[at]
			}
			bucket.describe(t, check.Cost)
		}
		if judge(t); t.Allowed {
			t.Reason, t.RetryAfter = "", 0
		}
	}
	d.conclude()
	a.lessor.observer.Decided(a.tenant, check, d)
}

// describe says what a tier's bucket holds in the store. A bucket without an answer counts as empty.
func (b *BucketAnswer) describe(t *TierDecision, cost Tokens) {
	bucket := Bucket{Limit: t.Limit}
	if b.Answered {
		bucket.Level, bucket.Limit = b.Grant.Level, b.Grant.Limit
	}
	t.BucketRead, t.Limit, t.Remaining = true, bucket.Limit, bucket.Level.Micros
	t.RetryAfter, t.ResetAfter = bucket.until(cost), bucket.until(capacity(bucket.Limit))
}

// LessorStats counts what a Lessor did since its process began. Tokens are in millionths.
type LessorStats struct {
	Lent, Spent, Returned int64
	// Allowed and Denied are what clients decided; Unplaced are denials that no rule in force explains, and that are
	// counted nowhere else.
	Allowed, Denied, Unplaced int64
	// Lessees counts the clients of each bucket.
	Lessees int
}

// Stats returns the counts.
func (l *Lessor) Stats() LessorStats {
	return LessorStats{
		Lent: l.stats.lent.Load(), Spent: l.stats.spent.Load(), Returned: l.stats.returned.Load(),
		Allowed: l.stats.allowed.Load(), Denied: l.stats.denied.Load(), Unplaced: l.stats.unplaced.Load(), Lessees: l.lessees.len(),
	}
}
