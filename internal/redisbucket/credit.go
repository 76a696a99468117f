package redisbucket

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
)

const creditReplyBytes = 2*tierBytes + limitBytes + 8 + 1

// The last byte of credit.lua's reply, if it is not 0.
const (
	creditedBroken = 1
	creditUnknown  = 2
	creditReused   = 3
	creditRepeated = 4
)

// Credit implements enforce.Creditor with credit.lua and Take's clock, budget and breaker. It is never repeated, and ends
// within the budget even if the caller leaves.
func (s *Store) Credit(
	ctx context.Context, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, err error) {
	before, after, _, err = s.credit(ctx, credit{key: key, limit: limit, amount: amount})
	return before, after, err
}

// CreditOnce implements enforce.Creditor. The script that credits also remembers the credit, beside the tenant's buckets,
// so that it knows one whose reply was lost.
func (s *Store) CreditOnce(
	ctx context.Context, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, isRepeated bool, err error) {
	return s.credit(ctx, credit{key: key, limit: limit, amount: amount, id: id})
}

// credit has the arguments of credit.lua.
type credit struct {
	key    enforce.Key
	limit  enforce.Limit
	amount enforce.Tokens
	stamp  int64  // the time in microseconds since the Unix epoch; only from tests, else 0
	id     string // "" for one that is not remembered
}

func (s *Store) creditArgs(c credit) []any {
	bucket := string(appendKey(nil, s.prefix, c.key))
	calendars := uint16(0)
	change := appendFloat(appendLimit(nil, c.limit, &calendars), float64(c.amount))
	calendar := appendCalendar(nil, c.limit, c.stamp)
	at := ""
	if c.stamp != 0 {
		at = strconv.FormatInt(c.stamp, 10)
	}
	// By source: credits are rare, and a call by digest would have to handle NOSCRIPT.
	if c.id == "" {
		return []any{"eval", creditSource, 1, bucket, change, calendar, at}
	}
	// No rule has the id 0, so this is no bucket's key.
	past := string(appendKey(nil, s.prefix, enforce.Key{Tenant: c.key.Tenant, Shard: c.key.Shard, Subject: "credit " + c.id}))
	fingerprint := enforce.CreditFingerprint(c.key, c.amount)
	return []any{"eval", creditSource, 2, bucket, past, change, calendar, at, fingerprint[:], enforce.CreditsRemembered.Milliseconds()}
}

func (s *Store) credit(ctx context.Context, c credit) (before, after enforce.Bucket, isRepeated bool, err error) {
	args := s.creditArgs(c)
	cmd := &noRetryCmd{redis.NewStringCmd(ctx, args...)}
	_, err = s.nodeOf(c.key).breaker.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.budget)
		defer cancel()
		return struct{}{}, s.rdb.Process(ctx, cmd) // a cluster's client follows redirects
	})
	if err != nil {
		return before, after, false, fmt.Errorf("credit a bucket in redis: %w", err)
	}
	reply := cmd.Val()
	if len(reply) != creditReplyBytes {
		return before, after, false, fmt.Errorf("credit a bucket in redis: a reply of %d bytes", len(reply))
	}
	switch reply[creditReplyBytes-1] {
	case creditedBroken:
		s.broken.Add(1)
	case creditReused:
		return before, after, false, enforce.ErrCreditIDReused
	case creditRepeated:
		isRepeated = true
	case creditUnknown:
		s.unknown.Add(1)
		return before, after, false, fmt.Errorf("credit a bucket in redis: %w", ErrUnknownVersion)
	}
	before.Level, after.Level = levelAt(reply), levelAt(reply[tierBytes:])
	before.Limit = limitAt(reply[2*tierBytes:])
	before.Stamp = int64(float(reply[2*tierBytes+limitBytes:]))
	after.Limit, after.Stamp = before.Limit, before.Stamp
	return before, after, isRepeated, nil
}

func levelAt(s string) enforce.Level {
	return enforce.Level{Micros: enforce.Tokens(float(s)), Fraction: uint32At(s[8:])}
}
