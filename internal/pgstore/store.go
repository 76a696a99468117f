// Package pgstore keeps tenants and what they own in PostgreSQL 15 or later.
//
// A [Store] reads tenants and what they own, and keeps people: it is the Source of snapshots, the Reader of rules, rule
// sets, keys and audit log, and the Store of auth. [Store.As] returns a [Writer], whose writes are logged in an actor's
// name; nothing else writes what checks depend on. Every method except those about tenants themselves takes the tenant,
// and neither reads nor writes rows of another.
//
// A write is one transaction. It first raises the tenant's revision and sets the actor. This locks the tenant's row, so
// a tenant's writes follow one another and revisions become visible in order. Writes in one process wait for each other
// before they take a connection. A write that changes nothing is rolled back, its revision included.
//
// Connections are shared fairly: see places. A request takes them in the name of the caller in its context
// (shares.With). A request that gets none in time is refused with an error of the package shares or, if it waited for
// another write of its tenant, with rules.ErrBeingWritten. Nothing has happened then.
//
// Triggers of the database write the audit log, so no write can forget it: see db/schema.sql. An entry's time is taken
// while the tenant is locked, so entries become visible in order too.
//
// Each query has the deadline of its class, which begins when the method has its place; see timeouts. The
// context may shorten it. If the database is away a method returns rules.ErrAway or context.DeadlineExceeded by then,
// never rules.ErrNotFound. Nothing is retried: a write whose answer was lost may have happened, and only the caller
// knows whether it may happen twice.
//
// The first page of a list costs the same however many rows there are. Lists continue after a key, by an index; with a
// filter that has no index, a page looks at a bounded number of rows.
//
// PostgreSQL enforces the tenant too: statements run in a scope, one tenant's or all tenants'. See scope.
//
// A Store uses no session state, prepared statements included, so it works behind a pooler. Migrate holds an advisory
// lock of its session, so `admin migrate` needs a direct connection.
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
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/pgtls"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/ruleset"
	"github.com/sluicegate/sluice/internal/snapshot"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	connectTimeout = 5 * time.Second

	// maxConns leaves 4 connections to work without a place; see places. Connections are made when needed.
	maxConns = 20
	// pingTimeout bounds the ping of an idle connection before its use.
	pingTimeout = 2 * time.Second

	// pageSize caps the rows of one table that Read holds for one tenant.
	pageSize = 5000
	// lookedAt caps the rows that a page of a list looks at for a filter without an index.
	lookedAt = 2000
)

// Store reads and keeps people. It is safe for concurrent use.
type Store struct {
	pool     *pgxpool.Pool
	log      *slog.Logger
	pageSize int32
	lookedAt int64
	topRows  int32
	// userMonths is about how many users of a tenant are counted in a month.
	userMonths int32
	// countsPerPage is how many numbers of what tenants hold are compared at once.
	countsPerPage int32
	places        *places
	timeouts      map[class]time.Duration
	vault         auth.Vault // see SealWith

	unreadable atomic.Int64
}

// Writer writes in the name of one actor.
type Writer struct {
	*Store
	by rules.Actor
}

var (
	_ snapshot.Source      = (*Store)(nil)
	_ snapshot.KeyUseStore = (*Store)(nil)
	_ auth.Store           = (*Store)(nil)
	_ auth.AuditLog        = (*Store)(nil)
	_ auth.OnceStore       = (*Store)(nil)
	_ auth.AuditWriter     = Writer{}
	_ auth.KeyStore        = Writer{}
	_ rules.Store          = Writer{}
	_ ruleset.Store        = Writer{}
)

// As returns a Writer, whose writes are logged as the actor's.
func (s *Store) As(by rules.Actor) Writer { return Writer{s, by} }

// Open returns a Store for the database at a URL. It connects on first use, so that a process starts even if the
// database is away. The URL may limit the pool with pool_max_conns, as pgxpool.ParseConfig describes; the default is
// 20.
func Open(ctx context.Context, databaseURL string, log *slog.Logger) (*Store, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read SLUICE_DATABASE_URL: %w", err)
	}
	setDefaults(config.ConnConfig, databaseURL)
	if !strings.Contains(databaseURL, "pool_max_conns") {
		config.MaxConns = maxConns
	}
	config.PingTimeout = pingTimeout
	config.ConnConfig.Tracer = &workTracer{}
	pgtls.Reload(config, databaseURL, log)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return &Store{
		pool: pool, log: log, pageSize: pageSize, lookedAt: lookedAt, topRows: violations.MaxTopRows, userMonths: traffic.MaxUserMonths,
		countsPerPage: countsPerPage,
		places:        newPlaces(config.MaxConns), timeouts: maps.Clone(timeouts),
	}, nil
}

