package ruleset

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
)

// File is a file of a configuration, with its name for messages.
type File struct {
	Name string
	Data []byte
}

// EnvoyOptions are the choices of DecodeEnvoy.
type EnvoyOptions struct {
	Lost LostTemplates
	// SkipUnsupported leaves out limits that cannot be expressed, with a note.
	SkipUnsupported bool
	OwnLimits       bool
	Record          []string
}

// DecodeEnvoy converts a configuration of envoyproxy/ratelimit, of all documents and ConfigMaps in the files, into
// rules and a descriptor mapping that give the same answers. The mapping is the tenant's current one, with the
// templates of the configuration's domains replaced.
//
// Each limit becomes a fixed window that is charged after, because a proxy may ask with 0 hits and report later. An
// unlimited descriptor becomes a template without a rule.
//
// Mistakes, and limits that cannot be expressed, are Errors; the notes name differences and omissions.
func DecodeEnvoy(files []File, current []rules.Gateway, o EnvoyOptions) (config Config, notes Errors, err error) {
	e := envoy{
		decoder: decoder{plans: map[string]bool{}, seen: map[any]position{}}, options: o,
		mapping: new(gateway.Descriptors), domains: map[string]*envoyDomain{}, valuesLeft: maxValues,
		recorded: map[string]bool{},
	}
	for _, g := range current {
		if g.Kind == rules.GatewayDescriptors {
			if e.mapping, err = gateway.ParseDescriptors(g.Document); err != nil {
				return Config{}, nil, fmt.Errorf("the tenant's mapping of descriptors: %w", err)
			}
		}
	}
	for _, file := range files {
		e.read(file)
	}
	if len(e.errs) == 0 && len(e.order) == 0 {
		e.fail(0, "", "there must be a configuration of a domain; none was found")
	}
	if len(e.errs) == 0 {
		e.finish()
	}
	if len(e.errs) > 0 {
		return Config{}, nil, e.errs
	}
	return e.config, e.notes, nil
}

// LostTemplates decides about templates that a domain has and a file lacks: without its template a limit ends.
type LostTemplates int

// The choices.
const (
	RefuseLost  LostTemplates = iota
	MergeLost                 // keeps them
	ReplaceLost               // removes them
)

type envoy struct {
	decoder
	options    EnvoyOptions
	mapping    *gateway.Descriptors
	domains    map[string]*envoyDomain
	order      []*envoyDomain
	valuesLeft int // negative if there are too many
	notes      Errors
	domain     *envoyDomain    // of the present document
	recorded   map[string]bool // keys of options.Record that templates have
}

type envoyDomain struct {
	name      string
	file      string // of its first document
	line      int
	templates [][]string
	seen      map[string]bool     // names of templates, also of those above others
	named     map[string][]string // templates, by the name of their limit
	replaces  map[string][]string // names of limits, by the template whose limit replaces them
	records   []string            // names of templates that record
}

type entry struct {
	key, text string // text is the template's step
	split     bool   // each value has a bucket of its own
}

func (e *envoy) root(node *yaml.Node) {
	top := e.object(node, "", "domain", "descriptors", "name")
	name := word(top, "domain", true)
	if e.domain = e.domains[name]; e.domain == nil {
		e.domain = &envoyDomain{
			name: name, file: e.file, line: node.Line,
			seen: map[string]bool{}, named: map[string][]string{}, replaces: map[string][]string{},
		}
		e.domains[name] = e.domain
		e.order = append(e.order, e.domain)
	}
	e.descriptors(top.list("descriptors"), "descriptors", nil)
}

func (e *envoy) finish() {
	domains := maps.Clone(e.mapping.Domains)
	if domains == nil {
		domains = map[string]gateway.Domain{}
	}
	for _, d := range e.order {
		e.domain, e.file = d, d.file
		domains[d.name] = e.withLost(gateway.Domain{Templates: d.templates, Replaces: d.replacedTemplates()}, d.line)
	}
	for _, key := range e.options.Record {
		if !e.recorded[key] {
			e.fail(0, "", fmt.Sprintf("must have a descriptor with the key %q of --record; none was found", key))
		}
	}
	mapping := gateway.Descriptors{Keys: e.mapping.Keys, Domains: domains}
	for _, wrong := range mapping.Validate() {
		e.fail(0, wrong.Field, wrong.Message)
	}
	e.config.Gateways = []rules.Gateway{{Kind: rules.GatewayDescriptors, Document: mapping.Document()}}
}

