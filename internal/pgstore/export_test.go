package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// ReadInPagesOf makes Read use smaller pages, so that a test need not write thousands of rows.
func (s *Store) ReadInPagesOf(rows int32) { s.pageSize = rows }

func (s *Store) LookAt(rows int64) { s.lookedAt = rows }

// EndMatrixPagesAt sets the number of rules that ends a page of a plan matrix.
func (s *Store) EndMatrixPagesAt(rules int64) { s.matrixRules = rules }

func (s *Store) LookAtTop(rows int32) { s.topRows = rows }

func (s *Store) CompareHeld(perPage int32) { s.countsPerPage = perPage }

func (s *Store) CountUsersOfMonths(users int32) { s.userMonths = users }

func (s *Store) EraseInPiecesOf(rows int32) { s.erasedPerPiece = rows }

func (s *Store) DropInPiecesOf(rows int32) { s.droppedPerPiece = rows }

func (s *Store) RemoveExpiredRule(ctx context.Context, tenant rules.TenantID, id rules.RuleID, before time.Time) (bool,
	error,
) {
	return s.As(rules.Actor{Kind: rules.ActorSystem}).removeExpired(ctx, tenant, id, before)
}

func (s *Store) PreparedStatements(ctx context.Context) (n int, err error) {
	err = s.pool.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_statements").Scan(&n)
	return n, err
}

func (s *Store) ConnectionOf(tenant rules.TenantID) dbsqlc.DBTX {
	return s.walled(classRead, only(tenant))
}

func (s *Store) ConnectionOfAll() dbsqlc.DBTX {
	return s.walled(classRead, everyTenant)
}

func (s *Store) TransactionOf(ctx context.Context, tenant rules.TenantID, do func(*dbsqlc.Queries) error) error {
	return s.transaction(ctx, classWrite, only(tenant),
		func(_ context.Context, q *dbsqlc.Queries) error { return do(q) })
}

func Classes() map[string]time.Duration {
	classes := map[string]time.Duration{}
	for class, timeout := range timeouts {
		classes[string(class)] = timeout
	}
	return classes
}

// BePatient gives all classes a minute or more, as a busy machine may need.
func (s *Store) BePatient() {
	for class, timeout := range s.timeouts {
		s.timeouts[class] = max(timeout, time.Minute)
	}
}

// LimitClass gives a class another timeout, so that a test need not wait for long.
func (s *Store) LimitClass(name string, timeout time.Duration) { s.timeouts[class(name)] = timeout }

func (s *Store) InClass(ctx context.Context, name, sql string) (answers [2]string, errs [2]error) {
	errs[0] = s.walled(class(name), everyTenant).QueryRow(ctx, sql).Scan(&answers[0])
	errs[1] = s.begin(ctx, class(name), everyTenant, "BEGIN", func(ctx context.Context, tx dbsqlc.DBTX) error {
		return tx.QueryRow(ctx, sql).Scan(&answers[1])
	})
	return answers, errs
}

// KeepViolations runs all kinds of retention, and adds up what they did.
func (s *Store) KeepViolations(ctx context.Context, now time.Time, keep violations.Retention) (all Kept, err error) {
	for _, one := range s.retentions(keep) {
		kept, failed := one.do(ctx, now)
		all = Kept{
			all.DaysMade + kept.DaysMade, all.DaysDropped + kept.DaysDropped, all.RowsDropped + kept.RowsDropped,
			all.IsMore || kept.IsMore,
		}
		err = errors.Join(err, failed)
	}
	return all, err
}

// ErasePiece does one piece of an erasure, and returns its step and whether more is left.
func (s *Store) ErasePiece(ctx context.Context, tenant rules.TenantID, id int64, fill FillBuckets) (string, bool,
	error,
) {
	return s.erasePiece(ctx, tenant, id, fill)
}

func (s *Store) LimitExports(file, tenant int64) {
	s.exportLimits.file, s.exportLimits.tenant = file, tenant
}

func (s *Store) WriteChunksOf(bytes int) { s.exportLimits.chunk = bytes }
