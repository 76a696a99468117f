package ruleset

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Change is a difference; an addition has no Before, a removal no After.
type Change[T any] struct{ Before, After *T }

// Changes lead from one configuration to another, sorted by identity. A store writes plans, then rules, then overrides,
// and removes in the opposite order.
type Changes struct {
	Plans     []Change[rules.Plan]
	Rules     []Change[rules.Rule]
	Overrides []Change[ConfigOverride]
	Gateways  []Change[rules.Gateway]

	// Kept are the rows that only the current configuration has and that stay.
	Kept Config
	// Expired are desired overrides that are left out.
	Expired []ConfigOverride
}

// Written returns the added and changed rules.
func (c Changes) Written() []rules.Rule {
	var written []rules.Rule
	for i := range c.Rules {
		if c.Rules[i].After != nil {
			written = append(written, *c.Rules[i].After)
		}
	}
	return written
}

// Empty reports whether nothing changes.
func (c Changes) Empty() bool {
	return len(c.Plans)+len(c.Rules)+len(c.Overrides)+len(c.Gateways) == 0
}

// DiffOptions are the options of Diff.
type DiffOptions struct {
	// Prune removes rows that the desired configuration lacks, but no overrides of a rule that blocks or bypasses,
	// which no configuration can contain.
	Prune bool
	// Now decides which overrides have expired, which count as absent on both sides, so that a file can be applied
	// again.
	Now time.Time
}

// Diff returns the changes to the desired configuration. Rows that look equal to people are left out, so that applying
// a configuration twice changes nothing; a rate in another unit looks different.
//
// The error lists every broken reference, meter change and exceeded bound.
func Diff(current, desired Config, opts DiffOptions) (Changes, error) {
	var changes Changes
	for _, o := range desired.Overrides {
		if expired(&o.Override, opts.Now) {
			changes.Expired = append(changes.Expired, o)
		}
	}
	current, desired = current.present(opts.Now), desired.present(opts.Now)

	for i := range desired.Plans { // new plans stand in the order of the file
		desired.Plans[i].Position = float64(i + 1)
	}
	rests := map[rules.RuleIdentity]bool{}
	for i := range desired.Rules {
		rests[desired.Rules[i].Identity()] = desired.Rules[i].Action != rules.ActionLimit
	}
	changes.Plans, changes.Kept.Plans = planRows.diff(current.Plans, desired.Plans, always[rules.Plan](opts.Prune))
	changes.Rules, changes.Kept.Rules = ruleRows.diff(current.Rules, desired.Rules, always[rules.Rule](opts.Prune))
	changes.Overrides, changes.Kept.Overrides = overrideRows.diff(current.Overrides, desired.Overrides,
		func(o *ConfigOverride) bool { return opts.Prune && !rests[o.Rule] })
	changes.Gateways, changes.Kept.Gateways = gatewayRows.diff(current.Gateways, desired.Gateways,
		always[rules.Gateway](opts.Prune))
	return changes, errors.Join(checkMeters(changes.Rules), checkReferences(current, Config{
		Plans: slices.Concat(desired.Plans, changes.Kept.Plans),
		Rules: slices.Concat(desired.Rules, changes.Kept.Rules),
		// A kept override must not prevent its rule from becoming a block.
		Overrides: desired.Overrides,
	}))
}

func checkMeters(changes []Change[rules.Rule]) error {
	var errs []error
	for _, c := range changes {
		if c.Before == nil || c.After == nil {
			continue
		}
		if wrong := c.After.WrongMeterChange(c.Before); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("rule %s: %w", c.After.Identity(), wrong))
		}
	}
	return errors.Join(errs...)
}

// rows compares and prints rows of one kind. The same fields decide and are printed, so that every difference is shown.
type rows[T any, ID comparable] struct {
	kind     string // before an identity
	identity func(*T) ID
	compare  func(a, b ID) int
	fields   func(*T) []field
	describe func(*T) string // a new row
}

var (
	planRows = rows[rules.Plan, string]{
		"plan", func(p *rules.Plan) string { return p.Name }, strings.Compare, planFields, describePlan,
	}
	ruleRows = rows[rules.Rule, rules.RuleIdentity]{
		"rule", (*rules.Rule).Identity, rules.RuleIdentity.Compare, ruleFields, describeRule,
	}
	overrideRows = rows[ConfigOverride, OverrideIdentity]{
		"override for", (*ConfigOverride).Identity, OverrideIdentity.Compare, overrideFields, describeOverride,
	}
	gatewayRows = rows[rules.Gateway, rules.GatewayKind]{
		"gateway", func(g *rules.Gateway) rules.GatewayKind { return g.Kind }, cmp.Compare[rules.GatewayKind],
		gatewayFields, describeGateway,
	}
)

