package sluice

import (
	"context"
	"crypto/rand"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/enforce/lend"
)

const (
	leasesPath                   = "/v1/leases"
	tickEvery                    = 10 * time.Millisecond  // while a handle is busy
	renewAfter                   = 400 * time.Millisecond // terms expire after a second
	leaseTimeout                 = 500 * time.Millisecond // no check waits for a lease
	coldAfter                    = 2 * time.Second        // unused handles are deactivated
	maxHandles                   = 1000                   // active ones; the server bounds the checks of a request
	minLeasePause, maxLeasePause = 50 * time.Millisecond, time.Second
	// maxLeaseBytes approximately bounds a request; the server accepts twice that. The rest goes with the next.
	maxLeaseBytes, askBytes = 512 << 10, 256
	refusedFor              = 10 * time.Second // handles ask after the server refused their check
	maxReported             = 1_000_000_000    // the rest follows with the next request
)

type leases struct {
	client  *Client
	clock   func() lend.Instant
	holder  string // identifies this process
	timeout time.Duration
	hot     chan *Handle
	begun   bool // guarded by client.queue.mu

	// Only for the background goroutine:
	handles  map[*Handle]struct{}
	buckets  map[string]*heldBucket
	last     lend.Instant // of the last tick
	failed   int          // consecutive failed requests
	retryAt  int64        // on the monotonic clock
	isWarned bool         // the log has the warning that the key may not lease
	// isClosing stops giving terms to handles.
	isClosing bool

	stats struct{ unreported, renewals, handles, buckets atomic.Int64 }
}

// LeaseStats describe the leases of a client's handles.
type LeaseStats struct {
	Handles, Buckets int64
	Renewals         int64
	// Unreported counts decisions that the server may not have counted, because the report was lost, refused, or
	// answered by a proxy, or Close could not send it.
	Unreported int64
}

// LeaseStats returns the client's leases.
func (c *Client) LeaseStats() LeaseStats {
	s := &c.leases.stats
	return LeaseStats{
		Handles: s.handles.Load(), Buckets: s.buckets.Load(), Renewals: s.renewals.Load(),
		Unreported: s.unreported.Load(),
	}
}

func (l *leases) init(c *Client) {
	l.client, l.holder, l.timeout, l.hot = c, rand.Text(), leaseTimeout, make(chan *Handle, maxHandles)
	l.handles, l.buckets = map[*Handle]struct{}{}, map[string]*heldBucket{}
	l.clock = lend.Clock()
}

func (l *leases) start() {
	c := l.client
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	if !l.begun && c.life.Err() == nil {
		l.begun = true
		c.loop("leases", l.run)
	}
}

// activate queues a handle for leasing. If the queue is full, the handle goes on asking.
func (l *leases) activate(h *Handle) {
	select {
	case l.hot <- h:
	default:
		h.isActive.Store(false)
	}
}

// run manages the handles until the client is closed, and then returns all tokens.
func (l *leases) run() {
	// Closing the client must not end a request, because the server may have counted its report.
	ctx := context.WithoutCancel(l.client.life)
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	ticker.Stop()
	for {
		var tick <-chan time.Time
		if len(l.handles) > 0 {
			tick = ticker.C
		}
		select {
		case <-l.client.life.Done():
			l.end(ctx)
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
	h.seen, h.lastUsed, h.renewAt = h.undecided.Load(), now.Mono, 0
	l.handles[h] = struct{}{}
	l.stats.handles.Store(int64(len(l.handles)))
}

func (l *leases) tick(ctx context.Context) {
	if r := l.due(l.clock()); r != nil {
		l.send(ctx, r)
	}
	l.forget()
}

// due returns the due request, or nil.
func (l *leases) due(now lend.Instant) *leaseRequest {
	if _, tooFar := now.Apart(l.last); tooFar {
		l.drop()
	}
	l.last = now
	r := &leaseRequest{sent: now}
	canAsk := now.Mono >= l.retryAt
	if canAsk {
		for _, b := range l.buckets {
			if r.size >= maxLeaseBytes/2 {
				break
			}
			if ask, ok := b.Ask(now, lend.TopUp); ok {
				r.add(b, &ask)
			}
		}
	}
	for h := range l.handles {
		switch used := h.isUsed(); {
		case used:
			h.lastUsed = now.Mono
		case now.Mono-h.lastUsed > int64(coldAfter) && !h.hasReports():
			l.leave(h)
			continue
		}
		isFresh := now.Mono-h.lastUsed < int64(renewAfter)
		if canAsk && r.size < maxLeaseBytes &&
			(h.needs(r.asked) || now.Mono >= h.renewAt && (isFresh || h.hasReports())) {
			r.addHandle(h)
		}
	}
	if r.isEmpty() {
		return nil
	}
	return r
}

// isUsed reports whether there are unreported decisions, or checks since the last call.
func (h *Handle) isUsed() bool {
	undecided := h.undecided.Load()
	used := undecided != h.seen || h.hasReports()
	h.seen = undecided
	return used
}

func (h *Handle) hasReports() bool {
	return h.allowed.Load() > 0 || slices.ContainsFunc(h.denials, func(d *denials) bool { return d.count.Load() > 0 })
}

func (h *Handle) needs(asked map[*heldBucket]bool) bool {
	t := h.terms.Load()
	return t != nil && slices.ContainsFunc(t.buckets, func(b *heldBucket) bool { return asked[b] })
}

func (l *leases) leave(h *Handle) {
	h.terms.Store(nil)
	delete(l.handles, h)
	l.stats.handles.Store(int64(len(l.handles)))
	h.isActive.Store(false)
}

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
		if !used[b] && b.IsDone() {
			delete(l.buckets, id)
		}
	}
	l.stats.buckets.Store(int64(len(l.buckets)))
}

func (l *leases) drop() {
	for h := range l.handles {
		h.terms.Store(nil)
		h.renewAt = 0
	}
	for _, b := range l.buckets {
		b.Forfeit()
	}
}

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

// rest returns the remaining decisions and tokens, up to the bound of a request.
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
		if ask, ok := b.Return(now); ok {
			r.add(b, &ask)
		}
	}
	return r
}
