package ruleset

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluicegate/sluice/internal/rules"
)

// shapeFields are the fields that only limits of some algorithms have.
var shapeFields = []string{"window", "window_zone", "window_start_day", "refill_interval", "max_hold", "notify_at", "adapt"}

// fileShape is how they are written.
type fileShape struct {
	Window         string `yaml:"window,omitempty"`
	WindowZone     string `yaml:"window_zone,omitempty"`
	WindowStartDay int    `yaml:"window_start_day,omitempty"`
	RefillInterval string `yaml:"refill_interval,omitempty"`
	MaxHold        string `yaml:"max_hold,omitempty"`
	NotifyAt       []int  `yaml:"notify_at,omitempty,flow"`

	Adapt *fileAdapt `yaml:"adapt,omitempty,flow"`
}

type fileAdapt struct {
	Backend      string  `yaml:"backend"`
	FloorPercent int     `yaml:"floor_percent"`
	P99Ms        int64   `yaml:"p99_ms,omitempty"`
	ErrorPercent float64 `yaml:"error_percent,omitempty"`
}

func encodeAdapt(a rules.Adapt) *fileAdapt {
	if a == (rules.Adapt{}) {
		return nil
	}
	return &fileAdapt{a.Backend, a.FloorPercent, a.P99.Milliseconds(), a.ErrorPercent}
}

// adapt reads how a rule adapts.
func (o *object) adapt() (a rules.Adapt) {
	node := o.get("adapt", false)
	if node == nil {
		return a
	}
	inner := o.d.object(node, o.field("adapt"), "backend", "floor_percent", "p99_ms", "error_percent")
	a.Backend = inner.required("backend")
	inner.get("floor_percent", true)
	a.FloorPercent = inner.whole("floor_percent")
	// A target of 0 is out of range, and not none.
	if ms := inner.whole("p99_ms"); inner.has("p99_ms") {
		a.P99 = -time.Millisecond
		if ms > 0 && int64(ms) <= rules.MaxP99.Milliseconds() {
			a.P99 = time.Duration(ms) * time.Millisecond
		}
	}
	if a.ErrorPercent = inner.number("error_percent"); a.ErrorPercent == 0 && inner.has("error_percent") {
		a.ErrorPercent = -1
	}
	if len(inner.wrong) > 0 { // what the domain says of the rest would be of values that were not read
		for name := range inner.wrong {
			o.wrong["adapt."+name] = true
		}
		o.wrong["adapt"] = true
	}
	return a
}

func describeAdapt(a rules.Adapt) string {
	if a == (rules.Adapt{}) {
		return none
	}
	text := fmt.Sprintf("backend %s, floor %d %%", a.Backend, a.FloorPercent)
	if a.P99 > 0 {
		text += fmt.Sprintf(", p99 %d ms", a.P99.Milliseconds())
	}
	if a.ErrorPercent > 0 {
		text += ", errors " + strconv.FormatFloat(a.ErrorPercent, 'f', -1, 64) + " %"
	}
	return text
}

func encodeShape(r *rules.Rule) fileShape {
	return fileShape{
		Window:         r.Window.String(),
		WindowZone:     r.Window.Zone,
		WindowStartDay: r.Window.StartDay,
		RefillInterval: rules.FormatDuration(r.RefillInterval),
		MaxHold:        rules.FormatDuration(r.MaxHold),
		NotifyAt:       r.NotifyAt,
		Adapt:          encodeAdapt(r.Adapt),
	}
}

// shape reads these fields into a rule. The domain says which of them the rule's algorithm needs.
func (o *object) shape(rule *rules.Rule) {
	if text, ok := o.scalar("window", mustBeText, false, "!!str"); ok {
		window, err := rules.ParseWindow(text)
		if err != nil {
			o.fail("window", err.Error())
		}
		rule.Window = window
	}
	rule.Window.Zone = o.text("window_zone", "")
	rule.Window.StartDay = o.whole("window_start_day")
	rule.RefillInterval = o.duration("refill_interval")
	rule.MaxHold = o.duration("max_hold")
	rule.Adapt = o.adapt()
	for _, node := range o.list("notify_at") {
		percent, ok := wholeNumber(node)
		if !ok {
			o.fail("notify_at", "must be a list of whole percents such as [80, 100], got "+kindOf(node)+" in it")
			return
		}
		rule.NotifyAt = append(rule.NotifyAt, percent)
	}
}

func (o *object) duration(name string) time.Duration {
	text, ok := o.scalar(name, mustBeText, false, "!!str")
	if !ok {
		return 0
	}
	duration, err := rules.ParseDuration(text)
	if err != nil {
		o.fail(name, err.Error())
	}
	return duration
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

// describeRate writes a rate for a list of differences. Limits without a rate have none, whatever their unit.
func describeRate(perSecond float64, unit rules.RateUnit) string {
	if perSecond == 0 {
		return none
	}
	return rules.DescribeRate(perSecond, unit)
}

// shapeValues are these fields as a list of differences shows them.
func shapeValues(r *rules.Rule) []field {
	return []field{
		{"window", cmp.Or(r.Window.String(), none)},
		{"window_zone", cmp.Or(r.Window.Zone, none)},
		{"window_start_day", cmp.Or(strings.TrimPrefix(strconv.Itoa(r.Window.StartDay), "0"), none)},
		{"refill_interval", cmp.Or(rules.FormatDuration(r.RefillInterval), none)},
		{"max_hold", cmp.Or(rules.FormatDuration(r.MaxHold), none)},
		{"notify_at", cmp.Or(strings.Trim(fmt.Sprint(r.NotifyAt), "[]"), none)},
		{"adapt", describeAdapt(r.Adapt)},
	}
}

const none = "none"
