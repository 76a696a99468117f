package ruleset

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
)

// DecodeEnvoy converts a configuration of envoyproxy/ratelimit for one domain into rules and a descriptor mapping that
// give the same answers. The mapping is the tenant's current one, with the templates of that domain replaced. lost says
// what becomes of present templates that the file lacks.
//
// Each limit becomes a fixed window. Its rule matches the domain and the descriptor's template, with one bucket for
// each list of the other values. An unlimited descriptor becomes a template without a rule.
//
// Mistakes, and what cannot be expressed, are returned as Errors.
func DecodeEnvoy(r io.Reader, file string, current []rules.Gateway, lost LostTemplates) (Config, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return Config{}, fmt.Errorf("reading %s: %w", file, err)
	}
	e := envoy{
		decoder: decoder{file: file, plans: map[string]bool{}, seen: map[any]position{}},
		mapping: new(gateway.Descriptors), lost: lost,
		named: map[string][]string{}, replaces: map[string][]string{},
	}
	for _, g := range current {
		if g.Kind == rules.GatewayDescriptors {
			if e.mapping, err = gateway.ParseDescriptors(g.Document); err != nil {
				return Config{}, fmt.Errorf("the tenant's mapping of descriptors: %w", err)
			}
		}
	}
	if root := e.parse(data); root != nil {
		e.root(root)
	}
	if len(e.errs) > 0 {
		slices.SortStableFunc(e.errs, func(a, b Error) int { return a.Line - b.Line })
		return Config{}, e.errs
	}
	return e.config, nil
}

// LostTemplates decides about templates that a domain has and a file lacks. Without its template a rule matches no
// descriptor, so its limit ends.
type LostTemplates int

// The choices.
const (
	RefuseLost  LostTemplates = iota
	MergeLost                 // keeps them
	ReplaceLost               // removes them
)

type envoy struct {
	decoder
	lost      LostTemplates
	mapping   *gateway.Descriptors
	domain    string
	templates [][]string
	named     map[string][]string // templates, by the name of their limit
	replaces  map[string][]string // names of limits, by the template whose limit replaces them
}

type entry struct {
	key, text string // text is the template's step
	split     bool   // each value has a bucket of its own
}

func (e *envoy) root(node *yaml.Node) {
	top := e.object(node, "", "domain", "descriptors")
	e.domain = top.required("domain")
	e.descriptors(top.list("descriptors"), "descriptors", nil)
	domains := map[string]gateway.Domain{}
	for name, domain := range e.mapping.Domains {
		domains[name] = domain
	}
	domains[e.domain] = e.withLost(gateway.Domain{Templates: e.templates, Replaces: e.replacedTemplates()}, node.Line)
	mapping := gateway.Descriptors{Keys: e.mapping.Keys, Domains: domains}
	for _, wrong := range mapping.Validate() {
		e.fail(node.Line, wrong.Field, wrong.Message)
	}
	e.config.Gateways = []rules.Gateway{{Kind: rules.GatewayDescriptors, Document: mapping.Document()}}
}

func (e *envoy) withLost(d gateway.Domain, line int) gateway.Domain {
	has := map[string]bool{}
	for _, template := range d.Templates {
		has[gateway.TemplateName(template)] = true
	}
	before := e.mapping.Domains[e.domain]
	var lost []string
	for _, template := range before.Templates {
		if name := gateway.TemplateName(template); !has[name] {
			lost = append(lost, name)
			if e.lost == MergeLost {
				d.Templates = append(d.Templates, template)
			}
		}
	}
	switch {
	case e.lost == MergeLost:
		replaces := maps.Clone(before.Replaces)
		if replaces == nil {
			replaces = map[string][]string{}
		}
		// The file says what its own descriptors replace.
		maps.DeleteFunc(replaces, func(name string, _ []string) bool { return has[name] })
		maps.Copy(replaces, d.Replaces)
		d.Replaces = replaces
	case e.lost == RefuseLost && len(lost) > 0:
		e.fail(line, "descriptors", fmt.Sprintf("lacks %d of the descriptors that the tenant's domain has, such as "+
			"%s, and their limits would end; import with --merge to keep them, or with --replace to remove them",
			len(lost), lost[0]))
	}
	return d
}

