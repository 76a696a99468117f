package pgstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// temporary creates rules of a tenant that end at a time.
func (w *world) temporary(t *testing.T, tenant rules.TenantID, number int, ends time.Time) (made []rules.Rule) {
	t.Helper()
	for i := range number {
		pattern := must(rules.ParsePattern(fmt.Sprintf("ip:203.0.113.%d", i)))(t)
		made = append(made, must(w.CreateRule(t.Context(), rules.Rule{
			TenantID: tenant, Name: "temporary", Pattern: pattern, Action: rules.ActionBlock, Mode: rules.ModeEnforce, Algorithm: rules.TokenBucket,
			RateUnit: rules.PerSecond, Active: true, ExpiresAt: ends,
		}))(t))
	}
	return made
}

// rulesHeld returns how many rules count in our tenant's quota.
func (w *world) rulesHeld(t *testing.T) int64 {
	t.Helper()
	of := must(w.Quotas(t.Context(), w.ours.ID))(t).Of
	return of[slices.IndexFunc(of, func(q rules.Quota) bool { return q.Thing == rules.ThingRules })].Held
}

func TestARuleThatEndedLongAgoIsRemovedAndCanBeBroughtBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	old := w.temporary(t, w.ours.ID, 4, now.Add(-time.Hour))
	ended, edited, tried, scheduled := old[0], old[1], old[2], old[3]
	change := rules.ScheduledChange{TenantID: w.ours.ID, RuleID: scheduled.ID, Patch: []byte(`{}`), StartsAt: monday}
	scheduled.ExpiresAt = time.Time{}
	must(w.Schedule(ctx, change, scheduled))(t)
	live := w.ours.user
	live.ExpiresAt = now.Add(time.Hour)
	must(w.UpdateRule(ctx, live))(t)
	exec(t, w.url, fmt.Sprintf(`UPDATE rate_limit_rule SET updated_at = now() - interval '2 hours' WHERE rule_id IN (%d, %d, %d, %d)`,
		ended.ID, tried.ID, scheduled.ID, live.ID))
	exec(t, w.url, fmt.Sprintf(`UPDATE rate_limit_rule SET candidate_for = %d WHERE rule_id = %d`, tried.ID, edited.ID))
	held := w.rulesHeld(t)

	if removed := must(w.RemoveExpiredRules(ctx, now.Add(-30*time.Minute)))(t); removed != 1 {
		t.Errorf("%d rules were removed, want the one that ended and that nothing refers to", removed)
	}
	var left []rules.RuleID
	found := must(w.RulesByID(ctx, w.ours.ID, []rules.RuleID{ended.ID, edited.ID, tried.ID, scheduled.ID, live.ID}))(t)
	for i := range found {
		left = append(left, found[i].ID)
	}
	slices.Sort(left)
	if want := []rules.RuleID{live.ID, edited.ID, tried.ID, scheduled.ID}; !slices.Equal(left, want) {
		t.Errorf("rules %v are left, want %v", left, want)
	}
	if now := w.rulesHeld(t); now != held-1 {
		t.Errorf("the tenant holds %d rules, want %d", now, held-1)
	}
	filter := auth.AuditFilter{ObjectKind: "rule", ObjectID: fmt.Sprint(ended.ID)}
	entries, _, err := w.Audit(ctx, w.ours.ID, filter, auth.AuditCursor{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Actor.Kind != rules.ActorSystem || entries[0].Actor.Act != "remove an expired rule" || entries[0].Action != auth.AuditRemove {
		t.Fatalf("the audit log has %+v", entries)
	}
	must(w.Revert(ctx, w.ours.ID, entries[0].ID))(t)
	if _, err := w.Rule(ctx, w.ours.ID, ended.ID); err != nil {
		t.Error(err)
	}
	if removed := must(w.RemoveExpiredRules(ctx, now.Add(-30*time.Minute)))(t); removed != 0 {
		t.Errorf("%d rules were removed, and the one that was brought back is to stay for a while", removed)
	}
}

// TestManyExpiredRulesOfATenantWaitForThoseOfOthers: a round removes some of each tenant's.
func TestManyExpiredRulesOfATenantWaitForThoseOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now()
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
