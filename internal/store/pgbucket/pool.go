package pgbucket

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/certs/pgtls"
)

const (
	// inFlight batches: one waits for the network while another keeps a core of the server busy. Two passed 12,600
	// checks a second on two shared cores, four 9,000: smaller batches that wait for each other's rows.
	inFlight = 2
	maxBatch = 256
	// lockShare of the budget is for a row, or a change's turn.
	lockShare = 2
	// changes run at a time, changesPerTenant of one tenant, which may all wait for one row.
	changes               = 3
	changesPerTenant      = 2
	maxWaiting            = 256
	connections           = inFlight + changes + 2
	backgroundConnections = 3
	connectTimeout        = 5 * time.Second
	backgroundTimeout     = 5 * time.Second
)

// idleTimeout frees the rows of a stopped or cut-off process: others decide in microseconds.
func idleTimeout(budget time.Duration) time.Duration { return max(2*budget, 250*time.Millisecond) }

// Connections have their own settings, so the URL must not lead to a pooler that shares sessions.
func (s *Store) openPools(ctx context.Context, databaseURL string) error {
	checks, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return fmt.Errorf("read SLUICE_DATABASE_URL: %w", err)
	}
	pgtls.Reload(checks, databaseURL, nil) // pgstore's pool has the same URL, and logs
	background := checks.Copy()
	configure(checks, connections, s.budget, s.budget/lockShare, idleTimeout(s.budget))
	// A ping after an idle second costs a third round trip; run retries on another connection instead.
	checks.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	checks.AfterConnect = s.prepare
	configure(background, backgroundConnections, backgroundTimeout, time.Second, backgroundTimeout)
	background.AfterConnect = s.prepare
	if s.pool, err = pgxpool.NewWithConfig(ctx, checks); err != nil {
		return fmt.Errorf("open the database of buckets: %w", err)
	}
	if s.background, err = pgxpool.NewWithConfig(ctx, background); err != nil {
		s.pool.Close()
		return fmt.Errorf("open the database of buckets: %w", err)
	}
	return nil
}

func configure(config *pgxpool.Config, conns int32, statement, lock, idle time.Duration) {
	config.MaxConns, config.MinConns = conns, 0
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	params := config.ConnConfig.RuntimeParams
	if _, ok := params["application_name"]; !ok {
		params["application_name"] = "sluice buckets"
	}
	params["statement_timeout"] = milliseconds(statement)
	params["lock_timeout"] = milliseconds(lock)
	params["idle_in_transaction_session_timeout"] = milliseconds(idle)
	// The table outgrows its statistics, and a sequential scan would exceed the budget.
	params["enable_seqscan"], params["enable_hashjoin"], params["enable_mergejoin"] = "off", "off", "off"
	params["plan_cache_mode"] = "force_generic_plan"
	params["jit"] = "off"
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }

type statements struct {
	begin, lock, clock, absent, insert, update, commit, rollback *pgconn.StatementDescription
	remembered, forget, remember                                 *pgconn.StatementDescription // of CreditOnce
	open, record, hold, extend, close, closeEnded                *pgconn.StatementDescription // of reservations
	rememberedIDs, rememberIDs                                   *pgconn.StatementDescription // of records
}

