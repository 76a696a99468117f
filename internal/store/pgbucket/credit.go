package pgbucket

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/shares"
)

// Credit implements enforce.Creditor within the budget, even if the caller leaves.
func (s *Store) Credit(
	ctx context.Context, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, err error) {
	before, after, _, err = s.credit(ctx, nil, key, limit, amount)
	return before, after, err
}

// CreditOnce implements enforce.Creditor within the budget; its ids are unlogged, like the buckets.
func (s *Store) CreditOnce(
	ctx context.Context, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, isRepeated bool, err error) {
	past := &pastCredit{
		tenant: int64(key.Tenant), id: id, fingerprint: enforce.CreditFingerprint(key, amount),
		at: s.stamp(),
	}
	return s.credit(ctx, past, key, limit, amount)
}

func (s *Store) credit(
	ctx context.Context, past *pastCredit, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, isRepeated bool, err error) {
	// An ending context would close the connection and count as PostgreSQL's failure.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.budget)
	defer cancel()
	release, err := s.changes.Take(ctx, shares.Caller{Tenant: key.Tenant})
	if err != nil {
		return before, after, false, fmt.Errorf("credit a bucket in postgres: %w: %w", err, enforce.ErrNothingTaken)
	}
	defer release()
	t := newTransaction()
	defer t.release()
	r := t.index(key)
	if past != nil {
		t.part = past
	}
	err = s.guarded(ctx, t, func() {
		if past != nil && past.found {
			past.isNew = false
			return
		}
		before, after = creditRow(&t.rows[r], limit, amount, t.now)
		if past != nil {
			past.isNew, past.before, past.after = !t.rows[r].newer, before, after
		}
	})
	switch {
	case err != nil:
		return before, after, false, fmt.Errorf("credit a bucket in postgres: %w", err)
	case t.rows[r].newer:
		s.unknown.Add(1)
		return before, after, false, fmt.Errorf("credit a bucket in postgres: %w", ErrUnknownVersion)
	case past == nil || past.isNew:
		enforce.LearnCredit(s.learner, key, before, after)
		return before, after, false, nil
	case past.foundFingerprint != past.fingerprint:
		return before, after, false, enforce.ErrCreditIDReused
	}
	return past.before, past.after, true, nil
}

func creditRow(r *row, limit enforce.Limit, amount enforce.Tokens, now int64) (before, after enforce.Bucket) {
	if r.newer {
		return before, after
	}
	state := enforce.NewState(limit, now)
	if r.holds {
		state = r.state
		state.Advance(limit, 0, now)
	}
	credited := state
	credited.Credit(amount)
	if r.holds || credited != state {
		r.state, r.holds = credited, true
	}
	return state.View(), credited.View()
}

type pastCredit struct {
	tenant      int64
	id          string
	fingerprint [32]byte
	at          int64 // a test's time, or 0

	found            bool // an earlier credit has the id
	foundFingerprint [32]byte
	isNew            bool // store this one
	before, after    enforce.Bucket
}

func int8Param(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func (c *pastCredit) ask(p *pgconn.Pipeline, statements *statements) {
	c.found = false
	p.SendQueryStatement(statements.remembered, [][]byte{int8Param(c.tenant), []byte(c.id), int8Param(c.time())},
		binaryFormat, binaryFormat)
}

func (c *pastCredit) time() int64 {
	if c.at != 0 {
		return c.at
	}
	return time.Now().UnixMicro()
}

func (c *pastCredit) read(values [][]byte) {
	c.found = true
	copy(c.foundFingerprint[:], values[0])
	c.before, c.after = parseAnswer(values[1])
}

func (c *pastCredit) write(p *pgconn.Pipeline, statements *statements, now int64) (sent int) {
	if !c.isNew {
		return 0
	}
	p.SendQueryStatement(statements.forget, [][]byte{int8Param(c.tenant), []byte(c.id), int8Param(c.time())},
		binaryFormat, nil)
	p.SendQueryStatement(statements.remember, [][]byte{
		int8Param(c.tenant), []byte(c.id), c.fingerprint[:], appendAnswer(nil, c.before, c.after),
		int8Param(now + enforce.CreditsRemembered.Microseconds()),
	}, binaryFormat, nil)
	return 2
}

func appendAnswer(b []byte, before, after enforce.Bucket) []byte {
	b = (&enforce.State{Bucket: before}).Append(b)
	return (&enforce.State{Bucket: after}).Append(b)
}

func parseAnswer(b []byte) (before, after enforce.Bucket) {
	if len(b) != 2*enforce.StateBytes {
		return before, after
	}
	first, _, _ := enforce.ParseState(b[:enforce.StateBytes])
	second, _, _ := enforce.ParseState(b[enforce.StateBytes:])
	return first.Bucket, second.Bucket
}