func (e *envoy) descriptors(list []*yaml.Node, path string, above []entry) {
	seen := map[string]bool{}
	for i, node := range upTo(&e.decoder, list) {
		o := e.object(node, at(path, i), "key", "value", "rate_limit", "descriptors", "shadow_mode", "share_threshold",
			"detailed_metric", "value_to_metric", "metadata", "quota_mode")
		key := o.required("key")
		value := ""
		if o.has("value") {
			value = o.get("value", false).Value // a number counts as text
		}
		level := entry{key: key, text: key, split: value == "" || strings.Contains(value, "*") &&
			!o.boolean("share_threshold", false)}
		switch {
		case strings.Contains(key, "="):
			o.fail("key", "cannot be expressed: it must have no =")
		case value != "":
			level.text += "=" + value
		}
		if o.boolean("share_threshold", false) && !strings.Contains(value, "*") {
			o.fail("share_threshold", "is for values with a *")
		}
		if o.boolean("quota_mode", false) {
			o.fail("quota_mode", "cannot be expressed; leave it out")
		}
		if seen[level.text] {
			o.fail("key", "stands here a second time with this value")
		}
		seen[level.text] = true
		below := append(slices.Clone(above), level)
		if limit := o.get("rate_limit", false); limit != nil {
			e.limit(o, limit, below)
		} else if !o.has("descriptors") {
			// A descriptor without a limit still keeps its values from its siblings.
			e.addTemplate(below)
		}
		e.descriptors(o.list("descriptors"), at(path, i)+".descriptors", below)
	}
}

// replacedTemplates resolves names of limits to templates. A name without a limit belongs to another domain, which is
// never in the same request.
func (e *envoy) replacedTemplates() map[string][]string {
	var replaced map[string][]string
	for by, names := range e.replaces {
		var templates []string
		for _, name := range names {
			templates = append(templates, e.named[name]...)
		}
		if slices.Sort(templates); len(templates) > 0 {
			if replaced == nil {
				replaced = map[string][]string{}
			}
			replaced[by] = slices.Compact(templates)
		}
	}
	return replaced
}

func (e *envoy) addTemplate(levels []entry) (name string) {
	template := make([]string, len(levels))
	for i := range levels {
		template[i] = levels[i].text
	}
	e.templates = append(e.templates, template)
	return gateway.TemplateName(template)
}

// units are the windows of envoyproxy/ratelimit, aligned to the Unix epoch.
var units = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
	"month": 30 * 24 * time.Hour,
}

func (e *envoy) limit(above *object, node *yaml.Node, levels []entry) {
	o := e.object(node, above.path+".rate_limit", "unit", "requests_per_unit", "unlimited", "name", "replaces")
	template := e.addTemplate(levels)
	name := o.text("name", "")
	if name != "" {
		e.named[name] = append(e.named[name], template)
	}
	for i, node := range upTo(&e.decoder, o.list("replaces")) {
		other := e.object(node, at(o.path+".replaces", i), "name")
		e.replaces[template] = append(e.replaces[template], other.required("name"))
		if name != "" && other.text("name", "") == name {
			other.fail("name", "must not be the name of this limit")
		}
	}
	if o.boolean("unlimited", false) {
		if o.has("unit") {
			o.fail("unit", "must be left out with unlimited")
		}
		return
	}
	unit := strings.ToLower(o.required("unit"))
	length, known := units[unit]
	switch {
	case unit == "year":
		o.fail("unit", "cannot be expressed: windows are at most 31 days long")
	case !known && unit != "":
		o.fail("unit", "must be second, minute, hour, day, week or month")
	}
	requests, err := int64(0), error(nil)
	if count := o.get("requests_per_unit", true); count != nil {
		if requests, err = strconv.ParseInt(count.Value, 10, 64); err != nil || requests < 0 {
			o.fail("requests_per_unit", "must be a whole number from 0")
		}
	}
	pattern, err := rules.ParsePattern(patternOf(e.domain, gateway.Shorten(template, rules.MaxAttributeValueLength),
		levels))
	if err != nil {
		o.fail("", "cannot be expressed: "+err.Error())
	}
	rule := rules.Rule{
		Pattern: pattern, Name: name, Action: rules.ActionLimit, Algorithm: rules.FixedWindow,
		Window: rules.Window{Length: length}, Burst: requests, RateUnit: rules.PerSecond, Mode: rules.ModeEnforce,
		Active: true,
	}
	if requests == 0 {
		rule.Action, rule.Algorithm, rule.Window = rules.ActionBlock, rules.TokenBucket, rules.Window{}
	}
	if above.boolean("shadow_mode", false) {
		rule.Mode = rules.ModeShadow
	}
	if len(o.wrong) > 0 || e.errs != nil {
		return
	}
	for _, wrong := range rule.Validate(e.plans) {
		e.fail(node.Line, o.path, "as a rule, "+wrong.Field+" "+wrong.Message)
	}
	e.config.Rules = append(e.config.Rules, rule)
}

func patternOf(domain, name string, levels []entry) string {
	quote := func(text string) string { return `"` + strings.ReplaceAll(text, `"`, `""`) + `"` }
	pattern := "attr." + gateway.DomainAttribute + ":" + quote(domain) + ":attr." + gateway.DescriptorAttribute + ":" +
		quote(name)
	keys := make([]string, len(levels))
	for i := range levels {
		keys[i] = levels[i].key
	}
	for i, attribute := range gateway.AttributeNames(keys) {
		if levels[i].split {
			pattern += ":attr." + attribute + ":{attr." + attribute + "}"
		}
	}
	return pattern
}
