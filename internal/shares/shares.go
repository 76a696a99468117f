// Package shares has fair semaphores: they divide the scarce resources of a process among tenants and their members.
//
// Callers that find no slot wait in line. A free slot goes to the tenant that holds the fewest, then to the account
// that
// holds the fewest; ties take turns. A caller that asks for little does therefore not wait behind one that asks for
// much,
// even with a single slot.
package shares

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Reasons for a refusal.
var (
	ErrAccount = errors.New("the account's other requests use all of its slots")
	ErrTenant  = errors.New("the tenant's other requests use all of its slots")
	ErrBusy    = errors.New("all slots are in use")
)

// Caller takes a slot.
type Caller struct {
	Tenant  rules.TenantID // 0 for none
	Account string         // a person or an API key; "" for the program itself
}

// Limits divide the slots. A cap of 0 is no limit.
type Limits struct {
	Slots      int // in all
	PerTenant  int
	PerAccount int
	// Waiting caps the requests in line of one account, or of one tenant for callers without an account.
	Waiting int
	Timeout time.Duration // of a wait in line
}

// Shares has slots to take, and is safe for concurrent use.
type Shares struct {
	limits Limits

	mu      sync.Mutex
	held    int
	tenants map[rules.TenantID]int // slots held; no entry is 0
	owners  map[owner]int
	waiting map[owner]int // requests in line; no entry is 0
	refused int64
	line    []*waiter // ties are served in this order
}

type owner struct {
	account string
	tenant  rules.TenantID
}

func ownerOf(c Caller) owner {
	if c.Account != "" {
		return owner{account: c.Account}
	}
	return owner{tenant: c.Tenant}
}

func tenantOf(c Caller) owner {
	if c.Tenant != 0 {
		return owner{tenant: c.Tenant}
	}
	return ownerOf(c)
}

type waiter struct {
	Caller
	ready chan struct{} // closed when the waiter has its slot
}

// New returns Shares with all slots free.
func New(limits Limits) *Shares {
	return &Shares{limits: limits, tenants: map[rules.TenantID]int{}, owners: map[owner]int{}, waiting: map[owner]int{}}
}

// Limits returns the argument of New.
func (s *Shares) Limits() Limits { return s.limits }

// Count is the use of Shares.
type Count struct {
	Held, Waiting int
	Refused       int64 // since the start
}

// Count returns the present use.
func (s *Shares) Count() Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Count{Held: s.held, Waiting: len(s.line), Refused: s.refused}
}

// Take waits for a slot, which release gives back once. The error is the context's if that ended first, else a
// reason for a refusal.
func (s *Shares) Take(ctx context.Context, caller Caller) (release func(), err error) {
	w := &waiter{caller, make(chan struct{})}
	if err := s.enter(w, s.limits.Waiting); err != nil {
		return nil, err
	}
	select {
	case <-w.ready: // needs no timer
		return func() { s.release(caller) }, nil
	default:
	}
	timeout := time.NewTimer(s.limits.Timeout)
	defer timeout.Stop()
	return s.await(ctx, w, timeout.C)
}

// takeAgain does not time out, because a refusal would waste the work done before.
func (s *Shares) takeAgain(ctx context.Context, caller Caller) (release func(), err error) {
	w := &waiter{caller, make(chan struct{})}
	if err := s.enter(w, math.MaxInt); err != nil {
		return nil, err
	}
	return s.await(ctx, w, nil)
}

// Try takes a slot if one is free.
func (s *Shares) Try(caller Caller) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isFree(caller) {
		return nil, false
	}
	s.give(&waiter{caller, make(chan struct{})})
	return func() { s.release(caller) }, true
}

// Slot is the slot of one request, for the request's goroutine alone; the zero value and nil hold none.
type Slot struct {
	of      *Shares
	caller  Caller
	release func()
}

type slotKey struct{}

// With returns the context of a request that has a slot.
func With(ctx context.Context, p *Slot) context.Context {
	return context.WithValue(ctx, slotKey{}, p)
}

// SlotOf returns the slot of a context's request; nil for the program's own work.
func SlotOf(ctx context.Context) *Slot {
	p, _ := ctx.Value(slotKey{}).(*Slot)
	return p
}

// Caller returns the caller who took the slot.
func (p *Slot) Caller() Caller {
	if p == nil {
		return Caller{}
	}
	return p.caller
}

