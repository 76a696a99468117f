package enforce

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// SettleReservation also settles in this process's buckets, where a degraded decision may have left the reservation.
func (l *Limiter) SettleReservation(ctx context.Context, tenant *snapshot.Tenant, id ReservationID,
	with Settlement,
) (Settled, error) {
	with.Limit = func(rule rules.RuleID, subject string, isHashed bool) (Limit, bool) {
		if isHashed {
			return tenant.CommonLimit(rule, l.now())
		}
		m, ok := tenant.Bucket(rule, subject, l.now())
		return m.Limit, ok && !isUnknown(&m)
	}
	with.Denies = func(rule rules.RuleID) bool { return tenant.Denies(rule, l.now()) }
	settled, err := l.shared.SettleReservation(ctx, tenant.Tenant.ID, id, with)
	l.observe(tenant, &settled)
	if errors.Is(err, ErrRefundForbidden) || l.local == l.shared {
		return settled, err
	}
	own, localErr := l.local.SettleReservation(ctx, tenant.Tenant.ID, id, with)
	if settled.Found || !own.Found && localErr == nil {
		return settled, err
	}
	own.Buckets = nil
	l.observe(tenant, &own)
	return own, localErr
}

func (l *Limiter) observe(tenant *snapshot.Tenant, settled *Settled) {
	if observer, ok := l.observer.(SettlementObserver); ok && settled.Found && !settled.Denied {
		observer.Settled(tenant, settled)
	}
}

const (
	maxLost         = 1 << 14
	maxLostOfTenant = 1 << 10
	releaseTick     = time.Second
	// releaseAgain is the first back-off, up to releaseSeldom, and the pause before the second look for a missing
	// reservation, whose check may be late.
	releaseAgain  = 2 * time.Second
	releaseSeldom = 30 * time.Second
)

// lostReservations: the store may have kept them, but no caller knows their ids, so their slots would stay taken until
// max_hold.
type lostReservations struct {
	mu      sync.Mutex
	waiting map[rules.TenantID][]lostReservation
	count   int
}

type lostReservation struct {
	id         ReservationID
	key        string // the id of the API key
	passed     bool   // a failure mode let the check pass, so it keeps what it took
	due, until time.Time
	pause      time.Duration
	missed     bool // one look has not found it
}

func (l *lostReservations) add(tenant rules.TenantID, reserve *Reservation, passed bool) {
	if reserve == nil {
		return
	}
	now := time.Now()
	l.put(tenant, lostReservation{
		id: reserve.ID, key: reserve.Key, passed: passed, due: now.Add(releaseTick), until: now.Add(reserve.Life),
		pause: releaseAgain,
	})
}

func (l *lostReservations) put(tenant rules.TenantID, one lostReservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := len(l.waiting[tenant]); own > 0 && (own >= maxLostOfTenant || l.count >= maxLost) {
		return
	}
	if l.waiting == nil {
		l.waiting = map[rules.TenantID][]lostReservation{}
	}
	l.waiting[tenant] = append(l.waiting[tenant], one)
	l.count++
}

func (l *lostReservations) pop(now time.Time) map[rules.TenantID]lostReservation {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due map[rules.TenantID]lostReservation
	for tenant, waiting := range l.waiting {
		for i := range waiting {
			if now.Before(waiting[i].due) {
				continue
			}
			if due == nil {
				due = map[rules.TenantID]lostReservation{}
			}
			due[tenant] = waiting[i]
			l.count--
			if l.waiting[tenant] = append(waiting[:i], waiting[i+1:]...); len(waiting) == 1 {
				delete(l.waiting, tenant)
			}
			break
		}
	}
	return due
}

// Run releases lost reservations until ctx ends.
func (l *Limiter) Run(ctx context.Context) {
	tick := time.NewTicker(releaseTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			l.release(ctx, now)
		}
	}
}

func (l *Limiter) release(ctx context.Context, now time.Time) {
	for due := l.lost.pop(now); len(due) > 0 && ctx.Err() == nil; due = l.lost.pop(now) {
		for tenant, one := range due {
			settled, err := l.shared.SettleReservation(ctx, tenant, one.id,
				Settlement{Cancel: !one.passed, Key: one.key})
			switch {
			case settled.Found || err == nil && one.missed || now.After(one.until):
				continue
			case err == nil:
				one.missed, one.due = true, now.Add(releaseAgain)
			default:
				one.due = now.Add(one.pause)
				one.pause = min(2*one.pause, releaseSeldom)
			}
			l.lost.put(tenant, one)
		}
	}
}
