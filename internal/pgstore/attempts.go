package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
)

func paceWaits(pace auth.Pace) (waits []float64) {
	for failures := 0; ; failures++ {
		wait := pace.WaitAfter(failures)
		waits = append(waits, wait.Seconds())
		if wait == pace.Longest {
			return waits
		}
	}
}

var errTooSoon = errors.New("too soon")

// Attempt counts an attempt to sign in for all limits, and locks their rows so that concurrent attempts see each other.
func (s *Store) Attempt(ctx context.Context, limits []auth.Limit) (by auth.Counter, wait time.Duration, err error) {
	ctx, cancel := s.within(ctx, classWrite)
	defer cancel()
	// outside of the transaction, since it locks other rows
	err = s.queriesFor(classWrite, everyTenant).ForgetOldAttempts(ctx, auth.ForgottenAfter.Seconds())
	if err == nil {
		err = s.transaction(ctx, classWrite, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) error {
			for _, limit := range limits {
				this, err := attempt(ctx, q, limit)
				if err != nil {
					return err
				}
				if this > wait {
					by, wait = limit.Counter, this
				}
			}
			if wait > 0 {
				return errTooSoon
			}
			return nil
		})
	}
	if err != nil && !errors.Is(err, errTooSoon) {
		return auth.Counter{}, 0, wrap(err, "count an attempt to sign in")
	}
	return by, wait, nil
}

func attempt(ctx context.Context, q *dbsqlc.Queries, limit auth.Limit) (wait time.Duration, err error) {
	waits := paceWaits(limit.Pace)
	_, err = q.Attempt(ctx, dbsqlc.AttemptParams{
		Subject: limit.Subject[:], Network: limit.Network, ForgottenAfter: auth.ForgottenAfter.Seconds(), Waits: waits,
	})
	if !errors.Is(err, pgx.ErrNoRows) {
		return 0, err
	}
	seconds, err := q.SecondsToWait(ctx, waits, limit.Subject[:], limit.Network)
	return max(time.Duration(seconds*float64(time.Second)), time.Millisecond), err
}

// ForgetAttempts resets a subject's attempts from all networks.
func (s *Store) ForgetAttempts(ctx context.Context, subject auth.Subject) error {
	err := s.queriesFor(classWrite, everyTenant).ForgetAttempts(ctx, subject[:])
	return wrap(err, "forget attempts to sign in")
}
