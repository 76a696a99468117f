package sluice

import (
	"context"
	"math"
	"net/http"
	"sync/atomic"
	"time"
)

// Verdict is what a Handle says by itself.
type Verdict int

// The verdicts. Undecided means that this process does not hold what it takes to decide: Handle.Check asks then.
const (
	Undecided Verdict = iota
	Allowed
	Denied
)

// String is undecided, allowed or denied.
func (v Verdict) String() string {
	switch v {
	case Allowed:
		return "allowed"
	case Denied:
		return "denied"
	}
	return "undecided"
}

const (
	// A handle is leased once hotAfter checks came within hotWithin, at least 16 a second. Tokens for a check that comes
	// seldom would lie idle here and be missing elsewhere.
	hotAfter  = 8
	hotWithin = 500 * time.Millisecond
	// maxTaken is the most buckets that a check takes from.
	maxTaken = 8
)

// Handle is one check that is asked again and again, such as that of a busy tenant or route. While it is busy, its client
// holds tokens of its limits, lent by the server for at most a second at a time, and most checks are decided here, in far
// less than a microsecond. Limits hold exactly, however many processes hold tokens and whichever of them dies. The
// client's key needs the permission lease; without it every check is asked for.
//
// Make a handle once and keep it. It is safe for concurrent use.
type Handle struct {
	client *Client
	check  Check
	asked  question
	cost   int64

	terms     atomic.Pointer[terms] // nil while the server has to be asked
	isActive  atomic.Bool           // the background goroutine knows it
	warm      atomic.Uint64         // a part of time and a count, while it is not active
	allowed   atomic.Int64          // not reported yet
	undecided atomic.Int64          // ever

	// Of the background goroutine:
	denials  []*denials // one for each rule that ever denied
	seen     int64      // of undecided, when it was last looked at
	lastUsed int64      // on the monotonic clock
	renewAt  int64      // likewise
}

// denials counts the denials of one rule that are not reported yet.
type denials struct {
	rule  int64
	count atomic.Int64
}

// terms are how a handle decides, for a while.
type terms struct {
	how     string
	plan    string
	ends    instant
	buckets []*heldBucket
	denials []*denials // by bucket, or that of a block
	block   *leaseRule
}

// The words of terms.how.
const (
	howAsk   = "ask"
	howLease = "lease"
	howPass  = "pass"
	howBlock = "block"
)

// Handle returns a handle for a check. The error is an *Error if the check is not valid. The handle makes no request before it
// is used.
func (c *Client) Handle(check Check) (*Handle, error) {
	q, err := check.ask(-1)
	if err != nil {
		return nil, err
	}
	h := &Handle{client: c, check: check, asked: q, cost: int64(math.Round(q.cost * oneToken))}
	c.leases.start()
	return h, nil
}

// Try decides here and now, or says Undecided. It never waits, makes no request and allocates nothing. It calls no
// Config.OnDecision.
func (h *Handle) Try() Verdict {
	verdict, _ := h.try(h.client.leases.clock())
	return verdict
}

// Check decides here if it can, and asks the server like Client.Check if it cannot.
func (h *Handle) Check(ctx context.Context) (Decision, error) {
	began := time.Now()
	now := h.client.leases.clock()
	verdict, by := h.try(now)
	if verdict == Undecided {
		return h.client.Check(ctx, h.check)
	}
	decision := h.decision(verdict, by, now)
	if h.client.config.OnDecision != nil {
		h.client.config.OnDecision(ctx, Observation{Check: h.check, Decision: decision, Took: time.Since(began)})
	}
	return decision, nil
}

