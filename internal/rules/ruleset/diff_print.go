package ruleset

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// WriteText writes one line for each change and each row that was kept or left out:
//
//	~ rule global: rate 10 per second → 20 per second, burst 50 → 100
//	+ rule user:{user_id} [free] daily: 1,000 per day, bursts to 50
//	- plan old
//	= rule ip:{ip}: kept, though not in the file
func (c Changes) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, change := range c.Plans {
		writeChange(out, change, "plan "+change.either().Name, planFields, describePlan)
	}
	for _, change := range c.Rules {
		writeChange(out, change, "rule "+change.either().Identity().String(), ruleFields, describeRule)
	}
	for _, change := range c.Overrides {
		writeChange(out, change, "override for "+change.either().Identity().String(), overrideFields, describeOverride)
	}
	for _, change := range c.Gateways {
		writeChange(out, change, "gateway "+string(change.either().Kind), gatewayFields, describeGateway)
	}
	for _, plan := range c.Kept.Plans {
		fmt.Fprintf(out, "= plan %s: kept, though not in the file\n", plan.Name)
	}
	for _, rule := range c.Kept.Rules {
		fmt.Fprintf(out, "= rule %s: kept, though not in the file\n", rule.Identity())
	}
	for _, override := range c.Kept.Overrides {
		fmt.Fprintf(out, "= override for %s: kept, though not in the file\n", override.Identity())
	}
	for _, gateway := range c.Kept.Gateways {
		fmt.Fprintf(out, "= gateway %s: kept, though not in the file\n", gateway.Kind)
	}
	for _, override := range c.Expired {
		fmt.Fprintf(out, "= override for %s: left out, as it expired at %s\n", override.Identity(),
			override.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return out.Flush() // reports the first error of all writes
}

func writeChange[T any](w *bufio.Writer, change Change[T], what string, fields func(*T) []field,
	describe func(*T) string,
) {
	switch {
	case change.After == nil:
		fmt.Fprintf(w, "- %s\n", what)
	case change.Before == nil:
		if text := describe(change.After); text != "" {
			what += ": " + text
		}
		fmt.Fprintf(w, "+ %s\n", what)
	default:
		before, after := fields(change.Before), fields(change.After)
		var parts []string
		for i := range after {
			if before[i] != after[i] {
				parts = append(parts, fmt.Sprintf("%s %s → %s", after[i].name, before[i].value, after[i].value))
			}
		}
		fmt.Fprintf(w, "~ %s: %s\n", what, strings.Join(parts, ", "))
	}
}

func describePlan(p *rules.Plan) string {
	if p.Description == "" {
		return ""
	}
	return strconv.Quote(p.Description)
}

func describeRule(r *rules.Rule) string {
	text := string(r.Action)
	if r.Action == rules.ActionLimit {
		text = r.DescribeLimit()
	}
	if r.Mode != rules.ModeEnforce {
		text += ", mode " + string(r.Mode)
	}
	if r.FailureMode != "" {
		text += ", failure_mode " + string(r.FailureMode)
	}
	if r.NeverLeased {
		text += ", lease never"
	}
	if !r.Active {
		text += ", not active"
	}
	if !r.ExpiresAt.IsZero() {
		text += ", until " + r.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return text
}

func describeOverride(o *ConfigOverride) string {
	text := rules.DescribeAmounts(o.RatePerSecond, o.RateUnit, o.Burst)
	if !o.ExpiresAt.IsZero() {
		text += ", until " + o.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return text + " (" + rules.Visible(o.Reason) + ")"
}
