package membucket

import (
	"container/heap"
	"context"
	"strings"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// reservation is an open reservation.
type reservation struct {
	enforce.Reservation
	taken   int64 // when, in microseconds since the Unix epoch
	ends    int64
	cost    enforce.Tokens
	charges []enforce.Charge
	at      int // place in the heap
}

// reservations are the open ones of a tenant, and when they end.
type reservations struct {
	open map[enforce.ReservationID]*reservation
	byEnd
}

// byEnd is a heap: the reservation that ends first is the first.
type byEnd []*reservation

func (h byEnd) Len() int           { return len(h) }
func (h byEnd) Less(i, j int) bool { return h[i].ends < h[j].ends }
func (h byEnd) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *byEnd) Push(r any)        { r.(*reservation).at = len(*h); *h = append(*h, r.(*reservation)) }

func (h *byEnd) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}

// reservationsOf returns the open reservations of a tenant, without those that ended; nil if there are none.
func (s *Store) reservationsOf(tenant rules.TenantID, now int64) *reservations {
	r := s.reservations[tenant]
	if r == nil {
		return nil
	}
	for r.Len() > 0 && r.byEnd[0].ends <= now {
		delete(r.open, heap.Pop(r).(*reservation).ID)
		s.expired++
	}
	if r.Len() == 0 {
		delete(s.reservations, tenant)
		return nil
	}
	return r
}

// reserve keeps what an allowed check took.
func (s *Store) reserve(check *enforce.BucketCheck, tenant rules.TenantID, now int64) {
	for other := range s.reservations { // any: those of tenants that reserve no more are forgotten too
		s.reservationsOf(other, now)
		break
	}
	r := s.reservations[tenant]
	if r == nil {
		r = &reservations{open: map[enforce.ReservationID]*reservation{}}
		s.reservations[tenant] = r
	}
	one := &reservation{
		Reservation: *check.Reserve, taken: now, ends: now + check.Reserve.Life.Microseconds(),
		cost: check.Cost, charges: check.Charges(),
	}
	for i := range one.charges { // a subject may be part of a large request, which it would keep alive
		one.charges[i].Key = bounded(one.charges[i].Key)
		one.charges[i].Key.Subject = strings.Clone(one.charges[i].Key.Subject)
	}
	r.open[one.ID] = one
	heap.Push(r, one)
}

// SettleReservation implements enforce.Reserver. It returns no error but enforce.ErrRefundForbidden.
func (s *Store) SettleReservation(
	_ context.Context, tenant rules.TenantID, id enforce.ReservationID, with enforce.Settlement,
) (enforce.Settled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	r := s.reservationsOf(tenant, now)
	if r == nil || r.open[id] == nil {
		return enforce.Settled{}, nil
	}
	one := r.open[id]
	if with.Forbidden(one.Key, one.cost) {
		return enforce.Settled{}, enforce.ErrRefundForbidden
	}
	settled := enforce.Settled{Found: true, Charged: one.cost}
	if with.Extend {
		one.ends = min(now+one.Life.Microseconds(), one.taken+enforce.MaxReserveFor.Microseconds())
		heap.Fix(r, one.at)
	} else {
		heap.Remove(r, one.at)
		delete(r.open, id)
		if with.HasCost {
			settled.Charged = with.Cost
		}
	}
	first := true
	for i := range one.charges {
		charge := &one.charges[i]
		held := s.bucketAt(charge.Key)
		state, mustWrite := enforce.NewState(charge.Limit, now), false
		if held != nil {
			state = *held
			mustWrite = state.Settle(charge.Limit, 0, now)
		}
		before := state
		if with.Extend {
			state.Extend(one.ID.Holder(), one.taken+enforce.MaxReserveFor.Microseconds())
		} else if charged, counts := charge.Settle(&state, with, one.taken, one.ID.Holder()); counts {
			if first || charged < settled.Charged {
				settled.Charged, first = charged, false
			}
		}
		switch {
		case state == before && !mustWrite:
		case held != nil:
			*held = state
		default:
			s.insert(charge.Key, state, now)
		}
	}
	return settled, nil
}

// ExpiredReservations counts the reservations that were never settled.
func (s *Store) ExpiredReservations() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expired
}
