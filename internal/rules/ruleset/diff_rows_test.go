package ruleset

import (
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestChangedRowsSayWhatDiffers(t *testing.T) {
	t.Parallel()
	pattern := must(rules.ParsePattern("user:{user_id}"))(t)
	rule := rules.Rule{
		Pattern: pattern, Plan: "free", RatePerSecond: 10, RateUnit: rules.PerSecond, Burst: 50,
		Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true,
	}
	faster := rule
	faster.RatePerSecond = 20
	gone := rule
	gone.Name = "gone"
	plan := rules.Plan{Name: "free"}
	current := Config{Plans: []rules.Plan{plan}, Rules: []rules.Rule{rule, gone}}
	desired := Config{Plans: []rules.Plan{plan, {Name: "pro", Description: "paying"}}, Rules: []rules.Rule{faster}}
	changes := must(Diff(current, desired, DiffOptions{Prune: true, Now: time.Now()}))(t)
	rows := changes.Rows()
	if len(rows.Plans) != 1 || !rows.Plans[0].IsNew || rows.Plans[0].Label != "pro" ||
		!slices.Equal(rows.Plans[0].Fields, []ChangedField{{"description", "", `"paying"`}}) {
		t.Errorf("plans: %+v", rows.Plans)
	}
	if len(rows.Rules) != 2 || rows.Rules[0].Label != "user:{user_id} [free]" || rows.Rules[0].IsNew ||
		rows.Rules[0].IsGone ||
		!slices.Equal(rows.Rules[0].Fields, []ChangedField{{"rate", "10 per second", "20 per second"}}) {
		t.Errorf("the changed rule: %+v", rows.Rules)
	}
	told := slices.DeleteFunc(ruleFields(&rule), func(f field) bool { return f.value == none })
	if len(rows.Rules) == 2 && (!rows.Rules[1].IsGone || len(rows.Rules[1].Fields) != len(told) ||
		rows.Rules[1].Fields[0].After != "") {
		t.Errorf("the removed rule: %+v", rows.Rules[1])
	}
	if len(rows.Overrides) != 0 {
		t.Errorf("overrides: %+v", rows.Overrides)
	}
}
