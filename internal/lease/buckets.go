package lease

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// tickEvery is how often buckets are looked after.
	tickEvery = 10 * time.Millisecond
	// A bucket is leased once the store allowed hotAfter of its checks within hotWithin in this process and all other buckets
	// of these are as busy or leased, so that such checks need no round trip; if its rate earns leastEarned within longestLot and its
	// burst is at least leastBurst. It is left once it has fewer than cold checks within coldWithin, because then asks cost about what
	// they spare. It is also left, for restWithin, if all buckets are leased of fewer than one of wholeShare of its checks: to split
	// the others costs this process a little more than it spares the store.
	hotAfter    = 4
	hotWithin   = 500 * time.Millisecond
	wholeShare  = 8
	restWithin  = 10 * time.Second
	leastEarned = 8
	leastBurst  = 16
	cold        = 8
	coldWithin  = 2 * time.Second
	// leaveEvery is how often buckets that are cold are left, in ticks.
	leaveEvery = 10
	// counters is how many buckets are counted at once: 512 KiB.
	counters = 1 << 16
	// maxBuckets caps the leased buckets. A tenant has at most a leastTenants-th of them, or less while more tenants lease.
	maxBuckets, leastTenants = 4096, 4
	// inOneAsk caps the buckets of one call to the store, so that it is never busy with one for long.
	inOneAsk = 32
)

// Store is a store that lends tokens.
type Store interface {
	enforce.ReservingBuckets
	enforce.Lender
}

// Buckets serves the tiers of checks from leased tokens where it can, and has the store decide the others: in one call, as if
// the check had no more tiers than these. If the store denies the check, what was taken here is put back; if nobody knows what it
// did, it stays spent. So denials are the store's, and a check never makes more than one round trip.
//
// A check that is served wholly takes no lock and allocates nothing. Tokens are asked for in the background, so the store being
// slow delays no check. While it does not answer, lots are spent and not renewed.
type Buckets struct {
	store Store
	clock func() Instant
	log   *slog.Logger

	isOn   atomic.Bool
	held   atomic.Pointer[map[enforce.Key]*leased] // replaced, never changed
	recent recent
	hot    chan []candidate // to lease, the buckets of a check together
	served atomic.Int64
	split  atomic.Int64
	asks   atomic.Int64
	moved  [4]atomic.Int64 // in the order of Moved

	stop context.CancelFunc
	done chan struct{}

	sending sync.Map // the tenants that wait for the store's answer
	senders sync.WaitGroup

	// Of the background:
	ofTenant map[rules.TenantID]int
	rests    map[enforce.Key]Instant // until when buckets are not leased
}

// leased is a leased bucket.
type leased struct {
	*Bucket
	key        enforce.Key
	view       atomic.Pointer[view]
	edited     atomic.Pointer[enforce.Limit] // a limit that checks came with, and that is not the view's
	isStranded atomic.Bool                   // what is held is to be given back
	isLeaving  atomic.Bool                   // likewise, and no more is asked for
	mu         sync.Mutex                    // guards the Bucket but for Take

	partly atomic.Int64 // how many checks had a bucket that is not leased

	// Of the background: when the present coldWithin began, and the counts of checks by then.
	windowBegan               Instant
	windowCount, windowPartly int64
}

// review reports, once in each coldWithin, whether the bucket had few checks in it, and whether few of these had only leased buckets.
func (e *leased) review(now Instant) (isCold, isPartial bool) {
	if now.Mono-e.windowBegan.Mono < int64(coldWithin) {
		return false, false
	}
	count, partly := e.count.Load(), e.partly.Load()
	checks := count - e.windowCount
	whole := checks - (partly - e.windowPartly)
	e.windowBegan, e.windowCount, e.windowPartly = now, count, partly
	return checks < cold, whole*wholeShare < checks
}

// view is what checks see of the store's bucket.
type view struct {
	limit enforce.Limit // in force
	level enforce.Tokens
}

type candidate struct {
	key   enforce.Key
	limit enforce.Limit
}

// Open returns a Buckets in front of a store. It leases nothing before it is turned on. Close ends it, and not the end of ctx. A
// nil clock is this process's own.
func Open(ctx context.Context, store Store, clock func() Instant, log *slog.Logger) *Buckets {
	if clock == nil {
		start := time.Now()
		clock = func() Instant {
			now := time.Now()
			return Instant{Mono: int64(now.Sub(start)), Wall: now.UnixNano()}
		}
	}
	b := newBuckets(store, clock, log, counters)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	go b.run(ctx)
	return b
}

// newBuckets returns a Buckets that nothing looks after.
func newBuckets(store Store, clock func() Instant, log *slog.Logger, counters int) *Buckets {
	b := &Buckets{
		store: store, clock: clock, log: log, hot: make(chan []candidate, 128), done: make(chan struct{}),
		recent: newRecent(counters), ofTenant: map[rules.TenantID]int{}, rests: map[enforce.Key]Instant{},
	}
	b.held.Store(&map[enforce.Key]*leased{})
	return b
}

