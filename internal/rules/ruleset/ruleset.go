// Package ruleset handles a tenant's whole [Config]: Decode and Encode read and write YAML, and [Diff] compares two.
//
//	plans:
//	  - name: free
//	rules:
//	  - key_pattern: user:{user_id}
//	    name: daily
//	    plan: free
//	    rate: 1000/day
//	    burst_capacity: 50
//	overrides:
//	  - rule: {key_pattern: "user:{user_id}", plan: free, name: daily}
//	    user_id: "42"
//	    rate: 100/second
//	    burst_capacity: 500
//	    reason: migration week
//	    expires_at: 2027-01-31T00:00:00Z
//	gateways:
//	  authorize: # as gateway.Authorize says
//	    user: {header: X-Api-Key}
//
// Every section is optional. A rule needs a key_pattern and, if it limits, a rate and burst_capacity. An override
// refers to a rule in the file or in the database. docs/algorithms.md says which fields each algorithm has.
//
// Reading is strict, because a limit that silently differs from the file is worse than none. All errors are reported
// together, each with its line and field.
//
// Decode reads back exactly what Encode wrote.
package ruleset

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/sluicegate/sluice/internal/rules"
)

// maxSize is in bytes: about a hundred thousand rules.
const maxSize = 10 << 20

// maxValues bounds lines, commas and opening brackets, and thereby the parser's memory.
const maxValues = 1_000_000

const maxErrors = 20

type (
	file struct {
		Plans     []filePlan                `yaml:"plans"`
		Rules     []*yaml.Node              `yaml:"rules"`
		Overrides []fileOverride            `yaml:"overrides,omitempty"`
		Gateways  map[rules.GatewayKind]any `yaml:"gateways,omitempty"`
	}
	filePlan struct {
		Name        string   `yaml:"name"`
		Description freeText `yaml:"description,omitempty"`
	}
	fileOverride struct {
		Rule      fileIdentity `yaml:"rule,flow"`
		UserID    freeText     `yaml:"user_id"`
		fileLimit `yaml:",inline"`
		Reason    freeText   `yaml:"reason"`
		ExpiresAt *time.Time `yaml:"expires_at,omitempty"`
	}
	fileIdentity struct {
		KeyPattern freeText `yaml:"key_pattern"`
		Name       string   `yaml:"name,omitempty"`
		Plan       string   `yaml:"plan,omitempty"`
	}
	fileLimit struct {
		Rate          string         `yaml:"rate,omitempty"`
		RatePerSecond float64        `yaml:"rate_per_second,omitempty"`
		RateUnit      rules.RateUnit `yaml:"rate_unit,omitempty"`
		BurstCapacity int64          `yaml:"burst_capacity,omitempty"`
	}
)

