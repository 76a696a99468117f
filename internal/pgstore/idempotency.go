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
	const attempted = "begin a request that may be repeated"
	q := s.queriesFor(classWrite, only(request.Tenant))
	row, err := q.BeginIdempotent(ctx, dbsqlc.BeginIdempotentParams{
		TenantID: request.Tenant, KeyDigest: request.Key[:], Caller: request.Caller,
		Fingerprint: request.Fingerprint[:], LeaseSeconds: lease.Seconds(),
	})
	if err == nil {
		if beyond := row.Number - auth.IdempotencyPerCaller; beyond > 0 {
			err = q.DropCallersIdempotent(ctx, request.Tenant, request.Caller, beyond)
		}
		return request.Begun(row.Attempt), nil, wrap(err, attempted)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return request, nil, wrap(err, attempted)
	}
	earlier, err := q.Idempotent(ctx, request.Tenant, request.Key[:])
	if errors.Is(err, pgx.ErrNoRows) { // it ended just now
		err = auth.IdempotencyRunningError{}
	}
	switch {
	case err != nil:
		return request, nil, wrap(err, attempted)
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
	err := s.queriesFor(classWrite, only(begun.Tenant)).KeepAnswer(ctx, dbsqlc.KeepAnswerParams{
		Answer: answer, TenantID: begun.Tenant, KeyDigest: begun.Key[:], Attempt: begun.Attempt(),
	})
	return wrap(err, "keep an answer")
}

// ForgetIdempotent lets a request that has changed nothing be sent again.
func (s *Store) ForgetIdempotent(ctx context.Context, begun auth.IdempotentRequest) error {
	q := s.queriesFor(classWrite, only(begun.Tenant))
	err := q.ForgetIdempotent(ctx, begun.Tenant, begun.Key[:], begun.Attempt())
	return wrap(err, "forget a request")
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
