// Package pgstore keeps tenants and what they own in PostgreSQL 15 or later.
//
// A [Store] reads tenants and what they own, and keeps people: it is the Source of snapshots, the Reader of rules,
// rule sets, keys and audit log, and the Store of auth. [Store.As] returns the [Writer], which takes part in the audit
// log, so that nobody can write without saying who. Every method but those about tenants themselves takes the tenant
// and neither reads nor writes anything of another's. A write is one transaction that first raises the
// tenant's revision and says in whose name it writes; the row lock that this takes makes a tenant's
// writers follow one another, so that revisions become visible in their order. Those of one process do so
// before they take a connection. A write that turns out to change nothing is rolled back, and the revision with it.
//
// Connections are shared fairly: see places. What a request asks for takes places in the name of its caller, whom the
// context carries (shares.With). A request that gets none in time is refused with an error of the package
// shares or, if it waited for another write of its tenant, with rules.ErrBeingWritten; nothing has happened then.
//
// The audit log is written by triggers of the database, so that no write can forget it: see
// db/schema.sql. An entry's time is taken while its writer holds the tenant, so that entries become
// visible in their order as well.
//
// Nothing waits for ever: each method has a deadline (5 s; a bulk write 60 s, a Read 5 min), which
// the context may shorten, and which begins when the method has its place. When the database is away a method
// returns an error at its deadline or earlier: rules.ErrAway or context.DeadlineExceeded, never
// rules.ErrNotFound. Nothing is retried: a write whose
// answer was lost may have happened, and only the caller knows whether it may happen twice.
//
// The first page of a list costs the same however many rows there are: lists go on after a key, by an
// index, and where a filter has none they look at a bounded number of rows.
//
// A Store uses no session state, prepared statements included, so a pooler may stand in between. Migrate
// holds an advisory lock of its session, so `admin migrate` needs a direct connection.
package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/ruleset"
	"github.com/sluicegate/sluice/internal/shares"
	"github.com/sluicegate/sluice/internal/snapshot"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	connectTimeout   = 5 * time.Second
	statementTimeout = 5 * time.Second
	bulkTimeout      = time.Minute
	readTimeout      = 5 * time.Minute // the Watcher bounds each page; this only bounds callers that do not

	// maxConns leaves 4 to what takes no place; see places. Connections are made when they are needed.
	maxConns = 16
	// pingTimeout bounds the look at a connection that was idle for a while.
	pingTimeout = 2 * time.Second

	// pageSize is the most rows of one table that Read holds for one tenant.
	pageSize = 5000
	// lookedAt is the most rows that one page of a list looks at for a filter without an index.
	lookedAt = 2000
)

// Store is the database, to read. It is safe for concurrent use.
type Store struct {
	pool     *pgxpool.Pool
	queries  *dbsqlc.Queries
	log      *slog.Logger
	pageSize int32
	lookedAt int64
	topRows  int32
	places   *places

	unreadable atomic.Int64
}

// Writer is the Store in the name of one actor, to write.
type Writer struct {
	*Store
	by rules.Actor
}

var (
	_ snapshot.Source      = (*Store)(nil)
	_ snapshot.KeyUseStore = (*Store)(nil)
	_ auth.Store           = (*Store)(nil)
	_ auth.AuditLog        = (*Store)(nil)
	_ auth.AuditWriter     = Writer{}
	_ auth.KeyStore        = Writer{}
	_ rules.Store          = Writer{}
	_ ruleset.Store        = Writer{}
)

// As returns a Writer, whose writes are logged as the actor's.
func (s *Store) As(by rules.Actor) Writer { return Writer{s, by} }

// Open returns a Store for the database at a URL. It connects when it is first used, so that a
// database that is away does not keep a process from starting. The URL may limit the pool with
// pool_max_conns, as pgxpool.ParseConfig describes; the default is 16.
func Open(ctx context.Context, databaseURL string, log *slog.Logger) (*Store, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	setDefaults(config.ConnConfig, databaseURL)
	if !strings.Contains(databaseURL, "pool_max_conns") {
		config.MaxConns = maxConns
	}
	config.PingTimeout = pingTimeout
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return &Store{
		pool: pool, queries: dbsqlc.New(pool), log: log, pageSize: pageSize, lookedAt: lookedAt, topRows: violations.MaxTopRows,
		places: newPlaces(config.MaxConns),
	}, nil
}

