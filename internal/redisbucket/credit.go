package redisbucket

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
)

//go:embed credit.lua
var creditSource string

// creditReplyBytes is how long credit.lua's reply is.
const creditReplyBytes = 2*tierBytes + limitBytes + 1

// The last byte of credit.lua's reply, if it is not 0.
const (
	creditedBroken = 1
	creditUnknown  = 2
)

// Credit implements enforce.Creditor by a script of its own, credit.lua, with Take's clock, budget and
// breaker. It is never repeated, and runs to its end even if the caller goes away: what became of it is
// known within the budget.
func (s *Store) Credit(
	ctx context.Context, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, err error) {
	return s.credit(ctx, key, limit, amount, 0)
}

// credit is Credit at a time in microseconds since the Unix epoch, 0 for Redis's own. Only tests name
// a time.
func (s *Store) credit(
	ctx context.Context, key enforce.Key, limit enforce.Limit, amount enforce.Tokens, stamp int64,
) (before, after enforce.Bucket, err error) {
	// By source: people credit seldom, and a call by digest would have to be ready for NOSCRIPT.
	args := []any{"eval", creditSource, 1, string(appendKey(nil, s.prefix, key)), appendFloat(appendLimit(nil, limit), float64(amount))}
	if stamp != 0 {
		args = append(args, strconv.FormatInt(stamp, 10))
	}
	cmd := &takeCmd{redis.NewStringCmd(ctx, args...)}
	_, err = s.nodeOf(key).breaker.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.budget)
		defer cancel()
		return struct{}{}, s.rdb.Process(ctx, cmd) // a cluster's client follows redirects
	})
	if err != nil {
		return before, after, fmt.Errorf("credit a bucket in redis: %w", err)
	}
	reply := cmd.Val()
	if len(reply) != creditReplyBytes {
		return before, after, fmt.Errorf("credit a bucket in redis: a reply of %d bytes", len(reply))
	}
	switch reply[creditReplyBytes-1] {
	case creditedBroken:
		s.broken.Add(1)
	case creditUnknown:
		s.unknown.Add(1)
		return before, after, fmt.Errorf("credit a bucket in redis: %w", ErrUnknownVersion)
	}
	before.Level, after.Level = levelAt(reply), levelAt(reply[tierBytes:])
	before.Limit = limitAt(reply[2*tierBytes:])
	after.Limit = before.Limit
	return before, after, nil
}

func levelAt(s string) enforce.Level {
	return enforce.Level{Micros: enforce.Tokens(float(s)), Fraction: uint32At(s[8:])}
}
