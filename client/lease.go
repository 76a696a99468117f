package sluice

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	leasesPath = "/v1/leases"
	// tickEvery is how often buckets are looked after while a handle is busy.
	tickEvery = 10 * time.Millisecond
	// renewAfter is how long terms are followed before they are asked for again. They end after a second.
	renewAfter = 400 * time.Millisecond
	// leaseTimeout is how long an answer is waited for. No check waits for it.
	leaseTimeout = 500 * time.Millisecond
	// coldAfter is how long a handle goes unused before it is left to ask.
	coldAfter = 2 * time.Second
	// maxHandles caps the handles that are leased at a time; the others ask. The server takes as many checks.
	maxHandles = 1000
	// clocksDiverge is by how much the wall clock and the monotonic clock may move apart between two ticks. Beyond it the
	// machine was suspended, or its clock was set.
	clocksDiverge = 250 * time.Millisecond
	// Pauses after failed requests.
	minLeasePause, maxLeasePause = 50 * time.Millisecond, time.Second
	// maxLeaseBytes is about how long a request becomes. The server takes twice that. What has no room goes with the next.
	maxLeaseBytes, askBytes = 512 << 10, 256
	// refusedFor is how long a handle asks whose check the server refused.
	refusedFor = 10 * time.Second
	// maxReported caps a count in one request; the rest follows.
	maxReported = 1_000_000_000
)

// leases looks after what a client's handles hold.
type leases struct {
	client *Client
	clock  func() instant
	holder string // names this process
	hot    chan *Handle
	begun  bool // guarded by client.queue.mu

	// Of the background goroutine:
	handles map[*Handle]struct{}
	buckets map[string]*heldBucket
	last    instant // of the last tick
	failed  int     // requests in a row
	retryAt int64   // on the monotonic clock
	isTold  bool    // the log knows that the key may not lease

	stats struct{ unreported, renewals, handles, buckets atomic.Int64 }
}

// LeaseStats describe what a client's handles hold.
type LeaseStats struct {
	Handles, Buckets int64
	// Renewals counts requests for leases.
	Renewals int64
	// Unreported counts decisions whose report was sent and not answered, so that nobody knows whether the server counts them.
	Unreported int64
}

// LeaseStats returns what the client's handles hold now, and what they did.
func (c *Client) LeaseStats() LeaseStats {
	s := &c.leases.stats
	return LeaseStats{Handles: s.handles.Load(), Buckets: s.buckets.Load(), Renewals: s.renewals.Load(), Unreported: s.unreported.Load()}
}

func (l *leases) init(c *Client) {
	start := time.Now()
	l.client, l.holder, l.hot = c, rand.Text(), make(chan *Handle, maxHandles)
	l.handles, l.buckets = map[*Handle]struct{}{}, map[string]*heldBucket{}
	l.clock = func() instant {
		now := time.Now()
		return instant{int64(now.Sub(start)), now.UnixNano()}
	}
}

// start starts the background goroutine, which ends with the client.
func (l *leases) start() {
	c := l.client
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	if !l.begun && c.life.Err() == nil {
		l.begun = true
		c.work.Go(l.run)
	}
}

// activate has a handle leased. Without room it goes on asking.
func (l *leases) activate(h *Handle) {
	select {
	case l.hot <- h:
	default:
		h.isActive.Store(false)
	}
}

// run looks after the handles until the client is closed, and then gives everything back.
func (l *leases) run() {
	ctx := l.client.life
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	ticker.Stop()
	for {
		var tick <-chan time.Time
		if len(l.handles) > 0 {
			tick = ticker.C
		}
		select {
		case <-ctx.Done():
			l.end(context.WithoutCancel(ctx))
			return
		case h := <-l.hot:
			if len(l.handles) == 0 {
				ticker.Reset(tickEvery)
				l.last = l.clock()
			}
			l.admit(h)
		case <-tick:
			l.tick(ctx)
			if len(l.handles) == 0 {
				ticker.Stop()
			}
		}
	}
}

func (l *leases) admit(h *Handle) {
	if len(l.handles) >= maxHandles {
		h.isActive.Store(false)
		return
	}
	now := l.clock()
	h.seen, h.lastUsed, h.renewAt = h.undecided.Load(), now.mono, 0
	l.handles[h] = struct{}{}
	l.stats.handles.Store(int64(len(l.handles)))
}

