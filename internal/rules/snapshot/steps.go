package snapshot

import (
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// step is the part of a rules.Step for checks; times are in microseconds.
type step struct {
	percent int
	since   int64
	endsAt  int64
}

func newStep(row *rules.Step) step {
	return step{percent: row.Percent, since: rules.UnixMicro(row.InForceSince), endsAt: rules.UnixMicro(row.EndsAt)}
}

// An ended step leaves its end as the limit's Since: see override.effective.
func (s step) effective(rule *rules.Rule, limit rules.Limit, now int64) rules.Limit {
	if now >= s.endsAt {
		limit.Since = max(limit.Since, s.endsAt+max(0, rule.Version-1))
		return limit
	}
	limit.Rate = rules.ShareOf(limit.Rate, s.percent)
	limit.Since = max(limit.Since, s.since)
	return limit
}

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

// Stands returns whether a match's limit is an override, or its share of the configured rate, in percent. A limit that
// came with a check is neither.
func (t *Tenant) Stands(m *rules.Match, now time.Time) (overridden bool, sharePercent int) {
	own := t.ownLimit(m.Rule, now.UnixMicro())
	if m.IsOwn {
		return false, 100
	}
	if !m.Limit.SameAmounts(own) {
		return true, 100
	}
	if s, ok := t.steps.get(m.Rule.ID); ok && own.Rate != m.Rule.RatePerSecond {
		return false, s.percent
	}
	return false, 100
}

// AdaptingRules returns the active ones by id; do not modify them.
func (t *Tenant) AdaptingRules() []*rules.Rule { return t.adapting }

// HasBackend reports whether an active rule of the tenant follows a backend.
func (t *Tenant) HasBackend(name string) bool {
	for _, rule := range t.adapting {
		if rule.Adapt.Backend == name {
			return true
		}
	}
	return false
}

func (t *tenantDraft) addStep(row *rules.Step) {
	next := newStep(row)
	t.noteStep(row, next)
	t.steps.set(row.RuleID, next)
}

func adaptingRules(x *index) (adapting []*rules.Rule) {
	for _, rule := range x.rules {
		if rule.Active && rule.Adapts() {
			adapting = append(adapting, rule)
		}
	}
	return adapting
}
