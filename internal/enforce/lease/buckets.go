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
	"github.com/sluicegate/sluice/internal/enforce/lend"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	tickEvery = 10 * time.Millisecond
	// A bucket is leased after hotAfter allowed checks within hotWithin, if their other buckets are as busy or leased.
	hotAfter  = 4
	hotWithin = 500 * time.Millisecond
	// Buckets that earn fewer than leastEarned tokens within earnedWithin, or hold fewer than leastBurst, are never
	// leased.
	leastEarned  = 8
	earnedWithin = 5 * time.Second
	leastBurst   = 16
	// With fewer checks than cold within coldWithin, renewals cost about as much as they save.
	cold       = 8
	coldWithin = 2 * time.Second
	// If leases alone serve fewer than 1 in wholeShare checks, splitting the rest costs more than it saves.
	wholeShare = 8
	restWithin = 10 * time.Second
	leaveEvery = 10
	counters   = 1 << 16
	// inOneAsk caps the buckets of one call, because a script blocks the store; calls below company take others along.
	inOneAsk = 32
	company  = 16
)

// Store lends.
type Store interface {
	enforce.ReservingBuckets
	enforce.Lender
}

// Buckets serves tiers from leased tokens, and sends the others to the store in one call. If the store denies, leased
// tokens are put back; if its answer is unknown, they count as spent. Only the store denies, and a check makes at most
// one round trip.
//
// A check served by leases alone takes no lock and allocates nothing. Leases are renewed in the background, so a slow
// store delays no check.
type Buckets struct {
	store Store
	clock func() lend.Instant
	log   *slog.Logger

	isOn   atomic.Bool
	held   atomic.Pointer[map[enforce.Key]*leased] // replaced, never changed
	recent recent
	offers offers // to lease
	quotas quotas
	served atomic.Int64
	split  atomic.Int64
	asks   atomic.Int64
	moved  [4]atomic.Int64 // in the order of Moved

	stop context.CancelFunc
	done chan struct{}

	sending sync.Map // the tenants that wait for the store's answer
	senders panics.Group

	rests map[enforce.Key]lend.Instant // until when buckets are not leased
	last  lend.Instant                 // of the last look at the clocks
}

type leased struct {
	*lend.Bucket
	key        enforce.Key
	limit      enforce.Limit // as this process knows it
	view       atomic.Pointer[view]
	edited     atomic.Pointer[enforce.Limit] // a newer limit than the view's, from a check
	isStranded atomic.Bool                   // give back all tokens
	isLeaving  atomic.Bool                   // likewise, and ask for no more
	mu         sync.Mutex                    // guards limit, and the Bucket's methods for one goroutine

	count, partly atomic.Int64 // of checks, and of those with an unleased bucket

	windowBegan               lend.Instant
	windowCount, windowPartly int64
}

func newLeased(key enforce.Key, limit enforce.Limit, now lend.Instant) *leased {
	return &leased{Bucket: lend.New(lentLimit(limit), now), key: key, limit: limit, windowBegan: now}
}

func lentLimit(limit enforce.Limit) lend.Limit {
	return lend.Limit{Rate: limit.Rate, Burst: limit.Burst, Since: limit.Since}
}

// locked unlocks even after a panic.
func (e *leased) locked(do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do()
}

func (e *leased) granted(sent, now lend.Instant, grant *enforce.Grant) {
	e.Answered(sent, now, &lend.Grant{
		Amount: grant.Amount, Slot: grant.Slot, Epoch: grant.Epoch, Holders: grant.Holders,
		Limit: lentLimit(grant.Limit), Pause: grant.Pause(),
	})
	e.view.Store(&view{grant.Limit, grant.Level.Micros})
}

func (e *leased) canStay() bool {
	if v := e.view.Load(); v != nil {
		return canLease(v.limit)
	}
	return canLease(e.limit)
}

// review reports, once per coldWithin, whether the bucket had few checks, and few of them with leased buckets alone.
func (e *leased) review(now lend.Instant) (isCold, isPartial bool) {
	if now.Mono-e.windowBegan.Mono < int64(coldWithin) {
		return false, false
	}
	count, partly := e.count.Load(), e.partly.Load()
	checks := count - e.windowCount
	whole := checks - (partly - e.windowPartly)
	e.windowBegan, e.windowCount, e.windowPartly = now, count, partly
	return checks < cold, whole*wholeShare < checks
}

type view struct {
	limit enforce.Limit // in force
	level enforce.Tokens
}

// Open returns a Buckets that leases nothing before TurnOn; a nil clock is this process's own. Close ends it, not ctx.
func Open(ctx context.Context, store Store, clock func() lend.Instant, log *slog.Logger) *Buckets {
	if clock == nil {
		clock = lend.Clock()
	}
	b := newBuckets(store, clock, log, counters)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	panics.Go(log, "leases", func() {
		defer close(b.done)
		panics.Loop(ctx, log, "leases", b.run)
		b.giveBack(context.WithoutCancel(ctx))
	})
	return b
}

func newBuckets(store Store, clock func() lend.Instant, log *slog.Logger, counters int) *Buckets {
	b := &Buckets{
		store: store, clock: clock, log: log, done: make(chan struct{}),
		recent: newRecent(counters), offers: offers{added: make(chan struct{}, 1)},
		rests:  map[enforce.Key]lend.Instant{},
		quotas: quotas{ofTenant: map[rules.TenantID]int{}, waiting: map[rules.TenantID]lend.Instant{}},
	}
	b.held.Store(&map[enforce.Key]*leased{})
	b.last = clock()
	return b
}

