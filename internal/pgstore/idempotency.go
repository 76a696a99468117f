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

// BeginIdempotent begins a request that may be repeated, or returns the answer of an earlier attempt.
func (s *Store) BeginIdempotent(ctx context.Context, request auth.IdempotentRequest,
	lease time.Duration,
) (auth.IdempotentRequest, []byte, error) {
	begun := request
	earlier, err := ask(ctx, s, only(request.Tenant),
		func(ctx context.Context, q *dbsqlc.Queries) (earlier dbsqlc.IdempotentRow, err error) {
			row, err := q.BeginIdempotent(ctx, dbsqlc.BeginIdempotentParams{
				TenantID: request.Tenant, KeyDigest: request.Key[:], Caller: request.Caller,
				Fingerprint:  request.Fingerprint[:],
				LeaseSeconds: lease.Seconds(),
			})
			if !errors.Is(err, pgx.ErrNoRows) {
				begun = request.Begun(row.Attempt)
				if beyond := row.Number - auth.IdempotencyPerCaller; err == nil && beyond > 0 {
					err = q.DropCallersIdempotent(ctx, request.Tenant, request.Caller, beyond)
				}
				return earlier, err
			}
			earlier, err = q.Idempotent(ctx, request.Tenant, request.Key[:])
			if errors.Is(err, pgx.ErrNoRows) { // it ended just now
				return earlier, auth.IdempotencyRunningError{}
			}
			return earlier, err
		})
	switch {
	case err != nil:
		return request, nil, fmt.Errorf("begin a request that may be repeated: %w", err)
	case begun.Attempt() > 0:
		return begun, nil, nil
	case string(earlier.Fingerprint) != string(request.Fingerprint[:]):
		return request, nil, auth.ErrIdempotencyReused
	case !earlier.Committed:
		return request, nil, auth.IdempotencyRunningError{Left: time.Duration(
			earlier.LeaseSeconds * float64(time.Second))}
	case earlier.Answer == nil:
		return request, nil, auth.ErrIdempotencyAnswerLost
	}
	return request, earlier.Answer, nil
}

// KeepAnswer stores the answer of a request that may be repeated.
func (s *Store) KeepAnswer(ctx context.Context, begun auth.IdempotentRequest, answer []byte) error {
	_, err := ask(ctx, s, only(begun.Tenant), func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		return struct{}{}, q.KeepAnswer(ctx, dbsqlc.KeepAnswerParams{
			Answer: answer, TenantID: begun.Tenant, KeyDigest: begun.Key[:], Attempt: begun.Attempt(),
		})
	})
	if err != nil {
		return fmt.Errorf("keep an answer: %w", err)
	}
	return nil
}

// ForgetIdempotent lets a request that has changed nothing be sent again.
func (s *Store) ForgetIdempotent(ctx context.Context, begun auth.IdempotentRequest) error {
	_, err := ask(ctx, s, only(begun.Tenant), func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		return struct{}{}, q.ForgetIdempotent(ctx, begun.Tenant, begun.Key[:], begun.Attempt())
	})
	if err != nil {
		return fmt.Errorf("forget a request: %w", err)
	}
	return nil
}

func commitIdempotent(ctx context.Context, q *dbsqlc.Queries) error {
	request, ok := auth.IdempotencyOf(ctx)
	if !ok {
		return nil
	}
	marked, err := q.CommitIdempotent(ctx, request.Tenant, request.Key[:], request.Attempt())
	if err == nil && marked == 0 {
		err = fmt.Errorf("another attempt of this request has begun: %w", rules.ErrBeingWritten)
	}
	return err
}
