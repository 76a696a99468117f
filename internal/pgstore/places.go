package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
)

const (
	// placePatience is how long a request waits for a connection or for another write of its tenant.
	placePatience = 5 * time.Second
	// heavyPatience is longer, because people expect charts of much data to take a while.
	heavyPatience = 10 * time.Second
	// bulkPatience is about as long as an import of 100,000 users.
	bulkPatience = 30 * time.Second
	// manyRows is more than a list shows at once.
	manyRows = 501
	// maxWaiting caps the waiting requests of one account; more are refused at once.
	maxWaiting = 64
)

// places divide the pool's connections among callers; see shares.CallerOf. Slow reads and bulk writes have places of
// their own, so that nothing else waits behind them. So have lookups, which each request begins with: its key or session,
// its tenant, its role. The program's own work, such as sign-in and the Watcher, has no caller and takes no place: 4 of
// 20 connections are left to it.
type places struct {
	lookups, reads, heavy, writes, bulk *shares.Shares
	// turns let one write of each tenant run. Others would wait for the tenant's row anyway, each holding a connection.
	turns *shares.Shares
}

func newPlaces(connections int32) *places {
	of := func(n int32) int { return int(max(1, connections*n/maxConns)) } // n is for a pool of the default size
	limits := func(places int, patience time.Duration) shares.Limits {
		return shares.Limits{
			Places: places, PerTenant: (2*places + 2) / 3, PerAccount: max(1, places/2), Waiting: maxWaiting, Patience: patience,
		}
	}
	return &places{
		// Without caps, because a lookup is short and turns are enough.
		lookups: shares.New(shares.Limits{Places: of(4), Waiting: maxWaiting, Patience: placePatience}),
		reads:   shares.New(limits(of(4), placePatience)),
		heavy:   shares.New(limits(of(3), heavyPatience)),
		writes:  shares.New(shares.Limits{Places: of(3), Waiting: maxWaiting, Patience: placePatience}),
		bulk:    shares.New(shares.Limits{Places: of(2), PerTenant: 1, Waiting: maxWaiting, Patience: bulkPatience}),
		turns:   shares.New(shares.Limits{PerTenant: 1, Waiting: maxWaiting, Patience: placePatience}),
	}
}

// ObserveShares calls show for each class of connections, with a function that counts its use.
func (s *Store) ObserveShares(show func(class string, count func() shares.Count)) {
	for class, of := range map[string]*shares.Shares{
		"db_lookups": s.places.lookups, "db_reads": s.places.reads, "db_heavy": s.places.heavy,
		"db_writes": s.places.writes, "db_bulk": s.places.bulk, "db_turns": s.places.turns,
	} {
		show(class, of.Count)
	}
}

// classFor returns the class of a read of up to so many rows.
func classFor(rows int) class {
	if rows > manyRows {
		return classHeavy
	}
	return classRead
}

// forRead returns the places of a class of queries that only read.
func (p *places) forRead(of class) *shares.Shares {
	switch of {
	case classLookup:
		return p.lookups
	case classHeavy:
		return p.heavy
	default:
		return p.reads
	}
}

// take waits for a place if the context has a caller.
func take(ctx context.Context, of *shares.Shares) (release func(), err error) {
	caller, ok := shares.CallerOf(ctx)
	if !ok {
		return func() {}, nil
	}
	return of.Take(ctx, caller)
}

// forWrite waits for the tenant's turn and then for a place, so a write that waits for its turn holds no place.
func (p *places) forWrite(ctx context.Context, tenant rules.TenantID) (release func(), err error) {
	endTurn, err := p.turn(ctx, tenant)
	if err != nil {
		return nil, err
	}
	release, err = take(ctx, p.writes)
	return together(endTurn, release, err)
}

// forBulk waits for a place first, so a bulk write that waits for one does not block its tenant's small writes.
func (p *places) forBulk(ctx context.Context, tenant rules.TenantID) (release func(), err error) {
	leave, err := take(ctx, p.bulk)
	if err != nil {
		return nil, err
	}
	endTurn, err := p.turn(ctx, tenant)
	return together(leave, endTurn, err)
}

// together returns one function that releases two places. If taking the second one failed, it releases the first.
func together(first, second func(), err error) (release func(), _ error) {
	if err != nil {
		first()
		return nil, err
	}
	return func() {
		second()
		first()
	}, nil
}

// turn waits until no other write of the tenant is in flight in this process.
func (p *places) turn(ctx context.Context, tenant rules.TenantID) (end func(), err error) {
	caller, _ := shares.CallerOf(ctx)
	caller.Tenant = tenant
	end, err = p.turns.Take(ctx, caller)
	if err == nil && ctx.Err() != nil { // the turn came too late to write
		end()
		err = ctx.Err()
	}
	if errors.Is(err, shares.ErrTenant) || errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("tenant %d: %w", tenant, rules.ErrBeingWritten)
	}
	return end, err
}