// setDefaults chooses what the URL does not. pgx's own choice for queries is named prepared statements,
// which a pooler hands to other sessions; this one only remembers the types of their parameters.
func setDefaults(config *pgx.ConnConfig, databaseURL string) {
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if !strings.Contains(databaseURL, "default_query_exec_mode") {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}

// Close closes the connections once those in use are given back.
func (s *Store) Close() { s.pool.Close() }

// UnreadableRules counts how often a stored rule was left out because its pattern did not parse.
func (s *Store) UnreadableRules() int64 { return s.unreadable.Load() }

// write is a transaction that holds its tenant against other writers.
type write struct {
	*dbsqlc.Queries
	tenant   rules.TenantID
	revision int64 // the tenant's after this write
}

// errUnchanged ends a write that has nothing to write.
var errUnchanged = errors.New("unchanged")

// inTenant runs a function in a write of a tenant: its error, errUnchanged included, undoes
// everything.
func (s Writer) inTenant(ctx context.Context, timeout time.Duration, tenant rules.TenantID, do func(context.Context, write) error) error {
	release, err := s.places.forWrite(ctx, tenant)
	if err != nil {
		return err
	}
	defer release()
	return s.writeTenant(ctx, timeout, tenant, do)
}

// inBulk is inTenant for a write of very many rows.
func (s Writer) inBulk(ctx context.Context, tenant rules.TenantID, do func(context.Context, write) error) error {
	release, err := s.places.forBulk(ctx, tenant)
	if err != nil {
		return err
	}
	defer release()
	return s.writeTenant(ctx, bulkTimeout, tenant, do)
}

func (s Writer) writeTenant(ctx context.Context, timeout time.Duration, tenant rules.TenantID, do func(context.Context, write) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		queries := s.queries.WithTx(tx)
		raised, err := queries.RaiseRevision(ctx, tenant, actorSetting(s.by))
		if err != nil {
			return lockError(tenant, err)
		}
		return do(ctx, write{queries, tenant, raised.Revision})
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return writeError(err)
}

// inTenantAs runs a function in a transaction that writes what a tenant owns and no check depends on,
// such as its members: as inTenant does it holds the tenant and says who writes, but raises no revision.
func (s *Store) inTenantAs(
	ctx context.Context, by rules.Actor, tenant rules.TenantID, do func(context.Context, pgx.Tx) error,
) error {
	release, err := s.places.forWrite(ctx, tenant)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := s.queries.WithTx(tx).LockTenant(ctx, tenant, actorSetting(by)); err != nil {
			return lockError(tenant, err)
		}
		return do(ctx, tx)
	})
	return writeError(err)
}

// lockError is about the statement that takes the tenant's row. The connection answered just before, so that a
// deadline which passes now was spent waiting for another process that writes the tenant.
func lockError(tenant rules.TenantID, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = rules.ErrBeingWritten
	}
	return fmt.Errorf("tenant %d: %w", tenant, err)
}

// acting is the Writer for a write that the changed rows alone do not explain, unless the actor has
// said what it does.
func (s Writer) acting(act string) Writer {
	if s.by.Act == "" {
		s.by.Act = act
	}
	return s
}

// actorSetting is an actor as the database's function write_audit reads it.
func actorSetting(by rules.Actor) string {
	text, err := json.Marshal(map[string]string{
		"kind": string(by.Kind), "id": by.ID, "name": by.Name, "act": by.Act, "request_id": by.RequestID,
	})
	if err != nil {
		return "" // strings always have a form; without one the entry would be the database user's
	}
	return string(text)
}

// expect is rules.ErrChanged unless what is stored, 0 for nothing, is what was expected.
func expect(expected rules.Expected, stored int64) error {
	if expected == rules.AnyVersion || expected == rules.AnyStored && stored != 0 || int64(expected) == stored {
		return nil
	}
	return fmt.Errorf("version %d was expected and %d is stored: %w", expected, stored, rules.ErrChanged)
}

// ask runs queries that find what they want by an index.
func ask[T any](ctx context.Context, s *Store, query func(context.Context, *dbsqlc.Queries) (T, error)) (T, error) {
	return askFor(ctx, s, s.places.reads, query)
}

// askMuch runs queries that read many rows.
func askMuch[T any](ctx context.Context, s *Store, query func(context.Context, *dbsqlc.Queries) (T, error)) (T, error) {
	return askFor(ctx, s, s.places.heavy, query)
}

func askFor[T any](
	ctx context.Context, s *Store, places *shares.Shares, query func(context.Context, *dbsqlc.Queries) (T, error),
) (answer T, err error) {
	release, err := take(ctx, places)
	if err != nil {
		return answer, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	answer, err = query(ctx, s.queries)
	return answer, domainError(err)
}
