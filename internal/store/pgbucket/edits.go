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
	advancedAtOnce = 200
	walkPause      = 5 * time.Millisecond
	turnPause      = 500 * time.Millisecond
	walkLock       = "sluice settle buckets"
	cleanLock      = "sluice clean buckets"
)

const (
	walkSQL = `SELECT subject, state, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM bucket
WHERE tenant_id = $1 AND rule_id = $2 AND subject >= $3 ORDER BY subject LIMIT $4`
	tryLockSQL = `SELECT pg_try_advisory_lock(hashtext($1))`
)

// ApplyEdits implements enforce.EditStore, in one process at a time; the next ones find nothing to write.
func (s *Store) ApplyEdits(ctx context.Context, edits []enforce.Edit) error {
	if len(edits) == 0 {
		return nil
	}
	if err := s.applyEdits(ctx, edits); err != nil {
		return fmt.Errorf("apply edits to buckets in postgres: %w", err)
	}
	return nil
}

func (s *Store) applyEdits(ctx context.Context, edits []enforce.Edit) error {
	conn, err := s.background.Acquire(ctx)
	if err != nil {
		return err
	}
	// The session owns the lock, so its connection is closed.
	session := conn.Hijack()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = session.Close(ctx) // the server ends the session even if this fails
	}()
	for {
		var mine bool
		if err := bounded(ctx, func(ctx context.Context) error {
			return session.QueryRow(ctx, tryLockSQL, walkLock).Scan(&mine)
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
		if err := s.walkRule(ctx, session, &edits[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) walkRule(ctx context.Context, session *pgx.Conn, edit *enforce.Edit) error {
	for from := []byte{}; ; {
		var more bool
		var err error
		if from, more, err = s.walkStep(ctx, session, edit, from); err != nil {
			return err
		}
		if !more {
			return nil
		}
		if err := pause(ctx, walkPause); err != nil {
			return err
		}
	}
}

func (s *Store) walkStep(ctx context.Context, session *pgx.Conn, edit *enforce.Edit, from []byte) (next []byte,
	more bool, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, backgroundTimeout)
	defer cancel()
	t := newTransaction()
	defer t.release()
	var limits []enforce.Limit // of the rows
	rows, err := session.Query(ctx, walkSQL, int64(edit.Tenant), int64(edit.Rule), from, advancedAtOnce)
	if err != nil {
		return nil, false, err
	}
	var subject, state []byte
	var now int64
	tag, err := pgx.ForEachRow(rows, []any{&subject, &state, &now}, func() error {
		next = append(slices.Clone(subject), 0) // the next subject at the earliest
		if given := s.stamp(); given != 0 {
			now = given
		}
		held, _, ok := enforce.ParseState(state)
		limit, wanted := edit.LimitOf(string(subject), isHashed(subject))
		if ok && wanted && held.Advance(limit, edit.ReadAt, now) {
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
			for i := range t.rows {
				r := &t.rows[i]
				if state := r.state; r.holds && state.Advance(limits[i], edit.ReadAt, t.now) {
					r.state = state
				}
			}
		})
	}
	return next, tag.RowsAffected() == advancedAtOnce, err
}

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
