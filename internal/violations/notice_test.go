package violations_test

import (
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestWhatANoticeSays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind       violations.AlertKind
		rule       rules.RuleID
		perSubject bool
		mode       rules.Mode
		want       string
	}{
		{
			violations.AlertDenials, 7, true, rules.ModeEnforce,
			"The rule “Each user · daily · pro” denied 1,200 checks of one subject within 5 minutes.",
		},
		{
			violations.AlertDenials, 7, false, rules.ModeShadow,
			"The rule “Each user · daily · pro” would have denied 1,200 checks within 5 minutes (shadow).",
		},
		{
			violations.AlertNearLimit, 7, false, rules.ModeEnforce,
			"1200% of the checks of the rule “Each user · daily · pro” were denied or near its limit within " +
				"5 minutes.",
		},
		{
			violations.AlertNearLimit, 7, false, rules.ModeShadow,
			"1200% of the checks of the rule “Each user · daily · pro” would have been denied (shadow) or " +
				"near its limit within 5 minutes.",
		},
		{
			violations.AlertCrossings, 7, true, rules.ModeEnforce,
			"1,200 crossings of quotas of the rule “Each user · daily · pro” of one subject within 5 minutes.",
		},
		{
			violations.AlertDegraded, 0, false, "",
			"1,200 degraded decisions within 5 minutes, without the shared buckets.",
		},
		{
			violations.AlertDegraded, 7, false, rules.ModeEnforce,
			"1,200 degraded decisions of the rule “Each user · daily · pro” within 5 minutes, without the " +
				"shared buckets.",
		},
	} {
		notice := violations.Notice{
			Delivery: violations.Delivery{Firing: violations.Firing{Rule: test.rule, Denied: 1200}},
			Of:       violations.Alert{Kind: test.kind, PerSubject: test.perSubject, Window: 5 * time.Minute},
			Pattern:  "user:{user_id}", Detail: "daily · pro", Mode: test.mode,
		}
		if got := notice.Summary(); got != test.want {
			t.Errorf("an alert of %s says\n%s, want\n%s", test.kind, got, test.want)
		}
	}
}