// tick asks for what is needed, and leaves what is not used.
func (l *leases) tick(ctx context.Context) {
	now := l.clock()
	if apart := (now.wall - l.last.wall) - (now.mono - l.last.mono); apart > int64(clocksDiverge) || apart < -int64(clocksDiverge) {
		l.drop()
	}
	l.last = now
	r := leaseRequest{sent: now}
	canAsk := now.mono >= l.retryAt
	if canAsk {
		for _, b := range l.buckets {
			if r.size >= maxLeaseBytes/2 {
				break
			}
			if ask, ok := b.ask(now); ok {
				r.add(b, ask)
			}
		}
	}
	for h := range l.handles {
		switch used := h.isUsed(); {
		case used:
			h.lastUsed = now.mono
		case now.mono-h.lastUsed > int64(coldAfter) && !h.hasReports():
			l.leave(h)
			continue
		}
		isFresh := now.mono-h.lastUsed < int64(renewAfter)
		if canAsk && r.size < maxLeaseBytes && (h.needs(r.asked) || now.mono >= h.renewAt && (isFresh || h.hasReports())) {
			r.addHandle(h)
		}
	}
	if len(r.handles)+len(r.asks) > 0 {
		l.send(ctx, &r)
	}
	l.forget()
}

// isUsed reports whether there were checks since it was asked last. Decisions that are not reported yet count as well.
func (h *Handle) isUsed() bool {
	undecided := h.undecided.Load()
	used := undecided != h.seen || h.hasReports()
	h.seen = undecided
	return used
}

func (h *Handle) hasReports() bool {
	return h.allowed.Load() > 0 || slices.ContainsFunc(h.denials, func(d *denials) bool { return d.count.Load() > 0 })
}

// needs reports whether the handle takes from one of the buckets.
func (h *Handle) needs(asked map[*heldBucket]bool) bool {
	t := h.terms.Load()
	return t != nil && slices.ContainsFunc(t.buckets, func(b *heldBucket) bool { return asked[b] })
}

// leave has a handle ask again.
func (l *leases) leave(h *Handle) {
	h.terms.Store(nil)
	delete(l.handles, h)
	l.stats.handles.Store(int64(len(l.handles)))
	h.isActive.Store(false)
}

// forget drops buckets that hold nothing, and that no handle takes from.
func (l *leases) forget() {
	used := map[*heldBucket]bool{}
	for h := range l.handles {
		if t := h.terms.Load(); t != nil {
			for _, b := range t.buckets {
				used[b] = true
			}
		}
	}
	for id, b := range l.buckets {
		if !used[b] && b.isEmpty() {
			delete(l.buckets, id)
		}
	}
	l.stats.buckets.Store(int64(len(l.buckets)))
}

// drop forgets all tokens and terms.
func (l *leases) drop() {
	for h := range l.handles {
		h.terms.Store(nil)
		h.renewAt = 0
	}
	for _, b := range l.buckets {
		b.drop()
	}
}

// end gives everything back.
func (l *leases) end(ctx context.Context) {
	for len(l.hot) > 0 {
		l.admit(<-l.hot)
	}
	now := l.clock()
	r := leaseRequest{sent: now}
	for h := range l.handles {
		h.terms.Store(nil)
		if h.hasReports() && r.size < maxLeaseBytes {
			r.addHandle(h)
		}
	}
	for _, b := range l.buckets {
		if r.size >= maxLeaseBytes {
			break
		}
		if ask, ok := b.giveBack(now); ok {
			r.add(b, ask)
		}
	}
	if len(r.handles)+len(r.asks) > 0 {
		l.send(ctx, &r)
	}
	l.drop()
	l.stats.handles.Store(0)
	l.stats.buckets.Store(0)
}

// leaseRequest is one request under way.
type leaseRequest struct {
	sent    instant
	handles []*Handle
	asks    []bucketAsk
	asked   map[*heldBucket]bool
	counts  []checkReport // of handles
	size    int           // about, in bytes
}

func (r *leaseRequest) add(b *heldBucket, ask bucketAsk) {
	if r.asked == nil {
		r.asked = map[*heldBucket]bool{}
	}
	r.asks, r.asked[b] = append(r.asks, ask), true
	r.size += askBytes + len(b.id)
}

func (r *leaseRequest) addHandle(h *Handle) {
	r.handles = append(r.handles, h)
	r.size += askBytes + len(h.asked.body)
}

// checkReport is what a handle decided since its last report.
type checkReport struct {
	Check   json.RawMessage `json:"check"`
	Allowed int64           `json:"allowed,omitempty"`
	Denied  []ruleDenials   `json:"denied,omitempty"`
}

