package violations

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Notice is a delivery with its content.
type Notice struct {
	Delivery
	Of         Alert // with the condition that it had when it was raised
	TenantSlug string
	Pattern    string // of the rule
	Meter      rules.Meter
	Detail     string     // name and plan, to tell rules of one pattern apart: "daily · pro"
	Mode       rules.Mode // shadow if its tenant was in shadow
}

// Summary reads like: The rule “Each user · daily · pro” denied 1,200 checks of one subject within 5 minutes.
func (n *Notice) Summary() string {
	if n.Test {
		return "This is a test. Nothing has happened."
	}
	whose, within := "", plural(int64(n.Of.Window/time.Minute), "minute")
	if n.Of.PerSubject {
		whose = " of one subject"
	}
	switch n.Of.Kind {
	case AlertNearLimit:
		were := "were denied"
		if n.Mode == rules.ModeShadow {
			were = "would have been denied (shadow)"
		}
		return fmt.Sprintf("%d%% of the checks of the %s %s or near its limit within %s.", n.Denied, n.ruleText(), were,
			within)
	case AlertCrossings:
		return fmt.Sprintf("%s of quotas of the %s%s within %s.", plural(n.Denied, "crossing"), n.ruleText(), whose,
			within)
	case AlertDegraded:
		if n.Rule != 0 {
			whose = " of the " + n.ruleText()
		}
		return fmt.Sprintf("%s%s within %s, without the shared buckets.", plural(n.Denied, "degraded decision"), whose,
			within)
	case AlertDenials:
	}
	denied, shadow := "denied", ""
	if n.Mode == rules.ModeShadow {
		denied, shadow = "would have denied", " (shadow)"
	}
	return fmt.Sprintf("The %s %s %s%s within %s%s.", n.ruleText(), denied, plural(n.Denied, "check"), whose, within,
		shadow)
}

func (n *Notice) ruleText() string {
	if n.Pattern == "" {
		return "rule " + strconv.FormatInt(int64(n.Rule), 10)
	}
	name := n.Pattern
	if pattern, err := rules.ParsePattern(name); err == nil {
		name = pattern.Words()
	}
	if n.Detail != "" {
		name += " · " + n.Detail
	}
	return "rule “" + name + "”"
}

func plural(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits + " " + noun
}