// Encode writes a valid configuration, without the overrides that Decode would refuse because their rule has no limit.
func Encode(w io.Writer, config Config) error {
	out := file{Plans: []filePlan{}, Rules: []*yaml.Node{}}
	limits := make(map[rules.RuleIdentity]*rules.Rule, len(config.Rules))
	for _, p := range slices.SortedFunc(slices.Values(config.Plans), func(a, b rules.Plan) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Name, b.Name))
	}) {
		out.Plans = append(out.Plans, filePlan{p.Name, freeText(p.Description)})
	}
	for _, r := range slices.SortedFunc(slices.Values(config.Rules), func(a, b rules.Rule) int {
		return a.Identity().Compare(b.Identity())
	}) {
		node, err := encodeRule(&r)
		if err != nil {
			return fmt.Errorf("writing rule %s: %w", r.Identity(), err)
		}
		out.Rules = append(out.Rules, node)
		limits[r.Identity()] = &r
	}
	for _, o := range slices.SortedFunc(slices.Values(config.Overrides), func(a, b ConfigOverride) int {
		return a.Identity().Compare(b.Identity())
	}) {
		rule := limits[o.Rule]
		if rule != nil && rule.Action != rules.ActionLimit {
			continue
		}
		if rule != nil { // an override that is older than the rule's algorithm is written as it acts now
			limit := rule.Limit().Overridden(o.RatePerSecond, o.Burst, 0)
			o.RatePerSecond, o.Burst = limit.Rate, limit.Burst
		}
		out.Overrides = append(out.Overrides, encodeOverride(o))
	}
	var err error
	if out.Gateways, err = encodeGateways(config.Gateways); err != nil {
		return err
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(out); err != nil {
		return fmt.Errorf("writing rules as YAML: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return fmt.Errorf("writing rules as YAML: %w", err)
	}
	return nil
}

func encodeRule(r *rules.Rule) (*yaml.Node, error) {
	rule := new(yaml.Node)
	if err := rule.Encode(struct {
		fileIdentity `yaml:",inline"`
		fileLimit    `yaml:",inline"`
	}{encodeIdentity(r.Identity()), encodeLimit(r.RatePerSecond, r.RateUnit, r.Burst)}); err != nil {
		return nil, err
	}
	fields := r.Fields()
	for name, value := range fields.Chosen() {
		if slices.Contains(limitFields, name) {
			continue
		}
		key, node := new(yaml.Node), new(yaml.Node)
		key.SetString(name)
		if err := encodeField(node, reflect.ValueOf(value)); err != nil {
			return nil, err
		}
		rule.Content = append(rule.Content, key, node)
	}
	return rule, nil
}

func encodeField(node *yaml.Node, value reflect.Value) error {
	value = reflect.Indirect(value)
	var err error
	switch at, isTime := value.Interface().(time.Time); {
	case isTime:
		err = node.Encode(at)
	case value.Kind() == reflect.String:
		err = node.Encode(freeText(value.String()))
	case value.Kind() == reflect.Struct:
		*node = yaml.Node{Kind: yaml.MappingNode}
		inner := reflect.New(value.Type())
		inner.Elem().Set(value)
		for name, field := range rules.Named(inner.Interface()) {
			if field.Kind() == reflect.Pointer && field.IsNil() {
				continue
			}
			key, part := new(yaml.Node), new(yaml.Node)
			key.SetString(name)
			err = errors.Join(err, encodeField(part, field))
			node.Content = append(node.Content, key, part)
		}
	default:
		err = node.Encode(value.Interface())
	}
	if node.Kind != yaml.ScalarNode {
		node.Style |= yaml.FlowStyle
	}
	return err
}

func encodeOverride(o ConfigOverride) fileOverride {
	out := fileOverride{
		Rule:      encodeIdentity(o.Rule),
		UserID:    freeText(o.UserID),
		fileLimit: encodeLimit(o.RatePerSecond, o.RateUnit, o.Burst),
		Reason:    freeText(o.Reason),
	}
	if !o.ExpiresAt.IsZero() {
		expiry := o.ExpiresAt.UTC()
		out.ExpiresAt = &expiry
	}
	return out
}

func encodeIdentity(id rules.RuleIdentity) fileIdentity {
	return fileIdentity{KeyPattern: freeText(id.Pattern), Name: id.Name, Plan: id.Plan}
}

var limitFields = []string{"rate_per_second", "rate_unit", "burst_capacity"}

func encodeLimit(perSecond float64, unit rules.RateUnit, burst int64) fileLimit {
	if perSecond == 0 { // the rule has no rate
		return fileLimit{RateUnit: unless(rules.PerSecond, unit), BurstCapacity: burst}
	}
	rate := rules.FormatRate(perSecond, unit)
	if _, shown, err := rules.ParseRate(rate); err != nil || shown != unit {
		return fileLimit{RatePerSecond: perSecond, RateUnit: unit, BurstCapacity: burst}
	}
	return fileLimit{Rate: rate, BurstCapacity: burst}
}

func unless[T comparable](standard, value T) T {
	if value == standard {
		var none T
		return none
	}
	return value
}

type freeText string

// MarshalYAML double-quotes texts that the library writes so that it cannot read them back: "\t\n" becomes a block of
// one tab, which is then read as indentation.
func (t freeText) MarshalYAML() (any, error) {
	for _, line := range strings.Split(string(t), "\n") {
		if strings.HasPrefix(line, " ") ||
			strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: string(t)}, nil
		}
	}
	return string(t), nil
}
