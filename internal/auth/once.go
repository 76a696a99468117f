package auth

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// OnceKept is how long a request may be repeated, and OncePerCaller how many of a caller's in one tenant are kept: the
// latest.
const (
	OnceKept      = 24 * time.Hour
	OncePerCaller = 2000
)

// Once is a request that its caller may repeat without doing it twice, because it carries an Idempotency-Key. Of the key
// only a digest is stored.
type Once struct {
	Tenant      rules.TenantID // 0 for a request about none
	Key         Digest
	Caller      string
	Fingerprint Digest // of all that makes two requests the same one
	attempt     int64
}

// What a OnceStore answers.
var (
	// ErrOnceOther is for a key that was used for another request.
	ErrOnceOther = errors.New("the Idempotency-Key was used for another request")
	// ErrOnceLost is for a request that was carried out, and whose answer is not kept: its process ended, or the answer
	// was large.
	ErrOnceLost = errors.New("the request was carried out, and its answer is lost")
)

// OnceRunningError is for a request that an earlier attempt may still carry out for some time.
type OnceRunningError struct{ Left time.Duration }

// Error is the same for all of them.
func (OnceRunningError) Error() string { return "an earlier attempt of this request is still running" }

// OnceStore remembers such requests. The transaction of the change that a request makes also marks the request as carried out
// (see WithOnce), so a process that ends midway leaves one of two states: the change is made and marked, and a repetition is
// ErrOnceLost; or nothing is made, and a repetition carries it out when the lease has ended. An attempt whose lease has ended
// cannot commit once another has begun.
type OnceStore interface {
	// BeginOnce begins an attempt, or returns the sealed answer of an earlier one.
	BeginOnce(ctx context.Context, once Once, lease time.Duration) (begun Once, answer []byte, err error)
	// KeepAnswer ends an attempt that was successful.
	KeepAnswer(ctx context.Context, begun Once, answer []byte) error
	// ForgetOnce ends an attempt that has changed nothing; one that was marked stays.
	ForgetOnce(ctx context.Context, begun Once) error
}

// Begun returns the request with the number of its attempt, for stores.
func (o Once) Begun(attempt int64) Once {
	o.attempt = attempt
	return o
}

// Attempt is the number that Begun was given.
func (o Once) Attempt() int64 { return o.attempt }

type onceKey struct{}

// WithOnce makes the transaction of a change mark the request as carried out.
func WithOnce(ctx context.Context, begun Once) context.Context {
	return context.WithValue(ctx, onceKey{}, begun)
}

// OnceOf returns the request of WithOnce.
func OnceOf(ctx context.Context) (Once, bool) {
	once, ok := ctx.Value(onceKey{}).(Once)
	return once, ok
}
