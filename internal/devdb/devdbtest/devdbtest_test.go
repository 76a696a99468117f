package devdbtest_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

func TestMain(m *testing.M) { os.Exit(devdbtest.Main(m).Run()) }

func TestEachTestHasItsOwnMigratedDatabase(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one test", "another test"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := pgx.Connect(t.Context(), devdbtest.Postgres(t))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(t.Context()) }()
			// The slug is unique, so a shared database would refuse the second row.
			if _, err := conn.Exec(t.Context(), "INSERT INTO tenant (slug, name) VALUES ('acme', 'Acme')"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestEachTestHasItsOwnRedis(t *testing.T) {
	t.Parallel()
	if one, other := devdbtest.Redis(t), devdbtest.Redis(t); one.Addr() == other.Addr() {
		t.Errorf("two tests share the Redis at %s", one.Addr())
	}
}
