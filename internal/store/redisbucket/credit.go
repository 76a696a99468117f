package redisbucket

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluicegate/sluice/internal/enforce"
)

const creditReplyBytes = 2*tierBytes + limitBytes + 8 + 1

const (
	creditedBroken = 1
	creditReused   = 3
	creditRepeated = 4
)

// Credit implements enforce.Creditor in its tenant's turn, is never repeated, and ends within the budget even if the
// caller leaves.
func (s *Store) Credit(
	_ context.Context, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, err error) {
	before, after, _, err = s.credit(credit{key: key, limit: limit, amount: amount})
	return before, after, err
}

// CreditOnce implements enforce.Creditor, with ids beside the buckets, so a call after a lost reply finds its own.
func (s *Store) CreditOnce(
	_ context.Context, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, isRepeated bool, err error) {
	return s.credit(credit{key: key, limit: limit, amount: amount, id: id})
}

type credit struct {
	key    enforce.Key
	limit  enforce.Limit
	amount enforce.Tokens
	stamp  int64  // the time in microseconds since the Unix epoch; only from tests, else 0
	id     string // the idempotency key, or ""
}

func (s *Store) creditCall(c credit) *call {
	bucket := string(appendKey(nil, s.prefix, c.key))
	calendars := uint16(0)
	change := appendFloat(appendLimit(nil, c.limit, &calendars), float64(c.amount))
	calendar := appendCalendar(nil, c.limit, c.stamp)
	toBucket := &call{
		source: creditSource, keys: []string{bucket}, args: []any{change, calendar, stampArg(c.stamp), ""},
		weight: ownScript(1),
	}
	if c.id != "" {
		s.addCreditID(toBucket, &c)
	}
	if s.isLong(c.limit) {
		toBucket.keys = append(toBucket.keys, string(appendEraKey(nil, s.prefix, c.key.Tenant)))
		toBucket.args[3] = s.eraExpected(c.key.Tenant)
	}
	return toBucket
}

func (s *Store) addCreditID(toBucket *call, c *credit) {
	// No rule has the id 0.
	past := string(appendKey(nil, s.prefix, enforce.Key{Tenant: c.key.Tenant, Subject: "credit " + c.id}))
	fingerprint := enforce.CreditFingerprint(c.key, c.amount)
	toBucket.keys = append(toBucket.keys, past)
	toBucket.args = append(toBucket.args, fingerprint[:], enforce.CreditsRemembered.Milliseconds())
	toBucket.weight = ownScript(2)
}

func (s *Store) credit(c credit) (before, after enforce.Bucket, isRepeated bool, err error) {
	err = s.untilRestored(c.key.Tenant, func() (lost []lostBucket, err error) {
		reply, err := s.run(c.key.Tenant, s.creditCall(c))
		if err == nil {
			before, after, isRepeated, err = s.readCredit(reply)
		}
		return []lostBucket{s.lostBucketOf(c.key, c.limit)}, err
	})
	if err == nil && !isRepeated {
		enforce.LearnCredit(s.learner, c.key, before, after)
	}
	if err != nil && !errors.Is(err, enforce.ErrCreditIDReused) {
		err = fmt.Errorf("credit a bucket in redis: %w", err)
	}
	return before, after, isRepeated, err
}

func (s *Store) readCredit(reply string) (before, after enforce.Bucket, isRepeated bool, err error) {
	if len(reply) != creditReplyBytes {
		return before, after, false, fmt.Errorf("an unexpected reply of %d bytes", len(reply))
	}
	status := reply[creditReplyBytes-1]
	if err := s.refusal(status); err != nil {
		return before, after, false, err
	}
	switch status {
	case creditedBroken:
		s.broken.Add(1)
	case creditReused:
		return before, after, false, enforce.ErrCreditIDReused
	case creditRepeated:
		isRepeated = true
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
