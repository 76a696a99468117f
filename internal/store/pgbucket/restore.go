package pgbucket

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/enforce"
)

// PostgreSQL empties unlogged tables after a crash and on a promoted replica, and both end all connections. A new
// connection that finds no mark in the table copies the checkpoints of long limits there before its use. The mark is a
// row of tenant 0, which no tenant has.
const (
	isMarkedSQL = `SELECT EXISTS (SELECT FROM bucket WHERE tenant_id = 0 AND rule_id = 0 AND subject = '')`
	markSQL     = `INSERT INTO bucket (tenant_id, rule_id, subject, state, full_at)
VALUES (0, 0, '', '', 9223372036854775807)`
	restoreLock   = "sluice restore buckets"
	restoredPiece = 5000
	// A million checkpoints take about 20 s.
	restoreSettings = `SELECT set_config('statement_timeout', '2min', true), set_config('lock_timeout', '2min', true),
    set_config('idle_in_transaction_session_timeout', '2min', true)`

	checkpointsSQL = `SELECT tenant_id, rule_id, subject, state FROM bucket_checkpoint
WHERE (tenant_id, rule_id, subject) > ($1, $2, $3) AND rule_id <> 0
ORDER BY tenant_id, rule_id, subject
LIMIT $4`
	restoreSQL = insertSQL + ` ON CONFLICT (tenant_id, rule_id, subject) DO NOTHING`
)

func (s *Store) restore(ctx context.Context, conn *pgx.Conn) error {
	if !s.restores {
		return nil
	}
	var isMarked bool
	if err := conn.QueryRow(ctx, isMarkedSQL).Scan(&isMarked); err != nil || isMarked {
		return err
	}
	restored := 0
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, restoreSettings); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", restoreLock); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, isMarkedSQL).Scan(&isMarked); err != nil || isMarked {
			return err
		}
		for last, n := (stored{}), restoredPiece; n == restoredPiece; restored += n {
			var err error
			if last, n, err = restorePiece(ctx, tx, last); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, markSQL)
		return err
	})
	if err != nil {
		return fmt.Errorf("restore buckets from their checkpoints: %w", err)
	}
	s.restored.Add(int64(restored))
	return nil
}

func restorePiece(ctx context.Context, tx pgx.Tx, after stored) (last stored, n int, err error) {
	rows, err := tx.Query(ctx, checkpointsSQL, after.tenant, after.rule, []byte(after.subject), restoredPiece)
	if err != nil {
		return after, 0, err
	}
	var tenants, rules, fullAts []int64
	var subjects, states [][]byte
	for rows.Next() {
		var tenant, rule int64
		var subject, text []byte
		if err := rows.Scan(&tenant, &rule, &subject, &text); err != nil {
			return after, 0, err
		}
		last, n = stored{tenant, rule, string(subject)}, n+1
		if state, _, ok := enforce.ParseState(text); ok {
			tenants, rules, subjects = append(tenants, tenant), append(rules, rule), append(subjects, subject)
			states, fullAts = append(states, text), append(fullAts, fullAt(&state))
		}
	}
	if err := rows.Err(); err != nil || n == 0 {
		return after, 0, err
	}
	_, err = tx.Exec(ctx, restoreSQL, tenants, rules, subjects, states, fullAts)
	return last, n, err
}

// Restored counts buckets copied from checkpoints.
func (s *Store) Restored() int64 { return s.restored.Load() }