// TurnOn starts to lease, or gives all leases back.
func (b *Buckets) TurnOn(on bool) { b.isOn.Store(on) }

// IsOn is what TurnOn set.
func (b *Buckets) IsOn() bool { return b.isOn.Load() }

// Close returns all leases.
func (b *Buckets) Close() {
	b.stop()
	<-b.done
}

// Served counts the checks served by leases alone.
func (b *Buckets) Served() int64 { return b.served.Load() }

// Split counts the checks served in part.
func (b *Buckets) Split() int64 { return b.split.Load() }

// Len counts leased buckets.
func (b *Buckets) Len() int { return len(*b.held.Load()) }

// Asks counts lease requests by bucket.
func (b *Buckets) Asks() int64 { return b.asks.Load() }

// Moved counts leased tokens since Open.
func (b *Buckets) Moved() lend.Moved {
	at := func(i int) enforce.Tokens { return enforce.Tokens(b.moved[i].Load()) }
	return lend.Moved{Lent: at(0), Spent: at(1), Back: at(2), Forfeited: at(3)}
}

// SettleReservation asks the store, because leases serve no reserving check.
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

func (b *Buckets) takeUnleased(ctx context.Context, checks []enforce.BucketCheck, now lend.Instant) error {
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

func (b *Buckets) begin(checks []enforce.BucketCheck, held map[enforce.Key]*leased, now lend.Instant) (rest *sent) {
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
			check.TakeAnswer = enforce.TakeAnswer{Allowed: true, Answered: true, Leased: true}
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

func (b *Buckets) end(checks []enforce.BucketCheck, rest *sent, held map[enforce.Key]*leased, err error,
	now lend.Instant,
) {
	rest.finish(checks, err, now)
	if !b.isOn.Load() {
		return
	}
	first, step := sample(len(rest.origins), now)
	for k, origin := range rest.origins {
		check, part := &checks[origin.check], &noSplit
		if origin.split >= 0 {
			part = &rest.splits[origin.split]
		}
		switch {
		case check.Look:
		case check.Allowed && !canServe(check):
		case check.Allowed:
			b.notice(check, part, held, now, k%step == first)
		case (err == nil || check.Answered) && !check.Recalled:
			freeFragments(check, held, now)
		}
	}
}

func canLease(limit enforce.Limit) bool {
	return enforce.CanLease(limit) && limit.Burst >= leastBurst && limit.Rate*earnedWithin.Seconds() >= leastEarned
}

func (b *Buckets) giveBack(ctx context.Context) {
	b.TurnOn(false)
	_ = b.senders.Wait()
	b.send(ctx, b.collect())
	_ = b.senders.Wait()
}

func (b *Buckets) run(ctx context.Context) {
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

// isIdle lets a process without busy buckets sleep until the next offer.
func (b *Buckets) isIdle() bool {
	return len(*b.held.Load()) == 0 && len(b.rests) == 0 && len(b.quotas.waiting) == 0
}

func (b *Buckets) watchClocks() {
	now := b.clock()
	apart, tooFar := now.Apart(b.last)
	b.last = now
	if !tooFar {
		return
	}
	held := *b.held.Load()
	for _, e := range held {
		e.locked(func() {
			e.Forfeit()
			b.count(e.Moved())
		})
	}
	if len(held) > 0 {
		b.log.Info("the clocks moved apart, so leased tokens were dropped", "by", apart, "buckets", len(held))
	}
}

// admit leases all candidates of a check together, because leasing only one saves no round trip.
func (b *Buckets) admit() {
	held, isOn, now := *b.held.Load(), b.isOn.Load(), b.clock()
	next := held
	for _, together := range b.offers.take() {
		if !isOn || slices.ContainsFunc(together, func(c candidate) bool { return now.IsBefore(b.rests[c.key]) }) {
			continue
		}
		for _, c := range together {
			if next[c.key] != nil || !b.quotas.take(c.key.Tenant, now) {
				continue
			}
			if len(next) == len(held) {
				next = maps.Clone(held)
			}
			next[c.key] = newLeased(c.key, c.limit, now)
		}
	}
	if len(next) > len(held) {
		b.held.Store(&next)
	}
	b.quotas.update(now)
}

// leave gives up buckets that are cold or cannot be leased any more, and what tenants have above their share.
func (b *Buckets) leave() {
	held, now, share, isOn := *b.held.Load(), b.clock(), b.quotas.share(), b.isOn.Load()
	staying := map[rules.TenantID]int{}
	for key, e := range held {
		isPartial := false
		e.locked(func() {
			var isCold bool
			isCold, isPartial = e.review(now)
			if isCold || isPartial || !e.canStay() {
				e.isLeaving.Store(true)
			}
		})
		if isPartial {
			b.rests[key] = now.Plus(restWithin)
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
		isDone := false
		e.locked(func() { isDone = e.IsDone() })
		if !isDone || isOn && !e.isLeaving.Load() {
			continue
		}
		if fewer == nil {
			fewer = maps.Clone(held)
		}
		delete(fewer, key)
		b.quotas.free(key.Tenant)
	}
	if fewer != nil {
		b.held.Store(&fewer)
	}
	maps.DeleteFunc(b.rests, func(_ enforce.Key, until lend.Instant) bool { return !now.IsBefore(until) })
	b.quotas.update(now) // an idle loop admits nothing, and a tenant that still counts as full would offer nothing
}
