package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// A scope limits the rows that statements may touch. In the scope of a tenant they run as the tenant role, whose
// policies hide other tenants' rows: a query that forgets its tenant finds nothing instead of everything.
type scope struct {
	tenant rules.TenantID
	every  bool
}

func only(tenant rules.TenantID) scope { return scope{tenant: tenant} }

// everyTenant is for the queries of db/queries/platform.sql, and for tables that belong to no tenant.
var everyTenant = scope{every: true} //nolint:gochecknoglobals // a constant

const (
	// serverGrace makes callers get the client's error. Without a limit of its own a server works on after the client
	// has left.
	serverGrace = 500 * time.Millisecond

	limitStatement = "SELECT set_config('statement_timeout', $1, true)"
	enterTenant    = "SELECT set_config('role', $1, true), set_config('sluice.tenant', $2, true), " +
		"set_config('statement_timeout', $3, true)"

	andIdle          = ", set_config('idle_in_transaction_session_timeout', "
	limitTransaction = limitStatement + andIdle + "$2, true)"
	enterTransaction = enterTenant + andIdle + "$4, true)"
)

// queriesFor returns queries that each run in a scope outside of a transaction, in one round trip.
func (s *Store) queriesFor(class class, of scope) *dbsqlc.Queries {
	return dbsqlc.New(s.walled(class, of))
}

// transaction begins and enters its scope with the first statement, without a round trip of their own.
func (s *Store) transaction(ctx context.Context, class class, of scope,
	do func(context.Context, *dbsqlc.Queries) error,
) error {
	return s.begin(ctx, class, of, "BEGIN",
		func(ctx context.Context, tx dbsqlc.DBTX) error { return do(ctx, dbsqlc.New(tx)) })
}

// oneView is transaction for reads that must see one state of the database.
func (s *Store) oneView(ctx context.Context, class class, of scope,
	do func(context.Context, *dbsqlc.Queries) error,
) error {
	return s.begin(ctx, class, of, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
		func(ctx context.Context, tx dbsqlc.DBTX) error {
			return do(ctx, dbsqlc.New(tx))
		})
}

func (s *Store) begin(ctx context.Context, class class, of scope, begin string,
	do func(context.Context, dbsqlc.DBTX) error,
) error {
	ctx, cancel := s.within(ctx, class)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx := &beginning{conn: conn.Conn(), begin: begin}
	limit := serverLimit(ctx)
	if of.every {
		tx.enter, tx.settings = limitTransaction, []any{limit, limit}
	} else {
		role, err := tenantRole(ctx, conn.Conn())
		if err != nil {
			return err
		}
		tx.enter, tx.settings = enterTransaction, []any{role, of.tenantSetting(), limit, limit}
	}
	return tx.end(ctx, do(ctx, sending(tx.send)))
}

type beginning struct {
	conn     *pgx.Conn
	begin    string
	enter    string
	settings []any // of enter

	tx pgx.Tx // nil before the first statement
}

func (b *beginning) send(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if b.tx != nil {
		return b.tx.SendBatch(ctx, batch)
	}
	var all pgx.Batch
	all.BeginTx(pgx.TxOptions{BeginQuery: b.begin})
	all.Queue(b.enter, b.settings...)
	all.QueuedQueries = append(all.QueuedQueries, batch.QueuedQueries...)
	results := b.conn.SendBatch(ctx, &all)
	b.tx = results.Tx()
	for range 2 {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // it returns the same error
			return refused{err}
		}
	}
	return results
}

func (b *beginning) end(ctx context.Context, err error) error {
	switch {
	case b.tx == nil:
		return err
	case err != nil:
		_ = b.tx.Rollback(ctx) // else the pool closes the connection, with the same effect
		return err
	}
	return b.tx.Commit(ctx)
}

// walled sends settings and statement before the one Sync message that ends PostgreSQL's implicit transaction, so the
// settings end with the statement, also behind a pooler in transaction mode.
func (s *Store) walled(class class, of scope) dbsqlc.DBTX {
	return sending(func(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
		return s.sendIn(ctx, class, of, batch)
	})
}

