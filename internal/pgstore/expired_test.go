package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func (w *world) temporary(t *testing.T, tenant rules.TenantID, number int, ends time.Time) (made []rules.Rule) {
	t.Helper()
	for i := range number {
		pattern := must(rules.ParsePattern(fmt.Sprintf("ip:203.0.113.%d", i)))(t)
		made = append(made, must(w.CreateRule(t.Context(), rules.Rule{
			TenantID: tenant, Name: "temporary", Pattern: pattern, Action: rules.ActionBlock, Mode: rules.ModeEnforce,
			Algorithm: rules.TokenBucket,
			RateUnit:  rules.PerSecond, Active: true, ExpiresAt: ends,
		}))(t))
	}
	return made
}

func (w *world) rulesHeld(t *testing.T) int64 {
	t.Helper()
	of := must(w.Capacity(t.Context(), w.ours.ID))(t).Of
	return of[slices.IndexFunc(of, func(q rules.ThingCapacity) bool { return q.Thing == rules.ThingRules })].Held
}

func (w *world) prolong(t *testing.T, rule rules.Rule) rules.ScheduledChange {
	t.Helper()
	after := rule
	after.ExpiresAt = time.Time{}
	return must(w.Schedule(t.Context(), scheduled(time.Time{}, rule), []rules.Rule{after}))(t)
}

func TestARuleThatEndedLongAgoIsRemovedAndCanBeBroughtBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	old := w.temporary(t, w.ours.ID, 4, now.Add(-time.Hour))
	ended, edited, tried, later := old[0], old[1], old[2], old[3]
	w.prolong(t, later)
	live := w.ours.user
	live.ExpiresAt = now.Add(time.Hour)
	must(w.UpdateRule(ctx, live))(t)
	exec(t, w.url,
		fmt.Sprintf(
			`UPDATE rate_limit_rule SET updated_at = now() - interval '2 hours' WHERE rule_id IN (%d, %d, %d, %d)`,
			ended.ID, tried.ID, later.ID, live.ID))
	exec(t, w.url, fmt.Sprintf(`UPDATE rate_limit_rule SET candidate_for = %d WHERE rule_id = %d`, tried.ID, edited.ID))
	held := w.rulesHeld(t)

	if removed := must(w.RemoveExpiredRules(ctx, now.Add(-30*time.Minute)))(t); removed != 1 {
		t.Errorf("%d rules were removed, want the one that ended and that nothing refers to", removed)
	}
	var left []rules.RuleID
	found := must(w.RulesByID(ctx, w.ours.ID, []rules.RuleID{ended.ID, edited.ID, tried.ID, later.ID, live.ID}))(t)
	for i := range found {
		left = append(left, found[i].ID)
	}
	slices.Sort(left)
	if want := []rules.RuleID{live.ID, edited.ID, tried.ID, later.ID}; !slices.Equal(left, want) {
		t.Errorf("rules %v are left, want %v", left, want)
	}
	if now := w.rulesHeld(t); now != held-1 {
		t.Errorf("the tenant holds %d rules, want %d", now, held-1)
	}
	filter := auth.AuditFilter{ObjectKind: "rule", ObjectID: fmt.Sprint(ended.ID)}
	entries, _, err := w.Audit(ctx, w.ours.ID, filter, auth.LogCursor{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Actor.Kind != rules.ActorSystem ||
		entries[0].Actor.Act != "remove an expired rule" || entries[0].Action != auth.AuditRemove {
		t.Fatalf("the audit log has %+v", entries)
	}
	must(w.Revert(ctx, w.ours.ID, entries[0].ID, false))(t)
	if _, err := w.Rule(ctx, w.ours.ID, ended.ID); err != nil {
		t.Error(err)
	}
	if removed := must(w.RemoveExpiredRules(ctx, now.Add(-30*time.Minute)))(t); removed != 0 {
		t.Errorf("%d rules were removed, and the one that was brought back is to stay for a while", removed)
	}
}

func TestManyExpiredRulesOfATenantWaitForThoseOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().Truncate(time.Microsecond)
	other := must(w.CreateTenant(ctx, rules.Tenant{Slug: "other", Name: "Other", Settings: rules.DefaultSettings()}))(t)
	w.temporary(t, w.ours.ID, 130, now.Add(-time.Hour))
	w.temporary(t, other.ID, 2, now.Add(-time.Minute))
	before := time.Now().Add(time.Minute) // after the last of them was made
	for round, want := range []int{102, 30, 0} {
		if removed := must(w.RemoveExpiredRules(ctx, before))(t); removed != want {
			t.Errorf("round %d removes %d rules, want %d", round, removed, want)
		}
	}
}

