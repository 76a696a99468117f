package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// BeginOnce begins a request that may be repeated, or returns the answer of an earlier attempt.
func (s *Store) BeginOnce(ctx context.Context, once auth.Once, lease time.Duration) (auth.Once, []byte, error) {
	begun := once
	earlier, err := note(ctx, s, only(once.Tenant), func(ctx context.Context, q *dbsqlc.Queries) (earlier dbsqlc.OnceRow, err error) {
		attempt, err := q.BeginOnce(ctx, dbsqlc.BeginOnceParams{
			TenantID: once.Tenant, KeyDigest: once.Key[:], Caller: once.Caller, Fingerprint: once.Fingerprint[:],
			LeaseSeconds: lease.Seconds(),
		})
		if !errors.Is(err, pgx.ErrNoRows) {
			begun = once.Begun(attempt)
			return earlier, err
		}
		earlier, err = q.Once(ctx, once.Tenant, once.Key[:])
		if errors.Is(err, pgx.ErrNoRows) { // it ended just now
			return earlier, auth.OnceRunningError{}
		}
		return earlier, err
	})
	switch {
	case err != nil:
		return once, nil, fmt.Errorf("begin a request that may be repeated: %w", err)
	case begun.Attempt() > 0:
		return begun, nil, nil
	case string(earlier.Fingerprint) != string(once.Fingerprint[:]):
		return once, nil, auth.ErrOnceOther
	case !earlier.Committed:
		return once, nil, auth.OnceRunningError{Left: time.Duration(earlier.LeaseSeconds * float64(time.Second))}
	case earlier.Answer == nil:
		return once, nil, auth.ErrOnceLost
	}
	return once, earlier.Answer, nil
}

// KeepAnswer stores the answer of a request that may be repeated.
func (s *Store) KeepAnswer(ctx context.Context, begun auth.Once, answer []byte) error {
	_, err := note(ctx, s, only(begun.Tenant), func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		return struct{}{}, q.KeepAnswer(ctx, dbsqlc.KeepAnswerParams{
			Answer: answer, TenantID: begun.Tenant, KeyDigest: begun.Key[:], Attempt: begun.Attempt(),
		})
	})
	if err != nil {
		return fmt.Errorf("keep an answer: %w", err)
	}
	return nil
}

// ForgetOnce lets a request that has changed nothing be sent again.
func (s *Store) ForgetOnce(ctx context.Context, begun auth.Once) error {
	_, err := note(ctx, s, only(begun.Tenant), func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		return struct{}{}, q.ForgetOnce(ctx, begun.Tenant, begun.Key[:], begun.Attempt())
	})
	if err != nil {
		return fmt.Errorf("forget a request: %w", err)
	}
	return nil
}

// commitOnce marks the request of the context as carried out, in the transaction of its change.
func commitOnce(ctx context.Context, q *dbsqlc.Queries) error {
	once, ok := auth.OnceOf(ctx)
	if !ok {
		return nil
	}
	marked, err := q.CommitOnce(ctx, once.Tenant, once.Key[:], once.Attempt())
	if err == nil && marked == 0 {
		err = fmt.Errorf("another attempt of this request has begun: %w", rules.ErrBeingWritten)
	}
	return err
}

// mostDropped caps what one statement deletes.
const mostDropped = 10_000

// DropOldOnce deletes requests that need not be kept any longer.
func (s *Store) DropOldOnce(ctx context.Context) (dropped int64, err error) {
	dropped, err = ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
		return q.DropOldOnce(ctx, auth.OncePerCaller, mostDropped)
	})
	if err != nil {
		return 0, fmt.Errorf("drop requests that may no longer be repeated: %w", err)
	}
	return dropped, nil
}
