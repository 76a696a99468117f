package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestTheServerHasTheTimeoutOfEachClass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for class, timeout := range pgstore.Classes() {
		began := time.Now()
		w.LimitClass(class, timeout)
		settings, errs := w.InClass(t.Context(), class, "SELECT current_setting('statement_timeout')")
		for i, way := range []string{"a query", "a transaction"} {
			got, err := time.ParseDuration(settings[i])
			if want := timeout + 500*time.Millisecond; errs[i] != nil || err != nil || got > want ||
				got < want-time.Second-time.Since(began) {
				t.Errorf("%s: %s has the timeout %q (%v), want %s", class, way, settings[i], errs[i], want)
			}
		}
	}
}

func TestWhatTakesTooLongEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for class := range pgstore.Classes() {
		w.LimitClass(class, 100*time.Millisecond)
		_, errs := w.InClass(t.Context(), class, "SELECT pg_sleep(600)::text")
		for i, way := range []string{"a query", "a transaction"} {
			if errs[i] == nil {
				t.Errorf("%s: %s of ten minutes was answered", class, way)
			}
		}
	}
	conn := connect(t, w.url)
	for sleeping := 1; sleeping > 0; { // no test ends while the server works on
		err := conn.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE "+
				"'%pg_sleep(600)::text%' AND state = 'active' AND pid <> pg_backend_pid()").Scan(&sleeping)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Locked tables make each method take as long as its class allows.
func TestRealQueriesBelongToTheirClass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	w.record(t, now, func(*violations.Violation) {})
	lock := must(connect(t, w.url).Begin(t.Context()))(t)
	must(lock.Exec(t.Context(),
		`LOCK TABLE tenant, plan, plan_assignment, rate_limit_violation, violation_minute, decision_minute,
			decision_span,
		recorder_batch, api_key, key_notice, tenant_use IN ACCESS EXCLUSIVE MODE`))(t)
	methods := map[string]func(context.Context) error{
		"read": func(ctx context.Context) error { return second(w.Plans(ctx, w.ours.ID, "", 10)) },
		"heavy": func(ctx context.Context) error {
			return second(w.TopRules(ctx, w.ours.ID,
				violations.Steps{Since: now.Add(-time.Hour), Until: now, Step: time.Minute}, 10))
		},
		"write": func(ctx context.Context) error {
			return second(w.CreatePlan(ctx, rules.Plan{TenantID: w.ours.ID, Name: "late"}))
		},
		"bulk": func(ctx context.Context) error { return second(w.AssignAll(ctx, w.ours.ID, onPlan("free", "1"))) },
		"record": func(ctx context.Context) error {
			return w.WriteViolations(ctx, &violations.Batch{
				Writer: "late", Number: 1,
				Tallies: []violations.Tally{tallyOf(violation(w.ours.ID, now), 1)},
			})
		},
		"background": func(ctx context.Context) error { return second(w.CapacityUses(ctx)) },
		"notice":     func(ctx context.Context) error { return second(w.TellOfKeysLeft(ctx, now, false)) },
		"load": func(ctx context.Context) error {
			return w.Read(ctx, nil, func(snapshot.Rows) error { return nil })
		},
		"upkeep": func(ctx context.Context) error { return second(w.KeepViolations(ctx, now, keep)) },
	}
	for class := range pgstore.Classes() {
		w.LimitClass(class, time.Hour)
	}
	for class := range pgstore.Classes() {
		if methods[class] == nil {
			t.Errorf("no method of the class %s is tried", class)
			continue
		}
		w.LimitClass(class, 100*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // less than the other classes have
		began := time.Now()
		if err := methods[class](ctx); err == nil || ctx.Err() != nil {
			t.Errorf("%s: after %s it ends with %v, want the end of its class's time", class, time.Since(began), err)
		}
		cancel()
		w.LimitClass(class, time.Hour)
	}
}

func TestNoQueryRunsWithoutAClass(t *testing.T) {
	t.Parallel()
	files := must(filepath.Glob("*.go"))(t)
	reaches := regexp.MustCompile(`dbsqlc\.New\(|\.pool\.|context\.With(Timeout|Deadline)\(`)
	may := map[string]string{
		"wall.go":    "the ways to the database",
		"classes.go": "the classes",
		"store.go":   "closes the pool",
		"schema.go":  "checks the schema before there is a Store",
		"grant.go":   "a command without a Store",
	}
	for _, file := range files {
		if _, ok := may[file]; ok || strings.HasSuffix(file, "_test.go") {
			continue
		}
		if found := reaches.Find(must(os.ReadFile(file))(t)); found != nil {
			t.Errorf("%s has %s, and only %v may", file, found, may)
		}
	}
}

func TestTheClassesAreDocumented(t *testing.T) {
	t.Parallel()
	page := string(must(os.ReadFile("../../docs/operations.md"))(t))
	for class, timeout := range pgstore.Classes() {
		limit := fmt.Sprintf("%d s", int(timeout.Seconds()))
		if timeout >= time.Minute {
			limit = fmt.Sprintf("%d min", int(timeout.Minutes()))
		}
		if row := fmt.Sprintf("\n| `%s` | %s |", class, limit); !strings.Contains(page, row) {
			t.Errorf("docs/operations.md has no row %q", row)
		}
	}
}
