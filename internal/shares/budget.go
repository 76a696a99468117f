package shares

import "sync"

// BudgetLimits divide the bytes of a Budget. A cap of 0 is no limit.
type BudgetLimits struct {
	Bytes      int // in all
	PerTenant  int
	PerAccount int
}

// Budget divides memory for bodies and answers among tenants and their accounts, because half-sent bodies and unread
// answers could exhaust the process.
type Budget struct {
	limits BudgetLimits

	mu      sync.Mutex
	total   int
	tenants map[owner]int // bytes held; no entry is 0
	owners  map[owner]int
	refused int64
}

// NewBudget returns a Budget with nothing held.
func NewBudget(limits BudgetLimits) *Budget {
	return &Budget{limits: limits, tenants: map[owner]int{}, owners: map[owner]int{}}
}

// Reserve counts n bytes for a caller, or returns a reason for a refusal. When all bytes are held, only tenants are
// refused that hold more than an equal share.
func (b *Budget) Reserve(caller Caller, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if reason := b.reason(caller, n); reason != nil {
		b.refused++
		return reason
	}
	b.add(caller, n)
	return nil
}

// Add counts n bytes for a caller, without a limit; a negative n gives bytes back.
func (b *Budget) Add(caller Caller, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(caller, n)
}

// Held returns the bytes that are held.
func (b *Budget) Held() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

// Refused counts the refusals since the start.
func (b *Budget) Refused() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

func (b *Budget) reason(caller Caller, n int) error {
	l := &b.limits
	ofTenant, ofAccount := b.tenants[tenantOf(caller)], b.owners[ownerOf(caller)]
	switch {
	case l.PerAccount > 0 && caller.Account != "" && ofAccount > 0 && ofAccount+n > l.PerAccount:
		return ErrAccount
	case ofTenant == 0:
		return nil
	case l.PerTenant > 0 && caller.Tenant != 0 && ofTenant+n > l.PerTenant:
		return ErrTenant
	case l.Bytes > 0 && b.total+n > l.Bytes && ofTenant+n > l.Bytes/len(b.tenants):
		return ErrBusy
	}
	return nil
}

func (b *Budget) add(caller Caller, n int) {
	b.total += n
	count(b.tenants, tenantOf(caller), n)
	count(b.owners, ownerOf(caller), n)
}

func count(held map[owner]int, key owner, n int) {
	if held[key] += n; held[key] == 0 {
		delete(held, key)
	}
}
