// Package pgstore keeps tenants, their rules, and accounts in PostgreSQL 15 or later.
//
// A [Writer] makes all writes that checks depend on, and triggers log them in an audit log. Each write locks its
// tenant's row, so a tenant's revisions and audit entries become visible in order. Row-level security limits reads and
// writes for a tenant to its rows.
//
// Each query has the deadline of its class. While the database is away, methods return rules.ErrAway or
// context.DeadlineExceeded, never rules.ErrNotFound. Nothing is retried, since a write whose answer was lost may have
// happened.
//
// A Store uses no session state, so it works behind a pooler in transaction mode.
package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/certs/pgtls"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/shares"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	connectTimeout = 5 * time.Second

	maxConns    = 20
	pingTimeout = 2 * time.Second

	// pageSize caps the rows of one table that Read holds for one tenant.
	pageSize = 5000
	// lookedAt caps the rows that a page of a list looks at for a filter without an index.
	lookedAt = 2000
	// matrixRules end a page of a plan matrix; 10,000 are about 7 MB of JSON.
	matrixRules = 10_000
)

// Store reads and writes all tables, and is safe for concurrent use.
type Store struct {
	pool                  *pgxpool.Pool
	log                   *slog.Logger
	pageSize              int32
	lookedAt, matrixRules int64
	topRows               int32
	userMonths            int32
	countsPerPage         int32
	erasedPerPiece        int32
	droppedPerPiece       int32
	exportLimits          exportLimits
	turns                 *shares.Shares // see turn
	timeouts              map[class]time.Duration
	vault                 auth.Vault // see SealWith

	unreadable atomic.Int64
}

// Writer writes what belongs to tenants, in the name of one actor.
//
// A write is all or nothing, is recorded in the audit log, and raises its tenant's revision unless it changed nothing.
// Writers of one tenant wait for each other. A Writer expects validated values. A method with a rules.Expected, or with
// a row that has a version, returns rules.ErrChanged unless that matches the stored one.
type Writer struct {
	*Store
	by rules.Actor
}

var (
	_ snapshot.Source       = (*Store)(nil)
	_ snapshot.KeyUseStore  = (*Store)(nil)
	_ auth.Store            = (*Store)(nil)
	_ auth.AuditLog         = (*Store)(nil)
	_ auth.IdempotencyStore = (*Store)(nil)
)

// As returns a Writer, whose writes are logged as the actor's.
func (s *Store) As(by rules.Actor) Writer { return Writer{s, by} }

// Open returns a Store for the database at a URL, which may limit the pool with pool_max_conns. The first query
// connects, so that a process starts even if the database is away.
func Open(ctx context.Context, databaseURL string, log *slog.Logger) (*Store, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read SLUICE_DATABASE_URL: %w", err)
	}
	setDefaults(config.ConnConfig)
	if !strings.Contains(databaseURL, "pool_max_conns") {
		config.MaxConns = maxConns
	}
	config.PingTimeout = pingTimeout
	pgtls.Reload(config, databaseURL, log)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return &Store{
		pool: pool, log: log, pageSize: pageSize, lookedAt: lookedAt, matrixRules: matrixRules,
		topRows: violations.MaxTopRows, userMonths: traffic.MaxUserMonths,
		countsPerPage: countsPerPage, erasedPerPiece: erasedPerPiece, droppedPerPiece: rowsPerDrop,
		exportLimits: exportLimits{rules.MaxExportBytes, rules.MaxTenantExportBytes, exportChunkBytes},
		turns:        newTurns(), timeouts: maps.Clone(timeouts),
	}, nil
}

// setDefaults replaces pgx's default of named prepared statements: a pooler mixes them up between sessions, and from
// the sixth time on PostgreSQL plans them without their values. A query with optional filters then misses the index of
// its filter: of 1.5 million violations it read all, in 2.7 s instead of 1 ms.
func setDefaults(config *pgx.ConnConfig) {
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}

// Close closes the connections after their use.
func (s *Store) Close() { s.pool.Close() }

