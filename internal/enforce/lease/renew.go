package lease

import (
	"context"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

type asking struct {
	entries []*leased
	leases  []enforce.Lease
	sent    lend.Instant
}

// collect returns the due calls by tenant, with leases that end by this reading of the clock.
//
// Buckets that would be due soon join, because each script and round trip costs the store; after a few calls they are
// due together.
func (b *Buckets) collect() map[rules.TenantID][]*asking {
	held, now := *b.held.Load(), b.clock()
	due := map[rules.TenantID]*asking{}
	ask := func(key enforce.Key, e *leased, below float64) {
		if ask, limit, ok := b.next(e, now, below); ok {
			of := due[key.Tenant]
			if of == nil {
				of = &asking{}
				due[key.Tenant] = of
			}
			of.add(e, limit, ask)
		}
	}
	for key, e := range held {
		if _, waits := b.sending.Load(key.Tenant); !waits {
			ask(key, e, lend.TopUp)
		}
	}
	if len(due) == 0 {
		return nil
	}
	for key, e := range held {
		if of := due[key.Tenant]; of != nil && len(of.leases) < company {
			ask(key, e, lend.AlongUp)
		}
	}
	return callsOf(due, now)
}

func callsOf(due map[rules.TenantID]*asking, now lend.Instant) map[rules.TenantID][]*asking {
	calls := map[rules.TenantID][]*asking{}
	for tenant, of := range due {
		for first := 0; first < len(of.leases); first += inOneAsk {
			last := min(first+inOneAsk, len(of.leases))
			calls[tenant] = append(calls[tenant],
				&asking{entries: of.entries[first:last], leases: of.leases[first:last], sent: now})
		}
	}
	return calls
}

func (a *asking) add(e *leased, limit enforce.Limit, ask enforce.Ask) {
	a.entries = append(a.entries, e)
	a.leases = append(a.leases, enforce.Lease{Key: e.key, Limit: limit, Ask: ask})
}

func (b *Buckets) next(e *leased, now lend.Instant, below float64) (ask enforce.Ask, limit enforce.Limit, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch edited := e.edited.Swap(nil); {
	case edited == nil:
	case enforce.CanLease(*edited):
		e.limit = *edited
		e.Edited(lentLimit(*edited))
	default: // the store is asked by the former limit, because it knows no other that lends
		e.isLeaving.Store(true)
	}
	switch {
	case !b.isOn.Load() || e.isLeaving.Load() || e.isStranded.Swap(false):
		ask, ok = e.Return(now)
	default:
		ask, ok = e.Ask(now, below)
	}
	b.count(e.Moved())
	return ask, e.limit, ok
}

func (b *Buckets) count(moved lend.Moved) {
	for i, tokens := range []enforce.Tokens{moved.Lent, moved.Spent, moved.Back, moved.Forfeited} {
		if tokens > 0 {
			b.moved[i].Add(int64(tokens))
		}
	}
}

func (b *Buckets) send(ctx context.Context, calls map[rules.TenantID][]*asking) {
	for tenant, of := range calls {
		b.sending.Store(tenant, true)
		b.senders.Go(b.log, "asking for leases", func() {
			defer b.sending.Delete(tenant)
			for _, call := range of {
				b.asks.Add(int64(len(call.leases)))
				err := panics.Do(b.log, "an ask for leases", func() error { return b.store.Lease(ctx, call.leases) })
				if err != nil {
					b.log.Debug("leases were not renewed", "error", err)
				}
				b.answered(call, b.clock())
			}
		})
	}
}

func (b *Buckets) answered(call *asking, now lend.Instant) {
	for i, e := range call.entries {
		e.locked(func() {
			if l := &call.leases[i]; l.Answered {
				e.granted(call.sent, now, &l.Grant)
			} else {
				e.Lost()
			}
			b.count(e.Moved())
		})
	}
}
