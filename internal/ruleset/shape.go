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
var shapeFields = []string{"window", "window_zone", "window_start_day", "refill_interval", "max_hold", "notify_at"}

// fileShape is how they are written.
type fileShape struct {
	Window         string `yaml:"window,omitempty"`
	WindowZone     string `yaml:"window_zone,omitempty"`
	WindowStartDay int    `yaml:"window_start_day,omitempty"`
	RefillInterval string `yaml:"refill_interval,omitempty"`
	MaxHold        string `yaml:"max_hold,omitempty"`
	NotifyAt       []int  `yaml:"notify_at,omitempty,flow"`
}

func encodeShape(r *rules.Rule) fileShape {
	return fileShape{
		Window:         r.Window.String(),
		WindowZone:     r.Window.Zone,
		WindowStartDay: r.Window.StartDay,
		RefillInterval: rules.FormatDuration(r.RefillInterval),
		MaxHold:        rules.FormatDuration(r.MaxHold),
		NotifyAt:       r.NotifyAt,
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
	}
}

const none = "none"
