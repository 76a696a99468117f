package lease

import (
	"context"
	"log/slog"
	"maps"
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
	// of these are as busy or leased, or once it allowed hotAlone; if its rate earns leastEarned within longestLot and its burst is at
	// least leastBurst. It is left after coldAfter without a check.
	hotAfter    = 16
	hotAlone    = 64
	hotWithin   = 500 * time.Millisecond
	leastEarned = 8
	leastBurst  = 16
	coldAfter   = 2 * time.Second
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
	hot    chan candidate // to lease
	served atomic.Int64
	split  atomic.Int64
	moved  [4]atomic.Int64 // in the order of Moved

	stop context.CancelFunc
	done chan struct{}

	sending sync.Map // the tenants that wait for the store's answer
	senders sync.WaitGroup

	// Of the background:
	ofTenant map[rules.TenantID]int
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
		store: store, clock: clock, log: log, hot: make(chan candidate, 256), done: make(chan struct{}),
		recent: newRecent(counters), ofTenant: map[rules.TenantID]int{},
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
		check, part := &checks[place.check], &split{}
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
	for {
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
			b.leave()
		}
	}
}

// admit starts to lease the candidates.
func (b *Buckets) admit() {
	held, isOn := *b.held.Load(), b.isOn.Load()
	var more map[enforce.Key]*leased
	for range len(b.hot) {
		c := <-b.hot
		if !isOn || held[c.key] != nil || more[c.key] != nil || max(len(held), len(more)) >= maxBuckets || b.ofTenant[c.key.Tenant] >= b.share() {
			continue
		}
		if more == nil {
			more = make(map[enforce.Key]*leased, len(held)+1)
			maps.Copy(more, held)
		}
		more[c.key] = &leased{Bucket: NewBucket(c.limit, b.clock()), key: c.key}
		b.ofTenant[c.key.Tenant]++
	}
	if more != nil {
		b.held.Store(&more)
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
		isEmpty := !e.isAsking && e.isEmpty()
		isCold := now.Mono-e.active.Mono > int64(coldAfter) || !canLease(e.inForce)
		e.mu.Unlock()
		if over := b.ofTenant[key.Tenant] - share - surplus[key.Tenant]; over > 0 {
			surplus[key.Tenant]++
			e.isLeaving.Store(true)
		}
		if !isEmpty || !isCold && isOn && !e.isLeaving.Load() {
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
}

// asking is a call to the store under way.
type asking struct {
	entries []*leased
	leases  []enforce.Lease
	sent    Instant
}

// collect returns the calls that are due, by tenant. The deadline of what a call lends counts from the first of its asks.
func (b *Buckets) collect() map[rules.TenantID][]*asking {
	calls := map[rules.TenantID][]*asking{}
	for _, e := range *b.held.Load() {
		if _, waits := b.sending.Load(e.key.Tenant); waits {
			continue
		}
		now := b.clock()
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
