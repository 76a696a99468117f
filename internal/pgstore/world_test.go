package pgstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // most tests wait: for Postgres, and some for its timeouts
	goleak.VerifyTestMain(devdbtest.Main(m))
}

// world has two tenants with the same objects, but for one plan each; its end checks that no row of the second was
// touched. The writer's role does not own the tables, as in production; url is the owner's.
type world struct {
	pgstore.Writer
	url          string
	ours, theirs owned
}

type owned struct {
	rules.Tenant                // with default plan free
	user, daily  rules.Rule     // user:{user_id} for all plans, and named daily for free
	override     rules.Override // of user 42 for user
	key          auth.NamedKey
	alert        violations.Alert // that is off; theirs alone
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := openWorld(t)
	connection := connect(t, w.url)
	before := dump(t, connection, w.theirs.ID)
	t.Cleanup(func() {
		if after := dump(t, connection, w.theirs.ID); after != before {
			t.Errorf("the other tenant's rows were\n%s\nand are now\n%s", before, after)
		}
	})
	return w
}

var seeded world

func openWorld(t *testing.T) *world {
	t.Helper()
	url := devdbtest.Prepared(t, "world", func(url string) {
		store := must(pgstore.Open(t.Context(), url, slog.New(slog.DiscardHandler)))(t)
		defer store.Close()
		w := world{Writer: store.As(tester), url: url}
		w.theirs = w.found(t, "theirs")
		off := alertOn(w.theirs.user, true)
		off.Active = false
		w.theirs.alert = must(w.CreateAlert(t.Context(), tester, off))(t)
		w.ours = w.found(t, "ours")
		seeded = w
	})
	store := must(pgstore.Open(t.Context(), runtimeURL(t, url), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(store.Close)
	store.BePatient()
	w := seeded
	w.Writer, w.url = store.As(tester), url
	return &w
}

func (w *world) found(t *testing.T, slug string) owned {
	t.Helper()
	ctx := t.Context()
	var o owned
	o.Tenant = must(w.CreateTenant(ctx, rules.Tenant{
		Slug: slug, Name: "Acme", DefaultPlan: "free", Settings: rules.DefaultSettings(),
	}))(t)
	must(w.CreatePlan(ctx, rules.Plan{TenantID: o.ID, Name: "pro", Description: "for a living"}))(t)
	must(w.CreatePlan(ctx, rules.Plan{TenantID: o.ID, Name: "only-" + slug}))(t)
	o.user = must(w.CreateRule(ctx, limit(t, o.ID, "user:{user_id}", "", "")))(t)
	o.daily = must(w.CreateRule(ctx, limit(t, o.ID, "user:{user_id}", "free", "daily")))(t)
	o.override = must(w.PutOverride(ctx, overrideOf(o.user, "42"), rules.AnyVersion))(t)
	w.assign(t, o.ID, "pro", "42")
	o.key = must(w.CreateKey(ctx, auth.NamedKey{
		Key: auth.Key{
			TenantID: o.ID, ID: slug, Digest: [32]byte{1, 2, 3},
			Permissions: []auth.Permission{auth.PermissionCheck},
		},
		Name: "ci",
	}))(t)
	o.Tenant = must(w.Tenant(ctx, o.ID))(t)
	return o
}

var tester = rules.Actor{Kind: rules.ActorAccount, ID: "7", Name: "tester@example.com", RequestID: "req-1"}

func runtimeURL(t *testing.T, databaseURL string) string {
	t.Helper()
	role := roleOf(t, databaseURL)
	exec(t, databaseURL, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'runtime'", role))
	if err := pgstore.Grant(t.Context(), databaseURL, role); err != nil {
		t.Fatal(err)
	}
	return runtimeOf(t, databaseURL)
}

func roleOf(t *testing.T, databaseURL string) string {
	t.Helper()
	return "runtime_" + strings.TrimPrefix(must(url.Parse(databaseURL))(t).Path, "/")
}

func runtimeOf(t *testing.T, databaseURL string) string {
	t.Helper()
	u := must(url.Parse(databaseURL))(t)
	u.User = url.UserPassword(roleOf(t, databaseURL), "runtime")
	return u.String()
}

func (w *world) assign(t *testing.T, tenant rules.TenantID, plan string, users ...string) {
	t.Helper()
	must(w.AssignAll(t.Context(), tenant, onPlan(plan, users...)))(t)
}

func onPlan(plan string, users ...string) (assignments []rules.Assignment) {
	for _, user := range users {
		assignments = append(assignments, rules.Assignment{UserID: user, Plan: plan})
	}
	return assignments
}

func limit(t *testing.T, tenant rules.TenantID, pattern, plan, name string) rules.Rule {
	t.Helper()
	return rules.Rule{
		TenantID: tenant, Pattern: must(rules.ParsePattern(pattern))(t), Plan: plan, Name: name,
		RatePerSecond: 10, RateUnit: rules.PerSecond, Burst: 50,
		Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true,
	}
}

func overrideOf(rule rules.Rule, userID string) rules.Override {
	return rules.Override{
		TenantID: rule.TenantID, RuleID: rule.ID, UserID: userID,
		RatePerSecond: 100, RateUnit: rules.PerSecond, Burst: 500, Reason: "migration week",
	}
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

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	connection := must(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = connection.Close(context.WithoutCancel(t.Context())) })
	return connection
}

func exec(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	if _, err := connect(t, url).Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func dump(t *testing.T, connection *pgx.Conn, tenant rules.TenantID) (text string) {
	t.Helper()
	for _, table := range []string{
		"tenant", "plan", "plan_use", "rate_limit_rule", "rate_limit_override", "plan_assignment", "api_key",
		"api_key_use", "audit_event",
		"rate_limit_step", "backend_report",
	} {
		var rows string
		query := fmt.Sprintf("SELECT coalesce(string_agg(t::text, E'\n' ORDER BY t::text), '') FROM %s AS t WHERE "+
			"tenant_id = $1", table)
		ctx := context.WithoutCancel(t.Context()) // also called when the test has ended
		if err := connection.QueryRow(ctx, query, tenant).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		text += table + "\n" + rows + "\n"
	}
	return text
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
}

func (w *world) poll(t *testing.T, newerThan map[rules.TenantID]int64) (all snapshot.Rows) {
	t.Helper()
	err := w.Read(t.Context(), newerThan, func(page snapshot.Rows) error {
		all.Tenants = append(all.Tenants, page.Tenants...)
		all.Plans = append(all.Plans, page.Plans...)
		all.Rules = append(all.Rules, page.Rules...)
		all.Overrides = append(all.Overrides, page.Overrides...)
		all.Assignments = append(all.Assignments, page.Assignments...)
		all.Keys = append(all.Keys, page.Keys...)
		all.Gateways = append(all.Gateways, page.Gateways...)
		all.Steps = append(all.Steps, page.Steps...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (w *world) revisions(t *testing.T) map[rules.TenantID]int64 {
	t.Helper()
	revisions := map[rules.TenantID]int64{}
	for _, tenant := range must(w.Tenants(t.Context(), "", "", 10000))(t) {
		revisions[tenant.ID] = tenant.Revision
	}
	return revisions
}

// setBack moves the stored times of our limits into the future, as if the clock had stepped back by an hour since.
func (w *world) setBack(t *testing.T) {
	t.Helper()
	exec(t, w.url, "UPDATE rate_limit_rule SET in_force_since = in_force_since + interval '1 hour' WHERE tenant_id = "+
		"$1", w.ours.ID)
	exec(t, w.url, `UPDATE rate_limit_override SET in_force_since = in_force_since + interval '1 hour 1 minute',
		removed_at = removed_at + interval '1 hour 2 minutes' WHERE tenant_id = $1`, w.ours.ID)
}

func tomorrow() time.Time { return time.Now().Add(24 * time.Hour).Truncate(time.Microsecond).UTC() }
