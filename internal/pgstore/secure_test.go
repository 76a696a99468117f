package pgstore_test

import (
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
)

func migrateAs(t *testing.T, databaseURL, role string) (roleURL string, err error) {
	t.Helper()
	u := must(url.Parse(databaseURL))(t)
	u.User = url.UserPassword(role, "secret")
	return u.String(), migrate.Up(t.Context(), u.String(), slog.New(slog.DiscardHandler))
}

// The owner is no superuser, as in managed services.
func ownedDatabase(t *testing.T, attributes string) (superURL, owner string) {
	t.Helper()
	superURL = devdbtest.EmptyPostgres(t)
	database := strings.TrimPrefix(must(url.Parse(superURL))(t).Path, "/")
	owner = database + "_owner"
	exec(t, superURL, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'secret' %s", owner, attributes))
	exec(t, superURL, fmt.Sprintf("ALTER DATABASE %s OWNER TO %s", database, owner))
	return superURL, owner
}

var statementInError = regexp.MustCompile(`may run (.*); then run`)

func TestAnOwnerWithoutTheRightToCreateRolesIsToldWhatToRun(t *testing.T) {
	t.Parallel()
	superURL, owner := ownedDatabase(t, "")
	byHand := func(err error) {
		t.Helper()
		if err == nil {
			t.Fatal("it needs nobody's help")
		}
		said := statementInError.FindStringSubmatch(err.Error())
		if said == nil {
			t.Fatalf("the error says not what to run: %v", err)
		}
		exec(t, superURL, said[1])
	}
	ownerURL, err := migrateAs(t, superURL, owner)
	byHand(err)
	if _, err := migrateAs(t, superURL, owner); err != nil {
		t.Fatal(err)
	}
	if err := pgstore.CheckSchema(t.Context(), ownerURL); err != nil {
		t.Errorf("the owner cannot run commands: %v", err)
	}
	app := owner + "_app"
	exec(t, superURL, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'secret'", app))
	u := must(url.Parse(superURL))(t)
	u.User = url.UserPassword(app, "secret")
	exec(t, ownerURL, "GRANT SELECT ON schema_version TO "+app)
	if err := pgstore.CheckSchema(t.Context(), u.String()); err == nil ||
		!strings.Contains(err.Error(), "--grant-to "+app) {
		t.Errorf("a role without grants is told %v", err)
	}
	byHand(pgstore.Grant(t.Context(), ownerURL, app)) // before PostgreSQL 16 it must be made NOINHERIT
	if err := pgstore.Grant(t.Context(), ownerURL, app); err != nil {
		t.Fatal(err)
	}
	if err := pgstore.CheckSchema(t.Context(), u.String()); err != nil {
		t.Error(err)
	}
}

func TestAnOwnerWhoMayCreateRolesNeedsNobody(t *testing.T) {
	t.Parallel()
	superURL, owner := ownedDatabase(t, "CREATEROLE")
	ownerURL, err := migrateAs(t, superURL, owner)
	if err != nil {
		t.Fatal(err)
	}
	app := owner + "_app"
	exec(t, ownerURL, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'secret'", app))
	if err := pgstore.Grant(t.Context(), ownerURL, app); err != nil {
		t.Fatal(err)
	}
	u := must(url.Parse(superURL))(t)
	u.User = url.UserPassword(app, "secret")
	for _, login := range []string{ownerURL, u.String()} {
		if err := pgstore.CheckSchema(t.Context(), login); err != nil {
			t.Error(err)
		}
	}
	exec(t, superURL, fmt.Sprintf("ALTER ROLE %s INHERIT", app))
	if err := pgstore.CheckSchema(t.Context(), u.String()); err == nil || !strings.Contains(err.Error(), "inherits") {
		t.Errorf("a role that inherits is told %v", err)
	}
	exec(t, superURL, fmt.Sprintf("GRANT pg_monitor TO %s", app))
	if err := pgstore.Grant(t.Context(), ownerURL, app); err == nil || !strings.Contains(err.Error(), "NOINHERIT") {
		t.Errorf("a role that inherits from others too: %v", err)
	}
}

// A dump that was restored on another server has no tenant role.
func TestMigrateSecuresAgain(t *testing.T) {
	t.Parallel()
	databaseURL := devdbtest.EmptyPostgres(t)
	log := slog.New(slog.DiscardHandler)
	var migrations sync.WaitGroup
	for range 4 { // at once
		migrations.Go(func() {
			if err := migrate.Up(t.Context(), databaseURL, log); err != nil {
				t.Error(err)
			}
		})
	}
	migrations.Wait()
	conn := connect(t, databaseURL)
	role := tenantRoleOf(t, conn)
	exec(t, databaseURL, "CREATE TABLE later (tenant_id bigint PRIMARY KEY)")
	exec(t, databaseURL, fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role))
	exec(t, databaseURL, "DROP POLICY every_row ON plan; ALTER TABLE gateway DISABLE ROW LEVEL SECURITY")
	if err := pgstore.CheckSchema(t.Context(), databaseURL); err == nil ||
		!strings.Contains(err.Error(), "`admin migrate`") {
		t.Errorf("without its role the schema is fine: %v", err)
	}
	for range 2 {
		if err := migrate.Up(t.Context(), databaseURL, log); err != nil {
			t.Fatal(err)
		}
	}
	want := fmt.Sprint(len(tablesOfTenants(t, conn)))
	got := lines(t, conn, `SELECT count(*)::text FROM pg_class WHERE relrowsecurity
		AND (SELECT count(*) FROM pg_policy WHERE polrelid = pg_class.oid) = 2
			AND has_table_privilege($1, oid, 'SELECT')`, tenantRoleOf(t, conn))
	if got[0] != want {
		t.Errorf("%s tables of %s are secured", got[0], want)
	}
	exec(t, databaseURL, fmt.Sprintf("ALTER ROLE %s LOGIN", role))
	exec(t, databaseURL, "SELECT 1")
	if err := migrate.Up(t.Context(), databaseURL, log); err == nil || !strings.Contains(err.Error(), "may log in") {
		t.Errorf("a tenant role that may log in: %v", err)
	}
}

func TestARoleOfTheReleaseBeforeGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := roleOf(t, w.url) + "_before"
	exec(t, w.url, fmt.Sprintf("CREATE ROLE %[1]s LOGIN PASSWORD 'secret'; GRANT SELECT, INSERT, UPDATE, DELETE ON "+
		"ALL TABLES IN SCHEMA public TO %[1]s", before))
	u := must(url.Parse(w.url))(t)
	u.User = url.UserPassword(before, "secret")
	if got := lines(t, connect(t, u.String()), "SELECT slug FROM tenant ORDER BY slug"); len(got) != 2 {
		t.Errorf("it sees %v, want both tenants", got)
	}
}
