package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

var toSearch = rules.Adapt{Backend: "search", FloorPercent: 20, P99: 300 * time.Millisecond, ErrorPercent: 1}

func (w *world) adapting(t *testing.T, name string) rules.Rule {
	t.Helper()
	rule := limit(t, w.ours.ID, "user:{user_id}", "", name)
	rule.Adapt = toSearch
	return must(w.CreateRule(t.Context(), rule))(t)
}

func (w *world) step(t *testing.T, rule rules.Rule, percent int) rules.Step {
	t.Helper()
	if _, leads, err := w.Lead(t.Context(), "leader", time.Minute); err != nil || !leads {
		t.Fatalf("leads: %t, %v", leads, err)
	}
	step := rules.Step{RuleID: rule.ID, Percent: percent, SteppedAt: time.Now(), Cause: "slow", Memory: "{}"}
	if !must(w.PutSteps(t.Context(), "leader", rule.TenantID, []rules.Step{step}, adapt.Holds))(t) {
		t.Fatal("the step was not written")
	}
	return w.polledStep(t, rule)
}

func (w *world) polledStep(t *testing.T, rule rules.Rule) (found rules.Step) {
	t.Helper()
	for _, step := range w.poll(t, nil).Steps {
		if step.RuleID == rule.ID {
			found = step
		}
	}
	return found
}

func TestStepsAreReadByPollsAndNotAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := w.adapting(t, "a")
	if stored := must(w.Rule(t.Context(), rule.TenantID, rule.ID))(t); stored.Adapt != toSearch {
		t.Errorf("stored as %+v", stored.Adapt)
	}
	known, since := w.revisions(t), w.latest(t)
	step := w.step(t, rule, 70)
	if step.Percent != 70 || step.Cause != "slow" ||
		step.EndsAt.Sub(step.InForceSince).Round(time.Second) != adapt.Holds {
		t.Errorf("the step is %+v", step)
	}
	if !step.InForceSince.After(rule.InForceSince) {
		t.Errorf("in force since %v, and the rule since %v", step.InForceSince, rule.InForceSince)
	}
	news := w.poll(t, known)
	if len(news.Steps) != 1 || len(news.Rules) != 0 {
		t.Errorf("a poll reads %d steps and %d rules", len(news.Steps), len(news.Rules))
	}
	if _, entries := w.written(t, w.ours.ID, since); len(entries) != 0 {
		t.Errorf("the audit log has %+v", entries)
	}
	if renewed := w.step(t, rule, 70); !renewed.InForceSince.After(step.InForceSince) {
		t.Errorf("renewed, it is in force since %v, and was since %v", renewed.InForceSince, step.InForceSince)
	}
}

