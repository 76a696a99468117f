package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/rules"
)

// Descriptors is the mapping for proxies that use Envoy's rate limit protocol. Without any field, the tenant answers
// the domain that equals its slug, by DefaultKeys.
type Descriptors struct {
	// Keys maps keys of entries to fields of the check; the first entry for a field wins.
	Keys map[string]string `json:"keys,omitempty"`
	// Domains are those besides the tenant's slug.
	Domains map[string]Domain `json:"domains,omitempty"`
}

// Domain determines the names of a domain's descriptors.
type Domain struct {
	// Templates name descriptors by a step for each entry: a key, key=value, or key=value with stars for any text. The
	// exact key=value wins, then the first matching star, then the key alone; there is no backtracking. In a domain
	// with templates, a descriptor that matches none has no name.
	Templates [][]string `json:"templates,omitempty"`
	// Replaces lists, by the TemplateName of a template, those that it replaces: beside a descriptor of the first,
	// descriptors of the others lose their name.
	Replaces map[string][]string `json:"replaces,omitempty"`
	// OwnLimits: the limit that a descriptor brings replaces those of rules that name descriptors.
	OwnLimits bool `json:"own_limits,omitempty"`
	// Meter is what hits count; Hits differ by a descriptor's name.
	Meter string          `json:"meter,omitempty"`
	Hits  map[string]Hits `json:"hits,omitempty"`
}

// DefaultKeys maps keys to fields for a mapping without Keys.
var DefaultKeys = map[string]string{
	"user_id": fieldUser, "endpoint": fieldEndpoint, "path": fieldEndpoint, "method": fieldMethod, "plan": fieldPlan,
	"ip": fieldIP, "remote_address": fieldIP,
}

const (
	fieldUser     = "user_id"
	fieldEndpoint = "endpoint"
	fieldMethod   = "method"
	fieldPlan     = "plan"
	fieldIP       = "ip"
)

// The attributes of every descriptor. Its name is the matching template, or the keys of its entries, joined with
// commas.
const (
	DomainAttribute     = "domain"
	DescriptorAttribute = rules.DescriptorAttribute
)

const (
	maxDomains   = 100
	maxSteps     = 16
	maxFieldKeys = 64
	// MaxDescriptorTemplates bounds all templates of a tenant.
	MaxDescriptorTemplates = 1000
)

// Entry is a key and value of a descriptor.
type Entry struct{ Key, Value string }

// DescriptorMapping is a compiled, immutable Descriptors.
type DescriptorMapping struct {
	document Descriptors
	keys     map[string]string
	domains  map[string]*domain
}

type domain struct {
	templates *step               // nil without templates
	replaces  map[string][]string // names of descriptors
	ownLimits bool
	usual     CountedHits
	hits      map[string]CountedHits // by the name of a descriptor
}

// DefaultDescriptors is the mapping of a tenant without one.
var DefaultDescriptors = new(Descriptors).Compile()

// ParseDescriptors reads a stored document; see ParseAuthorize.
func ParseDescriptors(document string) (*Descriptors, error) {
	d := new(Descriptors)
	return d, parse(document, d)
}

// Document returns the mapping as stored.
func (d *Descriptors) Document() string {
	text, _ := json.Marshal(d) // strings and maps of strings always marshal
	return string(text)
}