func (e *envoy) note(line int, field, message string) {
	e.notes = append(e.notes, Error{File: e.file, Line: line, Field: field, Message: message})
}

func (e *envoy) unsupported(o *object, name, message string) {
	at := o.path
	if name != "" {
		at = o.field(name)
	}
	if !e.options.SkipUnsupported {
		e.fail(o.lineOf(name), at, "cannot be expressed: "+message+"; --skip-unsupported leaves such limits out")
		return
	}
	e.note(o.lineOf(name), at, "is left out: "+message)
}

func (e *envoy) withLost(d gateway.Domain, line int) gateway.Domain {
	has := map[string]bool{}
	for _, template := range d.Templates {
		has[gateway.TemplateName(template)] = true
	}
	before := e.mapping.Domains[e.domain.name]
	d.OwnLimits, d.Meter, d.Hits = before.OwnLimits || e.options.OwnLimits, before.Meter, maps.Clone(before.Hits)
	var lost []string
	for _, template := range before.Templates {
		if name := gateway.TemplateName(template); !has[name] {
			lost = append(lost, name)
			if e.options.Lost == MergeLost {
				d.Templates = append(d.Templates, template)
			}
		}
	}
	switch {
	case e.options.Lost == MergeLost:
		replaces := maps.Clone(before.Replaces)
		if replaces == nil {
			replaces = map[string][]string{}
		}
		maps.DeleteFunc(replaces, func(name string, _ []string) bool { return has[name] })
		maps.Copy(replaces, d.Replaces)
		d.Replaces = replaces
	case e.options.Lost == RefuseLost && len(lost) > 0:
		e.fail(line, "descriptors", fmt.Sprintf("lacks %d of the descriptors that the tenant's domain has, such as "+
			"%s, and their limits would end; import with --merge to keep them, or with --replace to remove them",
			len(lost), lost[0]))
	default:
		maps.DeleteFunc(d.Hits, func(name string, _ gateway.Hits) bool { return !has[name] })
	}
	for _, name := range e.domain.records {
		if d.Hits == nil {
			d.Hits = map[string]gateway.Hits{}
		}
		d.Hits[name] = gateway.Hits{Meter: d.Hits[name].Meter, Record: true}
	}
	return d
}

func (e *envoy) descriptors(list []*yaml.Node, path string, above []entry) {
	for i, node := range upTo(&e.decoder, list) {
		o := e.object(node, at(path, i), "key", "value", "rate_limit", "descriptors", "shadow_mode", "share_threshold",
			"detailed_metric", "value_to_metric", "metadata", "quota_mode")
		key, value := word(o, "key", true), word(o, "value", false)
		level := entry{key: key, text: key, split: value == "" || strings.Contains(value, "*") &&
			!o.boolean("share_threshold", false)}
		if strings.Contains(key, "=") {
			if e.unsupported(o, "key", "it must have no ="); e.options.SkipUnsupported {
				continue
			}
		}
		if value != "" {
			level.text += "=" + value
		}
		if o.boolean("share_threshold", false) && !strings.Contains(value, "*") {
			o.fail("share_threshold", "is for values with a *")
		}
		if o.boolean("quota_mode", false) {
			e.note(o.lineOf("quota_mode"), o.field("quota_mode"), "has no meaning here: a request is denied when one "+
				"of its limits is used up, there when all those with quota_mode are")
		}
		below := append(slices.Clone(above), level)
		if name := gateway.TemplateName(templateOf(below)); e.domain.seen[name] {
			o.fail("key", "stands here a second time with this value")
		} else {
			e.domain.seen[name] = true
		}
		if limit := o.get("rate_limit", false); limit != nil {
			e.limit(o, limit, below)
		} else if !o.has("descriptors") {
			e.addTemplate(below)
		}
		e.descriptors(o.list("descriptors"), at(path, i)+".descriptors", below)
	}
}

