package replay

import (
	"fmt"
	"strconv"
	"strings"
)

// Condition is what must not become true of a replay, such as newly_denied > 0.1%. Any part is enough.
type Condition []part

type part struct {
	text    string
	name    string
	orEqual bool
	most    float64
	percent bool
}

// ParseCondition reads parts, separated by commas. Each is a figure (denied_then, denied_now, newly_denied or
// no_longer_denied), > or >=, and a number of checks or a percentage of all checks.
func ParseCondition(text string) (Condition, error) {
	var c Condition
	for _, piece := range strings.Split(text, ",") {
		p := part{text: strings.TrimSpace(piece)}
		name, rest, found := strings.Cut(p.text, ">")
		p.name = strings.TrimSpace(name)
		if _, known := figures[p.name]; !found || !known {
			return nil, fmt.Errorf("%q is not a condition such as newly_denied > 0.1%%; the figures are denied_then, "+
				"denied_now, newly_denied and no_longer_denied", p.text)
		}
		rest, p.orEqual = strings.CutPrefix(rest, "=")
		rest, p.percent = strings.CutSuffix(strings.TrimSpace(rest), "%")
		var err error
		p.most, err = strconv.ParseFloat(strings.TrimSpace(rest), 64)
		if err != nil || !(p.most >= 0) || p.percent && p.most > 100 {
			return nil, fmt.Errorf("%q needs a number of checks, or a percentage from 0%% to 100%%", p.text)
		}
		c = append(c, p)
	}
	return c, nil
}

var figures = map[string]func(*Result) float64{
	"denied_then":      func(r *Result) float64 { return r.DeniedThen.Value },
	"denied_now":       func(r *Result) float64 { return r.DeniedNow.Value },
	"newly_denied":     func(r *Result) float64 { return r.NewlyDenied.Value },
	"no_longer_denied": func(r *Result) float64 { return r.NoLongerDenied.Value },
}

// Met returns the first part that is true of a result.
func (c Condition) Met(result *Result) (text string, met bool) {
	for _, p := range c {
		value := figures[p.name](result)
		if p.percent {
			value = 100 * value / max(1, result.Checks.Value)
		}
		if value > p.most || p.orEqual && value == p.most {
			return p.text, true
		}
	}
	return "", false
}