const (
	// The subquery is not merged, so rows are locked in the parameters' order, each by the primary key.
	lockSQL = `SELECT k.n, b.at, b.state
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) WITH ORDINALITY AS k (tenant_id, rule_id, subject, n)
CROSS JOIN LATERAL (
    SELECT bucket.ctid AS at, bucket.state FROM bucket
    WHERE bucket.tenant_id = k.tenant_id AND bucket.rule_id = k.rule_id AND bucket.subject = k.subject
    FOR NO KEY UPDATE
) AS b`
	clockSQL = `SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)`
	// A wait for a row begins after the others were read: absentSQL fails if a missing one exists by now.
	absentSQL = `SELECT 1 / (count(*) = 0)::int
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS k (tenant_id, rule_id, subject)
JOIN bucket USING (tenant_id, rule_id, subject)`
	insertSQL = `INSERT INTO bucket (tenant_id, rule_id, subject, state, full_at)
SELECT k.tenant_id, k.rule_id, k.subject, k.state, k.full_at
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bigint[]) AS k (tenant_id, rule_id, subject,
	state, full_at)`
	// The ctid is valid because the row is locked.
	updateSQL = `UPDATE bucket SET state = k.state, full_at = k.full_at
FROM unnest($1::tid[], $2::bytea[], $3::bigint[]) AS k (at, state, full_at) WHERE bucket.ctid = k.at`
	rememberedSQL = `SELECT fingerprint, answer FROM bucket_credit
WHERE tenant_id = $1 AND credit_id = $2 AND forgotten_at > $3`
	forgetSQL   = `DELETE FROM bucket_credit WHERE tenant_id = $1 AND credit_id = $2 AND forgotten_at <= $3`
	rememberSQL = `INSERT INTO bucket_credit (tenant_id, credit_id, fingerprint, answer, forgotten_at)
VALUES ($1, $2, $3, $4, $5)`

	openSQL = `INSERT INTO bucket_reservation (tenant_id, reservation_id, record, ends_at)
SELECT k.tenant_id, k.reservation_id, k.record, k.ends_at
FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[]) AS k (tenant_id, reservation_id, record, ends_at)`
	recordSQL = `SELECT record FROM bucket_reservation WHERE tenant_id = $1 AND reservation_id = $2`
	holdSQL   = `SELECT ends_at, record FROM bucket_reservation WHERE tenant_id = $1 AND reservation_id = $2 FOR UPDATE`
	extendSQL = `UPDATE bucket_reservation SET ends_at = $3, record = $4 WHERE tenant_id = $1 AND reservation_id = $2`
	closeSQL  = `DELETE FROM bucket_reservation WHERE tenant_id = $1 AND reservation_id = $2`
	// A locked row belongs to a settlement, which will find that it ended.
	closeEndedSQL = `DELETE FROM bucket_reservation WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM bucket_reservation WHERE tenant_id = $1 AND ends_at <= $2 ORDER BY ends_at
    	LIMIT $3 FOR UPDATE SKIP LOCKED))`

	rememberedIDsSQL = `SELECT k.n, r.forgotten_at
FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS k (tenant_id, record_id, n)
JOIN bucket_record AS r USING (tenant_id, record_id)`
	// An id that is there has expired: a transaction locks its tenant's counter before it adds one.
	rememberIDsSQL = `INSERT INTO bucket_record (tenant_id, record_id, forgotten_at)
SELECT k.tenant_id, k.record_id, k.forgotten_at
FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS k (tenant_id, record_id, forgotten_at)
ON CONFLICT (tenant_id, record_id) DO UPDATE SET forgotten_at = excluded.forgotten_at`
)

func (s *Store) prepare(ctx context.Context, conn *pgx.Conn) error {
	var prepared statements
	for _, statement := range []struct {
		into *(*pgconn.StatementDescription)
		name string
		sql  string
	}{
		{&prepared.begin, "sluice_begin", "BEGIN ISOLATION LEVEL READ COMMITTED"},
		{&prepared.lock, "sluice_lock", lockSQL},
		{&prepared.clock, "sluice_clock", clockSQL},
		{&prepared.absent, "sluice_absent", absentSQL},
		{&prepared.insert, "sluice_insert", insertSQL},
		{&prepared.update, "sluice_update", updateSQL},
		{&prepared.commit, "sluice_commit", "COMMIT"},
		{&prepared.rollback, "sluice_rollback", "ROLLBACK"},
		{&prepared.remembered, "sluice_remembered", rememberedSQL},
		{&prepared.forget, "sluice_forget", forgetSQL},
		{&prepared.remember, "sluice_remember", rememberSQL},
		{&prepared.open, "sluice_open", openSQL},
		{&prepared.record, "sluice_record", recordSQL},
		{&prepared.hold, "sluice_hold", holdSQL},
		{&prepared.extend, "sluice_extend", extendSQL},
		{&prepared.close, "sluice_close", closeSQL},
		{&prepared.closeEnded, "sluice_close_ended", closeEndedSQL},
		{&prepared.rememberedIDs, "sluice_remembered_ids", rememberedIDsSQL},
		{&prepared.rememberIDs, "sluice_remember_ids", rememberIDsSQL},
	} {
		description, err := conn.PgConn().Prepare(ctx, statement.name, statement.sql, nil)
		if err != nil {
			return fmt.Errorf("prepare %s: %w", statement.name, err)
		}
		*statement.into = description
	}
	s.statements.Store(&prepared) // they are the same on each connection
	return s.restore(ctx, conn)
}