func TestOneProcessLeads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, rule := t.Context(), w.adapting(t, "a")
	leads := func(holder string) bool {
		t.Helper()
		_, leads, err := w.Lead(ctx, holder, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return leads
	}
	steps := []rules.Step{{RuleID: rule.ID, Percent: 50, SteppedAt: time.Now(), Memory: "{}"}}
	writes := func(holder string) bool {
		t.Helper()
		return must(w.PutSteps(ctx, holder, rule.TenantID, steps, adapt.Holds))(t)
	}
	if !leads("a") || leads("b") || !leads("a") {
		t.Error("not just the first leads")
	}
	if writes("b") || !writes("a") {
		t.Error("not just the leader writes")
	}
	exec(t, w.url, "UPDATE leader SET ends_at = clock_timestamp()") // as if it had been killed a while ago
	if writes("a") {
		t.Error("a leader writes after its end")
	}
	if !leads("b") || leads("a") {
		t.Error("nobody took over")
	}
	if err := w.EndLead(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if leads("a") {
		t.Error("one that does not lead ended another's lead")
	}
	if err := w.EndLead(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if !leads("a") {
		t.Error("a lead that was ended goes on")
	}
}

func TestStepsDoNotWaitForOtherWritersOfTheTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := w.adapting(t, "a")
	w.step(t, rule, 70)
	other := connect(t, w.url)
	tx := must(other.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM tenant WHERE tenant_id = $1 FOR UPDATE", w.ours.ID); err != nil {
		t.Fatal(err)
	}
	steps := []rules.Step{{RuleID: rule.ID, Percent: 50, SteppedAt: time.Now(), Memory: "{}"}}
	if must(w.PutSteps(t.Context(), "leader", w.ours.ID, steps, adapt.Holds))(t) {
		t.Error("a step was written beside another write")
	}
}

func TestStepsEndAtOnceWhenRatesAreFixed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := w.adapting(t, "a")
	before := w.step(t, rule, 70)
	tenant := must(w.Tenant(t.Context(), w.ours.ID))(t)
	tenant.Settings.FixedRates = true
	tenant = must(w.UpdateTenant(t.Context(), tenant))(t)
	if !tenant.Settings.FixedRates {
		t.Error("the switch was not stored")
	}
	after := w.polledStep(t, rule)
	if !after.EndsAt.After(before.InForceSince) || !after.EndsAt.Before(before.EndsAt.Add(-adapt.Holds/2)) ||
		after.Revision <= before.Revision {
		t.Errorf("the step was %+v and is %+v", before, after)
	}
	steps := []rules.Step{{RuleID: rule.ID, Percent: 50, SteppedAt: time.Now(), Memory: "{}"}}
	if must(w.PutSteps(t.Context(), "leader", w.ours.ID, steps, adapt.Holds))(t) {
		t.Error("a step was written while rates are fixed")
	}
	tenant.Settings.FixedRates = false
	must(w.UpdateTenant(t.Context(), tenant))(t)
	if again := w.step(t, rule, 60); !again.InForceSince.After(after.EndsAt) {
		t.Errorf("a new step is in force since %v, and the last one ended at %v", again.InForceSince, after.EndsAt)
	}
}

func TestALimitComesIntoForceAfterTheStepsBeforeIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := w.adapting(t, "a")
	step := w.step(t, rule, 70)
	exec(t, w.url,
		`UPDATE rate_limit_step SET in_force_since = in_force_since + interval '1 hour',
			ends_at = ends_at + interval '1 hour'
		WHERE tenant_id = $1`, w.ours.ID)
	rule.RatePerSecond = 20
	rule = must(w.UpdateRule(t.Context(), rule))(t)
	if later := step.InForceSince.Add(time.Hour); !rule.InForceSince.After(later) {
		t.Errorf("an edited rate is in force since %v, and the step since %v", rule.InForceSince, later)
	}
	before := rule.InForceSince
	rule.Adapt.FloorPercent = 50
	if rule = must(w.UpdateRule(t.Context(), rule))(t); !rule.InForceSince.Equal(before) {
		t.Error("another floor is another limit")
	}
	rule.Adapt = rules.Adapt{}
	if rule = must(w.UpdateRule(t.Context(), rule))(t); !rule.InForceSince.After(before) {
		t.Error("a rule that stops adapting is not in force anew, so buckets would stay at the step")
	}
	must(w.PutSteps(t.Context(), "leader", w.ours.ID,
		[]rules.Step{{RuleID: rule.ID, Percent: 50, SteppedAt: time.Now(), Memory: "{}"}}, adapt.Holds))(t)
	if got := w.polledStep(t, rule); got.Percent != 70 {
		t.Errorf("a rule that does not adapt got the step %+v", got)
	}
}

func (w *world) adaptTo(t *testing.T, number int) {
	t.Helper()
	exec(t, w.url,
		`INSERT INTO rate_limit_rule (tenant_id, key_pattern, scope, name, rate_per_second, rate_unit, burst_capacity,
			algorithm, mode,
			action, is_active, in_force_since, revision, parameters)
		SELECT $1, 'global', 'global', 'n' || n, 10, 'second', 50, 'token_bucket', 'enforce', 'limit', true, now(), 1,
			'{"adapt": {"backend": "b", "floor_percent": 10, "p99_ms": 100}}'
		FROM generate_series(1, $2) AS n`, w.ours.ID, number)
}

