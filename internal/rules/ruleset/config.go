package ruleset

import (
	"cmp"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Config is a tenant's plans, rules, overrides and gateways by name, without ids, revisions or times.
type Config struct {
	Plans     []rules.Plan
	Rules     []rules.Rule
	Overrides []ConfigOverride
	Gateways  []rules.Gateway
}

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
		if o.RemovedAt.IsZero() && !expired(&o.Override, now) {
			present.Overrides = append(present.Overrides, o)
		}
	}
	present.Gateways = c.Gateways
	return present
}

// ConfigOverride is an override that refers to its rule by name.
type ConfigOverride struct {
	Rule rules.RuleIdentity
	rules.Override
}

// OverrideIdentity identifies an override within its tenant.
type OverrideIdentity struct {
	Rule   rules.RuleIdentity
	UserID string
}

// Identity returns the override's identity.
func (o *ConfigOverride) Identity() OverrideIdentity {
	return OverrideIdentity{Rule: o.Rule, UserID: o.UserID}
}

// Compare orders overrides by rule and user.
func (id OverrideIdentity) Compare(other OverrideIdentity) int {
	return cmp.Or(id.Rule.Compare(other.Rule), cmp.Compare(id.UserID, other.UserID))
}

func (id OverrideIdentity) String() string {
	return "user " + rules.Visible(id.UserID) + " of rule " + id.Rule.String()
}

func expired(o *rules.Override, now time.Time) bool {
	return !o.ExpiresAt.IsZero() && !o.ExpiresAt.After(now)
}
