package sluice

import (
	"context"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/enforce/lend"
)

// Verdict is a local decision of a Handle.
type Verdict int

// The verdicts. Undecided means that this process lacks the tokens to decide.
const (
	Undecided Verdict = iota
	Allowed
	Denied
)

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
	// A handle is leased after hotAfter checks within hotWithin, because tokens for a rare check would be missing
	// elsewhere.
	hotAfter  = 8
	hotWithin = 500 * time.Millisecond
	maxTaken  = 8
)

// Handle is a check that is repeated often, such as a busy tenant's or route's. While it is busy, the client leases
// tokens for at most a second at a time, and decides most checks locally in far less than a microsecond. Limits hold
// exactly, even when processes die. The client's key needs the permission lease; otherwise the server decides.
//
// Create a handle once and keep it. Handles are safe for concurrent use.
type Handle struct {
	client *Client
	check  Check
	asked  question
	cost   lend.Tokens

	terms     atomic.Pointer[terms] // nil while the server decides
	isActive  atomic.Bool           // known to the background goroutine
	warm      atomic.Uint64         // a time interval and a count, while not active
	allowed   lend.Counter          // unreported
	undecided atomic.Int64          // total

	// Only for the background goroutine:
	denials  []*denials // one for each rule that ever denied
	seen     int64      // undecided at the last look
	lastUsed int64      // on the monotonic clock
	renewAt  int64      // likewise
}

type denials struct {
	rule  int64
	count lend.Counter
}

type terms struct {
	how     string
	plan    string
	jitter  float64 // RetryJitterPercent of denials
	ends    lend.Instant
	buckets []*heldBucket
	denials []*denials // by bucket, or that of a block
	block   *leaseRule
}

// The values of terms.how.
const (
	howAsk   = "ask"
	howLease = "lease"
	howPass  = "pass"
	howBlock = "block"
)

// Handle returns a handle for a check, without a request. The error is an *Error for an invalid check.
func (c *Client) Handle(check Check) (*Handle, error) {
	q, err := check.ask(-1)
	if err != nil {
		return nil, err
	}
	h := &Handle{client: c, check: check, asked: q, cost: lend.Tokens(math.Round(q.cost * oneToken))}
	c.leases.start()
	return h, nil
}

// Try decides locally, or returns Undecided. Try never waits, allocates nothing and does not call Config.OnDecision.
func (h *Handle) Try() Verdict {
	verdict, _ := h.try(h.client.leases.clock())
	return verdict
}

// Check decides locally, or asks the server like Client.Check.
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

func (h *Handle) try(now lend.Instant) (Verdict, decidedBy) {
	t := h.terms.Load()
	if t == nil || t.how == howAsk || !now.IsBefore(t.ends) {
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
		if !t.buckets[0].Spend(now, h.cost) {
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
	b.Miss(h.cost)
	if b.IsPaused(now) && b.rule.Load().isEnforced() {
		t.denials[lacking].count.Add(1)
		return Denied, decidedBy{t, lacking}
	}
	h.undecided.Add(1)
	return Undecided, decidedBy{}
}

type decidedBy struct {
	terms  *terms
	bucket int
}

// takeAll takes from all buckets or none, and returns the index of a bucket without enough tokens, or -1.
func (h *Handle) takeAll(t *terms, now lend.Instant) int {
	var room [maxTaken]lend.Pending // an answer with more is refused
	last := len(t.buckets) - 1
	from, lacking := room[:last], -1
	for i, b := range t.buckets[:last] {
		if !b.Take(now, h.cost, &from[i]) {
			from, lacking = from[:i], i
			break
		}
	}
	if lacking < 0 && !t.buckets[last].Spend(now, h.cost) { // decides, so it need not be taken first
		lacking = last
	}
	for i := range from {
		if lacking < 0 {
			from[i].Spend()
		} else {
			from[i].PutBack()
		}
	}
	return lacking
}

// miss counts an undecided check, and activates a busy handle.
func (h *Handle) miss(now lend.Instant) {
	h.undecided.Add(1)
	if h.isActive.Load() {
		return
	}
	began := uint64(now.Mono/int64(hotWithin)) << 8
	was := h.warm.Load()
	switch {
	case was&^0xff != began:
		h.warm.Store(began | 1) // a lost race only loses a count
	case was&0xff < hotAfter-1:
		h.warm.Store(was + 1)
	case h.isActive.CompareAndSwap(false, true):
		h.client.leases.activate(h)
	}
}

// decision describes a verdict like the server, with the limit that denied, else the one with the fewest tokens.
func (h *Handle) decision(verdict Verdict, by decidedBy, now lend.Instant) Decision {
	d := Decision{Allowed: verdict == Allowed, Status: http.StatusOK, Plan: by.terms.plan, Source: FromLease}
	if by.terms.how == howBlock {
		d.Status, d.Reason = http.StatusTooManyRequests, "blocked"
		d.blame(by.terms.block)
		d.Tiers = []Tier{by.terms.block.tier()}
		return d
	}
	d.Tiers = make([]Tier, len(by.terms.buckets))
	deciding := -1
	for i, b := range by.terms.buckets {
		t := &d.Tiers[i]
		*t = b.tier(now)
		if rule := b.rule.Load(); verdict == Denied && i == by.bucket {
			d.Status, d.Reason, d.RetryJitterPercent = http.StatusTooManyRequests, "limit_exceeded", by.terms.jitter
			d.blame(rule)
			missing := int64(h.cost - b.Held(now))
			d.RetryAfter = max(rule.earning(missing), time.Duration(b.PausedUntil()-now.Mono), time.Microsecond)
			t.Allowed, t.RetryAfter, t.MoreAfter = false, d.RetryAfter, d.RetryAfter
		} else if verdict == Denied || !rule.isEnforced() ||
			deciding >= 0 && int64(t.Remaining) >= int64(d.Tiers[deciding].Remaining) {
			continue
		}
		deciding = i
	}
	if deciding >= 0 {
		t := &d.Tiers[deciding]
		d.Limit, d.Remaining, d.ResetAfter = t.Limit, int64(t.Remaining), t.ResetAfter
	}
	return d
}

func (d *Decision) blame(rule *leaseRule) {
	d.ViolatedTier, d.ViolatedRule, d.ViolatedRuleID = rule.Scope, rule.KeyPattern, rule.RuleID
}

func (r *leaseRule) tier() Tier {
	return Tier{RuleID: r.RuleID, Name: r.Name, Scope: r.Scope, KeyPattern: r.KeyPattern, Mode: r.Mode}
}

// earning returns how long the buckets take to earn an amount.
func (r *leaseRule) earning(amount int64) time.Duration {
	seconds := float64(max(0, amount)) / oneToken / r.RatePerSecond
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

// tier estimates a bucket from the tokens here and the store's level after the last grant.
func (b *heldBucket) tier(now lend.Instant) Tier {
	rule := b.rule.Load()
	burst := rule.Burst * oneToken
	left := min(int64(b.Held(now))+b.level.Load(), burst)
	t := rule.tier()
	t.Allowed, t.Limit, t.Remaining = true, rule.Burst, float64(max(0, left))/oneToken
	t.ResetAfter = rule.earning(burst - left)
	if rule.isEnforced() {
		next := min((left/oneToken+1)*oneToken, burst)
		t.Window, t.MoreAfter = rule.earning(burst), rule.earning(next-left)
	}
	return t
}
