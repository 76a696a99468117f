package pgstore_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func TestNoStatementStaysPrepared(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "&default_query_exec_mode=cache_statement"} {
		address := devdbtest.Postgres(t)
		if !strings.Contains(address, "?") {
			address += "?"
		}
		store := must(pgstore.Open(t.Context(), address+"&pool_max_conns=1"+mode, slog.New(slog.DiscardHandler)))(t)
		t.Cleanup(store.Close)
		must(store.Tenants(t.Context(), "", "", 10000))(t)
		if _, err := store.TenantBySlug(t.Context(), "acme"); !errors.Is(err, rules.ErrNotFound) {
			t.Error(err)
		}
		if n := must(store.PreparedStatements(t.Context()))(t); n > 0 {
			t.Errorf("with %q there are %d prepared statements", mode, n)
		}
	}
}

func TestAConfigurationSaysWhatStandsAgainstRemovingItsPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.assign(t, w.ours.ID, "free", "1", "2")
	want := map[string]string{
		"free": "2 users are on it and it is the tenant's default", "pro": "1 user is on it",
		"only-ours": "",
	}
	for _, plan := range must(w.Config(t.Context(), w.ours.ID))(t).Plans {
		if plan.InUse != want[plan.Name] {
			t.Errorf("plan %s: %q, want %q", plan.Name, plan.InUse, want[plan.Name])
		}
	}
}

func TestManyRulesAreWrittenInFewTrips(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var changes ruleset.Changes
	for i := range 2500 {
		rule := limit(t, 0, "global", "pro", fmt.Sprintf("rule %d", i))
		changes.Rules = append(changes.Rules, ruleset.Change[rules.Rule]{After: &rule})
	}
	write := func() (ruleset.Changes, error) {
		return w.ChangeConfig(t.Context(), w.ours.ID,
			func(ruleset.Config) (ruleset.Changes, error) { return changes, nil })
	}
	changes.Rules[1234].After.Burst = -1
	if _, err := write(); err == nil || !strings.Contains(err.Error(), "rule global [pro] rule 1234: ") {
		t.Errorf("the error is %v, want one that names the rule", err)
	}
	changes.Rules[1234].After.Burst = 7
	stored := must(write())(t)
	for i, change := range stored.Rules {
		if change.After.Name != fmt.Sprintf("rule %d", i) || change.After.ID == 0 || i > 0 &&
			change.After.ID <= stored.Rules[i-1].After.ID {
			t.Fatalf("row %d is stored as %+v", i, change.After)
		}
	}
}

func TestNumbersDoNotWrapAround(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.ours.Tenant
	tenant.Settings.RetryJitterPercent += 1 << 16
	var wrong rules.FieldErrors
	if _, err := w.UpdateTenant(t.Context(), tenant); !asFieldErrors(err, &wrong) {
		t.Errorf("a jitter of %d%%: %v", tenant.Settings.RetryJitterPercent, err)
	}
	for limit, want := range map[int]int{math.MaxInt: 2, 1<<32 + 1: 2, -1: 0} {
		if got := must(w.Rules(t.Context(), w.ours.ID, rules.RuleFilter{}, 0, limit))(t).Rules; len(got) != want {
			t.Errorf("limit %d: %d rules, want %d", limit, len(got), want)
		}
	}
}

func TestTextThatCannotBeStoredIsNotMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plan := rules.Plan{TenantID: w.ours.ID, Name: "new", Description: "a\x00b"}
	_, err := w.CreatePlan(t.Context(), plan)
	var wrong rules.FieldErrors
	if !asFieldErrors(err, &wrong) || errors.Is(err, rules.ErrNotFound) {
		t.Errorf("a NUL in a description: %v", err)
	}
}

func TestManyOverridesAreWrittenInFewStatements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.latest(t)
	var changes ruleset.Changes
	add := func(user string, burst int64, rule rules.RuleIdentity) {
		override := overrideOf(w.ours.user, user)
		override.Burst = burst
		changes.Overrides = append(changes.Overrides, ruleset.Change[ruleset.ConfigOverride]{
			After: &ruleset.ConfigOverride{Rule: rule, Override: override},
		})
	}
	for i := range 1500 {
		add(fmt.Sprint("user-", i), 500, w.ours.user.Identity())
	}
	write := func() error {
		return second(w.ChangeConfig(t.Context(), w.ours.ID,
			func(ruleset.Config) (ruleset.Changes, error) { return changes, nil }))
	}
	changes.Overrides[1200].After.Rule.Name = "nobody's"
	if err := write(); !errors.Is(err, rules.ErrNotFound) || !strings.Contains(err.Error(), "user-1200") {
		t.Errorf("an override without a rule: %v", err)
	}
	changes.Overrides[1200].After.Rule = w.ours.user.Identity()
	add("user-7", 600, w.ours.user.Identity())
	if err := write(); err != nil {
		t.Fatal(err)
	}
	got := lines(t, connect(t, w.url), `SELECT count(*) || ' ' || max(burst_capacity) FILTER (WHERE user_id = 'user-7')
		FROM rate_limit_override WHERE tenant_id = $1 AND user_id LIKE 'user-%'`, w.ours.ID)
	if got[0] != "1500 600" {
		t.Errorf("stored are %q", got)
	}
	log := lines(t, connect(t, w.url), `SELECT sum(row_count) || ' ' || count(DISTINCT change_id) FROM audit_event
		WHERE tenant_id = $1 AND audit_id > $2`, w.ours.ID, int64(since))
	if log[0] != "1501 1" {
		t.Errorf("the audit log has %q objects and changes", log)
	}
}
