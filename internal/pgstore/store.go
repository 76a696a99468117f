// Package pgstore keeps tenants and what they own in PostgreSQL 15 or later.
//
// A Store promises rules.Store and rules.Source: every method but those about tenants themselves
// takes the tenant and neither reads nor writes anything of another's. A write is one transaction
// that first raises the tenant's revision; the row lock that this takes makes a tenant's writers
// follow one another, so that revisions become visible in their order. A write that turns out to
// change nothing is rolled back, and the revision with it.
//
// Nothing waits for ever: each method has a deadline (5 s; a bulk write 60 s, a Read 5 min), which
// the context may shorten, and which covers waiting for a connection. When the database is away a method
// returns an error at its deadline or earlier, never rules.ErrNotFound. Nothing is retried: a write whose
// answer was lost may have happened, and only the caller knows whether it may happen twice.
//
// A Store uses no session state, prepared statements included, so a pooler may stand in between. Migrate
// holds an advisory lock of its session, so `admin migrate` needs a direct connection.
package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	connectTimeout   = 5 * time.Second
	statementTimeout = 5 * time.Second
	bulkTimeout      = time.Minute
	readTimeout      = 5 * time.Minute // the Watcher bounds each page; this only bounds callers that do not

	// pageSize is the most rows of one table that Read holds for one tenant.
	pageSize = 5000
)

// Store is the database. It is safe for concurrent use.
type Store struct {
	pool     *pgxpool.Pool
	queries  *dbsqlc.Queries
	log      *slog.Logger
	pageSize int32

	unreadable atomic.Int64
}

var _ rules.Source = (*Store)(nil)

// Open returns a Store for the database at a URL. It connects when it is first used, so that a
// database that is away does not keep a process from starting. The URL may limit the pool with
// pool_max_conns, as pgxpool.ParseConfig describes; the default is the number of CPUs, at least 4.
func Open(ctx context.Context, databaseURL string, log *slog.Logger) (*Store, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	setDefaults(config.ConnConfig, databaseURL)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return &Store{pool: pool, queries: dbsqlc.New(pool), log: log, pageSize: pageSize}, nil
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
func (s *Store) inTenant(ctx context.Context, timeout time.Duration, tenant rules.TenantID, do func(context.Context, write) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		queries := s.queries.WithTx(tx)
		revision, err := queries.RaiseRevision(ctx, tenant)
		if err != nil {
			return fmt.Errorf("tenant %d: %w", tenant, err)
		}
		return do(ctx, write{queries, tenant, revision})
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return writeError(err)
}

// ask runs queries that only read.
func ask[T any](ctx context.Context, s *Store, query func(context.Context, *dbsqlc.Queries) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	answer, err := query(ctx, s.queries)
	return answer, domainError(err)
}
