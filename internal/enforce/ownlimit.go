package enforce

import (
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// match appends the matches of a check, with its own limit in place of those that it replaces.
func match(tenant *snapshot.Tenant, check *Check, now time.Time, dst []rules.Match) []rules.Match {
	dst = tenant.Match(&check.Request, check.EffectivePlan, now, dst)
	if check.OwnLimit == nil {
		return dst
	}
	for i := range dst {
		if m := &dst[i]; isLimit(m) && isReplaceable(m.Rule) {
			replaceLimit(m, *check.OwnLimit)
		}
	}
	return dst
}

func replaceLimit(m *rules.Match, limit Limit) {
	if limit.Burst == 0 {
		block := *m.Rule
		block.Action = rules.ActionBlock
		m.Rule = &block
		return
	}
	m.Limit, m.IsOwn = limit, true
}

// isReplaceable reports whether a rule counts the requests of some descriptors. Other rules also limit what has no
// descriptor, count something else or limit what is in flight, so a descriptor's limit must not replace theirs.
func isReplaceable(rule *rules.Rule) bool {
	namesDescriptor := func(s rules.Segment) bool {
		return s.Field == rules.FieldAttribute && s.Attribute == rules.DescriptorAttribute
	}
	return rule.Meter == "" && rule.Algorithm != rules.Concurrency &&
		slices.ContainsFunc(rule.Pattern.Segments(), namesDescriptor)
}
