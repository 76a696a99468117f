package pgstore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

// titleOf returns "user:{user_id} on pro", "12 limits of pro", "2 rules of several plans".
func titleOf(after []rules.Rule, fields [][]byte) string {
	plan := cmp.Or(after[0].Plan, "all plans")
	if len(after) == 1 {
		if name := after[0].Name; name != "" {
			return fmt.Sprintf("%s (%s) on %s", after[0].Pattern, name, plan)
		}
		return fmt.Sprintf("%s on %s", after[0].Pattern, plan)
	}
	if slices.ContainsFunc(after, func(rule rules.Rule) bool { return rule.Plan != after[0].Plan }) {
		plan = "several plans"
	}
	if slices.ContainsFunc(fields, func(one []byte) bool { return !isLimitOnly(one) }) {
		return fmt.Sprintf("%d rules of %s", len(after), plan)
	}
	return fmt.Sprintf("%d limits of %s", len(after), plan)
}

func isLimitOnly(fields []byte) bool {
	var named map[string]json.RawMessage
	if json.Unmarshal(fields, &named) != nil {
		return false
	}
	delete(named, "rate_per_second")
	delete(named, "rate_unit")
	delete(named, "burst_capacity")
	return len(named) == 0
}

func fieldsOf(rule *rules.Rule) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(rule.Fields())
	if err != nil {
		return nil, fmt.Errorf("encode rule %d: %w", rule.ID, err)
	}
	fields := map[string]json.RawMessage{}
	err = json.Unmarshal(text, &fields)
	return fields, err
}

func changedFields(before, after *rules.Rule) ([]byte, error) {
	was, err := fieldsOf(before)
	if err != nil {
		return nil, err
	}
	becomes, err := fieldsOf(after)
	if err != nil {
		return nil, err
	}
	for name, value := range was {
		if string(value) == string(becomes[name]) {
			delete(becomes, name)
		}
	}
	if len(becomes) == 0 {
		return nil, rules.FieldErrors{{Field: "change", Message: "must change something of the rule"}}
	}
	return json.Marshal(becomes)
}

func fieldsLike(rule *rules.Rule, fields []byte) ([]byte, error) {
	values, err := fieldsOf(rule)
	if err != nil {
		return nil, err
	}
	named := map[string]json.RawMessage{}
	if err := json.Unmarshal(fields, &named); err != nil {
		return nil, fmt.Errorf("read the fields of a scheduled change: %w", err)
	}
	for name := range named {
		named[name] = values[name]
	}
	return json.Marshal(named)
}

func withFields(rule *rules.Rule, fields []byte) (rules.Rule, error) {
	after := *rule
	if wrong := after.Set(fields); len(wrong) > 0 {
		return rules.Rule{}, fmt.Errorf("read the fields of a scheduled change: %w", wrong)
	}
	return after, nil
}