// TurnOn leases busy buckets from now on, or gives back what is held and leases none.
func (b *Buckets) TurnOn(on bool) { b.isOn.Store(on) }

// IsOn reports whether busy buckets are leased.
func (b *Buckets) IsOn() bool { return b.isOn.Load() }

// Close gives back what is held.
func (b *Buckets) Close() {
	b.stop()
	<-b.done
}

// Served counts the checks that were served without the store, and Split those of which lots served some tiers.
func (b *Buckets) Served() int64 { return b.served.Load() }

// Split is described at Served.
func (b *Buckets) Split() int64 { return b.split.Load() }

// Len returns how many buckets are leased.
func (b *Buckets) Len() int { return len(*b.held.Load()) }

// Asks counts the asks of the store for one bucket each.
func (b *Buckets) Asks() int64 { return b.asks.Load() }

// Moved counts the tokens that moved since the beginning.
func (b *Buckets) Moved() Moved {
	at := func(i int) enforce.Tokens { return enforce.Tokens(b.moved[i].Load()) }
	return Moved{Lent: at(0), Spent: at(1), Back: at(2), Forfeited: at(3)}
}

// SettleReservation implements enforce.Reserver.
func (b *Buckets) SettleReservation(
	ctx context.Context, tenant rules.TenantID, id enforce.ReservationID, with enforce.Settlement,
) (enforce.Settled, error) {
	return b.store.SettleReservation(ctx, tenant, id, with)
}

// Take implements enforce.Buckets.
func (b *Buckets) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	held, now := *b.held.Load(), b.clock()
	rest := b.begin(checks, held, now)
	if rest == nil {
		return nil
	}
	err := b.store.Take(ctx, rest.checks)
	b.end(checks, rest, held, err, now)
	rest.release()
	return err
}

// begin serves what lots can serve, and returns what the store is to decide; nil if that is nothing.
func (b *Buckets) begin(checks []enforce.BucketCheck, held map[enforce.Key]*leased, now Instant) (rest *sent) {
	served := 0
	var part split
	for i := range checks {
		check := &checks[i]
		check.Leased = false
		if len(held) > 0 {
			part.take(check, held, now)
		}
		if part.count > 0 && part.count == len(check.Tiers) {
			part.spend(check, now)
			check.Allowed, check.Answered, check.Exhausted, check.Recalled, check.Leased = true, true, false, false, true
			served++
			continue
		}
		if rest == nil {
			rest = sentPool.Get().(*sent)
		}
		rest.add(check, i, &part)
	}
	if served > 0 {
		b.served.Add(int64(served))
	}
	if rest != nil {
		b.split.Add(int64(len(rest.splits)))
		rest.point()
	}
	return rest
}

// end answers the checks that the store decided, and learns from them.
func (b *Buckets) end(checks []enforce.BucketCheck, rest *sent, held map[enforce.Key]*leased, err error, now Instant) {
	rest.finish(checks, err, now)
	if !b.isOn.Load() {
		return
	}
	for _, place := range rest.places {
		check, part := &checks[place.check], &noSplit
		if place.split >= 0 {
			part = &rest.splits[place.split]
		}
		switch {
		case !canServe(check):
		case check.Allowed:
			b.notice(check, part, held, now)
		case (err == nil || check.Answered) && !check.Recalled:
			freeFragments(check, held, now)
		}
	}
}

func canLease(limit enforce.Limit) bool {
	return enforce.CanLease(limit) && limit.Burst >= leastBurst && limit.Rate*longestLot.Seconds() >= leastEarned
}

// run looks after the buckets until ctx ends, and then gives everything back.
func (b *Buckets) run(ctx context.Context) {
	defer close(b.done)
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for ticks := 0; ; {
		select {
		case <-ctx.Done():
			b.TurnOn(false)
			b.senders.Wait()
			b.send(context.WithoutCancel(ctx), b.collect())
			b.senders.Wait()
			return
		case <-tick.C:
			b.admit()
			b.send(ctx, b.collect())
			if ticks++; ticks%leaveEvery == 0 {
				b.leave()
			}
		}
	}
}

// admit starts to lease the candidates: the buckets of a check together, because one of them alone spares no round trip.
func (b *Buckets) admit() {
	held, isOn, now := *b.held.Load(), b.isOn.Load(), b.clock()
	next := held
	for range len(b.hot) {
		together := <-b.hot
		if !isOn || slices.ContainsFunc(together, func(c candidate) bool { return now.isBefore(b.rests[c.key]) }) {
			continue
		}
		for _, c := range together {
			if next[c.key] != nil || len(next) >= maxBuckets || b.ofTenant[c.key.Tenant] >= b.share() {
				continue
			}
			if len(next) == len(held) {
				next = maps.Clone(held)
			}
			next[c.key] = &leased{Bucket: NewBucket(c.limit, now), key: c.key, windowBegan: now}
			b.ofTenant[c.key.Tenant]++
		}
	}
	if len(next) > len(held) {
		b.held.Store(&next)
	}
}