type ruleDenials struct {
	RuleID int64 `json:"rule_id"`
	Count  int64 `json:"count"`
}

// takeReport moves the counts into a report.
func (h *Handle) takeReport() checkReport {
	r := checkReport{Check: json.RawMessage(h.asked.body), Allowed: takeUpTo(&h.allowed, h.mostReported())}
	for _, d := range h.denials {
		if count := takeUpTo(&d.count, maxReported); count > 0 && len(r.Denied) < maxTaken {
			r.Denied = append(r.Denied, ruleDenials{d.rule, count})
		} else {
			d.count.Add(count)
		}
	}
	return r
}

// mostReported is how many allowed checks one report may have: the server bounds their cost.
func (h *Handle) mostReported() int64 {
	const mostCost = 1e12 // tokens
	return max(1, min(maxReported, int64(mostCost/max(h.asked.cost, 1))))
}

func takeUpTo(count *atomic.Int64, most int64) int64 {
	n := min(count.Load(), most) // only reports take
	count.Add(-n)
	return n
}

// putBack undoes takeReport, because the server did not count it.
func (h *Handle) putBack(r *checkReport) {
	h.allowed.Add(r.Allowed)
	for _, denied := range r.Denied {
		h.denialsOf(denied.RuleID).count.Add(denied.Count)
	}
}

func (r *checkReport) count() int64 {
	n := r.Allowed
	for _, d := range r.Denied {
		n += d.Count
	}
	return n
}

// denialsOf returns the count of a rule's denials.
func (h *Handle) denialsOf(rule int64) *denials {
	for _, d := range h.denials {
		if d.rule == rule {
			return d
		}
	}
	d := &denials{rule: rule}
	h.denials = append(h.denials, d)
	return d
}

// leaseAnswer is the server's answer.
type leaseAnswer struct {
	ValidMS int64 `json:"valid_ms"`
	Checks  []struct {
		How       string     `json:"how"`
		Plan      string     `json:"plan"`
		Buckets   []int      `json:"buckets"`
		BlockedBy *leaseRule `json:"blocked_by"`
	} `json:"checks"`
	Buckets []struct {
		Bucket string `json:"bucket"`
		leaseRule
		Grant *bucketGrant `json:"grant"`
	} `json:"buckets"`
}

// send makes a request and takes its answer in.
func (l *leases) send(ctx context.Context, r *leaseRequest) {
	r.counts = make([]checkReport, len(r.handles))
	for i, h := range r.handles {
		r.counts[i] = h.takeReport()
	}
	body, err := json.Marshal(struct {
		Holder  string        `json:"holder"`
		Checks  []checkReport `json:"checks,omitempty"`
		Buckets []bucketAsk   `json:"buckets,omitempty"`
	}{l.holder, r.counts, r.asks})
	if err != nil { // checks, names and numbers always encode
		l.lost(r, &Error{Kind: KindRequest, Err: err})
		return
	}
	within, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	l.stats.renewals.Add(1)
	status, header, text, failed := l.client.send(within, http.MethodPost, leasesPath, body)
	var answer leaseAnswer
	switch {
	case failed != nil:
	case status != http.StatusOK || !isJSON(header):
		failed = problem(status, text)
	case json.Unmarshal(text, &answer) != nil || !answer.fits(len(r.handles)):
		failed = &Error{Kind: KindProtocol, Detail: "The answer to a request for leases is not what it should be."}
	}
	if failed != nil {
		l.lost(r, failed)
		return
	}
	l.failed, l.retryAt = 0, 0
	if l.isTold {
		l.isTold = false
		l.client.config.Logger.Info("Sluice lends tokens again")
	}
	l.answered(r, &answer)
}

// fits reports whether the answer answers as many checks, and refers to nothing that is not in it.
func (a *leaseAnswer) fits(checks int) bool {
	if len(a.Checks) != checks {
		return false
	}
	for i := range a.Checks {
		c := &a.Checks[i]
		if len(c.Buckets) > maxTaken || c.How == howBlock && c.BlockedBy == nil || c.How == howLease && len(c.Buckets) == 0 ||
			slices.ContainsFunc(c.Buckets, func(b int) bool { return b < 0 || b >= len(a.Buckets) }) {
			return false
		}
	}
	for i := range a.Buckets {
		b := &a.Buckets[i]
		if !(b.RatePerSecond > 0) || b.Burst < 1 || b.Grant != nil && b.Grant.Amount < 0 {
			return false
		}
	}
	return true
}