func TestAChangeThatIsScheduledWhileItsExpiredRuleIsRemovedIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().Truncate(time.Microsecond)
	both := w.temporary(t, w.ours.ID, 2, now.Add(-time.Hour))
	kept, lost := both[0], both[1]
	before := time.Now().Add(time.Minute)
	change := w.prolong(t, kept)
	for _, test := range []struct {
		rule    rules.Rule
		removed bool
	}{{kept, false}, {lost, true}} {
		if removed := must(w.RemoveExpiredRule(ctx, w.ours.ID, test.rule.ID, before))(t); removed != test.removed {
			t.Errorf("rule %d is removed: %v, want %v", test.rule.ID, removed, test.removed)
		}
	}
	w.runScheduled(t, monday)
	if got := must(w.ScheduledChange(ctx, w.ours.ID, change.ID))(t); got.State != rules.ScheduledDone {
		t.Errorf("the change is %s: %s", got.State, got.Failure)
	}
	if got := must(w.Rule(ctx, w.ours.ID, kept.ID))(t); !got.ExpiresAt.IsZero() {
		t.Errorf("the rule ends at %s", got.ExpiresAt)
	}

	_, err := w.Schedule(ctx, scheduled(time.Time{}, lost), withBurst(20, lost))
	var wrong ruleset.RuleChangeErrors
	if !errors.As(err, &wrong) || !errors.Is(wrong[0], rules.ErrNotFound) {
		t.Errorf("a change of the removed rule: %v", err)
	}
}

func TestACandidateMadeDuringTheRemovalOfAnExpiredRuleKeepsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	old := w.temporary(t, w.ours.ID, 2, now.Add(-time.Hour))
	ended, candidate := old[0], old[1]
	exec(t, w.url, "UPDATE rate_limit_rule SET updated_at = now() - interval '2 hours' WHERE rule_id = $1", ended.ID)
	writing := must(connect(t, w.url).Begin(ctx))(t)
	must(writing.Exec(ctx, "SELECT FROM tenant WHERE tenant_id = $1 FOR NO KEY UPDATE", w.ours.ID))(t)
	must(writing.Exec(ctx, "UPDATE rate_limit_rule SET candidate_for = $1 WHERE rule_id = $2", ended.ID,
		candidate.ID))(t)
	type result struct {
		removed int
		err     error
	}
	ends := make(chan result, 1)
	go func() {
		removed, err := w.RemoveExpiredRules(ctx, now.Add(-30*time.Minute))
		ends <- result{removed, err}
	}()
	watching := connect(t, w.url)
	for held := 0; held == 0 && len(ends) == 0; {
		const query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type " +
			"= 'Lock'"
		if err := watching.QueryRow(ctx, query).Scan(&held); err != nil {
			t.Fatal(err)
		}
	}
	if len(ends) > 0 {
		t.Error("the removal did not wait for the write")
	}
	if err := writing.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if got := <-ends; got.removed != 0 || got.err != nil {
		t.Errorf("%d rules were removed, want none: %v", got.removed, got.err)
	}
	must(w.Rule(ctx, w.ours.ID, ended.ID))(t)
}
