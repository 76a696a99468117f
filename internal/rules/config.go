package rules

// Config is a tenant's plans, rules and overrides as people write them down: by name, without ids,
// revisions or times.
type Config struct {
	Plans     []Plan
	Rules     []Rule
	Overrides []ConfigOverride
}

// RuleIdentity is what names a rule within its tenant.
type RuleIdentity struct {
	Pattern string // canonical text
	Plan    string // "" for all plans
	Name    string
}

// Identity returns what names the rule within its tenant.
func (r *Rule) Identity() RuleIdentity {
	return RuleIdentity{Pattern: r.Pattern.String(), Plan: r.Plan, Name: r.Name}
}

// ConfigOverride is an override that names its rule instead of numbering it.
type ConfigOverride struct {
	Rule RuleIdentity
	Override
}

// Change is one difference between two configurations: an addition has no Before, a removal no
// After.
type Change[T any] struct{ Before, After *T }

// Changes lead from one configuration to another.
type Changes struct {
	Plans     []Change[Plan]
	Rules     []Change[Rule]
	Overrides []Change[ConfigOverride]
}

// Empty says that there is nothing to do.
func (c Changes) Empty() bool {
	return len(c.Plans)+len(c.Rules)+len(c.Overrides) == 0
}