func TestATenantHasABoundedNumberOfRulesThatAdapt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.adaptTo(t, rules.MaxAdapting-1)
	last := w.adapting(t, "last")
	one := limit(t, w.ours.ID, "user:{user_id}", "", "one more")
	one.Adapt = toSearch
	var wrong rules.FieldErrors
	if _, err := w.CreateRule(t.Context(), one); !errors.As(err, &wrong) || wrong[0].Field != "adapt" {
		t.Errorf("one more rule that adapts: %v", err)
	}
	plain := must(w.CreateRule(t.Context(), limit(t, w.ours.ID, "user:{user_id}", "", "plain")))(t)
	begins := must(w.CreateRule(t.Context(), limit(t, w.ours.ID, "user:{user_id}", "", "begins")))(t)
	plain.Burst++
	begins.Adapt = toSearch
	changes := []ruleset.RuleChange{
		{Rule: plain, Expected: rules.Expected(plain.Version)},
		{Rule: begins, Expected: rules.Expected(begins.Version)},
	}
	var byChange ruleset.RuleChangeErrors
	if _, err := w.ChangeRules(t.Context(), w.ours.ID, changes, false); !errors.As(err, &byChange) ||
		len(byChange) != 1 || !errors.As(byChange[1], &wrong) {
		t.Errorf("a save of two rules, of which the second is one more that adapts: %v", err)
	}
	last.Adapt.FloorPercent = 30
	last = must(w.UpdateRule(t.Context(), last))(t)

	last.Mode = rules.ModeShadow
	last = must(w.UpdateRule(t.Context(), last))(t)
	live := must(w.CreateRule(t.Context(), limit(t, w.ours.ID, last.Pattern.String(), last.Plan, "live")))(t)
	since := w.latest(t)
	if live = must(w.PromoteRule(t.Context(), w.ours.ID, last.ID, rules.Expected(last.Version), live.ID,
		rules.Expected(live.Version)))(t); live.Adapt != last.Adapt {
		t.Errorf("the promoted rule adapts as %+v", live.Adapt)
	}
	_, entries := w.written(t, w.ours.ID, since)
	promotion := slices.IndexFunc(entries, func(e auth.AuditEntry) bool { return e.Action == auth.AuditUpdate })
	must(w.Revert(t.Context(), w.ours.ID, entries[promotion].ID, true))(t)
	if last = must(w.Rule(t.Context(), w.ours.ID, last.ID))(t); !last.Adapts() {
		t.Errorf("the shadow rule is back as %+v", last)
	}
}

func TestRulesDoNotAdaptWhileAnOlderProcessLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.report(t, fleet.Report{Process: fleet.Process{
		ID: "old", Name: "api-1", Version: "v1",
		Algorithms: []string{"token_bucket", "leaky_bucket"},
	}})
	rule := limit(t, w.ours.ID, "user:{user_id}", "", "a")
	rule.Adapt = toSearch
	var unknown rules.UnknownToProcessError
	if _, err := w.CreateRule(t.Context(), rule); !errors.As(err, &unknown) || unknown.Word != rules.WordAdapt {
		t.Errorf("a rule that adapts: %v", err)
	}
	w.report(t, fleet.Report{Process: fleet.Process{ID: "old", Algorithms: []string{"token_bucket", rules.WordAdapt}}})
	exec(t, w.url, "UPDATE api_process SET algorithms = $1", []string{"token_bucket", rules.WordAdapt})
	must(w.CreateRule(t.Context(), rule))(t)
}

func TestRulesHaveNoMetersWhileAnOlderProcessLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.report(t, fleet.Report{Process: fleet.Process{
		ID: "old", Name: "api-1", Version: "v1",
		Algorithms: []string{"token_bucket", rules.WordAdapt},
	}})
	budget, later := limit(t, w.ours.ID, "user:{user_id}", "", "a"), limit(t, w.ours.ID, "user:{user_id}", "", "b")
	budget.Meter, later.ChargedAfter = "usd", true
	for _, rule := range []rules.Rule{budget, later} {
		var unknown rules.UnknownToProcessError
		if _, err := w.CreateRule(t.Context(), rule); !errors.As(err, &unknown) || unknown.Word != rules.WordMeters {
			t.Errorf("a rule of %s, charged %s: %v", rule.Meter.Word(), rule.Charge(), err)
		}
	}
	exec(t, w.url, "UPDATE api_process SET algorithms = $1", []string{"token_bucket", rules.WordMeters})
	stored := must(w.CreateRule(t.Context(), budget))(t)
	stored.Meter = "tokens"
	var wrong rules.FieldErrors
	if _, err := w.UpdateRule(t.Context(), stored); !errors.As(err, &wrong) ||
		len(wrong) != 1 || wrong[0].Field != "meter" {
		t.Errorf("another meter for a stored rule: %v", err)
	}
}