func (s *Store) sendIn(ctx context.Context, class class, of scope, batch *pgx.Batch) pgx.BatchResults {
	ctx, cancel := s.within(ctx, class)
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		cancel()
		return refused{err}
	}
	var all pgx.Batch
	if of.every {
		all.Queue(limitStatement, serverLimit(ctx))
	} else {
		role, err := tenantRole(ctx, conn.Conn())
		if err != nil {
			conn.Release()
			cancel()
			return refused{err}
		}
		all.Queue(enterTenant, role, of.tenantSetting(), serverLimit(ctx))
	}
	all.QueuedQueries = append(all.QueuedQueries, batch.QueuedQueries...)
	trip := &trip{BatchResults: conn.SendBatch(ctx, &all), conn: conn, cancel: cancel}
	if _, err := trip.Exec(); err != nil {
		_ = trip.Close() // it returns the same error
		return refused{err}
	}
	return trip
}

type sending func(context.Context, *pgx.Batch) pgx.BatchResults

var _ dbsqlc.DBTX = sending(nil)

func (send sending) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	return send(ctx, batch)
}

func (send sending) one(ctx context.Context, sql string, args []any) pgx.BatchResults {
	var batch pgx.Batch
	batch.Queue(sql, args...)
	return send(ctx, &batch)
}

func (send sending) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	trip := send.one(ctx, sql, args)
	tag, err := trip.Exec()
	return tag, cmp.Or(err, trip.Close()) // an implicit transaction ends with Close
}

func (send sending) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	trip := send.one(ctx, sql, args)
	rows, err := trip.Query()
	if err != nil {
		_ = trip.Close() // it returns the same error
		return rows, err
	}
	return &tripRows{Rows: rows, trip: trip}, nil
}

func (send sending) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := send.Query(ctx, sql, args...)
	return tripRow{rows, err}
}

type trip struct {
	pgx.BatchResults
	conn   *pgxpool.Conn
	cancel context.CancelFunc
}

func (t *trip) Close() error {
	err := t.BatchResults.Close()
	if t.conn != nil {
		t.conn.Release()
		t.conn = nil
		t.cancel()
	}
	return err
}

type tripRows struct {
	pgx.Rows
	trip pgx.BatchResults
	err  error
}

func (r *tripRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *tripRows) Close() {
	r.Rows.Close()
	r.err = cmp.Or(r.Rows.Err(), r.trip.Close())
}

func (r *tripRows) Err() error { return cmp.Or(r.Rows.Err(), r.err) }

type tripRow struct {
	rows pgx.Rows
	err  error
}

func (r tripRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		return cmp.Or(r.rows.Err(), pgx.ErrNoRows)
	}
	err := r.rows.Scan(into...)
	r.rows.Close()
	return cmp.Or(err, r.rows.Err())
}

type refused struct{ err error }

func (r refused) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, r.err }
func (r refused) Query() (pgx.Rows, error)         { return nil, r.err }
func (r refused) QueryRow() pgx.Row                { return tripRow{err: r.err} }
func (r refused) Close() error                     { return r.err }
func (r refused) Tx() pgx.Tx                       { return nil }

func (of scope) tenantSetting() string { return strconv.FormatInt(int64(of.tenant), 10) }

func serverLimit(ctx context.Context) string {
	deadline, _ := ctx.Deadline() // a class has given it one
	left := max(0, time.Until(deadline))
	return strconv.FormatInt((left + serverGrace).Milliseconds(), 10)
}

const tenantRoleKey = "sluice tenant role"

// tenantRole reads the role's name from the policies, once for a connection, because a server may hold several
// databases of Sluice.
func tenantRole(ctx context.Context, conn *pgx.Conn) (string, error) {
	remembered := conn.PgConn().CustomData()
	if role, ok := remembered[tenantRoleKey].(string); ok {
		return role, nil
	}
	var role string
	err := conn.QueryRow(ctx, findTenantRole).Scan(&role)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("the database has no role for tenants: %w", ErrSchemaBehind)
	}
	if err != nil {
		return "", fmt.Errorf("look for the database's role for tenants: %w", err)
	}
	remembered[tenantRoleKey] = role
	return role, nil
}