// Validate returns all mistakes in a mapping.
func (d *Descriptors) Validate() (errs rules.FieldErrors) {
	errs.AddIf(len(d.Keys) > maxFieldKeys, "keys", fmt.Sprintf("must be at most %d", maxFieldKeys))
	for _, key := range slices.Sorted(maps.Keys(d.Keys)) {
		errs.Add("keys", wrongText(key, maxText))
		errs.Add("keys."+key, rules.WrongChoice(d.Keys[key], fieldUser, fieldEndpoint, fieldMethod, fieldPlan, fieldIP))
	}
	errs.AddIf(len(d.Domains) > maxDomains, "domains", fmt.Sprintf("must be at most %d", maxDomains))
	templates := 0
	for _, name := range slices.Sorted(maps.Keys(d.Domains)) {
		errs.Add("domains", wrongText(name, rules.MaxAttributeValueLength))
		seen := map[string]bool{}
		for i, template := range d.Domains[name].Templates {
			at := "domains." + name + ".templates." + strconv.Itoa(i)
			templates++
			switch text := TemplateName(template); {
			case len(template) == 0 || len(template) > maxSteps:
				errs.Add(at, fmt.Sprintf("must have 1 to %d steps", maxSteps))
			case seen[text]:
				errs.Add(at, "stands there twice")
			default:
				seen[text] = true
			}
			for _, s := range template {
				errs.Add(at, wrongText(s, maxText))
				errs.AddIf(strings.HasPrefix(s, "="), at, "must have a key in each step")
			}
		}
		d.Domains[name].validateReplaces(&errs, "domains."+name+".replaces", seen)
		d.Domains[name].validateHits(&errs, "domains."+name, seen)
	}
	if templates > MaxDescriptorTemplates {
		errs.Add("domains", fmt.Sprintf("must have at most %d templates", MaxDescriptorTemplates))
	}
	if len(d.Document()) > maxDocument {
		errs.Add("domains", fmt.Sprintf("must take at most %d KiB", maxDocument>>10))
	}
	return errs
}

func wrongText(text string, longest int) string {
	switch {
	case text == "":
		return "must not be empty"
	case len(text) > longest:
		return fmt.Sprintf("must have at most %d bytes", longest)
	case !isPlain(text):
		return "must be UTF-8 without NUL"
	}
	return ""
}