// setDefaults sets what the URL does not. pgx's default is named prepared statements, which a pooler mixes up between
// sessions. This mode only caches the types of parameters.
func setDefaults(config *pgx.ConnConfig, databaseURL string) {
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if !strings.Contains(databaseURL, "default_query_exec_mode") {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}

// Close closes the connections after their use.
func (s *Store) Close() { s.pool.Close() }

// UnreadableRules counts stored rules that were skipped because their pattern did not parse.
func (s *Store) UnreadableRules() int64 { return s.unreadable.Load() }

// write is a transaction that locks its tenant against other writes.
type write struct {
	*dbsqlc.Queries
	tenant   rules.TenantID
	revision int64 // the tenant's new one
}

// errUnchanged rolls back a write without effect.
var errUnchanged = errors.New("unchanged")

// inTenant runs a function in a write of a tenant. Any error, errUnchanged included, rolls back.
func (s Writer) inTenant(ctx context.Context, class class, tenant rules.TenantID, do func(context.Context, write) error) error {
	release, err := s.places.forWrite(ctx, tenant)
	if err != nil {
		return err
	}
	defer release()
	return s.writeTenant(ctx, class, tenant, do)
}

// inBulk is inTenant for a write of many rows.
func (s Writer) inBulk(ctx context.Context, tenant rules.TenantID, do func(context.Context, write) error) error {
	release, err := s.places.forBulk(ctx, tenant)
	if err != nil {
		return err
	}
	defer release()
	return s.writeTenant(ctx, classBulk, tenant, do)
}

func (s Writer) writeTenant(ctx context.Context, class class, tenant rules.TenantID, do func(context.Context, write) error) error {
	err := s.transaction(ctx, class, only(tenant), func(ctx context.Context, queries *dbsqlc.Queries) error {
		raised, err := queries.RaiseRevision(ctx, tenant, actorSetting(s.by))
		if err != nil {
			return s.lockError(ctx, tenant, err)
		}
		if err := do(ctx, write{queries, tenant, raised.Revision}); err != nil {
			return err
		}
		return commitOnce(ctx, queries)
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return writeError(err)
}

// inTenantAs runs a function in a transaction for what a tenant owns and no check depends on, such as members. Like
// inTenant it locks the tenant and sets the actor, but it raises no revision.
func (s *Store) inTenantAs(
	ctx context.Context, by rules.Actor, tenant rules.TenantID, do func(context.Context, *dbsqlc.Queries) error,
) error {
	return s.inTenantReaching(ctx, only(tenant), by, tenant, do)
}

// inTenantReaching is inTenantAs for a function that also writes what belongs to no tenant.
func (s *Store) inTenantReaching(
	ctx context.Context, reach scope, by rules.Actor, tenant rules.TenantID, do func(context.Context, *dbsqlc.Queries) error,
) error {
	release, err := s.places.forWrite(ctx, tenant)
	if err != nil {
		return err
	}
	defer release()
	err = s.transaction(ctx, classWrite, reach, func(ctx context.Context, q *dbsqlc.Queries) error {
		if _, err := q.LockTenant(ctx, tenant, actorSetting(by)); err != nil {
			return s.lockError(ctx, tenant, err)
		}
		if err := do(ctx, q); err != nil {
			return err
		}
		return commitOnce(ctx, q)
	})
	return writeError(err)
}

// lockError is for the statement that locks the tenant's row. If the database answers others, a deadline that passes here
// was spent waiting for a write in another process.
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

// acting names what a write does, where its rows do not show that, unless the actor names it already.
func (s Writer) acting(act string) Writer {
	if s.by.Act == "" {
		s.by.Act = act
	}
	return s
}

// actorSetting encodes an actor for the database's function write_audit.
func actorSetting(by rules.Actor) string {
	text, err := json.Marshal(map[string]string{
		"kind": string(by.Kind), "id": by.ID, "name": by.Name, "act": by.Act, "request_id": by.RequestID,
	})
	if err != nil {
		return "" // cannot happen; the entry would be the database user's
	}
	return string(text)
}

// expect returns rules.ErrChanged unless the stored version, 0 for none, is the expected one.
func expect(expected rules.Expected, stored int64) error {
	if expected == rules.AnyVersion || expected == rules.AnyStored && stored != 0 || int64(expected) == stored {
		return nil
	}
	return fmt.Errorf("version %d was expected and %d is stored: %w", expected, stored, rules.ErrChanged)
}

// lookUp reads one row by its key, in a scope. What other queries cost is measured against its time; see asLookup.
func lookUp[T any](ctx context.Context, s *Store, of scope, query func(context.Context, *dbsqlc.Queries) (T, error)) (T, error) {
	return askFor(asLookup(ctx), s, classLookup, of, query)
}

// note writes one row by its key, for a request that is not carried out yet.
func note[T any](ctx context.Context, s *Store, of scope, query func(context.Context, *dbsqlc.Queries) (T, error)) (T, error) {
	return askFor(ctx, s, classLookup, of, query)
}

// ask runs queries that an index serves, each in a scope and in one round trip.
func ask[T any](ctx context.Context, s *Store, of scope, query func(context.Context, *dbsqlc.Queries) (T, error)) (T, error) {
	return askFor(ctx, s, classRead, of, query)
}

// askMuch runs queries that read many rows.
func askMuch[T any](ctx context.Context, s *Store, of scope, query func(context.Context, *dbsqlc.Queries) (T, error)) (T, error) {
	return askFor(ctx, s, classHeavy, of, query)
}

func askFor[T any](
	ctx context.Context, s *Store, class class, of scope, query func(context.Context, *dbsqlc.Queries) (T, error),
) (answer T, err error) {
	release, err := take(ctx, s.places.forRead(class))
	if err != nil {
		return answer, err
	}
	defer release()
	ctx, cancel := s.within(ctx, class)
	defer cancel()
	answer, err = query(ctx, s.queriesFor(class, of))
	return answer, domainError(err)
}
