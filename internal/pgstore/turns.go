package pgstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// bulkWrites is how many bulk writes are under way at most, of all tenants.
const bulkWrites = 2

// turns makes a tenant's writers of this process wait for each other before they have a connection. They would
// wait for the tenant's row anyway, each with a connection in hand, until nobody else had one: a tenant that
// imports its users must not keep others from signing in.
type turns struct {
	mu   sync.Mutex
	held map[rules.TenantID]*turn
	bulk chan struct{}
}

type turn struct {
	taken   chan struct{} // holds one element while somebody writes
	writers int           // that write or wait
}

func newTurns() *turns {
	return &turns{held: map[rules.TenantID]*turn{}, bulk: make(chan struct{}, bulkWrites)}
}

// take waits for the tenant's turn, and for one of the bulk writes if this is one, which it is if it has more
// time than a statement. It waits no longer than a statement may.
func (t *turns) take(ctx context.Context, tenant rules.TenantID, timeout time.Duration) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	own := t.enter(tenant)
	if err := wait(ctx, own.taken); err != nil {
		t.leave(tenant, own)
		return nil, fmt.Errorf("wait for another write of tenant %d: %w", tenant, err)
	}
	doneWithTenant := func() {
		<-own.taken
		t.leave(tenant, own)
	}
	if timeout <= statementTimeout {
		return doneWithTenant, nil
	}
	if err := wait(ctx, t.bulk); err != nil {
		doneWithTenant()
		return nil, fmt.Errorf("wait for another bulk write: %w", err)
	}
	return func() {
		<-t.bulk
		doneWithTenant()
	}, nil
}

func wait(ctx context.Context, place chan<- struct{}) error {
	select {
	case place <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *turns) enter(tenant rules.TenantID) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.held[tenant]
	if own == nil {
		own = &turn{taken: make(chan struct{}, 1)}
		t.held[tenant] = own
	}
	own.writers++
	return own
}

func (t *turns) leave(tenant rules.TenantID, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.writers--; own.writers == 0 {
		delete(t.held, tenant)
	}
}
