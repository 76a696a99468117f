package pgstore_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func TestChangeConfigWritesWhatTheFunctionDerives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	ip := limit(t, 0, "ip:{ip}", "gold", "")
	user := limit(t, 0, "user:{user_id}", "", "")
	user.Burst = 60
	desired := ruleset.Config{
		Plans: []rules.Plan{
			{Name: "gold"},
			{Name: "free", Description: "for nothing"},
			{Name: "pro", Description: "for a living"},
		},
		Rules: []rules.Rule{ip, user, limit(t, 0, "user:{user_id}", "gold", "new")},
		Overrides: []ruleset.ConfigOverride{{
			Rule:     rules.RuleIdentity{Pattern: "user:{user_id}", Plan: "gold", Name: "new"},
			Override: overrideOf(rules.Rule{}, "7"),
		}},
	}
	diff := func(current ruleset.Config) (ruleset.Changes, error) {
		return ruleset.Diff(current, desired, ruleset.DiffOptions{Prune: true, Now: time.Now()})
	}
	changes := must(w.ChangeConfig(ctx, ours, diff))(t)
	for _, change := range changes.Rules {
		if rule := change.After; rule != nil && (rule.ID == 0 || rule.TenantID != ours || rule.Version == 0) {
			t.Errorf("the change to rule %s does not have it as stored", rule.Identity())
		}
	}
	if stored := must(w.Rule(ctx, ours, w.ours.user.ID))(t); stored.Burst != 60 || stored.Version != 2 {
		t.Errorf("the rule that was kept has burst %d and version %d, want 60 and 2", stored.Burst, stored.Version)
	}
	if _, err := w.Rule(ctx, ours, w.ours.daily.ID); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("the rule that was left out is still there: %v", err)
	}
	config := must(w.Config(ctx, ours))(t)
	var names []string
	for _, rule := range config.Rules {
		names = append(names, rule.Identity().String())
	}
	if want := []string{"ip:{ip} [gold]", "user:{user_id}", "user:{user_id} [gold] new"}; !slices.Equal(names, want) {
		t.Errorf("the rules are %q, want %q", names, want)
	}
	if len(config.Overrides) != 1 || config.Overrides[0].UserID != "7" {
		t.Errorf("the overrides are %+v, want that of user 7", config.Overrides)
	}
	known := w.revisions(t)
	if again := must(w.ChangeConfig(ctx, ours, diff))(t); !again.Empty() {
		t.Errorf("applying the same configuration again changes %+v", again)
	}
	if now := w.revisions(t)[ours]; now != known[ours] {
		t.Errorf("applying the same configuration again raised the revision from %d to %d", known[ours], now)
	}
}

func TestChangeConfigIsAllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	gold, pro := rules.Plan{Name: "gold"}, rules.Plan{Name: "pro"}
	rule := limit(t, 0, "ip:{ip}", "gold", "")
	wrong, taken, unplanned := rule, limit(t, 0, "user:{user_id}", "", ""), limit(t, 0, "global", "silver", "")
	wrong.RatePerSecond = 0
	refused := errors.New("refused")
	added := func(rule *rules.Rule) ruleset.Changes {
		return ruleset.Changes{
			Plans: []ruleset.Change[rules.Plan]{{After: &gold}},
			Rules: []ruleset.Change[rules.Rule]{{After: rule}},
		}
	}
	tests := map[string]struct {
		changes ruleset.Changes
		err     error
		want    string
	}{
		"the function's error":       {added(&rule), refused, "refused"},
		"a limit out of range":       {added(&wrong), nil, "rate_per_second: must be from"},
		"an identity that is taken":  {added(&taken), nil, "a rule with this pattern, plan and name exists already"},
		"a plan that does not exist": {added(&unplanned), nil, `"silver" is none`},
		"a plan with a user": {ruleset.Changes{
			Plans: []ruleset.Change[rules.Plan]{{After: &gold}, {Before: &pro}},
		}, nil, `plan "pro" is in use by 1 user`},
	}
	before := dump(t, connect(t, w.url), ours)
	for name, test := range tests {
		_, err := w.ChangeConfig(ctx, ours,
			func(ruleset.Config) (ruleset.Changes, error) { return test.changes, test.err })
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want one with %q", name, err, test.want)
		}
		if after := dump(t, connect(t, w.url), ours); after != before {
			t.Errorf("%s: something was written:\n%s\nbefore:\n%s", name, after, before)
		}
	}
}

func TestConcurrentWritersOfATenantFollowOneAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const writers = 8
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			err := rules.ErrBeingWritten // for a writer that waits too long on a slow machine
			for errors.Is(err, rules.ErrBeingWritten) {
				_, err = w.ChangeConfig(t.Context(), w.ours.ID, func(current ruleset.Config) (ruleset.Changes, error) {
					before := current.Rules[0]
					after := before
					after.Burst++ // two writers that saw the same burst would lose one of these
					return ruleset.Changes{Rules: []ruleset.Change[rules.Rule]{{Before: &before, After: &after}}}, nil
				})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	config := must(w.Config(t.Context(), w.ours.ID))(t)
	if burst := config.Rules[0].Burst; burst != 50+writers {
		t.Errorf("%d writers that add 1 to a burst of 50 made it %d", writers, burst)
	}
	tenant := must(w.Tenant(t.Context(), w.ours.ID))(t)
	if tenant.Revision != w.ours.Revision+writers || config.Rules[0].Revision != tenant.Revision {
		t.Errorf("after %d writes revision %d became %d, and the last written row has %d",
			writers, w.ours.Revision, tenant.Revision, config.Rules[0].Revision)
	}
}

func TestConfigLeavesOutExpiredOverrides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url,
		`UPDATE rate_limit_override SET in_force_since = now() - interval '2 hours', expires_at = now() - interval '1 hour'
		WHERE tenant_id = $1`, w.ours.ID)
	if config := must(w.Config(t.Context(), w.ours.ID))(t); len(config.Overrides) != 0 {
		t.Errorf("the configuration has %+v", config.Overrides)
	}
	if overrides := must(w.Overrides(t.Context(), w.ours.ID, w.ours.user.ID, "", 10))(t); len(overrides) != 1 {
		t.Errorf("people are shown %d overrides, want the expired one too", len(overrides))
	}
}