func isPlain(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

type step struct {
	name  string // of the template that ends here, or ""
	exact map[Entry]*step
	stars []star
	keys  map[string]*step
}

type star struct {
	key   string
	parts []string // the value, split at its stars
	text  string
	next  *step
}

func newStep() *step { return &step{exact: map[Entry]*step{}, keys: map[string]*step{}} }

// Compile returns the mapping of a valid document.
func (d *Descriptors) Compile() *DescriptorMapping {
	m := &DescriptorMapping{document: *d, keys: d.Keys, domains: map[string]*domain{}}
	if m.keys == nil {
		m.keys = DefaultKeys
	}
	for name, document := range d.Domains {
		root := newStep()
		for _, template := range document.Templates {
			at := root
			for _, s := range template {
				at = at.add(s)
			}
			at.name = shortName(TemplateName(template))
		}
		if len(document.Templates) == 0 {
			root = nil
		}
		usual, hits := document.compileHits()
		m.domains[name] = &domain{root, document.compileReplaces(), document.OwnLimits, usual, hits}
	}
	return m
}

func shortName(name string) string { return Shorten(name, rules.MaxAttributeValueLength) }

func (s *step) add(text string) *step {
	key, value, hasValue := strings.Cut(text, "=")
	if !hasValue {
		return orNew(s.keys, key)
	}
	if !strings.Contains(value, "*") {
		return orNew(s.exact, Entry{key, value})
	}
	for i := range s.stars {
		if s.stars[i].text == text {
			return s.stars[i].next
		}
	}
	next := newStep()
	s.stars = append(s.stars, star{key, strings.Split(value, "*"), text, next})
	return next
}

func orNew[K comparable](steps map[K]*step, key K) *step {
	if steps[key] == nil {
		steps[key] = newStep()
	}
	return steps[key]
}

func (s *step) after(e Entry) *step {
	if next := s.exact[e]; next != nil {
		return next
	}
	for i := range s.stars {
		if s.stars[i].key == e.Key && s.stars[i].fits(e.Value) {
			return s.stars[i].next
		}
	}
	return s.keys[e.Key]
}

func (s *star) fits(text string) bool {
	last := len(s.parts) - 1
	rest, ok := strings.CutPrefix(text, s.parts[0])
	for _, part := range s.parts[1:last] {
		var found bool
		_, rest, found = strings.Cut(rest, part)
		ok = ok && found
	}
	return ok && strings.HasSuffix(rest, s.parts[last])
}

// Document returns the document; do not modify it.
func (m *DescriptorMapping) Document() *Descriptors { return &m.document }

// Answers reports whether a tenant with the slug answers a domain.
func (m *DescriptorMapping) Answers(slug, domain string) bool {
	_, named := m.domains[domain]
	return named || domain == slug
}

// TakesLimits reports whether descriptors of a domain may bring their own limits.
func (m *DescriptorMapping) TakesLimits(domain string) bool {
	d := m.domains[domain]
	return d != nil && d.ownLimits
}

// CanMeet reports whether a descriptor can have the name and domain that a pattern requires; without a name, checks
// over HTTP can.
func (m *DescriptorMapping) CanMeet(slug string, pattern rules.Pattern) bool {
	var domain, name string
	for _, s := range pattern.Segments() {
		switch {
		case s.Field != rules.FieldAttribute || s.Placeholder:
		case s.Attribute == DomainAttribute:
			domain = s.Value
		case s.Attribute == DescriptorAttribute:
			name = s.Value
		}
	}
	has := func(domain string) bool {
		templates := m.document.Domains[domain].Templates
		return len(templates) == 0 || slices.ContainsFunc(templates, func(template []string) bool {
			return shortName(TemplateName(template)) == name
		})
	}
	if name == "" || domain != "" {
		return name == "" || m.Answers(slug, domain) && has(domain)
	}
	return has(slug) || slices.ContainsFunc(slices.Collect(maps.Keys(m.domains)), has)
}

// LimitUnits are those of type.v3.RateLimitUnit, by its numbers.
//
//nolint:gochecknoglobals // a constant
var LimitUnits = [...]struct {
	Name   string
	Length time.Duration
}{
	{},
	{"SECOND", time.Second},
	{"MINUTE", time.Minute},
	{"HOUR", time.Hour},
	{"DAY", day},
	{"MONTH", 30 * day},
	{"YEAR", 365 * day},
}

const day = 24 * time.Hour

// OwnLimit returns the limit of a descriptor, or nil without a unit that this version knows.
func OwnLimit(requests, unit int64) *rules.Limit {
	if unit < 1 || unit >= int64(len(LimitUnits)) {
		return nil
	}
	return &rules.Limit{
		Kind: rules.KindFixedWindow, Burst: min(requests, rules.MaxBurst),
		Interval: LimitUnits[unit].Length.Microseconds(),
	}
}

// AddedAttributes is how many Check adds to those of the entries.
const AddedAttributes = 2

// Check turns a descriptor into a request, and says what its hits are; every entry becomes an attribute, a repeated one
// with the suffix .2, .3 and so on. A text that is too long, not UTF-8 or contains NUL is replaced by its hash: as an
// error, a visitor could provoke it, and proxies allow on errors. At most len(entries) + AddedAttributes attributes are
// appended to memory.
func (m *DescriptorMapping) Check(domain string, entries []Entry, memory []rules.Attribute) (
	r rules.Request, hits CountedHits,
) {
	r.Attributes = memory
	add := func(name, value string) {
		r.Attributes = append(r.Attributes,
			rules.Attribute{Name: name, Value: Shorten(value, rules.MaxAttributeValueLength)})
	}
	add(DomainAttribute, domain)
	name := m.name(domain, entries)
	if name != "" {
		add(DescriptorAttribute, name)
	}
	for _, e := range entries {
		switch m.keys[e.Key] {
		case fieldUser:
			fill(&r.UserID, e.Value, rules.MaxUserIDLength)
		case fieldEndpoint:
			if r.Endpoint == "" {
				r.Endpoint = shortenEndpoint(endpointOf(e.Value))
			}
		case fieldMethod:
			fill(&r.Method, e.Value, maxMethod)
		case fieldPlan:
			fill(&r.Plan, e.Value, maxPlan)
		case fieldIP:
			if !r.IP.IsValid() {
				r.IP = parseAddress(e.Value)
			}
		}
		add(freeName(r.Attributes, AttributeName(e.Key)), e.Value)
	}
	return r, m.hitsOf(domain, name)
}

// endpointOf normalizes a path, because its visitor chooses the spelling. Braces stay: rules name templates, such as
// /orders/{id}.
func endpointOf(value string) string {
	if !strings.HasPrefix(value, "/") {
		return value
	}
	path, _, _ := strings.Cut(value, "?")
	if path = cleanPath(path); !strings.Contains(path, "%7") {
		return path
	}
	return strings.NewReplacer("%7B", "{", "%7D", "}").Replace(path)
}

func fill(field *string, value string, longest int) {
	if *field == "" {
		*field = Shorten(value, longest)
	}
}

func (m *DescriptorMapping) name(domain string, entries []Entry) string {
	var at *step
	if d := m.domains[domain]; d != nil {
		at = d.templates
	}
	if at == nil {
		if len(entries) == 1 && !strings.ContainsAny(entries[0].Key, `,\`) {
			return entries[0].Key
		}
		keys := make([]string, len(entries))
		for i := range entries {
			keys[i] = entries[i].Key
		}
		return TemplateName(keys)
	}
	for _, e := range entries {
		if at = at.after(e); at == nil {
			return ""
		}
	}
	return at.name
}

// TemplateName joins steps or keys, so that different lists have different names.
func TemplateName(steps []string) string {
	var b strings.Builder
	for i, s := range steps {
		if i > 0 {
			b.WriteByte(',')
		}
		if strings.ContainsAny(s, `,\`) {
			s = strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(s)
		}
		b.WriteString(s)
	}
	return b.String()
}

// Shorten returns a text that fits a field, or its HashUser. An empty text does not fit, because a check without a
// field escapes the rules for it.
func Shorten(text string, longest int) string {
	if text != "" && len(text) <= longest && isPlain(text) {
		return text
	}
	return HashUser([]byte(text))
}

// shortenEndpoint keeps the beginning, because rules match by it: endpoint:/api/*.
func shortenEndpoint(text string) string {
	short := Shorten(text, maxEndpoint)
	if short == text {
		return text
	}
	kept := text[:min(len(text), maxEndpoint-len(short))]
	for i, c := range kept {
		if c == 0 || c == utf8.RuneError {
			kept = kept[:i]
			break
		}
	}
	return kept + short
}

// AttributeName returns the attribute's name for a key; invalid characters become _.
func AttributeName(key string) string {
	if rules.IsAttributeName(key) {
		return key
	}
	name := strings.Map(func(c rune) rune {
		if c < utf8.RuneSelf && rules.IsAttributeName(string(c)) {
			return c
		}
		return '_'
	}, key)
	if name == "" {
		name = "_"
	}
	return Shorten(name, rules.MaxAttributeNameLength)
}

// AttributeNames returns the names of the attributes of a descriptor with these keys.
func AttributeNames(keys []string) (names []string) {
	taken := []rules.Attribute{{Name: DomainAttribute}, {Name: DescriptorAttribute}}
	for _, key := range keys {
		name := freeName(taken, AttributeName(key))
		taken, names = append(taken, rules.Attribute{Name: name}), append(names, name)
	}
	return names
}

// DescriptorAttribute counts as taken, so that an entry cannot name a nameless descriptor.
func freeName(taken []rules.Attribute, name string) string {
	isTaken := func(name string) bool {
		return name == DescriptorAttribute ||
			slices.ContainsFunc(taken, func(a rules.Attribute) bool { return a.Name == name })
	}
	free := name
	for n := 2; isTaken(free); n++ {
		free = name[:min(len(name), rules.MaxAttributeNameLength-3)] + "." + strconv.Itoa(n)
	}
	return free
}
