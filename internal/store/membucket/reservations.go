package membucket

import (
	"container/heap"
	"context"
	"strings"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

type reservation struct {
	enforce.OpenReservation
	at int // index in the heap
}

type reservations struct {
	open map[enforce.ReservationID]*reservation
	byEnd
}

type byEnd []*reservation

func (h byEnd) Len() int           { return len(h) }
func (h byEnd) Less(i, j int) bool { return h[i].Ends < h[j].Ends }
func (h byEnd) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *byEnd) Push(r any)        { r.(*reservation).at = len(*h); *h = append(*h, r.(*reservation)) }

func (h *byEnd) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}

func (s *Store) reservationsOf(tenant rules.TenantID, now int64) *reservations {
	r := s.reservations[tenant]
	if r == nil {
		return nil
	}
	for r.Len() > 0 && r.byEnd[0].Ends <= now {
		delete(r.open, heap.Pop(r).(*reservation).ID)
		s.expired++
	}
	if r.Len() == 0 {
		delete(s.reservations, tenant)
		return nil
	}
	return r
}

func (s *Store) reserve(check *enforce.BucketCheck, tenant rules.TenantID, now int64) {
	for other := range s.reservations { // any tenant: one that reserves no more must also be cleaned
		s.reservationsOf(other, now)
		break
	}
	r := s.reservations[tenant]
	if r == nil {
		r = &reservations{open: map[enforce.ReservationID]*reservation{}}
		s.reservations[tenant] = r
	}
	one := &reservation{OpenReservation: check.Open(now)}
	for i := range one.Charges { // clone the subject, because it may be part of a large request
		one.Charges[i].Key = bounded(one.Charges[i].Key)
		one.Charges[i].Key.Subject = strings.Clone(one.Charges[i].Key.Subject)
	}
	one.User = strings.Clone(one.User)
	r.open[one.ID] = one
	heap.Push(r, one)
}

// SettleReservation implements enforce.Reserver; its only error is enforce.ErrRefundForbidden.
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
	if with.Forbidden(one.Key, one.Charges) {
		return enforce.Settled{}, enforce.ErrRefundForbidden
	}
	settled := one.Settle(with, now,
		func(i int) *enforce.State { return s.bucketAt(one.Charges[i].Key) },
		func(i int, state enforce.State) {
			if held := s.bucketAt(one.Charges[i].Key); held != nil {
				*held = state
				s.decided(s.buckets[one.Charges[i].Key])
			} else {
				s.decided(s.insert(one.Charges[i].Key, state, now))
			}
		})
	if with.Extend {
		heap.Fix(r, one.at) // also if it is denied
	} else {
		heap.Remove(r, one.at)
		delete(r.open, id)
	}
	return settled, nil
}

// ExpiredReservations counts those that ended without a settlement.
func (s *Store) ExpiredReservations() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expired
}
