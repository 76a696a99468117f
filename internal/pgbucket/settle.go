package pgbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/enforce"
)

const (
	// settledAtOnce is how many buckets a step of Settle reads, and locks at most.
	settledAtOnce = 200
	// settlePause is the pause after each step, so that a walk leaves most of the server to checks.
	settlePause = 5 * time.Millisecond
	// turnPause is how often a process that waits for another's walk looks whether it ended.
	turnPause = 500 * time.Millisecond
	// settleLock and cleanLock are the advisory locks of the two jobs.
	settleLock = "sluice settle buckets"
	cleanLock  = "sluice clean buckets"
)

const (
	walkSQL = `SELECT subject, state, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM bucket
WHERE tenant_id = $1 AND rule_id = $2 AND subject >= $3 ORDER BY subject LIMIT $4`
	tryLockSQL = `SELECT pg_try_advisory_lock(hashtext($1))`
)

// Settle implements enforce.Settler. One process walks at a time. The others find nothing left to write when their turn
// comes, so they only read.
func (s *Store) Settle(ctx context.Context, edits []enforce.Edit) error {
	if len(edits) == 0 {
		return nil
	}
	if err := s.settle(ctx, edits); err != nil {
		return fmt.Errorf("settle buckets in postgres: %w", err)
	}
	return nil
}

func (s *Store) settle(ctx context.Context, edits []enforce.Edit) error {
	conn, err := s.background.Acquire(ctx)
	if err != nil {
		return err
	}
	// The lock is of the session, so the connection is closed with it.
	session := conn.Hijack()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = session.Close(ctx) // the server ends the session also without a farewell
	}()
	for {
		var mine bool
		if err := bounded(ctx, func(ctx context.Context) error {
			return session.QueryRow(ctx, tryLockSQL, settleLock).Scan(&mine)
		}); err != nil {
			return err
		}
		if mine {
			break
		}
		if err := pause(ctx, turnPause); err != nil {
			return err
		}
	}
	for i := range edits {
		if err := s.settleRule(ctx, session, &edits[i]); err != nil {
			return err
		}
	}
	return nil
}

// settleRule walks all buckets of an edited rule, by subject.
func (s *Store) settleRule(ctx context.Context, session *pgx.Conn, edit *enforce.Edit) error {
	for from := []byte{}; ; {
		var more bool
		var err error
		if from, more, err = s.settleStep(ctx, session, edit, from); err != nil {
			return err
		}
		if !more {
			return nil
		}
		if err := pause(ctx, settlePause); err != nil {
			return err
		}
	}
}

// settleStep settles the next buckets from a subject on, and returns where the step after it begins.
func (s *Store) settleStep(ctx context.Context, session *pgx.Conn, edit *enforce.Edit, from []byte) (next []byte, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, backgroundTimeout)
	defer cancel()
	t := newTransaction()
	defer t.release()
	var limits []enforce.Limit // of the rows
	rows, err := session.Query(ctx, walkSQL, int64(edit.Tenant), int64(edit.Rule), from, settledAtOnce)
	if err != nil {
		return nil, false, err
	}
	var subject, state []byte
	var now int64
	tag, err := pgx.ForEachRow(rows, []any{&subject, &state, &now}, func() error {
		next = append(slices.Clone(subject), 0) // the least that follows it
		if given := s.stamp(); given != 0 {
			now = given
		}
		held, _, ok := parseState(state)
		limit, wanted := edit.LimitOf(string(subject), isHashed(subject))
		if ok && wanted && held.Settle(limit, edit.ReadAt, now) {
			t.order = append(t.order, len(t.rows))
			t.rows = append(t.rows, row{key: stored{int64(edit.Tenant), int64(edit.Rule), string(subject)}})
			limits = append(limits, limit)
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	if len(t.rows) > 0 {
		err = s.run(ctx, s.background, t, func() {
			for place := range t.rows {
				r := &t.rows[place]
				if settled := r.state; r.holds && settled.Settle(limits[place], edit.ReadAt, t.now) {
					r.state = settled
				}
			}
		})
	}
	return next, tag.RowsAffected() == settledAtOnce, err
}

// bounded runs one step of a background job within its timeout.
func bounded(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, backgroundTimeout)
	defer cancel()
	return step(ctx)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), context.Cause(ctx))
	}
}
