package lease

import (
	"context"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// asking is a call to the store under way.
type asking struct {
	entries []*leased
	leases  []enforce.Lease
	sent    Instant
}

// shard is the buckets of a tenant that one script can reach.
type shard struct {
	tenant rules.TenantID
	number uint8
}

// collect returns the calls that are due, by tenant. The deadline of what they lend counts from here.
//
// Each script and each round trip costs the store something, however few buckets it has. So a call also renews buckets that would be
// due soon: of the same shard, and of the tenant's other shards. After a few calls the tenant's buckets are due at the same time.
func (b *Buckets) collect() map[rules.TenantID][]*asking {
	held, now := *b.held.Load(), b.clock()
	due := map[shard]*asking{}
	ask := func(key enforce.Key, e *leased, below float64) {
		if ask, limit, ok := b.next(e, now, below); ok {
			of := due[shard{key.Tenant, key.Shard}]
			if of == nil {
				of = &asking{}
				due[shard{key.Tenant, key.Shard}] = of
			}
			of.add(e, limit, ask)
		}
	}
	spread := map[rules.TenantID]bool{} // tenants with buckets in several shards, at least one of which is due
	for key, e := range held {
		if _, waits := b.sending.Load(key.Tenant); !waits {
			ask(key, e, topUp)
		}
	}
	if len(due) == 0 {
		return nil
	}
	for in := range due {
		if in.number > 0 {
			spread[in.tenant] = true
		}
	}
	for key, e := range held {
		if spread[key.Tenant] && due[shard{key.Tenant, key.Shard}] == nil {
			ask(key, e, soonUp)
		}
	}
	for key, e := range held {
		if of := due[shard{key.Tenant, key.Shard}]; of != nil && len(of.leases) < company {
			ask(key, e, alongUp)
		}
	}
	return callsOf(due, now)
}

// callsOf returns the calls that ask what is due: each with a script for each shard at most.
func callsOf(due map[shard]*asking, now Instant) map[rules.TenantID][]*asking {
	calls := map[rules.TenantID][]*asking{}
	for in, of := range due {
		own := calls[in.tenant]
		for i, e := range of.entries {
			script := i / inOneAsk
			if script == len(own) {
				own = append(own, &asking{sent: now})
			}
			own[script].add(e, of.leases[i].Limit, of.leases[i].Ask)
		}
		calls[in.tenant] = own
	}
	return calls
}

func (a *asking) add(e *leased, limit enforce.Limit, ask enforce.Ask) {
	a.entries = append(a.entries, e)
	a.leases = append(a.leases, enforce.Lease{Key: e.key, Limit: limit, Ask: ask})
}

// next returns what to ask the store for, if the lot has less than a share, below, of the tokens that it wants.
func (b *Buckets) next(e *leased, now Instant, below float64) (ask enforce.Ask, limit enforce.Limit, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if edited := e.edited.Swap(nil); edited != nil {
		e.Edited(*edited)
	}
	switch {
	case !b.isOn.Load() || e.isLeaving.Load() || e.isStranded.Swap(false):
		ask, ok = e.Return(now)
	default:
		ask, ok = e.askBelow(below, now, 0, 0)
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
