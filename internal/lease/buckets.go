package lease

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// tickEvery is how often buckets are looked after.
	tickEvery = 10 * time.Millisecond
	// A bucket is leased once hotAfter checks of this process came within hotWithin, at least 16 a second, if its rate
	// earns leastEarned within longestLot and its burst is at least leastBurst. It is left after coldAfter without a check.
	hotAfter    = 8
	hotWithin   = 500 * time.Millisecond
	leastEarned = 8
	leastBurst  = 16
	coldAfter   = 2 * time.Second
	// maxBuckets caps the leased buckets, and maxOfTenant those of one tenant.
	maxBuckets, maxOfTenant = 4096, 1024
	// maxTiers caps the tiers of a check that lots can serve.
	maxTiers = 8
	// inOneAsk caps the buckets of one call to the store, so that it is never busy with one for long.
	inOneAsk = 32
	// maxAsks caps the calls under way, so that a store that hangs does not hold all of its connections.
	maxAsks = 4
)

// Store is a store that lends tokens.
type Store interface {
	enforce.ReservingBuckets
	enforce.Lender
}

// Buckets serves checks from leased tokens where it can, and from the store where it cannot: a check is served if this
// process holds its cost of every tier. All other checks go to the store as if there were no leases, so what they are
// answered, denials above all, is the store's.
//
// A check that is served takes no lock and allocates nothing. Tokens are asked for in the background, so the store being
// slow delays no check. While it does not answer, lots are spent and not renewed.
type Buckets struct {
	store Store
	clock func() Instant
	log   *slog.Logger

	held   atomic.Pointer[map[enforce.Key]*leased] // replaced, never changed
	recent recent
	hot    chan candidate // to lease
	served atomic.Int64

	stop context.CancelFunc
	done chan struct{}

	// Of the background:
	ofTenant map[rules.TenantID]int
}

// leased is a leased bucket.
type leased struct {
	*Bucket
	key    enforce.Key
	view   atomic.Pointer[view]
	edited atomic.Pointer[enforce.Limit] // a limit that checks came with, and that is not the view's
	mu     sync.Mutex                    // guards the Bucket but for Take
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

// Open returns a Buckets in front of a store. Close ends it, and not the end of ctx. A nil clock is this process's own.
func Open(ctx context.Context, store Store, clock func() Instant, log *slog.Logger) *Buckets {
	if clock == nil {
		start := time.Now()
		clock = func() Instant {
			now := time.Now()
			return Instant{Mono: int64(now.Sub(start)), Wall: now.UnixNano()}
		}
	}
	b := &Buckets{
		store: store, clock: clock, log: log, hot: make(chan candidate, 256), done: make(chan struct{}),
		ofTenant: map[rules.TenantID]int{},
	}
	b.recent.init()
	b.held.Store(&map[enforce.Key]*leased{})
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	go b.run(ctx)
	return b
}

// Close gives back what is held.
func (b *Buckets) Close() {
	b.stop()
	<-b.done
}

// Served counts the checks that were served without the store.
func (b *Buckets) Served() int64 { return b.served.Load() }

// Len returns how many buckets are leased.
func (b *Buckets) Len() int { return len(*b.held.Load()) }

// SettleReservation implements enforce.Reserver.
func (b *Buckets) SettleReservation(
	ctx context.Context, tenant rules.TenantID, id enforce.ReservationID, with enforce.Settlement,
) (enforce.Settled, error) {
	return b.store.SettleReservation(ctx, tenant, id, with)
}

// Take implements enforce.Buckets.
func (b *Buckets) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	now := b.clock()
	held := *b.held.Load()
	served := 0
	var rest []enforce.BucketCheck
	for i := range checks {
		if b.serve(&checks[i], held, now) {
			if served == 0 && i > 0 {
				rest = append(rest, checks[:i]...)
			}
			served++
		} else if served > 0 {
			rest = append(rest, checks[i])
		}
	}
	b.served.Add(int64(served))
	switch served {
	case len(checks):
		return nil
	case 0:
		return b.takeFromStore(ctx, checks, held, now)
	}
	err := b.takeFromStore(ctx, rest, held, now)
	next := 0
	for i := range checks {
		if !checks[i].Leased {
			checks[i] = rest[next]
			next++
		}
	}
	return err
}

// takeFromStore has the store decide, and learns from what it allows.
func (b *Buckets) takeFromStore(ctx context.Context, checks []enforce.BucketCheck, held map[enforce.Key]*leased, now Instant) error {
	b.notice(checks, held, now)
	err := b.store.Take(ctx, checks)
	for i := range checks {
		if len(held) == 0 || !checks[i].Allowed || !canServe(&checks[i]) {
			continue
		}
		for j := range checks[i].Tiers {
			if e := held[checks[i].Tiers[j].Key]; e != nil {
				e.Demand(checks[i].Cost) // more tokens would have served it
			}
		}
	}
	return err
}

