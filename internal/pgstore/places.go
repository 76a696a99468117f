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
	// placePatience is how long a request waits for a connection, or for another write of its tenant.
	placePatience = 5 * time.Second
	// heavyPatience is longer, because whoever draws charts of much data expects to wait.
	heavyPatience = 10 * time.Second
	// bulkPatience is about as long as an import of some 100,000 users takes.
	bulkPatience = 30 * time.Second
	// manyRows is more than what a list shows at once.
	manyRows = 501
	// maxWaiting is how many requests of one account wait; more are refused at once.
	maxWaiting = 64
)

// places divide the pool's connections among the callers of requests; see shares.CallerOf. Reads that take long and
// bulk writes have places of their own, so that nothing else waits behind them. Work of the program itself, such as
// signing in and the Watcher's, has no caller and takes no place: at least a quarter of the connections is left to it.
type places struct {
	reads, heavy, writes, bulk *shares.Shares
	// turns let one write of each tenant through. They would wait for the tenant's row anyway, each with a
	// connection in hand.
	turns *shares.Shares
}

func newPlaces(connections int32) *places {
	sixteenths := func(n int32) int { return int(max(1, connections*n/16)) }
	limits := func(places int, patience time.Duration) shares.Limits {
		return shares.Limits{
			Places: places, PerTenant: (2*places + 2) / 3, PerAccount: max(1, places/2), Waiting: maxWaiting, Patience: patience,
		}
	}
	return &places{
		reads:  shares.New(limits(sixteenths(4), placePatience)),
		heavy:  shares.New(limits(sixteenths(3), heavyPatience)),
		writes: shares.New(shares.Limits{Places: sixteenths(3), Waiting: maxWaiting, Patience: placePatience}),
		bulk:   shares.New(shares.Limits{Places: sixteenths(2), PerTenant: 1, Waiting: maxWaiting, Patience: bulkPatience}),
		turns:  shares.New(shares.Limits{PerTenant: 1, Waiting: maxWaiting, Patience: placePatience}),
	}
}

// ObserveShares shows each class of connections to an observer, with what counts them.
func (s *Store) ObserveShares(show func(class string, count func() shares.Count)) {
	for class, of := range map[string]*shares.Shares{
		"db_reads": s.places.reads, "db_heavy": s.places.heavy, "db_writes": s.places.writes, "db_bulk": s.places.bulk,
		"db_turns": s.places.turns,
	} {
		show(class, of.Count)
	}
}

// forRows are the places of a read that returns up to so many rows.
func (p *places) forRows(rows int) *shares.Shares {
	if rows > manyRows {
		return p.heavy
	}
	return p.reads
}

// take waits for a place if the context has a caller.
func take(ctx context.Context, of *shares.Shares) (release func(), err error) {
	caller, ok := shares.CallerOf(ctx)
	if !ok {
		return func() {}, nil
	}
	return of.Take(ctx, caller)
}

// forWrite waits for the tenant's turn and then for a place: a write that waits for its turn keeps no place from others.
func (p *places) forWrite(ctx context.Context, tenant rules.TenantID) (release func(), err error) {
	endTurn, err := p.turn(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return both(endTurn)(take(ctx, p.writes))
}

// forBulk waits the other way round: a bulk write that waits for a place does not keep its tenant from small ones.
func (p *places) forBulk(ctx context.Context, tenant rules.TenantID) (release func(), err error) {
	leave, err := take(ctx, p.bulk)
	if err != nil {
		return nil, err
	}
	return both(leave)(p.turn(ctx, tenant))
}

// both releases the first place with the second, or at once if there is no second.
func both(first func()) func(second func(), err error) (func(), error) {
	return func(second func(), err error) (func(), error) {
		if err != nil {
			first()
			return nil, err
		}
		return func() {
			second()
			first()
		}, nil
	}
}

// turn waits until no other write of the tenant is under way in this process.
func (p *places) turn(ctx context.Context, tenant rules.TenantID) (end func(), err error) {
	caller, _ := shares.CallerOf(ctx)
	caller.Tenant = tenant
	end, err = p.turns.Take(ctx, caller)
	if err == nil && ctx.Err() != nil { // the turn came with the deadline, too late to write
		end()
		err = ctx.Err()
	}
	if errors.Is(err, shares.ErrTenant) || errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("tenant %d: %w", tenant, rules.ErrBeingWritten)
	}
	return end, err
}
