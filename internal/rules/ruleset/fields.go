package ruleset

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluicegate/sluice/internal/rules"
)

func namesOf(fields any) (names []string) {
	for name := range rules.Named(fields) {
		names = append(names, name)
	}
	return names
}

// read reads given fields into the struct that a pointer points to, each as its type demands.
func (o *object) read(fields any, skipped ...string) {
	for name, field := range rules.Named(fields) {
		if node := o.get(name, false); node != nil && !slices.Contains(skipped, name) {
			o.readField(name, node, field)
		}
	}
}

func (o *object) readField(name string, node *yaml.Node, field reflect.Value) {
	value := field
	if field.Kind() == reflect.Pointer {
		value = reflect.New(field.Type().Elem()).Elem()
		field.Set(value.Addr())
	}
	switch kind := value.Kind(); {
	case value.Type() == reflect.TypeFor[time.Time]():
		value.Set(reflect.ValueOf(o.time(name)))
	case kind == reflect.Struct:
		o.readObject(name, node, value)
	case kind == reflect.String:
		value.SetString(o.text(name, value.String()))
	case kind == reflect.Bool:
		value.SetBool(o.boolean(name, value.Bool()))
	case kind == reflect.Float64:
		value.SetFloat(o.number(name))
	case kind == reflect.Int, kind == reflect.Int64:
		value.SetInt(int64(o.whole(name)))
	case kind == reflect.Slice:
		value.Set(reflect.ValueOf(o.percents(name)))
	}
	if o.wrong[name] && field.Kind() == reflect.Pointer {
		field.SetZero()
	}
}

func (o *object) readObject(name string, node *yaml.Node, value reflect.Value) {
	fields := value.Addr().Interface()
	inner := o.d.object(node, o.field(name), namesOf(fields)...)
	for part, field := range rules.Named(fields) {
		inner.get(part, field.Kind() != reflect.Pointer)
	}
	inner.read(fields)
	if len(inner.wrong) > 0 { // a validation of the rest would complain about zero values
		for part := range inner.wrong {
			o.wrong[name+"."+part] = true
		}
		o.wrong[name] = true
	}
}

func (o *object) percents(name string) (percents []int) {
	for _, node := range o.list(name) {
		percent, ok := wholeNumber(node)
		if !ok {
			o.fail(name, "must be a list of whole percents such as [80, 100], got "+kindOf(node)+" in it")
			return percents
		}
		percents = append(percents, percent)
	}
	return percents
}

func (o *object) whole(name string) int {
	node := o.get(name, false)
	if node == nil {
		return 0
	}
	n, ok := wholeNumber(node)
	if !ok {
		o.fail(name, "must be a whole number in digits alone, got "+kindOf(node))
	}
	return n
}

func wholeNumber(node *yaml.Node) (int, bool) {
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!int" {
		return 0, false
	}
	n, err := strconv.Atoi(node.Value)
	return n, err == nil && strconv.Itoa(n) == node.Value
}

func ruleFields(r *rules.Rule) []field {
	shown := []field{
		{"rate", describeRate(r.RatePerSecond, r.RateUnit)},
		{"burst", strconv.FormatInt(r.Burst, 10)},
	}
	fields := r.Fields()
	for name, value := range rules.Named(&fields) {
		if !slices.Contains(limitFields, name) {
			shown = append(shown, field{name, describeField(name, value)})
		}
	}
	return shown
}

func describeField(name string, value reflect.Value) string {
	isNone := value.Kind() == reflect.Pointer && value.IsNil() || value.Kind() == reflect.Slice && value.Len() == 0
	switch {
	case isNone && name == "failure_mode":
		return "the tenant's"
	case isNone && name == "expires_at":
		return "never"
	case isNone:
		return none
	case name == "description":
		return strconv.Quote(value.String())
	}
	switch value := reflect.Indirect(value).Interface().(type) {
	case time.Time:
		return describeExpiry(value)
	case rules.AdaptFields:
		return describeAdapt(&value)
	default:
		return strings.Trim(fmt.Sprint(value), "[]")
	}
}

func describeAdapt(a *rules.AdaptFields) string {
	text := fmt.Sprintf("backend %s, floor %d %%", a.Backend, a.FloorPercent)
	if a.P99Ms != nil {
		text += fmt.Sprintf(", p99 %d ms", *a.P99Ms)
	}
	if a.ErrorPercent != nil {
		text += ", errors " + strconv.FormatFloat(*a.ErrorPercent, 'f', -1, 64) + " %"
	}
	return text
}

func describeRate(perSecond float64, unit rules.RateUnit) string {
	if perSecond == 0 {
		return none
	}
	return rules.DescribeRate(perSecond, unit)
}

const none = "none"
