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
	planRows.writeChanges(out, c.Plans)
	ruleRows.writeChanges(out, c.Rules)
	overrideRows.writeChanges(out, c.Overrides)
	gatewayRows.writeChanges(out, c.Gateways)
	planRows.writeKept(out, c.Kept.Plans)
	ruleRows.writeKept(out, c.Kept.Rules)
	overrideRows.writeKept(out, c.Kept.Overrides)
	gatewayRows.writeKept(out, c.Kept.Gateways)
	for _, override := range c.Expired {
		fmt.Fprintf(out, "= override for %s: left out, as it expired at %s\n", override.Identity(),
			override.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return out.Flush() // reports the first error of all writes
}

func (r rows[T, ID]) writeKept(w *bufio.Writer, kept []T) {
	for i := range kept {
		fmt.Fprintf(w, "= %s %v: kept, though not in the file\n", r.kind, r.identity(&kept[i]))
	}
}

func (r rows[T, ID]) writeChanges(w *bufio.Writer, changes []Change[T]) {
	for _, change := range changes {
		what := fmt.Sprintf("%s %v", r.kind, r.identity(change.either()))
		switch {
		case change.After == nil:
			fmt.Fprintf(w, "- %s\n", what)
		case change.Before == nil:
			if text := r.describe(change.After); text != "" {
				what += ": " + text
			}
			fmt.Fprintf(w, "+ %s\n", what)
		default:
			before, after := r.fields(change.Before), r.fields(change.After)
			var parts []string
			for i := range after {
				if before[i] != after[i] {
					parts = append(parts, fmt.Sprintf("%s %s → %s", after[i].name, before[i].value, after[i].value))
				}
			}
			fmt.Fprintf(w, "~ %s: %s\n", what, strings.Join(parts, ", "))
		}
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
