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
	// Config returns the tenant's plans, rules and unexpired overrides, in the order of their names.
	Config(ctx context.Context, tenant rules.TenantID) (Config, error)
	// RequireKnown returns the error with which a write of the rules would be refused now, or nil: a rules.UnknownToProcessError, or
	// rules.FieldErrors of a rule that a tenant whose buckets are spread cannot have. It is for dry runs.
	RequireKnown(ctx context.Context, tenant rules.TenantID, all []rules.Rule) error
}

// Store changes many rows of a tenant in one write, as [rules.Store] changes one.
type Store interface {
	Reader

	// ChangeRules makes all of the changes or none; an error that concerns single ones is a
	// RuleChangeErrors. It returns what each has changed: an update that changes nothing leaves the Version
	// as it was. A dry run does all of it and takes it back; its new rules have no ID.
	//
	// If a rule for all plans is removed and rules with its pattern and name are created for plans, they get its overrides: the
	// rule of the user's plan or, if the user has none assigned, each of them. Other overrides of removed rules are removed.
	ChangeRules(ctx context.Context, tenant rules.TenantID, changes []RuleChange, dryRun bool) ([]RuleChanged, error)

	// ChangeConfig makes the changes that the function derives from the present configuration, while
	// nobody else writes. It returns them with the rows as stored; an error, also from the function,
	// leaves everything as it was.
	ChangeConfig(ctx context.Context, tenant rules.TenantID, change func(current Config) (Changes, error)) (Changes, error)
}

// RuleChange is one of several changes made at once.
type RuleChange struct {
	// Remove removes the rule with Rule.ID; else the rule is created, if its ID is 0, or updated.
	Remove bool
	Rule   rules.Rule
	// Expected is for updates and removals.
	Expected rules.Expected
}

// RuleChanged is a change that was made.
type RuleChanged struct {
	Change[rules.Rule]
	// Of a removed rule: the users whose overrides other rules got, and whose are gone, in order. Expired ones do not count.
	OverridesMoved, OverridesRemoved []string
}

// RuleChangeErrors tells what is wrong with single changes, by their index.
type RuleChangeErrors map[int]error

// Error names the first.
func (e RuleChangeErrors) Error() string {
	first := slices.Min(slices.Collect(maps.Keys(e)))
	return fmt.Sprintf("change %d: %v (%d of them cannot be made)", first, e[first], len(e))
}