// share returns how many buckets of a tenant are leased at most.
func (b *Buckets) share() int { return maxBuckets / max(leastTenants, len(b.ofTenant)) }

// leave drops buckets that nobody asks about any more, or that are not to be leased. Of a tenant with more than its share
// the surplus is given back.
func (b *Buckets) leave() {
	held, now, share, isOn := *b.held.Load(), b.clock(), b.share(), b.isOn.Load()
	var fewer map[enforce.Key]*leased
	surplus := map[rules.TenantID]int{}
	for key, e := range held {
		e.mu.Lock()
		isDone := e.isDone()
		isCold, isPartial := e.review(now)
		if isCold || isPartial || !canLease(e.inForce) {
			e.isLeaving.Store(true)
		}
		e.mu.Unlock()
		if isPartial {
			b.rests[key] = now.plus(restWithin)
		}
		if over := b.ofTenant[key.Tenant] - share - surplus[key.Tenant]; over > 0 {
			surplus[key.Tenant]++
			e.isLeaving.Store(true)
		}
		if !isDone || isOn && !e.isLeaving.Load() {
			continue
		}
		if fewer == nil {
			fewer = maps.Clone(held)
		}
		delete(fewer, key)
		if b.ofTenant[key.Tenant]--; b.ofTenant[key.Tenant] == 0 {
			delete(b.ofTenant, key.Tenant)
		}
	}
	if fewer != nil {
		b.held.Store(&fewer)
	}
	maps.DeleteFunc(b.rests, func(_ enforce.Key, until Instant) bool { return !now.isBefore(until) })
}

// asking is a call to the store under way.
type asking struct {
	entries []*leased
	leases  []enforce.Lease
	sent    Instant
}

// collect returns the calls that are due, by tenant. The deadline of what they lend counts from here.
func (b *Buckets) collect() map[rules.TenantID][]*asking {
	calls, now := map[rules.TenantID][]*asking{}, b.clock()
	for _, e := range *b.held.Load() {
		if _, waits := b.sending.Load(e.key.Tenant); waits {
			continue
		}
		ask, limit, ok := b.next(e, now)
		if !ok {
			continue
		}
		of := calls[e.key.Tenant]
		if len(of) == 0 || len(of[len(of)-1].leases) == inOneAsk {
			of = append(of, &asking{sent: now})
		}
		call := of[len(of)-1]
		call.entries = append(call.entries, e)
		call.leases = append(call.leases, enforce.Lease{Key: e.key, Limit: limit, Ask: ask})
		calls[e.key.Tenant] = of
	}
	return calls
}

// next returns what to ask of a bucket.
func (b *Buckets) next(e *leased, now Instant) (ask enforce.Ask, limit enforce.Limit, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if edited := e.edited.Swap(nil); edited != nil {
		e.Edited(*edited)
	}
	if !b.isOn.Load() || e.isLeaving.Load() || e.isStranded.Swap(false) {
		ask, ok = e.Return(now)
	} else {
		ask, ok = e.Ask(now, 0, 0)
	}
	b.count(e.Moved())
	return ask, e.limit, ok
}

func (b *Buckets) count(moved Moved) {
	for i, tokens := range []enforce.Tokens{moved.Lent, moved.Spent, moved.Back, moved.Forfeited} {
		if tokens > 0 {
			b.moved[i].Add(int64(tokens))
		}
	}
}

// send makes calls. Tenants do not wait for each other: each waits for the answers to its own before it asks again.
func (b *Buckets) send(ctx context.Context, calls map[rules.TenantID][]*asking) {
	for tenant, of := range calls {
		b.sending.Store(tenant, true)
		b.senders.Go(func() {
			defer b.sending.Delete(tenant)
			for _, call := range of {
				b.asks.Add(int64(len(call.leases)))
				err := b.store.Lease(ctx, call.leases)
				if err != nil {
					b.log.Debug("leases were not renewed", "error", err)
				}
				b.answered(call, b.clock())
			}
		})
	}
}

// answered takes the answers to a call in.
func (b *Buckets) answered(call *asking, now Instant) {
	for i, e := range call.entries {
		e.mu.Lock()
		if l := &call.leases[i]; l.Answered {
			e.Answered(call.sent, now, &l.Grant)
			e.view.Store(&view{l.Grant.Limit, l.Grant.Level.Micros})
		} else {
			e.Lost()
		}
		b.count(e.Moved())
		e.mu.Unlock()
	}
}
