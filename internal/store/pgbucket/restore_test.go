package pgbucket

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
	"github.com/sluicegate/sluice/internal/rules"
)

// Two processes take tokens while the server restarts and empties its unlogged tables.
func TestLongLimitsSurviveACrashOfPostgreSQL(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server, err := devdb.StartPostgres(ctx, filepath.Join(t.TempDir(), "postgres"),
		devdb.PostgresOptions{Throwaway: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	databaseURL, err := server.CreateDatabase(ctx, "sluice")
	if err != nil {
		t.Fatal(err)
	}
	if err := migrate.Up(ctx, databaseURL, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	var processes []*Store
	for range 2 {
		s, err := Open(ctx, databaseURL, Options{Budget: testTimeout, Restores: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		processes = append(processes, s)
	}
	const users = restoredPiece + 1000
	daily := enforce.Limit{Burst: 1000, Interval: (24 * time.Hour).Microseconds(), Kind: rules.KindFixedWindow}
	tier := func(user int) enforce.Tier {
		return enforce.Tier{
			Key:   enforce.Key{Tenant: 1, Rule: 7, Subject: fmt.Sprintf("user %d", user)},
			Limit: daily,
		}
	}
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, processes[0], tier(0), 1000) // an unused table has its mark
	rows := make([][]any, users)
	for user := range rows {
		state := enforce.NewState(daily, time.Now().UnixMicro())
		state.Level.Micros = enforce.Tokens(user%1000) * enforce.Token
		rows[user] = []any{1, 7, []byte(tier(user).Key.Subject), state.Stamp, state.Append(nil)}
	}
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"bucket_checkpoint"},
		[]string{"tenant_id", "rule_id", "subject", "stamp", "state"}, pgx.CopyFromRows(rows))
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"INSERT INTO bucket_checkpoint VALUES (1, 0, sha256(''), 1, '')",
		`INSERT INTO bucket_checkpoint VALUES (1, 8, 'later', 1, '\x02')`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	mustHold(t, processes[1], tier(5), 1000) // a table with its mark is left alone
	crash(t, conn)

	var asking sync.WaitGroup
	for n, s := range processes {
		asking.Go(func() {
			for user := n; user < users; user += 97 {
				left := int64(user % 1000)
				checks := []enforce.BucketCheck{{Cost: enforce.Token, Tiers: []enforce.Tier{tier(user)}}}
				for s.Take(ctx, checks) != nil { // connections that died
					checks[0].Tiers = []enforce.Tier{tier(user)}
				}
				if got := checks[0].Tiers[0].Bucket.Level.Micros.Whole(); got != max(left-1, 0) &&
					got != max(left-2, 0) { // the other process may have asked, too
					t.Errorf("user %d has %d left after a crash and a check, and had %d", user, got, left)
				}
			}
		})
	}
	asking.Wait()
	if n := processes[0].Restored() + processes[1].Restored(); n != users+1 {
		t.Errorf("%d buckets were restored, want %d, once", n, users+1)
	}
}

func crash(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	databaseURL := conn.Config().ConnString()
	if err := syscall.Kill(int(conn.PgConn().PID()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server to have lost its buckets", func() bool {
		again, err := pgx.Connect(t.Context(), databaseURL)
		if err != nil {
			return false
		}
		defer func() { _ = again.Close(t.Context()) }()
		var isMarked bool
		return again.QueryRow(t.Context(), isMarkedSQL).Scan(&isMarked) == nil && !isMarked
	})
}
