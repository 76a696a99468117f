package auth

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// IdempotencyKept is the life of an idempotency key, IdempotencyPerCaller how many of a caller's latest keys in a
// tenant are kept.
const (
	IdempotencyKept      = 24 * time.Hour
	IdempotencyPerCaller = 2000
)

// IdempotentRequest is a request with an Idempotency-Key, which its caller may repeat without doing it twice.
type IdempotentRequest struct {
	Tenant      rules.TenantID // 0 for none
	Key         Digest
	Caller      string
	Fingerprint Digest // of everything that makes requests equal
	attempt     int64
}

// The errors of an IdempotencyStore.
var (
	ErrIdempotencyReused = errors.New("the Idempotency-Key was used for another request")
	// ErrIdempotencyAnswerLost means that the answer was not stored: its process died, or the answer was large.
	ErrIdempotencyAnswerLost = errors.New("the request was carried out, and its answer is lost")
)

// IdempotencyRunningError means that an earlier attempt may still be running, for at most Left.
type IdempotencyRunningError struct{ Left time.Duration }

func (IdempotencyRunningError) Error() string {
	return "an earlier attempt of this request is still running"
}

// IdempotencyStore stores requests with an idempotency key. The transaction of a change marks its request as carried
// out, so a process that dies midway leaves both or nothing. An attempt whose lease has ended cannot commit once
// another has begun.
type IdempotencyStore interface {
	BeginIdempotent(ctx context.Context, request IdempotentRequest, lease time.Duration) (begun IdempotentRequest,
		answer []byte, err error)
	KeepAnswer(ctx context.Context, begun IdempotentRequest, answer []byte) error
	ForgetIdempotent(ctx context.Context, begun IdempotentRequest) error // only if it has changed nothing
}

// Begun returns the request with an attempt's number, for stores.
func (o IdempotentRequest) Begun(attempt int64) IdempotentRequest {
	o.attempt = attempt
	return o
}

// Attempt returns the number from Begun.
func (o IdempotentRequest) Attempt() int64 { return o.attempt }

type idempotencyKey struct{}

// WithIdempotency makes the transaction of a change mark the request as carried out.
func WithIdempotency(ctx context.Context, begun IdempotentRequest) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, begun)
}

// WithoutIdempotency is for a transaction that is not the last of its request.
func WithoutIdempotency(ctx context.Context) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, nil)
}

// IdempotencyOf returns the request of WithIdempotency.
func IdempotencyOf(ctx context.Context) (IdempotentRequest, bool) {
	request, ok := ctx.Value(idempotencyKey{}).(IdempotentRequest)
	return request, ok
}
