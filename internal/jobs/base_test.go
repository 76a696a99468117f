package jobs_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore"
)

// dieIn, a database's URL, makes the test binary a process to be killed.
const dieIn = "SLUICE_JOBS_TEST_DIE_IN"

func TestMain(m *testing.M) {
	if url := os.Getenv(dieIn); url != "" {
		waitToBeKilled(url)
	}
	goleak.VerifyTestMain(devdbtest.Main(m))
}

func waitToBeKilled(url string) {
	store, err := pgstore.Open(context.Background(), url, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	jobs.New(store, []jobs.Kind{{
		Name: "send", Timeout: time.Hour, Do: func(ctx context.Context, _ *jobs.Job) (time.Time, error) {
			_, _ = os.Stdout.WriteString("begun\n")
			<-ctx.Done()
			return time.Time{}, ctx.Err()
		},
	}}, slog.New(slog.DiscardHandler)).Run(context.Background())
}

// base is a database with two tenants. Jobs are due by the database's clock, so tests move the times in the table.
type base struct {
	*pgstore.Store
	db            *pgx.Conn
	url           string
	greedy, quiet int64
}

func newBase(tb testing.TB) *base {
	tb.Helper()
	b := &base{url: devdbtest.Postgres(tb)}
	b.Store = must(pgstore.Open(tb.Context(), b.url, slog.New(slog.DiscardHandler)))(tb)
	tb.Cleanup(b.Close)
	b.db = must(pgx.Connect(tb.Context(), b.url))(tb)
	tb.Cleanup(func() { _ = b.db.Close(context.WithoutCancel(tb.Context())) })
	for slug, id := range map[string]*int64{"greedy": &b.greedy, "quiet": &b.quiet} {
		err := b.db.QueryRow(tb.Context(), "INSERT INTO tenant (slug, name) VALUES ($1, $1) RETURNING tenant_id",
			slug).Scan(id)
		if err != nil {
			tb.Fatal(err)
		}
	}
	return b
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}

func (b *base) exec(tb testing.TB, sql string, args ...any) {
	tb.Helper()
	must(b.db.Exec(tb.Context(), sql, args...))(tb)
}

func (b *base) queue(tb testing.TB, tenant int64, kind string, n int) {
	tb.Helper()
	b.exec(tb, `INSERT INTO job (tenant_id, kind, about, next_run_at)
		SELECT $1, $2, i::text, now() - interval '1 hour' FROM generate_series(1, $3::integer) AS i`, tenant, kind, n)
}

func (b *base) like(tb testing.TB, condition string) (n int) {
	tb.Helper()
	if err := b.db.QueryRow(tb.Context(), "SELECT count(*) FROM job WHERE "+condition).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

func (b *base) due(tb testing.TB) {
	tb.Helper()
	b.exec(tb, `UPDATE job SET next_run_at = now() - interval '1 hour'
		WHERE state = 'waiting' AND lease_ends_at IS NULL`)
}

func (b *base) endLeases(tb testing.TB) {
	tb.Helper()
	b.exec(tb, "UPDATE job SET next_run_at = now(), lease_ends_at = now() WHERE lease_ends_at IS NOT NULL")
}

func (b *base) claim(tb testing.TB, kind string) jobs.Job {
	tb.Helper()
	claimed, _, err := b.ClaimJobs(tb.Context(), []jobs.Claim{{Kind: kind, Room: 1, PerTenant: 1}})
	if err != nil || len(claimed) != 1 {
		tb.Fatalf("%+v is claimed: %v", claimed, err)
	}
	return claimed[0]
}

func (b *base) runner(kinds ...jobs.Kind) *jobs.Runner {
	return jobs.New(b.Store, kinds, slog.New(slog.DiscardHandler))
}

func round(tb testing.TB, r *jobs.Runner) {
	tb.Helper()
	begin(tb, r)
	r.Wait()
}

func begin(tb testing.TB, r *jobs.Runner) {
	tb.Helper()
	if err := r.Round(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

func done() (time.Time, error) { return time.Time{}, nil }

func failing(err error) func(context.Context, *jobs.Job) (time.Time, error) {
	return func(context.Context, *jobs.Job) (time.Time, error) { return time.Time{}, err }
}
