package ruleset

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

// Reader reads a tenant's configuration.
type Reader interface {
	// Config returns the tenant's plans, rules, unexpired overrides and gateways, sorted by identity.
	Config(ctx context.Context, tenant rules.TenantID) (Config, error)
	// RequireKnown returns the rules.UnknownToProcessError of a write of the rules, or nil, for dry runs.
	RequireKnown(ctx context.Context, all []rules.Rule) error
}

// RuleChange is one of several changes made at once.
type RuleChange struct {
	// Remove removes the rule with Rule.ID. Otherwise the rule is created, if its ID is 0, or updated.
	Remove bool
	Rule   rules.Rule
	// Expected applies to updates and removals.
	Expected rules.Expected
}

// RuleChanged is a change that was made.
type RuleChanged struct {
	Change[rules.Rule]
	// The users whose overrides of a removed rule moved to other rules or were removed, sorted. Expired overrides do
	// not count.
	OverridesMoved, OverridesRemoved []string
}

// RuleChangeErrors are the errors of single changes, by index.
type RuleChangeErrors map[int]error

// Error names the first.
func (e RuleChangeErrors) Error() string {
	first := slices.Min(slices.Collect(maps.Keys(e)))
	return fmt.Sprintf("change %d: %v (%d of them cannot be made)", first, e[first], len(e))
}