// Take waits for a slot like Shares.Take.
func (p *Slot) Take(ctx context.Context, of *Shares, caller Caller) error {
	release, err := of.Take(ctx, caller)
	if err != nil {
		return err
	}
	*p = Slot{of, caller, release}
	return nil
}

// Release gives the slot back, if there is one.
func (p *Slot) Release() {
	if p.release != nil {
		p.release()
		p.release = nil
	}
}

// Away gives the slot back during a slow wait, such as for the client's network, and then takes one again, unless
// the wait fails.
func (p *Slot) Away(ctx context.Context, wait func() error) error {
	if p == nil || p.release == nil {
		return wait()
	}
	p.Release()
	if err := wait(); err != nil {
		return err
	}
	release, err := p.of.takeAgain(ctx, p.caller)
	p.release = release
	return err
}

func (s *Shares) await(ctx context.Context, w *waiter, timeout <-chan time.Time) (release func(), err error) {
	release = func() { s.release(w.Caller) }
	select {
	case <-w.ready:
		return release, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout:
	}
	return s.giveUp(w, release, err)
}

func (s *Shares) enter(w *waiter, maxWaiting int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// No caller in line can use a free slot, so a newcomer overtakes nobody.
	reason := s.reason(w.Caller)
	if reason == nil {
		s.give(w)
		return nil
	}
	if s.waiting[ownerOf(w.Caller)] < maxWaiting {
		s.waiting[ownerOf(w.Caller)]++
		s.line = append(s.line, w)
		return nil
	}
	s.refused++
	if maxWaiting == 0 {
		return reason
	}
	return ErrAccount
}

func (s *Shares) giveUp(w *waiter, release func(), err error) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.line, w)
	if i < 0 {
		return release, nil
	}
	s.leaveLine(i)
	if err == nil {
		s.refused++
		err = s.reason(w.Caller)
	}
	return nil, err
}

func (s *Shares) release(caller Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	leave(s.tenants, caller.Tenant)
	leave(s.owners, ownerOf(caller))
	for {
		next := s.next()
		if next < 0 {
			return
		}
		w := s.line[next]
		s.leaveLine(next)
		s.give(w)
		s.endTurn(w)
	}
}

func (s *Shares) leaveLine(i int) {
	leave(s.waiting, ownerOf(s.line[i].Caller))
	s.line = slices.Delete(s.line, i, i+1)
}

// endTurn moves the served tenant's other requests to the end of the line, and those of the same account behind
// them.
func (s *Shares) endTurn(served *waiter) {
	rank := func(w *waiter) int {
		switch {
		case tenantOf(w.Caller) != tenantOf(served.Caller):
			return 0
		case ownerOf(w.Caller) != ownerOf(served.Caller):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(s.line, func(a, b *waiter) int { return rank(a) - rank(b) })
}

func leave[Key comparable](held map[Key]int, key Key) {
	if held[key]--; held[key] == 0 {
		delete(held, key)
	}
}

func (s *Shares) next() int {
	candidates := map[owner]int{} // per tenant, the waiter whose account holds the fewest
	for i, w := range s.line {
		if !s.isFree(w.Caller) {
			continue
		}
		tenant := tenantOf(w.Caller)
		if j, ok := candidates[tenant]; !ok || s.owners[ownerOf(w.Caller)] < s.owners[ownerOf(s.line[j].Caller)] {
			candidates[tenant] = i
		}
	}
	best, fewest := -1, 0
	for _, i := range candidates {
		held := s.heldByTenant(s.line[i].Caller)
		if best < 0 || held < fewest || held == fewest && i < best {
			best, fewest = i, held
		}
	}
	return best
}

func (s *Shares) heldByTenant(c Caller) int {
	if c.Tenant == 0 {
		return s.owners[ownerOf(c)]
	}
	return s.tenants[c.Tenant]
}

func (s *Shares) give(w *waiter) {
	s.held++
	s.tenants[w.Tenant]++
	s.owners[ownerOf(w.Caller)]++
	close(w.ready)
}

func (s *Shares) isFree(c Caller) bool { return s.reason(c) == nil }

func (s *Shares) reason(c Caller) error {
	l := &s.limits
	switch {
	case l.PerAccount > 0 && c.Account != "" && s.owners[ownerOf(c)] >= l.PerAccount:
		return ErrAccount
	case l.PerTenant > 0 && c.Tenant != 0 && s.tenants[c.Tenant] >= l.PerTenant:
		return ErrTenant
	case l.Slots > 0 && s.held >= l.Slots:
		return ErrBusy
	}
	return nil
}