// A name without a limit belongs to another domain, which is never in the same request.
func (d *envoyDomain) replacedTemplates() map[string][]string {
	var replaced map[string][]string
	for by, names := range d.replaces {
		var templates []string
		for _, name := range names {
			templates = append(templates, d.named[name]...)
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

func templateOf(levels []entry) []string {
	template := make([]string, len(levels))
	for i := range levels {
		template[i] = levels[i].text
	}
	return template
}

func (e *envoy) addTemplate(levels []entry) (name string) {
	template := templateOf(levels)
	e.domain.templates = append(e.domain.templates, template)
	name = gateway.TemplateName(template)
	records := false
	for i := range levels {
		if slices.Contains(e.options.Record, levels[i].key) {
			records, e.recorded[levels[i].key] = true, true
		}
	}
	if records {
		e.domain.records = append(e.domain.records, name)
	}
	return name
}

// units are the windows of envoyproxy/ratelimit, aligned to the Unix epoch.
var units = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
	"month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
}

func (e *envoy) limit(above *object, node *yaml.Node, levels []entry) {
	o := e.object(node, above.path+".rate_limit", "unit", "unit_multiplier", "requests_per_unit",
		"unlimited", "name", "replaces")
	template := e.addTemplate(levels)
	leaveOut := func(message string) {
		delete(e.domain.replaces, template) // or the replaced limits would end too
		e.unsupported(o, "", message)
	}
	name := word(o, "name", false)
	if name != "" {
		e.domain.named[name] = append(e.domain.named[name], template)
	}
	for i, node := range upTo(&e.decoder, o.list("replaces")) {
		other := e.object(node, at(o.path+".replaces", i), "name")
		replaced := word(other, "name", true)
		e.domain.replaces[template] = append(e.domain.replaces[template], replaced)
		if name != "" && replaced == name {
			other.fail("name", "must not be the name of this limit")
		}
	}
	length, known := units[strings.ToLower(word(o, "unit", false))]
	if o.boolean("unlimited", false) {
		if known {
			o.fail("unit", "must be left out with unlimited")
		}
		return
	}
	if !known && word(o, "unit", true) != "" {
		o.fail("unit", "must be second, minute, hour, day, week, month or year")
	}
	if o.has("unit_multiplier") {
		refuseOctal(o, "unit_multiplier")
		count, err := strconv.ParseInt(word(o, "unit_multiplier", false), 10, 32)
		if err != nil || count < 1 {
			o.fail("unit_multiplier", "must be a whole number from 1")
		}
		length = time.Duration(min(count, int64(rules.MaxWindow/max(length, time.Second))+1)) * length
	}
	var requests int64
	if count := o.get("requests_per_unit", true); count != nil {
		refuseOctal(o, "requests_per_unit")
		n, err := strconv.ParseUint(count.Value, 10, 32)
		if requests = int64(n); err != nil {
			o.fail("requests_per_unit", fmt.Sprintf("must be a whole number from 0 to %d", math.MaxUint32))
		} else if requests > rules.MaxBurst {
			requests = rules.MaxBurst
			e.note(count.Line, o.field("requests_per_unit"), fmt.Sprintf("counts as %d, the most there is",
				requests))
		}
	}
	short := gateway.Shorten(template, rules.MaxAttributeValueLength)
	pattern, err := rules.ParsePattern(patternOf(e.domain.name, short, levels))
	if err != nil {
		leaveOut(err.Error())
		return
	}
	rule := rules.Rule{
		Pattern: pattern, Name: name, Action: rules.ActionLimit, Algorithm: rules.FixedWindow,
		Window: rules.Window{Length: length}, Burst: requests, RateUnit: rules.PerSecond, Mode: rules.ModeEnforce,
		Active: true, ChargedAfter: true,
	}
	if requests == 0 {
		rule.Action, rule.Algorithm, rule.Window = rules.ActionBlock, rules.TokenBucket, rules.Window{}
		rule.ChargedAfter, rule.RateUnit = false, rateUnit(length)
	} else {
		if length >= time.Hour {
			rule.NotifyAt = []int{nearLimit}
		}
		rule.Meter = e.mapping.Domains[e.domain.name].MeterOf(template)
		rule.NameByMeter()
	}
	if above.boolean("shadow_mode", false) {
		rule.Mode = rules.ModeShadow
	}
	if len(o.wrong) > 0 || e.errs != nil {
		return
	}
	for _, wrong := range rule.Validate(e.plans) {
		leaveOut("as a rule, " + wrong.Field + " " + wrong.Message)
		return
	}
	e.config.Rules = append(e.config.Rules, rule)
}

// nearLimit is the share at which envoyproxy/ratelimit counts near_limit; shorter windows would record too many
// crossings.
const nearLimit = 80

func rateUnit(length time.Duration) (longest rules.RateUnit) {
	for _, unit := range []rules.RateUnit{rules.PerSecond, rules.PerMinute, rules.PerHour, rules.PerDay} {
		if unit.Length() <= length {
			longest = unit
		}
	}
	return longest
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
