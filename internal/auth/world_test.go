package auth_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(devdbtest.Main(m)) }

const (
	adaEmail    = "Ada@example.com"
	adaPassword = "a fine analytical engine"
)

type world struct {
	*auth.Gate
	store  *pgstore.Store
	url    string
	ada    auth.Account
	tenant rules.TenantID
	hashes atomic.Int64 // runs of argon2
}

func newWorld(t *testing.T, options auth.Options) *world {
	t.Helper()
	return newWorldOn(t, devdbtest.Postgres(t), options)
}

// newStillWorld stops clock_timestamp() in the database, so that no wait ends because the machine is slow. now()
// continues.
func newStillWorld(t *testing.T, options auth.Options) *world {
	t.Helper()
	url := devdbtest.Postgres(t)
	if _, err := connect(t, url).Exec(t.Context(), `DO $$ BEGIN
		EXECUTE format(
			'CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE RETURN %L::timestamptz',
			now());
		EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database());
	END $$`); err != nil {
		t.Fatal(err)
	}
	return newWorldOn(t, url, options)
}

func newWorldOn(t *testing.T, url string, options auth.Options) *world {
	t.Helper()
	w := &world{url: url}
	w.store = must(pgstore.Open(t.Context(), w.url, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(w.store.Close)
	w.Gate = w.newGate(w.store, options)
	w.ada = must(w.CreateAdmin(t.Context(), rules.Actor{}, adaEmail, adaPassword))(t)
	w.tenant = w.newTenant(t, "acme")
	must(w.store.AddMember(t.Context(), w.ada.Actor(), w.tenant, w.ada.ID, auth.Owner))(t)
	w.hashes.Store(0)
	return w
}

func (w *world) newGate(store auth.Store, options auth.Options) *auth.Gate {
	gate := auth.NewGate(store, options)
	gate.WatchHashes(func() { w.hashes.Add(1) })
	return gate
}

func (w *world) newTenant(t *testing.T, slug string) (id rules.TenantID) {
	t.Helper()
	connection := connect(t, w.url)
	err := connection.QueryRow(t.Context(), "INSERT INTO tenant (slug, name) VALUES ($1, $1) RETURNING tenant_id",
		slug).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (w *world) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	connection := connect(t, w.url)
	if _, err := connection.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (w *world) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	connection := connect(t, w.url)
	if err := connection.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (w *world) join(t *testing.T, email string, role auth.Role) (auth.Member, auth.Entry) {
	t.Helper()
	member, entry, err := w.AcceptAsNew(t.Context(), "", w.invite(t, email, role), "", adaPassword, auth.Browser{})
	if err != nil {
		t.Fatal(err)
	}
	member.Account = must(w.store.ProveAddress(t.Context(), rules.Actor{}, member.Account.ID, rules.AnyVersion))(t)
	entry.Session.Account = member.Account
	return member, entry
}

func (w *world) invite(t *testing.T, email string, role auth.Role) (token string) {
	t.Helper()
	_, token, err := w.Invite(t.Context(), w.ada.Actor(), auth.Invitation{TenantID: w.tenant, Email: email, Role: role})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	connection := must(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = connection.Close(context.WithoutCancel(t.Context())) })
	return connection
}

func laptop() auth.Browser {
	return auth.Browser{UserAgent: "Lynx\n/2.8\xff", IP: netip.MustParseAddr("::ffff:203.0.113.9")}
}

// must(f())(t) returns f's value, or fails the test.
func must[T any](value T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
}

func wantFields(t *testing.T, err error, fields ...string) {
	t.Helper()
	var wrong rules.FieldErrors
	if !errors.As(err, &wrong) || len(wrong) != len(fields) {
		t.Fatalf("error is %v, want one on each of %q", err, fields)
	}
	for i, field := range fields {
		if wrong[i].Field != field {
			t.Errorf("error %d is on %s, want %s", i, wrong[i].Field, field)
		}
	}
}