// Connections returns how many connections the store may have.
func (s *Store) Connections() int { return int(s.pool.Config().MaxConns) }

// UnreadableRules counts stored rules that were skipped because their pattern did not parse.
func (s *Store) UnreadableRules() int64 { return s.unreadable.Load() }

type write struct {
	*dbsqlc.Queries
	tenant   rules.TenantID
	revision int64 // the tenant's new one
}

var errUnchanged = errors.New("unchanged")

// inTenant runs a function in a write of a tenant. Any error, errUnchanged included, rolls back.
func (s Writer) inTenant(ctx context.Context, class class, tenant rules.TenantID,
	do func(context.Context, write) error,
) error {
	return s.inTurn(ctx, class, tenant, false, do)
}

func (s Writer) inBulk(ctx context.Context, tenant rules.TenantID, do func(context.Context, write) error) error {
	return s.inTurn(ctx, classBulk, tenant, true, do)
}

func (s Writer) inTurn(ctx context.Context, class class, tenant rules.TenantID, isBulk bool,
	do func(context.Context, write) error,
) error {
	end, err := s.turn(ctx, tenant, isBulk)
	if err != nil {
		return err
	}
	defer end()
	err = s.transaction(ctx, class, only(tenant), func(ctx context.Context, queries *dbsqlc.Queries) error {
		raised, err := queries.RaiseRevision(ctx, tenant, actorSetting(s.by))
		if err != nil {
			return s.lockError(ctx, tenant, err)
		}
		if err := do(ctx, write{queries, tenant, raised.Revision}); err != nil {
			return err
		}
		return commitIdempotent(ctx, queries)
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return writeError(err)
}

// inTenantAs is inTenant for what no check depends on, such as members, and raises no revision.
func (s *Store) inTenantAs(
	ctx context.Context, by rules.Actor, tenant rules.TenantID, do func(context.Context, *dbsqlc.Queries) error,
) error {
	return s.inTenantReaching(ctx, only(tenant), by, tenant, do)
}

func (s *Store) inTenantReaching(
	ctx context.Context, reach scope, by rules.Actor, tenant rules.TenantID,
	do func(context.Context, *dbsqlc.Queries) error,
) error {
	end, err := s.turn(ctx, tenant, false)
	if err != nil {
		return err
	}
	defer end()
	err = s.transaction(ctx, classWrite, reach, func(ctx context.Context, q *dbsqlc.Queries) error {
		if _, err := q.LockTenant(ctx, tenant, actorSetting(by)); err != nil {
			return s.lockError(ctx, tenant, err)
		}
		if err := do(ctx, q); err != nil {
			return err
		}
		return commitIdempotent(ctx, q)
	})
	return writeError(err)
}

// lockError blames another writer for a deadline that passed at the tenant's row, if the database still answers.
func (s *Store) lockError(ctx context.Context, tenant rules.TenantID, err error) error {
	if errors.Is(domainError(err), context.DeadlineExceeded) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		if s.pool.Ping(ctx) == nil {
			err = rules.ErrBeingWritten
		}
	}
	return fmt.Errorf("tenant %d: %w", tenant, err)
}

func (s Writer) acting(act string) Writer {
	if s.by.Act == "" {
		s.by.Act = act
	}
	return s
}

func system(act string) rules.Actor {
	return rules.Actor{Kind: rules.ActorSystem, Name: "sluice", Act: act}
}

func actorSetting(by rules.Actor) string {
	text, err := json.Marshal(map[string]string{
		"kind": string(by.Kind), "id": by.ID, "name": by.Name, "act": by.Act, "request_id": by.RequestID,
	})
	if err != nil {
		return "" // cannot happen; the entry would be the database user's
	}
	return string(text)
}

// expect takes 0 for no stored version.
func expect(expected rules.Expected, stored int64) error {
	if expected == rules.AnyVersion || expected == rules.AnyStored && stored != 0 || int64(expected) == stored {
		return nil
	}
	return fmt.Errorf("version %d was expected and %d is stored: %w", expected, stored, rules.ErrChanged)
}
