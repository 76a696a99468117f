package sluice

import (
	"context"
	"crypto/rand"
	"slices"
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
	// isClosing: the client is being closed, so handles get no terms any more.
	isClosing bool

	stats struct{ unreported, renewals, handles, buckets atomic.Int64 }
}

// LeaseStats describe what a client's handles hold.
type LeaseStats struct {
	Handles, Buckets int64
	// Renewals counts requests for leases.
	Renewals int64
	// Unreported counts decisions that the server did not count, or may not have counted: the report was not answered, or
	// by a proxy alone, the server refused the check, or Close could not send the report.
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
	if len(l.handles) == 0 {
		l.last = now
	}
	h.seen, h.lastUsed, h.renewAt = h.undecided.Load(), now.mono, 0
	l.handles[h] = struct{}{}
	l.stats.handles.Store(int64(len(l.handles)))
}

// tick asks for what is needed, and leaves what is not used.
func (l *leases) tick(ctx context.Context) {
	if r := l.due(l.clock()); r != nil {
		l.send(ctx, r)
	}
	l.forget()
}

// due returns the request that is due, or nil.
func (l *leases) due(now instant) *leaseRequest {
	if apart := (now.wall - l.last.wall) - (now.mono - l.last.mono); apart > int64(clocksDiverge) || apart < -int64(clocksDiverge) {
		l.drop()
	}
	l.last = now
	r := &leaseRequest{sent: now}
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
	if r.isEmpty() {
		return nil
	}
	return r
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
	l.isClosing = true
	for len(l.hot) > 0 {
		l.admit(<-l.hot)
	}
	for h := range l.handles {
		h.terms.Store(nil)
	}
	for r := l.rest(); !r.isEmpty(); r = l.rest() {
		if l.send(ctx, r); l.failed > 0 {
			break
		}
	}
	for h := range l.handles {
		for h.hasReports() {
			report := h.takeReport()
			l.stats.unreported.Add(report.count())
		}
	}
	l.drop()
	l.stats.handles.Store(0)
	l.stats.buckets.Store(0)
}

// rest returns a request that reports and gives back what is left, as much as one may have.
func (l *leases) rest() *leaseRequest {
	now := l.clock()
	r := &leaseRequest{sent: now}
	for h := range l.handles {
		if r.size < maxLeaseBytes && h.hasReports() {
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
	return r
}
