package dev

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestMain(m *testing.M) { os.Exit(devdbtest.Main(m).Run()) }

// untilGreeted keeps the output and ends the run after the greeting.
type untilGreeted struct {
	bytes.Buffer
	end context.CancelFunc
}

func (u *untilGreeted) Write(text []byte) (int, error) {
	defer u.end()
	return u.Buffer.Write(text)
}

func runDev(t *testing.T, databaseURL string) (greeting, log string, err error) {
	t.Helper()
	return runDevIn(t, t.TempDir(), "--database-url", databaseURL)
}

func runDevIn(t *testing.T, folder string, options ...string) (greeting, log string, err error) {
	t.Helper()
	cfg, err := config.Parse("sluice", append([]string{
		"dev", "--data-dir", folder,
		"--check-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0",
		"--grpc-addr", "127.0.0.1:0",
	}, options...), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var logged bytes.Buffer
	out := untilGreeted{end: cancel}
	err = Run(ctx, cfg, &out, slog.New(slog.NewTextHandler(&logged, nil)))
	return out.String(), logged.String(), err
}

func open(t *testing.T, databaseURL string) *pgstore.Store {
	t.Helper()
	store, err := pgstore.Open(t.Context(), databaseURL, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func TestADatabaseOfSomebodysIsRefusedUntouched(t *testing.T) {
	t.Parallel()
	for _, slug := range []string{"acme", "demo"} {
		t.Run(slug, func(t *testing.T) {
			t.Parallel()
			databaseURL := devdbtest.EmptyPostgres(t)
			conn, err := pgx.Connect(t.Context(), databaseURL)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(t.Context()) }()
			// These columns suffice for the look; a migration would fail on them.
			if _, err := conn.Exec(t.Context(), `CREATE TABLE tenant (tenant_id bigint, slug text);
				CREATE TABLE api_key (tenant_id bigint, key_id text); INSERT INTO tenant
					VALUES (1, '`+slug+`')`); err != nil {
				t.Fatal(err)
			}
			greeting, _, err := runDev(t, databaseURL)
			if err == nil || !strings.Contains(err.Error(), `has a tenant "`+slug+`"`) || greeting != "" {
				t.Errorf("it greets with %q and error %v, want none and one that names the tenant", greeting, err)
			}
			var keys, migrations int
			if err := conn.QueryRow(t.Context(),
				`SELECT count(*), (SELECT count(*) FROM pg_class WHERE relname = 'schema_version')
				FROM api_key`).Scan(&keys, &migrations); err != nil || keys+migrations != 0 {
				t.Errorf("it left %d keys and %d tables of migrations (%v)", keys, migrations, err)
			}
		})
	}
}

func TestTheDemoIsWrittenOnce(t *testing.T) {
	t.Parallel()
	databaseURL := devdbtest.EmptyPostgres(t)
	if greeting, _, err := runDev(t, databaseURL); err != nil || !strings.Contains(greeting, app.DemoToken) {
		t.Fatalf("the first start greets with %q (%v)", greeting, err)
	}
	store := open(t, databaseURL)
	demo, err := store.TenantBySlug(t.Context(), demoSlug)
	if err != nil {
		t.Fatal(err)
	}
	all, err := store.Rules(t.Context(), demo.ID, rules.RuleFilter{}, 0, 100)
	if err != nil || len(all.Rules) == 0 {
		t.Fatalf("%d rules (%v)", len(all.Rules), err)
	}
	writer := store.As(rules.Actor{Kind: rules.ActorSystem, Name: "test"})
	for _, rule := range all.Rules {
		if err := writer.RemoveRule(t.Context(), demo.ID, rule.ID, rules.AnyVersion); err != nil {
			t.Fatal(err)
		}
	}
	id, _, _ := auth.SplitKeyToken(app.DemoToken)
	if err := writer.RevokeKey(t.Context(), demo.ID, id, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	greeting, log, err := runDev(t, databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(greeting, app.DemoToken) || !strings.Contains(log, "the demo key was revoked") {
		t.Errorf("it greets with %q and logs %s, want no revoked key and a warning", greeting, log)
	}
	if left, err := store.Rules(t.Context(), demo.ID, rules.RuleFilter{}, 0, 100); err != nil || len(left.Rules) > 0 {
		t.Errorf("%d rules are back (%v)", len(left.Rules), err)
	}
}

func TestTheDemosAdminIsWrittenOnce(t *testing.T) {
	t.Parallel()
	databaseURL := devdbtest.EmptyPostgres(t)
	if _, _, err := runDev(t, databaseURL); err != nil {
		t.Fatal(err)
	}
	store := open(t, databaseURL)
	gate := auth.NewGate(store, auth.Options{})
	entry, err := gate.SignIn(t.Context(), demoEmail, demoPassword, auth.Browser{})
	if err != nil || !entry.Session.Account.PlatformAdmin {
		t.Fatalf("%+v signs in (%v)", entry.Session.Account, err)
	}
	tenants, err := store.Memberships(t.Context(), entry.Session.Account.ID, "", 10)
	if err != nil || len(tenants) != 1 || tenants[0].Tenant.Slug != demoSlug || tenants[0].Role != auth.Owner {
		t.Errorf("it is in %+v (%v)", tenants, err)
	}
	if _, err := gate.ChangePassword(t.Context(), entry.Session, demoPassword, "a secret of mine",
		auth.Browser{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := runDev(t, databaseURL); err != nil {
		t.Fatal(err)
	}
	if _, err := gate.SignIn(t.Context(), demoEmail, demoPassword, auth.Browser{}); !errors.Is(err,
		auth.ErrWrongPassword) {
		t.Errorf("after another start the password that everybody knows: %v", err)
	}
}

func TestADatabaseWithSomebodysAccountsIsRefused(t *testing.T) {
	t.Parallel()
	databaseURL := devdbtest.Postgres(t)
	store := open(t, databaseURL)
	if _, err := store.CreateAccount(t.Context(), rules.Actor{}, auth.Account{Email: demoEmail}, "a hash"); err != nil {
		t.Fatal(err)
	}
	greeting, _, err := runDev(t, databaseURL)
	if err == nil || !strings.Contains(err.Error(), `has an account "`+demoEmail+`"`) || greeting != "" {
		t.Errorf("it greets with %q and error %v, want none and one that names the account", greeting, err)
	}
}

func TestAFolderFromBeforeTheFirstReleaseIsToBeRemoved(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	server, err := devdb.StartPostgres(t.Context(), filepath.Join(folder, "postgres"), devdb.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	url, err := server.CreateDatabase(t.Context(), "sluice")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), "CREATE TABLE goose_db_version (version_id bigint, is_applied boolean)")
	if err := errors.Join(err, conn.Close(t.Context()), server.Stop()); err != nil {
		t.Fatal(err)
	}
	greeting, _, err := runDevIn(t, folder)
	if err == nil || !strings.Contains(err.Error(), "remove the folder "+folder) || greeting != "" {
		t.Errorf("it greets with %q and error %v, want none and one that says to remove the folder", greeting, err)
	}
}
