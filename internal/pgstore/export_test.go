package pgstore

import (
	"context"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// ReadInPagesOf makes Read use smaller pages, so that a test need not write thousands of rows.
func (s *Store) ReadInPagesOf(rows int32) { s.pageSize = rows }

// LookAt makes filters look at fewer rows, for the same reason.
func (s *Store) LookAt(rows int64) { s.lookedAt = rows }

// LookAtTop makes tops look at fewer rows, for the same reason.
func (s *Store) LookAtTop(rows int32) { s.topRows = rows }

// PreparedStatements counts the named statements of a connection.
func (s *Store) PreparedStatements(ctx context.Context) (n int, err error) {
	err = s.pool.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_statements").Scan(&n)
	return n, err
}

// ConnectionOf returns a connection whose statements run in the scope of a tenant.
func (s *Store) ConnectionOf(tenant rules.TenantID) dbsqlc.DBTX { return walled{s.pool, only(tenant)} }

// ConnectionOfAll returns a connection whose statements run in the scope of every tenant.
func (s *Store) ConnectionOfAll() dbsqlc.DBTX { return walled{s.pool, everyTenant} }

// TransactionOf runs a function in a transaction and the scope of a tenant.
func (s *Store) TransactionOf(ctx context.Context, tenant rules.TenantID, do func(*dbsqlc.Queries) error) error {
	return s.transaction(ctx, only(tenant), do)
}
