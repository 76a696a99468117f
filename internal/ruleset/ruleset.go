// Package ruleset handles all plans, rules and overrides of a tenant together, as a [Config]: Decode reads one
// from a YAML file and Encode writes it, [Diff] compares two, a [Store] applies the [Changes], and Changes print
// themselves for people.
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
// Each of the sections can be left out. A plan has a name and may have a description. A rule
// needs its key_pattern, and if it limits its rate and burst_capacity; what else is left out is: no
// name, all plans, mode enforce, action limit, algorithm token_bucket, the tenant's failure_mode,
// lease auto, is_active true, no description. A rate is written as rate, with its unit, or as rate_per_second,
// with rate_unit beside it if it is to be shown in another unit than seconds. An override names
// its rule by pattern, plan and name; the rule is in the file or already in the database.
//
// Limits of other algorithms than token_bucket have other fields: leaky_bucket a rate and burst_capacity; fixed_window,
// sliding_window and sliding_window_log a window (30s, 5m, 24h; a fixed_window also day, week or month, with
// window_zone and window_start_day) and burst_capacity; concurrency a burst_capacity and max_hold. A token_bucket may
// have a refill_interval, and a fixed_window notify_at, a list of percents. Without a rate, overrides have none either. Limits
// with a rate may have adapt: {backend: search, floor_percent: 20, p99_ms: 300, error_percent: 1}.
//
// Reading is strict, because a limit that is silently not what was written is worse than none: a
// field that does not exist or is given twice, a value of another type (42 for "42", null), an
// anchor or alias, a second document and a file above maxSize or maxValues are errors. The first
// maxErrors of a file are reported at once, each with its line and field.
//
// A file that Encode wrote is read back by Decode as the same configuration.
package ruleset

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/sluicegate/sluice/internal/rules"
)

// maxSize is the size of the largest file that is read, in bytes: about a hundred thousand rules.
const maxSize = 10 << 20

// maxValues is how many lines, commas and opening brackets a file may have, so that what is made of it in
// memory is bounded too.
const maxValues = 1_000_000

// maxErrors is how many errors of a file are reported.
const maxErrors = 20

// The file as it is written. What most rows have is left out.
type (
	file struct {
		Plans     []filePlan                `yaml:"plans"`
		Rules     []fileRule                `yaml:"rules"`
		Overrides []fileOverride            `yaml:"overrides,omitempty"`
		Gateways  map[rules.GatewayKind]any `yaml:"gateways,omitempty"`
	}
	filePlan struct {
		Name        string   `yaml:"name"`
		Description freeText `yaml:"description,omitempty"`
	}
	fileRule struct {
		fileIdentity `yaml:",inline"`
		fileLimit    `yaml:",inline"`
		Algorithm    rules.Algorithm `yaml:"algorithm,omitempty"`
		fileShape    `yaml:",inline"`
		Mode         rules.Mode        `yaml:"mode,omitempty"`
		Action       rules.Action      `yaml:"action,omitempty"`
		FailureMode  rules.FailureMode `yaml:"failure_mode,omitempty"`
		Lease        rules.Lease       `yaml:"lease,omitempty"`
		IsActive     *bool             `yaml:"is_active,omitempty"`
		ExpiresAt    *time.Time        `yaml:"expires_at,omitempty"`
		Description  freeText          `yaml:"description,omitempty"`
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

// Encode writes a valid configuration in the order of what names its rows. It leaves out overrides
// of rules that have since become a block or a bypass: they have nothing to say, and Decode would
// rightly refuse them.
func Encode(w io.Writer, config Config) error {
	out := file{Plans: []filePlan{}, Rules: []fileRule{}}
	limits := make(map[rules.RuleIdentity]*rules.Rule, len(config.Rules))
	for _, p := range config.Plans {
		out.Plans = append(out.Plans, filePlan{p.Name, freeText(p.Description)})
	}
	slices.SortFunc(out.Plans, func(a, b filePlan) int { return cmp.Compare(a.Name, b.Name) })
	for _, r := range slices.SortedFunc(slices.Values(config.Rules), func(a, b rules.Rule) int {
		return a.Identity().Compare(b.Identity())
	}) {
		out.Rules = append(out.Rules, encodeRule(r))
		limits[r.Identity()] = &r
	}
	for _, o := range slices.SortedFunc(slices.Values(config.Overrides), func(a, b ConfigOverride) int {
		return a.Identity().Compare(b.Identity())
	}) {
		rule := limits[o.Rule]
		if rule != nil && rule.Action != rules.ActionLimit {
			continue
		}
		if rule != nil { // an override older than the rule's algorithm is written as what it does now
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

func encodeRule(r rules.Rule) fileRule {
	out := fileRule{
		fileIdentity: encodeIdentity(r.Identity()),
		fileLimit:    encodeLimit(r.RatePerSecond, r.RateUnit, r.Burst),
		Algorithm:    unless(rules.TokenBucket, r.Algorithm),
		fileShape:    encodeShape(&r),
		Mode:         unless(rules.ModeEnforce, r.Mode),
		Action:       unless(rules.ActionLimit, r.Action),
		FailureMode:  r.FailureMode,
		Lease:        unless(rules.LeaseAuto, r.Lease()),
		Description:  freeText(r.Description),
	}
	if !r.Active {
		out.IsActive = &r.Active
	}
	if !r.ExpiresAt.IsZero() {
		expiry := r.ExpiresAt.UTC()
		out.ExpiresAt = &expiry
	}
	return out
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

// encodeLimit writes a rate as people say it, unless no number in its unit is exactly that rate.
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

// unless returns the zero value, which is not written, for what is the default.
func unless[T comparable](standard, value T) T {
	if value == standard {
		var none T
		return none
	}
	return value
}

// freeText is text in which everything but NUL may stand.
type freeText string

// MarshalYAML puts a text into double quotes, with escapes, unless all of it is visible and no line
// begins with a space. The library would write some such texts in forms that it does not read
// back: "\t\n" becomes a block of one tab, which it then takes for indentation.
func (t freeText) MarshalYAML() (any, error) {
	for _, line := range strings.Split(string(t), "\n") {
		if strings.HasPrefix(line, " ") || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: string(t)}, nil
		}
	}
	return string(t), nil
}
