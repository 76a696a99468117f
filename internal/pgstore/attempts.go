package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
)

// signInWaits is auth.WaitAfter as a table, in seconds, up to the number of failures after which it
// does not grow any more.
var signInWaits = func() (waits []float64) {
	for failures := 0; ; failures++ {
		wait := auth.WaitAfter(failures)
		waits = append(waits, wait.Seconds())
		if wait == auth.LongestWait {
			return waits
		}
	}
}()

// Attempt counts an attempt to sign in, in one statement: of attempts that come at once, those that the
// first one makes wait see it.
func (s *Store) Attempt(ctx context.Context, counter auth.Counter) (wait time.Duration, err error) {
	wait, err = ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) (time.Duration, error) {
		if err := q.ForgetOldAttempts(ctx, auth.ForgottenAfter.Seconds()); err != nil {
			return 0, err
		}
		_, err := q.Attempt(ctx, counter[:], auth.ForgottenAfter.Seconds(), signInWaits)
		if !errors.Is(err, pgx.ErrNoRows) {
			return 0, err
		}
		seconds, err := q.SecondsToWait(ctx, signInWaits, counter[:])
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil // a success has just made others forget; this attempt may come again
		}
		return max(time.Duration(seconds*float64(time.Second)), time.Millisecond), err
	})
	if err != nil {
		return 0, fmt.Errorf("count an attempt to sign in: %w", err)
	}
	return wait, nil
}

// ForgetAttempts starts over for a counter.
func (s *Store) ForgetAttempts(ctx context.Context, counter auth.Counter) error {
	_, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		return struct{}{}, q.ForgetAttempts(ctx, counter[:])
	})
	if err != nil {
		return fmt.Errorf("forget attempts to sign in: %w", err)
	}
	return nil
}
