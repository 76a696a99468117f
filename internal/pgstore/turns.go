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
	// turnTimeout bounds the wait for the tenant's other writes in this process.
	turnTimeout = 5 * time.Second
	// maxWaiting caps the waiting writes of one account.
	maxWaiting = 64
	manyRows   = 501
)

// newTurns keeps waiting writes from holding a connection each while the tenant's row is locked.
func newTurns() *shares.Shares {
	return shares.New(shares.Limits{PerTenant: 1, Waiting: maxWaiting, Timeout: turnTimeout})
}

// ObserveShares calls show with a function that counts the tenants' running and waiting writes.
func (s *Store) ObserveShares(show func(class string, count func() shares.Count)) {
	show("turns", s.turns.Count)
}

func classFor(rows int) class {
	if rows > manyRows {
		return classHeavy
	}
	return classRead
}

// turn waits until no other write of the tenant runs in this process. Meanwhile the request releases its unit of the
// semaphore, so that one tenant's writes hold up nobody else. A bulk write keeps the unit: acquiring another one would
// hold up the tenant's small writes.
func (s *Store) turn(ctx context.Context, tenant rules.TenantID, isBulk bool) (end func(), err error) {
	slot := shares.SlotOf(ctx)
	caller := slot.Caller()
	caller.Tenant = tenant
	if end, ok := s.turns.Try(caller); ok {
		return end, nil
	}
	if isBulk {
		slot = nil
	}
	err = slot.Away(ctx, func() error {
		end, err = s.turns.Take(ctx, caller)
		return err
	})
	if err == nil {
		err = ctx.Err() // the turn came too late to write
	}
	if err == nil {
		return end, nil
	}
	if end != nil {
		end()
	}
	if errors.Is(err, shares.ErrTenant) || errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("tenant %d: %w", tenant, rules.ErrBeingWritten)
	}
	return nil, err
}
