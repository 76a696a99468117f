package rules

import (
	"cmp"
	"time"
)

// Config is a tenant's plans, rules and overrides as people write them down: by name, without ids,
// revisions or times.
type Config struct {
	Plans     []Plan
	Rules     []Rule
	Overrides []ConfigOverride
}

// present returns a copy without removed rows and overrides that are over.
func (c Config) present(now time.Time) Config {
	var present Config
	for _, p := range c.Plans {
		if !p.Removed {
			present.Plans = append(present.Plans, p)
		}
	}
	for _, r := range c.Rules {
		if !r.Removed {
			present.Rules = append(present.Rules, r)
		}
	}
	for _, o := range c.Overrides {
		if o.RemovedAt.IsZero() && !o.expired(now) {
			present.Overrides = append(present.Overrides, o)
		}
	}
	return present
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

// Compare orders rules by pattern, plan and name.
func (id RuleIdentity) Compare(other RuleIdentity) int {
	return cmp.Or(
		cmp.Compare(id.Pattern, other.Pattern),
		cmp.Compare(id.Plan, other.Plan),
		cmp.Compare(id.Name, other.Name),
	)
}

// String names the rule for people: user:{user_id} [free] daily.
func (id RuleIdentity) String() string {
	text := visible(id.Pattern)
	if id.Plan != "" {
		text += " [" + id.Plan + "]"
	}
	if id.Name != "" {
		text += " " + id.Name
	}
	return text
}

// ConfigOverride is an override that names its rule instead of numbering it.
type ConfigOverride struct {
	Rule RuleIdentity
	Override
}

// OverrideIdentity is what names an override within its tenant.
type OverrideIdentity struct {
	Rule   RuleIdentity
	UserID string
}

// Identity returns what names the override within its tenant.
func (o *ConfigOverride) Identity() OverrideIdentity {
	return OverrideIdentity{Rule: o.Rule, UserID: o.UserID}
}

// Compare orders overrides by rule and user.
func (id OverrideIdentity) Compare(other OverrideIdentity) int {
	return cmp.Or(id.Rule.Compare(other.Rule), cmp.Compare(id.UserID, other.UserID))
}

// String names the override for people.
func (id OverrideIdentity) String() string {
	return "user " + visible(id.UserID) + " of rule " + id.Rule.String()
}

func (o *Override) expired(now time.Time) bool {
	return !o.ExpiresAt.IsZero() && !o.ExpiresAt.After(now)
}
