package ruleset

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluicegate/sluice/internal/rules"
)

// object reads the fields of a mapping; one with an error reads as its zero value, and only its first error is
// reported.
type object struct {
	d      *decoder
	path   string // such as rules[3]; "" for the file's top
	line   int
	fields map[string]*yaml.Node
	wrong  map[string]bool
}

func (d *decoder) object(node *yaml.Node, path string, names ...string) *object {
	o := &object{d: d, path: path, line: node.Line, fields: map[string]*yaml.Node{}, wrong: map[string]bool{}}
	if node.Kind != yaml.MappingNode {
		d.fail(node.Line, path, "must be a mapping with fields such as "+names[0]+", got "+kindOf(node))
		for _, name := range names {
			o.wrong[name] = true
		}
		return o
	}
	known := make(map[string]bool, len(names))
	for _, name := range names {
		known[name] = true
	}
	for i := 0; i+1 < len(node.Content) && !d.isFull(); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch first := o.fields[key.Value]; {
		case key.Kind != yaml.ScalarNode || !known[key.Value]:
			d.fail(key.Line, o.field(key.Value), "is no field here; the fields are "+strings.Join(names, ", "))
		case first != nil:
			d.fail(key.Line, o.field(key.Value), "is given a second time, after line "+strconv.Itoa(first.Line))
		default:
			o.fields[key.Value] = value
		}
	}
	return o
}

func (d *decoder) isFull() bool { return len(d.errs) >= maxErrors }

func (d *decoder) fail(line int, field, message string) {
	if d.isFull() {
		return
	}
	d.errs = append(d.errs, Error{File: d.file, Line: line, Field: field, Message: message})
}

func (o *object) field(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

func (o *object) fail(name, message string) {
	if o.wrong[name] {
		return
	}
	o.wrong[name] = true
	o.d.fail(o.lineOf(name), o.field(name), message)
}

func (o *object) lineOf(name string) int {
	outer, _, _ := strings.Cut(name, ".") // a field of a nested object
	if node := o.fields[outer]; node != nil {
		return node.Line
	}
	return o.line
}

func (o *object) check(errs rules.FieldErrors) {
	for _, err := range errs {
		name := err.Field
		if name == "rate_per_second" && !o.has(name) {
			name = "rate"
		}
		o.fail(name, err.Message)
	}
}

func (o *object) unique(name string, id any) {
	if first, taken := o.d.seen[id]; taken {
		o.fail(name, fmt.Sprintf("names the same as %s on line %d does", first.path, first.line))
	} else if len(o.wrong) == 0 {
		o.d.seen[id] = position{o.line, o.path}
	}
}

func (o *object) has(name string) bool { return o.fields[name] != nil }

func (o *object) get(name string, required bool) *yaml.Node {
	node := o.fields[name]
	if node == nil && required {
		o.fail(name, "is missing")
	}
	return node
}

func (o *object) scalar(name, must string, required bool, tags ...string) (string, bool) {
	node := o.get(name, required)
	if node == nil {
		return "", false
	}
	if node.Kind == yaml.ScalarNode {
		for _, tag := range tags {
			if node.ShortTag() == tag {
				return node.Value, true
			}
		}
	}
	o.fail(name, must+", got "+kindOf(node))
	return "", false
}

const mustBeText = `must be text, in quotes if it could be taken for something else`

func (o *object) text(name, otherwise string) string {
	if text, ok := o.scalar(name, mustBeText, false, "!!str"); ok {
		return text
	}
	return otherwise
}

func (o *object) required(name string) string {
	text, _ := o.scalar(name, mustBeText, true, "!!str")
	return text
}

func (o *object) plan() string {
	plan := o.text("plan", "")
	if o.has("plan") && plan == "" {
		o.fail("plan", "must not be empty: leave it out for all plans")
	}
	return plan
}

func (o *object) pattern() rules.Pattern {
	text, ok := o.scalar("key_pattern", mustBeText, true, "!!str")
	if !ok {
		return rules.Pattern{}
	}
	pattern, err := rules.ParsePattern(text)
	if err != nil {
		o.fail("key_pattern", err.Error())
	}
	return pattern
}

func (o *object) boolean(name string, otherwise bool) bool {
	switch text, ok := o.scalar(name, "must be true or false", false, "!!bool"); {
	case !ok:
		return otherwise
	case text == "true" || text == "false":
		return text == "true"
	default:
		o.fail(name, fmt.Sprintf("must be true or false, got %s", text))
		return otherwise
	}
}

func (o *object) time(name string) time.Time {
	const must = "must be a time such as 2027-01-31T00:00:00Z"
	text, ok := o.scalar(name, must, false, "!!timestamp", "!!str")
	if !ok {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() { // the zero time means never
		o.fail(name, fmt.Sprintf("%s, got %s", must, text))
	}
	return at.UTC()
}

func (o *object) anyRate(required bool) (perSecond float64, unit rules.RateUnit) {
	if o.has("rate") {
		return o.rate()
	}
	unit = rules.RateUnit(o.text("rate_unit", string(rules.PerSecond)))
	perSecond = o.ratePerSecond()
	if required && !o.has("rate_per_second") {
		o.fail("rate", "is missing: write a rate such as 1000/day, or rate_per_second")
	}
	return perSecond, unit
}

func (o *object) rate() (perSecond float64, unit rules.RateUnit) {
	for _, other := range []string{"rate_per_second", "rate_unit"} {
		if o.has(other) {
			o.fail(other, "cannot stand beside rate, which says it already")
		}
	}
	text, ok := o.scalar("rate", "must be a number per second, minute, hour or day, such as 1000/day", true, "!!str")
	if !ok {
		return 0, rules.PerSecond
	}
	perSecond, unit, err := rules.ParseRate(text)
	if err != nil {
		o.fail("rate", err.Error())
		return 0, rules.PerSecond
	}
	return perSecond, unit
}

func (o *object) ratePerSecond() float64 { return o.number("rate_per_second") }

func (o *object) number(name string) float64 {
	text, ok := o.scalar(name, "must be a number", false, "!!float", "!!int")
	if !ok {
		return 0
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.Trim(text, "0123456789.eE+-") != "" {
		o.fail(name, "must be a decimal number, got "+text)
	}
	return number
}

func (o *object) burst(required bool) int64 {
	must := fmt.Sprintf("must be a whole number from 1 to %d", rules.MaxBurst)
	text, ok := o.scalar("burst_capacity", must, required, "!!int")
	if !ok {
		return 0
	}
	burst, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(burst, 10) != text {
		o.fail("burst_capacity", must+", in digits alone, got "+text)
	}
	return burst
}

func (o *object) list(name string) []*yaml.Node {
	node := o.get(name, false)
	if node == nil {
		return nil
	}
	if node.Kind != yaml.SequenceNode {
		o.fail(name, "must be a list, which is [] if it is empty, got "+kindOf(node))
		return nil
	}
	return node.Content
}

func kindOf(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.ShortTag() == "!!null":
		return "nothing"
	}
	return "the " + strings.TrimLeft(node.ShortTag(), "!") + " " + strconv.Quote(node.Value)
}