func always[T any](answer bool) func(*T) bool { return func(*T) bool { return answer } }

func (r rows[T, ID]) diff(current, desired []T, prune func(*T) bool) (changes []Change[T], kept []T) {
	before := make(map[ID]*T, len(current))
	for i := range current {
		before[r.identity(&current[i])] = &current[i]
	}
	for i := range desired {
		after := &desired[i]
		id := r.identity(after)
		existing := before[id]
		delete(before, id)
		if existing == nil || !slices.Equal(r.fields(existing), r.fields(after)) {
			changes = append(changes, Change[T]{existing, after})
		}
	}
	for _, row := range before {
		if prune(row) {
			changes = append(changes, Change[T]{Before: row})
		} else {
			kept = append(kept, *row)
		}
	}
	slices.SortFunc(changes, func(a, b Change[T]) int {
		return r.compare(r.identity(a.either()), r.identity(b.either()))
	})
	slices.SortFunc(kept, func(a, b T) int { return r.compare(r.identity(&a), r.identity(&b)) })
	return changes, kept
}

func (c Change[T]) either() *T {
	if c.After != nil {
		return c.After
	}
	return c.Before
}

func checkReferences(current, result Config) error {
	plans := planNames(result)
	had := planNames(current)
	named := make(map[rules.RuleIdentity]*rules.Rule, len(result.Rules))
	var errs []error
	for _, plan := range current.Plans {
		if plan.InUse != "" && !plans[plan.Name] {
			errs = append(errs, fmt.Errorf("plan %s cannot be removed: %s", plan.Name, plan.InUse))
		}
	}
	alike := make(map[rules.RuleIdentity]int, len(result.Rules)) // by pattern and plan
	adapting := 0
	for i := range result.Rules {
		rule := &result.Rules[i]
		if rule.Adapt.Backend != "" {
			adapting++
		}
		named[rule.Identity()] = rule
		switch {
		case rule.Plan == "" || plans[rule.Plan]:
		case had[rule.Plan]:
			errs = append(errs, fmt.Errorf("plan %s cannot be removed: rule %s uses it", rule.Plan, rule.Identity()))
		default:
			errs = append(errs, fmt.Errorf("rule %s: there is no plan %s", rule.Identity(), rule.Plan))
		}
		group := rules.RuleIdentity{Pattern: rule.Pattern.String(), Plan: rule.Plan}
		if alike[group]++; alike[group] == rules.MaxRulesPerPattern+1 { // report once
			errs = append(errs, fmt.Errorf("more than %d rules have the pattern %s", rules.MaxRulesPerPattern, group))
		}
	}
	if adapting > rules.MaxAdapting {
		errs = append(errs, fmt.Errorf("more than %d rules adapt", rules.MaxAdapting))
	}
	for i := range result.Overrides {
		override := &result.Overrides[i]
		rule := named[override.Rule]
		switch {
		case rule == nil:
			errs = append(errs, fmt.Errorf("override for %s: there is no such rule", override.Identity()))
		case rule.Action != rules.ActionLimit:
			errs = append(errs, fmt.Errorf("override for %s: a %s rule has no limit to override", override.Identity(),
				rule.Action))
		default:
			if wrong := override.Validate(rule, time.Time{}); len(wrong) > 0 {
				errs = append(errs, fmt.Errorf("override for %s: %w", override.Identity(), wrong))
			}
		}
	}
	return errors.Join(errs...)
}

func planNames(c Config) map[string]bool {
	names := make(map[string]bool, len(c.Plans))
	for _, p := range c.Plans {
		names[p.Name] = true
	}
	return names
}

type field struct{ name, value string }

func planFields(p *rules.Plan) []field {
	return []field{{"description", strconv.Quote(p.Description)}}
}

func overrideFields(o *ConfigOverride) []field {
	return []field{
		{"rate", describeRate(o.RatePerSecond, o.RateUnit)},
		{"burst", strconv.FormatInt(o.Burst, 10)},
		{"reason", strconv.Quote(o.Reason)},
		{"expires_at", describeExpiry(o.ExpiresAt)},
	}
}

func describeExpiry(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.UTC().Format(time.RFC3339Nano)
}
