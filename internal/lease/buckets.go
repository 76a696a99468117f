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
	// clocksDiverge is by how much the wall clock and the monotonic clock may move apart between two ticks. Beyond it the machine
	// was suspended or its clock was set, so one of them, or both in turn, may have hidden for how long. The store forgets a slot no
	// sooner than this after its tokens have ended, so a shorter time does no harm.
	clocksDiverge = enforce.SlotGuard
	// leaveEvery is how often buckets that are cold are left, in ticks.
	leaveEvery = 10
	// counters is how many buckets are counted at once: 256 KiB.
	counters = 1 << 16
	// inOneAsk caps the buckets of one call to the store, so that it is never busy with one for long. Others come along with those that
	// are due until a shard has company: more would spare little.
	inOneAsk = 32
	company  = 16
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
	offers offers // to lease
	places places
	served atomic.Int64
	split  atomic.Int64
	asks   atomic.Int64
	moved  [4]atomic.Int64 // in the order of Moved

	stop context.CancelFunc
	done chan struct{}

	sending sync.Map // the tenants that wait for the store's answer
	senders sync.WaitGroup

	// Of the background:
	rests map[enforce.Key]Instant // until when buckets are not leased
	last  Instant                 // of the last look at the clocks
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
		store: store, clock: clock, log: log, done: make(chan struct{}),
		recent: newRecent(counters), offers: offers{added: make(chan struct{}, 1)}, rests: map[enforce.Key]Instant{},
		places: places{ofTenant: map[rules.TenantID]int{}, waiting: map[rules.TenantID]Instant{}},
	}
	b.held.Store(&map[enforce.Key]*leased{})
	b.last = clock()
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
	if !holdsAny(held, checks) {
		return b.takeUnleased(ctx, checks, now)
	}
	rest := b.begin(checks, held, now)
	if rest == nil {
		return nil
	}
	err := b.store.Take(ctx, rest.checks)
	b.end(checks, rest, held, err, now)
	rest.release()
	return err
}

// holdsAny reports whether a tier of a check is leased.
func holdsAny(held map[enforce.Key]*leased, checks []enforce.BucketCheck) bool {
	if len(held) == 0 {
		return false
	}
	for i := range checks {
		for j := range checks[i].Tiers {
			if held[checks[i].Tiers[j].Key] != nil {
				return true
			}
		}
	}
	return false
}

// takeUnleased is Take for checks that use no leased bucket. The store gets the checks themselves and not copies of them.
func (b *Buckets) takeUnleased(ctx context.Context, checks []enforce.BucketCheck, now Instant) error {
	for i := range checks {
		checks[i].Leased = false
	}
	err := b.store.Take(ctx, checks)
	if !b.isOn.Load() {
		return err
	}
	first, step := sample(len(checks), now)
	for i := first; i < len(checks); i += step {
		if check := &checks[i]; check.Allowed && canServe(check) {
			b.notice(check, &noSplit, nil, now, true)
		}
	}
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
	first, step := sample(len(rest.places), now)
	for k, place := range rest.places {
		check, part := &checks[place.check], &noSplit
		if place.split >= 0 {
			part = &rest.splits[place.split]
		}
		switch {
		case !canServe(check):
		case check.Allowed:
			b.notice(check, part, held, now, k%step == first)
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
		if b.isIdle() {
			tick.Stop()
			select {
			case <-ctx.Done():
			case <-b.offers.added:
			}
			b.last = b.clock()
			tick.Reset(tickEvery)
		}
		select {
		case <-ctx.Done():
			b.TurnOn(false)
			b.senders.Wait()
			b.send(context.WithoutCancel(ctx), b.collect())
			b.senders.Wait()
			return
		case <-tick.C:
			b.watchClocks()
			b.admit()
			b.send(ctx, b.collect())
			if ticks++; ticks%leaveEvery == 0 {
				b.leave()
			}
		}
	}
}

// isIdle reports whether there is nothing to look after before the next offer, so that a process without busy buckets does not wake
// for it.
func (b *Buckets) isIdle() bool {
	return len(*b.held.Load()) == 0 && len(b.rests) == 0 && len(b.places.waiting) == 0
}

// watchClocks forfeits everything if the two clocks moved apart since the last look. Every lot ends by either clock, so this is for
// clocks that were wrong in turn: one stood still while the machine was suspended, and then the other was set back.
func (b *Buckets) watchClocks() {
	now := b.clock()
	apart := time.Duration((now.Wall - b.last.Wall) - (now.Mono - b.last.Mono))
	b.last = now
	if apart.Abs() <= clocksDiverge {
		return
	}
	held := *b.held.Load()
	for _, e := range held {
		e.mu.Lock()
		e.Forfeit()
		b.count(e.Moved())
		e.mu.Unlock()
	}
	if len(held) > 0 {
		b.log.Info("the clocks moved apart, so leased tokens were dropped", "by", apart, "buckets", len(held))
	}
}

// admit starts to lease the candidates: the buckets of a check together, because one of them alone spares no round trip.
func (b *Buckets) admit() {
	held, isOn, now := *b.held.Load(), b.isOn.Load(), b.clock()
	next := held
	for _, together := range b.offers.take() {
		if !isOn || slices.ContainsFunc(together, func(c candidate) bool { return now.isBefore(b.rests[c.key]) }) {
			continue
		}
		for _, c := range together {
			if next[c.key] != nil || !b.places.take(c.key.Tenant, now) {
				continue
			}
			if len(next) == len(held) {
				next = maps.Clone(held)
			}
			next[c.key] = &leased{Bucket: NewBucket(c.limit, now), key: c.key, windowBegan: now}
		}
	}
	if len(next) > len(held) {
		b.held.Store(&next)
	}
	b.places.update(now)
}

// leave drops buckets that nobody asks about any more, or that are not to be leased. Of a tenant with more than its share
// the surplus is given back.
func (b *Buckets) leave() {
	held, now, share, isOn := *b.held.Load(), b.clock(), b.places.share(), b.isOn.Load()
	staying := map[rules.TenantID]int{}
	for key, e := range held {
		e.mu.Lock()
		isCold, isPartial := e.review(now)
		if isCold || isPartial || !canLease(e.inForce) {
			e.isLeaving.Store(true)
		}
		e.mu.Unlock()
		if isPartial {
			b.rests[key] = now.plus(restWithin)
		}
		if !e.isLeaving.Load() {
			staying[key.Tenant]++
		}
	}
	var fewer map[enforce.Key]*leased
	for key, e := range held {
		if staying[key.Tenant] > share && !e.isLeaving.Load() {
			staying[key.Tenant]--
			e.isLeaving.Store(true)
		}
		e.mu.Lock()
		isDone := e.isDone()
		e.mu.Unlock()
		if !isDone || isOn && !e.isLeaving.Load() {
			continue
		}
		if fewer == nil {
			fewer = maps.Clone(held)
		}
		delete(fewer, key)
		b.places.free(key.Tenant)
	}
	if fewer != nil {
		b.held.Store(&fewer)
	}
	maps.DeleteFunc(b.rests, func(_ enforce.Key, until Instant) bool { return !now.isBefore(until) })
}