// serve decides a check if lots have its cost of every tier.
func (b *Buckets) serve(check *enforce.BucketCheck, held map[enforce.Key]*leased, now Instant) bool {
	check.Leased = false
	if len(held) == 0 || !canServe(check) {
		return false
	}
	var of [maxTiers]*leased
	var views [maxTiers]*view
	for i := range check.Tiers {
		tier := &check.Tiers[i]
		e := held[tier.Key]
		if e == nil {
			return false
		}
		v := e.view.Load()
		if v == nil || v.limit != tier.Limit {
			if v != nil && tier.Limit.Since > v.limit.Since {
				limit := tier.Limit
				e.edited.Store(&limit)
			}
			return false
		}
		of[i], views[i] = e, v
	}
	var taken [maxTiers]Taken
	for i := range check.Tiers {
		if !of[i].Take(now, check.Cost, &taken[i]) { //nolint:gosec // canServe caps the tiers
			for j := range i {
				taken[j].PutBack() //nolint:gosec // as above
			}
			return false
		}
	}
	for i := range check.Tiers {
		tier, v := &check.Tiers[i], views[i]
		of[i].Demand(check.Cost)
		taken[i].Spend()
		tier.Holds = true
		left := min(v.level+of[i].Held(now), enforce.Tokens(v.limit.Burst)*enforce.Token-check.Cost)
		tier.Bucket = enforce.Bucket{Level: enforce.Level{Micros: max(0, left)}, Stamp: now.Wall / 1000, Limit: v.limit}
	}
	check.Allowed, check.Answered, check.Exhausted, check.Leased = true, true, false, true
	return true
}

// canServe reports whether lots could serve a check, if they had the tokens.
func canServe(check *enforce.BucketCheck) bool {
	if check.Look || check.Mixed || check.Reserve != nil || check.Cost == 0 || len(check.Tiers) == 0 || len(check.Tiers) > maxTiers {
		return false
	}
	for i := range check.Tiers {
		if !canLease(check.Tiers[i].Limit) {
			return false
		}
	}
	return true
}

// notice counts the checks of buckets, and has those leased that are busy, if all other buckets of their check are too: a
// check is served by lots only if they have all its tiers, and tokens that nobody spends are missing elsewhere.
func (b *Buckets) notice(checks []enforce.BucketCheck, held map[enforce.Key]*leased, now Instant) {
	for i := range checks {
		if !canServe(&checks[i]) {
			continue
		}
		all := true
		for j := range checks[i].Tiers {
			key := checks[i].Tiers[j].Key
			if isHot := b.recent.count(key, now); !isHot && held[key] == nil {
				all = false
			}
		}
		for j := range checks[i].Tiers {
			if tier := &checks[i].Tiers[j]; all && held[tier.Key] == nil {
				select {
				case b.hot <- candidate{tier.Key, tier.Limit}:
				default: // later checks tell again
				}
			}
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
			b.ask(context.WithoutCancel(ctx), func(e *leased, now Instant) (enforce.Ask, bool) { return e.Return(now) })
			return
		case <-tick.C:
			b.tick(ctx)
		}
	}
}

// tick leases what became hot, asks for what is needed, and leaves what became cold.
func (b *Buckets) tick(ctx context.Context) {
	b.admit()
	b.ask(ctx, func(e *leased, now Instant) (enforce.Ask, bool) {
		if limit := e.edited.Swap(nil); limit != nil {
			e.Edited(*limit)
		}
		return e.Ask(now, 0, 0)
	})
	b.leave()
}

// admit starts to lease the candidates.
func (b *Buckets) admit() {
	held := *b.held.Load()
	var more map[enforce.Key]*leased
	for {
		select {
		case c := <-b.hot:
			if more == nil {
				more = make(map[enforce.Key]*leased, len(held)+1)
				for key, e := range held {
					more[key] = e
				}
			}
			if more[c.key] == nil && len(more) < maxBuckets && b.ofTenant[c.key.Tenant] < maxOfTenant {
				more[c.key] = &leased{Bucket: NewBucket(c.limit, b.clock()), key: c.key}
				b.ofTenant[c.key.Tenant]++
			}
			continue
		default:
		}
		break
	}
	if more != nil {
		b.held.Store(&more)
	}
}

// leave drops buckets that nobody asks about any more, or that the store does not lend.
func (b *Buckets) leave() {
	held, now := *b.held.Load(), b.clock()
	var fewer map[enforce.Key]*leased
	for key, e := range held {
		e.mu.Lock()
		isCold := !e.isAsking && (e.isEmpty() && now.Mono-e.active.Mono > int64(coldAfter) || !canLease(e.inForce))
		e.mu.Unlock()
		if !isCold {
			continue
		}
		if fewer == nil {
			fewer = make(map[enforce.Key]*leased, len(held))
			for key, e := range held {
				fewer[key] = e
			}
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

// ask makes the asks of all buckets that have one, tenants beside each other, and waits for the answers.
func (b *Buckets) ask(ctx context.Context, next func(*leased, Instant) (enforce.Ask, bool)) {
	calls := map[rules.TenantID][]*asking{}
	for _, e := range *b.held.Load() {
		now := b.clock()
		e.mu.Lock()
		ask, ok := next(e, now)
		limit := e.limit
		e.mu.Unlock()
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
	var tenants sync.WaitGroup
	places := make(chan struct{}, maxAsks)
	for _, of := range calls {
		places <- struct{}{}
		tenants.Go(func() {
			defer func() { <-places }()
			for _, call := range of {
				b.send(ctx, call)
			}
		})
	}
	tenants.Wait()
}

// send makes one call. The deadline of what it lends counts from the first of its asks.
func (b *Buckets) send(ctx context.Context, call *asking) {
	err := b.store.Lease(ctx, call.leases)
	if err != nil {
		b.log.Debug("leases were not renewed", "error", err)
	}
	now := b.clock()
	for i, e := range call.entries {
		e.mu.Lock()
		if l := &call.leases[i]; l.Answered {
			e.Answered(call.sent, now, &l.Grant)
			e.view.Store(&view{l.Grant.Limit, l.Grant.Level.Micros})
		} else {
			e.Lost()
		}
		e.mu.Unlock()
	}
}