func (l *leases) answered(r *leaseRequest, answer *leaseAnswer) {
	now := l.clock()
	buckets := make([]*heldBucket, len(answer.Buckets))
	for i := range answer.Buckets {
		from := &answer.Buckets[i]
		b := l.buckets[from.Bucket]
		if b == nil {
			b = newHeldBucket(from.Bucket, &from.leaseRule, now)
			l.buckets[from.Bucket] = b
		}
		buckets[i] = b
		if from.Since >= b.rule.Load().Since { // else this server has not read the latest limit yet
			b.rule.Store(&from.leaseRule)
		}
		if from.Grant != nil && b.isAsking {
			b.granted(r.sent, now, &from.leaseRule, from.Grant)
		}
	}
	for b := range r.asked {
		if b.isAsking {
			b.unanswered()
		}
	}
	life := min(time.Duration(max(0, answer.ValidMS))*time.Millisecond, time.Second)
	ends := r.sent.plus(life - life/clockDrift)
	for i, h := range r.handles {
		from := &answer.Checks[i]
		t := &terms{how: from.How, plan: from.Plan, ends: ends, block: from.BlockedBy}
		if t.how == howBlock {
			t.denials = []*denials{h.denialsOf(t.block.RuleID)}
		}
		for _, at := range from.Buckets {
			b := buckets[at]
			b.largest = max(b.largest, h.cost)
			t.buckets = append(t.buckets, b)
			t.denials = append(t.denials, h.denialsOf(answer.Buckets[at].RuleID))
		}
		if t.how != howPass && t.how != howBlock && t.how != howLease {
			t.how = howAsk // also a word of a later server
		}
		h.terms.Store(t)
		h.renewAt = now.mono + int64(renewAfter)
	}
}

// lost says that a request was not answered. Its reports of tokens are never repeated. Its counts of decisions are, if it is
// certain that the server did not count them.
func (l *leases) lost(r *leaseRequest, failed *Error) {
	for b := range r.asked {
		b.lost()
	}
	var network *net.OpError
	uncounted := failed.Status != 0 || errors.As(failed.Err, &network) && network.Op == "dial"
	for i, h := range r.handles {
		if uncounted {
			h.putBack(&r.counts[i])
		} else {
			l.stats.unreported.Add(r.counts[i].count())
		}
	}
	if l.refuse(r, failed) {
		return
	}
	l.failed++
	pause := min(minLeasePause<<min(l.failed-1, 10), maxLeasePause)
	l.retryAt = l.clock().mono + int64(pause)
	if failed.Kind == KindKey || failed.Kind == KindRequest || failed.Kind == KindProtocol {
		l.drop() // the key was revoked, the tenant suspended, or this is no server that lends
		if !l.isTold {
			l.isTold = true
			l.client.config.Logger.Warn("Sluice lends no tokens; handles ask for each check", "error", failed)
		}
	}
}

// refuse has the handles ask whose checks the server refused, such as for a plan that is gone, and reports whether there are
// any. The others are asked for again without them.
func (l *leases) refuse(r *leaseRequest, failed *Error) (refused bool) {
	if failed.Kind != KindRequest {
		return false
	}
	for _, field := range failed.Fields {
		rest, ok := strings.CutPrefix(field.Pointer, "/checks/")
		number, _, _ := strings.Cut(rest, "/")
		if i, err := strconv.Atoi(number); ok && err == nil && i >= 0 && i < len(r.handles) {
			h := r.handles[i]
			h.terms.Store(nil)
			h.renewAt = l.clock().mono + int64(refusedFor)
			refused = true
		}
	}
	return refused
}

// decimal is an amount of tokens in millionths, which JSON has in tokens.
type decimal int64

// MarshalJSON writes the amount exactly.
func (d decimal) MarshalJSON() ([]byte, error) {
	b := strconv.AppendInt(nil, int64(d)/oneToken, 10)
	if parts := int64(d) % oneToken; parts != 0 {
		b = append(b, '.')
		for unit := int64(oneToken / 10); parts > 0; unit /= 10 {
			b = append(b, byte('0'+parts/unit))
			parts %= unit
		}
	}
	return b, nil
}

// UnmarshalJSON reads an amount of at most 6 decimals. Amounts of Sluice are exact in a float64 of millionths.
func (d *decimal) UnmarshalJSON(text []byte) error {
	tokens, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(tokens >= 0 && tokens <= 1e9) {
		return errAmount
	}
	*d = decimal(tokens*oneToken + 0.5)
	return nil
}

var errAmount = errors.New("an amount of tokens is not a number from 0 to 1e9")
