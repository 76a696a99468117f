package pgstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func TestTheAuditLogCannotBeTamperedWith(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runtime := runtimeURL(t, devdbtest.Postgres(t))
	for _, statement := range []string{
		"UPDATE audit_event SET actor_name = 'nobody'",
		"UPDATE audit_event SET actor_name = 'nobody' WHERE false",
		"DELETE FROM audit_event",
		"TRUNCATE audit_event",
		"INSERT INTO audit_event SELECT * FROM audit_event ON CONFLICT DO NOTHING",
		"INSERT INTO audit_event OVERRIDING SYSTEM VALUE SELECT * FROM audit_event ON CONFLICT (tenant_id, audit_id) " +
			"DO UPDATE SET act = ''",
	} {
		for role, url := range map[string]string{"runtime": runtime, "owner": w.url} {
			_, err := connect(t, url).Exec(t.Context(), statement)
			var refusal *pgconn.PgError
			if !errors.As(err, &refusal) {
				t.Errorf("as %s: %s: %v", role, statement, err)
			}
		}
	}
}

func TestTheRuntimeRoleChangesRowsAndNothingElse(t *testing.T) {
	t.Parallel()
	runtime := runtimeURL(t, devdbtest.Postgres(t))
	for _, statement := range []string{
		"DROP TRIGGER audit_event_append_only ON audit_event",
		"ALTER TABLE rate_limit_rule DISABLE TRIGGER rate_limit_rule_audit",
		"SET session_replication_role = replica",
		"TRUNCATE rate_limit_override",
		"CREATE TABLE mine (n int)",
		"DROP TABLE api_key_use",
		"CREATE OR REPLACE FUNCTION audit_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
		"INSERT INTO schema_version (version_id, is_applied) VALUES (99, true)",
	} {
		_, err := connect(t, runtime).Exec(t.Context(), statement)
		var refusal *pgconn.PgError
		const insufficientPrivilege = "42501"
		if !errors.As(err, &refusal) || refusal.Code != insufficientPrivilege {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if err := pgstore.CheckSchema(t.Context(), runtime); err != nil {
		t.Error(err)
	}
}

func TestGrantingAgainCoversNewTablesAndTakesBackWhatWasTooMuch(t *testing.T) {
	t.Parallel()
	url := devdbtest.Postgres(t)
	runtime := runtimeURL(t, url)
	role, _, _ := strings.Cut(strings.TrimPrefix(runtime, "postgres://"), ":")
	exec(t, url, "CREATE TABLE later (n int)")
	exec(t, url, "GRANT UPDATE, DELETE ON audit_event TO "+role)
	if err := pgstore.Grant(t.Context(), url, role); err != nil {
		t.Fatal(err)
	}
	exec(t, runtime, "INSERT INTO later VALUES (1)")
	var may bool
	err := connect(t, runtime).QueryRow(t.Context(),
		"SELECT has_table_privilege('audit_event', 'UPDATE, DELETE, TRUNCATE')").Scan(&may)
	if err != nil || may {
		t.Errorf("it may still change the audit log: %t (%v)", may, err)
	}
}

func TestARoleThatCouldChangeTheLogIsRefused(t *testing.T) {
	t.Parallel()
	url := devdbtest.Postgres(t)
	exec(t, url, `CREATE ROLE "the owner" LOGIN`)
	exec(t, url, `ALTER TABLE plan OWNER TO "the owner"`)
	for role, want := range map[string]string{
		"the owner": "owns tables", "nobody there": "no such role", "sluice": "superuser",
		`x"; DROP TABLE plan; --`: "no such role",
	} {
		if err := pgstore.Grant(t.Context(), url, role); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", role, err)
		}
	}
}

func TestACutTransactionLeavesAllAsItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	killer := connect(t, w.url)
	cut := func() {
		_, err := killer.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND usename LIKE 'runtime%' AND state LIKE 'idle in transaction%'`)
		if err != nil {
			t.Error(err)
		}
	}
	before := dump(t, killer, ours)
	_, err := w.ChangeConfig(ctx, ours, func(ruleset.Config) (ruleset.Changes, error) {
		cut() // the revision is raised, and nothing is committed
		rule := limit(t, ours, "global", "", "cut")
		return ruleset.Changes{Rules: []ruleset.Change[rules.Rule]{{After: &rule}}}, nil
	})
	if err == nil || errors.Is(err, rules.ErrNotFound) {
		t.Errorf("a write that was cut answers %v", err)
	}
	if after := dump(t, killer, ours); after != before {
		t.Errorf("our rows were\n%s\nand are now\n%s", before, after)
	}
	since := w.latest(t)
	tenant := must(w.Tenant(ctx, ours))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Two hundred writes, and more until some were cut and some were not.
		deadline, answered, failed := time.Now().Add(time.Minute), 0, 0
		for n := 0; n < 200 || (answered == 0 || failed == 0) && time.Now().Before(deadline); n++ {
			rule, err := w.Rule(ctx, ours, w.ours.user.ID)
			if err != nil {
				continue
			}
			rule.Burst++
			if _, err := w.UpdateRule(ctx, rule); err != nil {
				failed++
			} else {
				answered++
			}
		}
		if answered == 0 || failed == 0 {
			t.Errorf("%d writes were answered, %d failed", answered, failed)
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			_, err := killer.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND usename LIKE 'runtime%' AND xact_start IS NOT NULL
					AND random() < 0.05`)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	rule, err := w.Rule(ctx, ours, w.ours.user.ID)
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); {
		rule, err = w.Rule(ctx, ours, w.ours.user.ID) // the pool still had connections that were cut
	}
	now := must(w.Tenant(ctx, ours))(t)
	lines, _ := w.written(t, ours, since)
	made := rule.Version - w.ours.user.Version
	if rule.Burst-w.ours.user.Burst != made || int64(len(lines)) != made || now.Revision-tenant.Revision != made {
		t.Errorf("the version rose by %d, the burst by %d, the revision by %d, and the log has %d entries",
			made, rule.Burst-w.ours.user.Burst, now.Revision-tenant.Revision, len(lines))
	}
}
