package snapshot

import (
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// step is what a check needs of a rules.Step. Times are in microseconds since the Unix epoch.
type step struct {
	percent int
	since   int64
	endsAt  int64
}

func newStep(row *rules.Step) step {
	return step{percent: row.Percent, since: rules.UnixMicro(row.InForceSince), endsAt: rules.UnixMicro(row.EndsAt)}
}

// effective returns a rule's limit under the step. One that has ended leaves its end as the Since of the rule's limit, as an
// override does: see override.effective.
func (s step) effective(rule *rules.Rule, limit rules.Limit, now int64) rules.Limit {
	if now >= s.endsAt {
		limit.Since = max(limit.Since, s.endsAt+max(0, rule.Version-1))
		return limit
	}
	limit.Rate = rules.ShareOf(limit.Rate, s.percent)
	limit.Since = max(limit.Since, s.since)
	return limit
}

// ownLimit returns what a rule allows users without an override: its configured limit, or a share of that rate.
func (t *Tenant) ownLimit(rule *rules.Rule, now int64) rules.Limit {
	limit := rule.Limit()
	if t.steps.size == 0 || !rule.Adapts() {
		return limit
	}
	if s, ok := t.steps.get(rule.ID); ok {
		return s.effective(rule, limit, now)
	}
	return limit
}

// Stands says where the limit of a match comes from: from an override, or from the share of its rate that the rule has,
// which is 100 percent unless a step holds.
func (t *Tenant) Stands(m *rules.Match, now time.Time) (overridden bool, sharePercent int) {
	own := t.ownLimit(m.Rule, now.UnixMicro())
	if !m.Limit.SameAmounts(own) {
		return true, 100
	}
	if s, ok := t.steps.get(m.Rule.ID); ok && own.Rate != m.Rule.RatePerSecond {
		return false, s.percent
	}
	return false, 100
}

// AdaptingRules returns the tenant's active rules whose rate adapts, by id. Do not change them.
func (t *Tenant) AdaptingRules() []*rules.Rule { return t.adapting }

// HasBackend reports whether an active rule of the tenant adapts to a backend. There are few such rules.
func (t *Tenant) HasBackend(name string) bool {
	for _, rule := range t.adapting {
		if rule.Adapt.Backend == name {
			return true
		}
	}
	return false
}

// addStep keeps ended steps, as the trace that step.effective needs.
func (t *tenantDraft) addStep(row *rules.Step) {
	t.seen.steps++
	t.steps.set(row.RuleID, newStep(row))
}

// adaptingRules returns the active rules of an index that adapt.
func adaptingRules(x *index) (adapting []*rules.Rule) {
	for _, rule := range x.rules {
		if rule.Active && rule.Adapts() {
			adapting = append(adapting, rule)
		}
	}
	return adapting
}