func TestAWordIsKnownToAllOnceNoOlderProcessLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	knownToAll := func(want bool, when string) {
		t.Helper()
		if got := must(w.KnownToAll(t.Context(), rules.WordLeases))(t); got != want {
			t.Errorf("%s: leases are known to all: %t, want %t", when, got, want)
		}
	}
	knownToAll(true, "without processes")
	w.report(t, fleet.Report{Process: fleet.Process{
		ID: "new", Name: "api-2", Version: "v2",
		Algorithms: []string{"token_bucket", rules.WordLeases},
	}})
	knownToAll(true, "a process of this release")
	w.report(t, fleet.Report{Process: fleet.Process{
		ID: "old", Name: "api-1", Version: "v1",
		Algorithms: []string{"token_bucket"},
	}})
	knownToAll(false, "beside one of an older release")
	if err := w.EndProcess(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	knownToAll(true, "once that has ended")
}

func TestReportsOfSeveralProcessesAreSummedUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	report := func(tenant rules.TenantID, backend string, n int64) adapt.BackendReport {
		r := adapt.BackendReport{
			Tenant: tenant,
			Report: adapt.Report{Backend: backend, Seen: adapt.Seen{Requests: 10 * n, Errors: n}},
		}
		r.Latency[3], r.Latency[len(r.Latency)-1] = 5*n, 2*n
		return r
	}
	for range 3 {
		if err := w.WriteReports(t.Context(), []adapt.BackendReport{
			report(w.theirs.ID, "search", 7), report(w.ours.ID, "mail", 1), report(w.ours.ID, "search", 2),
		}); err != nil {
			t.Fatal(err)
		}
	}
	sums := map[string]adapt.Seen{} // over slices, of which a boundary can make two
	for _, slice := range must(w.BackendReports(t.Context(), time.Now().Add(-time.Minute)))(t) {
		key := fmt.Sprintf("%t %s", slice.Tenant == w.ours.ID, slice.Backend)
		sum := sums[key]
		sum.Add(&slice.Seen)
		sums[key] = sum
		if slice.Start.Unix()%5 != 0 {
			t.Errorf("a slice begins at %v", slice.Start)
		}
	}
	for key, n := range map[string]int64{"false search": 21, "true mail": 3, "true search": 6} {
		want := report(0, "", n).Seen
		if sums[key] != want {
			t.Errorf("%s: %+v, want %+v", key, sums[key], want)
		}
	}
	if err := w.DropBackendReports(t.Context(), time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if left := must(w.BackendReports(t.Context(), time.Time{}))(t); len(left) != 0 {
		t.Errorf("%d slices are left", len(left))
	}
}

func TestHowRulesThatAdaptStand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.adapting(t, "a"), w.adapting(t, "b")
	w.step(t, b, 40)
	seen := adapt.Seen{Requests: 30, Errors: 2}
	if err := w.WriteReports(t.Context(),
		[]adapt.BackendReport{{Tenant: w.ours.ID, Report: adapt.Report{Backend: "search", Seen: seen}}}); err != nil {
		t.Fatal(err)
	}
	standing := must(w.Adapting(t.Context(), w.ours.ID))(t)
	if len(standing) != 2 || standing[0].Rule.ID != a.ID || standing[0].Step != nil || standing[1].Step == nil ||
		standing[1].Step.Percent != 40 {
		t.Fatalf("%+v", standing)
	}
	for _, s := range standing {
		if s.Seen == nil || *s.Seen != seen {
			t.Errorf("of rule %d %+v was seen", s.Rule.ID, s.Seen)
		}
	}
	if theirs := must(w.Adapting(t.Context(), w.theirs.ID))(t); len(theirs) != 0 {
		t.Errorf("the other tenant has %+v", theirs)
	}
	exec(t, w.url, "DELETE FROM backend_report")
}