// try also returns the terms that it decided by, and which of their buckets denied.
func (h *Handle) try(now instant) (Verdict, decidedBy) {
	t := h.terms.Load()
	if t == nil || t.how == howAsk || !now.isBefore(t.ends) {
		h.miss(now)
		return Undecided, decidedBy{}
	}
	switch t.how {
	case howPass:
		h.allowed.Add(1)
		return Allowed, decidedBy{terms: t}
	case howBlock:
		t.denials[0].count.Add(1)
		return Denied, decidedBy{terms: t}
	}
	lacking := -1
	if len(t.buckets) == 1 {
		var one taken
		if t.buckets[0].take(now, h.cost, &one) {
			one.spend()
		} else {
			lacking = 0
		}
	} else {
		lacking = h.takeAll(t, now)
	}
	if lacking < 0 {
		h.allowed.Add(1)
		return Allowed, decidedBy{terms: t}
	}
	b := t.buckets[lacking]
	b.missed.Add(h.cost)
	if b.isPaused(now) && b.rule.Load().isEnforced() {
		t.denials[lacking].count.Add(1)
		return Denied, decidedBy{t, lacking}
	}
	h.undecided.Add(1)
	return Undecided, decidedBy{}
}

// decidedBy says how a handle decided.
type decidedBy struct {
	terms  *terms
	bucket int
}

// takeAll takes from all buckets or from none, and returns the index of the one that lacks tokens, or -1.
func (h *Handle) takeAll(t *terms, now instant) int {
	var room [maxTaken]taken
	from := room[:len(t.buckets)] // answers with more are refused
	for i, b := range t.buckets {
		if !b.take(now, h.cost, &from[i]) {
			for j := range from[:i] {
				from[j].putBack()
			}
			return i
		}
	}
	for i := range from {
		from[i].spend()
	}
	return -1
}

// miss counts a check that is asked for, and has the handle leased once there were enough.
func (h *Handle) miss(now instant) {
	h.undecided.Add(1)
	if h.isActive.Load() {
		return
	}
	began := uint64(now.mono/int64(hotWithin)) << 8
	was := h.warm.Load()
	switch {
	case was&^0xff != began:
		h.warm.Store(began | 1) // a lost race loses a count
	case was&0xff < hotAfter-1:
		h.warm.Store(was + 1)
	case h.isActive.CompareAndSwap(false, true):
		h.client.leases.activate(h)
	}
}

// decision describes a verdict. Of the limits it shows the one that denied, else the one with the fewest tokens left.
func (h *Handle) decision(verdict Verdict, by decidedBy, now instant) Decision {
	d := Decision{Allowed: verdict == Allowed, Status: http.StatusOK, Plan: by.terms.plan, Source: FromLease}
	if by.terms.how == howBlock {
		d.Status, d.Reason = http.StatusTooManyRequests, "blocked"
		d.blame(by.terms.block)
		return d
	}
	if verdict == Denied {
		b := by.terms.buckets[by.bucket]
		rule := b.rule.Load()
		d.Status, d.Reason = http.StatusTooManyRequests, "limit_exceeded"
		d.blame(rule)
		d.describe(b, now)
		missing := float64(h.cost-b.held(now)) / oneToken / rule.RatePerSecond
		d.RetryAfter = max(time.Duration(missing*float64(time.Second)), time.Duration(b.pause.Load()-now.mono), time.Microsecond)
		return d
	}
	for _, b := range by.terms.buckets {
		if !b.rule.Load().isEnforced() {
			continue
		}
		var one Decision
		if one.describe(b, now); d.Limit == 0 || one.Remaining < d.Remaining {
			d.Limit, d.Remaining, d.ResetAfter = one.Limit, one.Remaining, one.ResetAfter
		}
	}
	return d
}

func (d *Decision) blame(rule *leaseRule) {
	d.ViolatedTier, d.ViolatedRule, d.ViolatedRuleID = rule.Scope, rule.KeyPattern, rule.RuleID
}

// describe says what is left of a bucket: what is held here, and what the store had after the last grant.
func (d *Decision) describe(b *heldBucket, now instant) {
	rule := b.rule.Load()
	left := min(b.held(now)+b.level.Load(), rule.Burst*oneToken)
	d.Limit, d.Remaining = rule.Burst, left/oneToken
	d.ResetAfter = time.Duration(float64(rule.Burst*oneToken-left) / oneToken / rule.RatePerSecond * float64(time.Second))
}
