package ruleset

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluicegate/sluice/internal/rules"
)

// Decode reads a file, whose name is for errors; its rules may name the tenant's existing plans too.
//
// Mistakes in the file are returned as Errors. Diff finds the rest: an override may be expired, and one whose rule is
// not in the file may not fit it.
func Decode(r io.Reader, file string, plans []string) (Config, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return Config{}, fmt.Errorf("reading %s: %w", file, err)
	}
	d := decoder{file: file, plans: map[string]bool{}, seen: map[any]position{}}
	for _, name := range plans {
		d.plans[name] = true
	}
	if root := d.parse(data); root != nil {
		d.decode(root)
	}
	if len(d.errs) > 0 {
		slices.SortStableFunc(d.errs, func(a, b Error) int { return a.Line - b.Line })
		return Config{}, d.errs
	}
	return d.config, nil
}

type decoder struct {
	file   string
	plans  map[string]bool  // of the database and the file
	seen   map[any]position // position of each row, by its identity
	config Config
	errs   Errors
}

type position struct {
	line int
	path string
}

func (d *decoder) decode(root *yaml.Node) {
	top := d.object(root, "", "plans", "rules", "overrides", "gateways")
	if node := top.get("gateways", false); node != nil {
		d.gateways(node)
	}
	plans, limits, overrides := top.list("plans"), top.list("rules"), top.list("overrides")
	for i, node := range upTo(d, plans) {
		d.plan(d.object(node, at("plans", i), "name", "description"))
	}
	for i, node := range upTo(d, limits) {
		d.rule(d.object(node, at("rules", i), ruleFieldNames...))
	}
	known := make(map[rules.RuleIdentity]*rules.Rule, len(d.config.Rules))
	for i := range d.config.Rules {
		known[d.config.Rules[i].Identity()] = &d.config.Rules[i]
	}
	for i, node := range upTo(d, overrides) {
		d.override(known, d.object(node, at("overrides", i), "rule", "user_id", "rate", "rate_per_second", "rate_unit",
			"burst_capacity",
			"reason", "expires_at"))
	}
}

var ruleFieldNames = append([]string{"key_pattern", "name", "plan", "rate"}, namesOf(new(rules.Fields))...)

// upTo ends at maxErrors.
func upTo(d *decoder, list []*yaml.Node) iter.Seq2[int, *yaml.Node] {
	return func(yield func(int, *yaml.Node) bool) {
		for i, node := range list {
			if d.isFull() || !yield(i, node) {
				return
			}
		}
	}
}

func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

func (d *decoder) plan(o *object) {
	plan := rules.Plan{Name: o.required("name"), Description: o.text("description", "")}
	o.check(plan.Validate())
	o.unique("name", plan.Name)
	d.plans[plan.Name] = true
	d.config.Plans = append(d.config.Plans, plan)
}

func (d *decoder) rule(o *object) {
	rule := rules.Standard()
	rule.Pattern, rule.Name, rule.Plan = o.pattern(), o.text("name", ""), o.plan()
	fields := rule.Fields()
	o.read(&fields, limitFields...)
	limits := fields.Action == rules.ActionLimit
	fields.RatePerSecond, fields.RateUnit = o.anyRate(limits && fields.Algorithm.HasRate())
	fields.BurstCapacity = o.burst(limits)
	if fields.FailureMode != nil && *fields.FailureMode == "" {
		o.fail("failure_mode", "must not be empty: leave it out for the tenant's own")
	}
	o.check(rule.SetFields(&fields))
	rule.NameByMeter()
	o.check(rule.Validate(d.plans))
	o.unique("key_pattern", rule.Identity())
	d.config.Rules = append(d.config.Rules, rule)
}

func (d *decoder) override(known map[rules.RuleIdentity]*rules.Rule, o *object) {
	rule := &rules.Rule{Action: rules.ActionLimit}
	if node := o.get("rule", true); node != nil {
		reference := d.object(node, o.path+".rule", "key_pattern", "name", "plan")
		rule.Pattern, rule.Name, rule.Plan = reference.pattern(), reference.text("name", ""), reference.plan()
		if rule.Plan != "" && !d.plans[rule.Plan] {
			reference.fail("plan", fmt.Sprintf("must be a plan of the tenant, and %q is none", rule.Plan))
		}
		if len(reference.wrong) > 0 {
			o.wrong["rule"] = true
		}
	}
	needsRate := o.wrong["rule"]
	if inFile := known[rule.Identity()]; inFile != nil {
		rule, needsRate = inFile, inFile.Algorithm.HasRate()
	} else if rule.Algorithm = rules.FixedWindow; needsRate || o.has("rate") || o.has("rate_per_second") {
		rule.Algorithm = rules.TokenBucket // Diff knows the rule, and refuses a rate that does not belong
	}
	override := ConfigOverride{Rule: rule.Identity(), Override: rules.Override{
		UserID:    o.required("user_id"),
		Reason:    o.required("reason"),
		ExpiresAt: o.time("expires_at"),
	}}
	override.RatePerSecond, override.RateUnit = o.anyRate(needsRate)
	override.Burst = o.burst(true)
	// A file must not become invalid with time, so a past expiry is valid.
	o.check(override.Validate(rule, time.Time{}))
	if !o.wrong["rule"] {
		o.unique("user_id", override.Identity())
	}
	d.config.Overrides = append(d.config.Overrides, override)
}
