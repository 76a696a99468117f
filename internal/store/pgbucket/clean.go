package pgbucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	cleanEvery = time.Second
	// passSteps clean a whole table, unless a step has maxPages.
	passSteps = 30
	minPages  = 64   // of 8 KiB, in a step
	maxPages  = 2048 // 16 MiB, some 50,000 buckets: tens of milliseconds
)

const cleanSQL = `DELETE FROM %[1]s WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM %[1]s WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND %[2]s < $3 FOR UPDATE SKIP LOCKED))`

// Run removes idle full buckets, ended reservations and expired ids until ctx ends, in bounded steps of one process at
// a time.
func (s *Store) Run(ctx context.Context, log *slog.Logger) {
	tables := []*cleaned{
		{table: "bucket", forgottenAt: "full_at"},
		{table: "bucket_credit", forgottenAt: "forgotten_at"},
		{table: "bucket_record", forgottenAt: "forgotten_at"},
	}
	for failed := false; ; {
		err := s.forgetEnded(ctx)
		for _, table := range tables {
			_, cleanErr := s.cleanStep(ctx, table)
			err = errors.Join(err, cleanErr)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failed {
			log.WarnContext(ctx, "idle buckets could not be removed from the database; their table grows until it "+
				"succeeds", "error", err)
		}
		failed = err != nil
		if pause(ctx, cleanEvery) != nil {
			return
		}
	}
}

type cleaned struct {
	table, forgottenAt string
	page               int64 // the next
}

func (s *Store) cleanStep(ctx context.Context, c *cleaned) (removed int64, err error) {
	err = bounded(ctx, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, s.background, func(tx pgx.Tx) error {
			var mine bool
			var pages, now int64
			err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(hashtext($1)),
				pg_relation_size($2::text::regclass) / current_setting('block_size')::bigint,
				(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`, cleanLock, c.table).Scan(&mine, &pages,
				&now)
			if err != nil || !mine {
				return err
			}
			if given := s.stamp(); given != 0 {
				now = given
			}
			if c.page >= pages {
				c.page = 0
			}
			end := c.page + min(max(pages/passSteps, minPages), maxPages)
			tag, err := tx.Exec(ctx, fmt.Sprintf(cleanSQL, c.table, c.forgottenAt), tid(c.page), tid(end), now)
			if err != nil {
				return err
			}
			removed, c.page = tag.RowsAffected(), end
			return nil
		})
	})
	if err != nil {
		return 0, fmt.Errorf("clean %s: %w", c.table, err)
	}
	return removed, nil
}

func tid(page int64) string { return fmt.Sprintf("(%d,0)", page) }
