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
	// Config returns all but expired overrides, sorted by identity.
	Config(ctx context.Context, tenant rules.TenantID) (Config, error)
	// RequireKnown returns the rules.UnknownToProcessError of a write, for dry runs.
	RequireKnown(ctx context.Context, all []rules.Rule) error
}

// RuleChange is one of several changes made at once.
type RuleChange struct {
	// Remove removes the rule with Rule.ID; otherwise a rule without an ID is created.
	Remove   bool
	Rule     rules.Rule
	Expected rules.Expected
}

// RuleChanged is a change that was made.
type RuleChanged struct {
	Change[rules.Rule]
	// Sorted users whose unexpired overrides of a removed rule moved to other rules, or were removed.
	OverridesMoved, OverridesRemoved []string
}

// RuleChangeErrors are the errors of single changes, by index.
type RuleChangeErrors map[int]error

func (e RuleChangeErrors) Error() string {
	first := slices.Min(slices.Collect(maps.Keys(e)))
	return fmt.Sprintf("change %d: %v (%d of them cannot be made)", first, e[first], len(e))
}
