package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/ruleset"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// History is what a tenant's checks depended on from a time until now.
type History struct {
	// Start is what stood at the beginning: the tenant, its rules and its overrides.
	Start snapshot.Rows
	// Changes follow, in order of time.
	Changes []Change
	// KnownSince is later than the time asked for if the audit log does not reach back to it. What stood then stands for what
	// was before.
	KnownSince time.Time
}

// Change is rows that changed at one time. Removed ones are marked.
type Change struct {
	At time.Time
	snapshot.Rows
}

// Candidate is what replaces rules for a whole replay.
type Candidate struct {
	// Rules are found by their identity, or added. Overrides replace those of the same rule and user.
	Config ruleset.Config
	// Prune removes every rule that Config does not have, and Plan every rule of that plan; "" for none.
	Prune bool
	Plan  string
	// Remove has rules that the candidate is without.
	Remove []rules.RuleIdentity
}

// replaces reports whether the candidate stands in a rule's place, or removes it.
func (c *Candidate) replaces(id rules.RuleIdentity) bool {
	return c.Prune || c.Plan != "" && c.Plan == id.Plan || slices.Contains(c.Remove, id) ||
		slices.ContainsFunc(c.Config.Rules, func(r rules.Rule) bool { return r.Identity() == id })
}

// version is a set of rules and when it came into force.
type version struct {
	from   int64 // in microseconds
	tenant *snapshot.Tenant
}

// world makes the versions of a history as they were, or as they would have been with a candidate.
type world struct {
	tenant rules.TenantID
	// leaveOut reports why a rule takes no part.
	leaveOut func(*rules.Rule) string
	// candidate is nil for the rules as they were.
	candidate *Candidate
	ids       map[rules.RuleIdentity]rules.RuleID // of all rules that ever were, and of the candidate's
	leftOut   map[rules.RuleID]LeftOut
	names     map[rules.RuleID]*rules.Rule // the latest
}

// versions returns the versions in order.
func (w *world) versions(h *History) []version {
	now := snapshot.New(w.start(&h.Start))
	all := []version{{tenant: now.Tenant(w.tenant)}}
	for i := range h.Changes {
		rows, changed := w.change(&h.Changes[i].Rows)
		if !changed {
			continue
		}
		now = now.With(rows)
		all = append(all, version{h.Changes[i].At.UnixMicro(), now.Tenant(w.tenant)})
	}
	return all
}

func (w *world) start(from *snapshot.Rows) snapshot.Rows {
	rows, _ := w.change(from)
	if w.candidate == nil {
		return rows
	}
	for i := range w.candidate.Config.Rules {
		rule := w.candidate.Config.Rules[i]
		rule.ID, rule.TenantID, rule.InForceSince = w.ids[rule.Identity()], w.tenant, time.Time{}
		if w.takesPart(&rule) {
			rows.Rules = append(rows.Rules, rule)
		}
	}
	for i := range w.candidate.Config.Overrides {
		o := w.candidate.Config.Overrides[i]
		if id, ok := w.ids[o.Rule]; ok {
			o.Override.RuleID, o.Override.TenantID, o.InForceSince = id, w.tenant, time.Time{}
			rows.Overrides = append(rows.Overrides, o.Override)
		}
	}
	return rows
}

// change returns what changed rows mean here; changed is false if nothing.
func (w *world) change(from *snapshot.Rows) (rows snapshot.Rows, changed bool) {
	rows.Tenants = from.Tenants
	changed = len(from.Tenants) > 0
	for i := range from.Rules {
		rule := from.Rules[i]
		if w.replaces(rule.Identity()) || !w.takesPart(&rule) {
			continue
		}
		rows.Rules = append(rows.Rules, rule)
		changed = true
	}
	for i := range from.Overrides {
		if o := from.Overrides[i]; !w.replacesOverride(&o) {
			rows.Overrides = append(rows.Overrides, o)
			changed = true
		}
	}
	return rows, changed
}

func (w *world) takesPart(rule *rules.Rule) bool {
	if w.names[rule.ID] == nil || rule.Version >= w.names[rule.ID].Version {
		w.names[rule.ID] = rule
	}
	why := w.leaveOut(rule)
	if why == "" {
		return true
	}
	if rule.Active && !rule.Removed {
		w.leftOut[rule.ID] = LeftOut{RuleID: int64(rule.ID), Rule: rule.Identity().String(), Why: why}
	}
	return rule.Removed
}

// replaces reports whether the candidate stands in a rule's place, or removes it.
func (w *world) replaces(id rules.RuleIdentity) bool {
	return w.candidate != nil && w.candidate.replaces(id)
}

func (w *world) replacesOverride(o *rules.Override) bool {
	return w.candidate != nil && slices.ContainsFunc(w.candidate.Config.Overrides, func(c ruleset.ConfigOverride) bool {
		return w.ids[c.Rule] == o.RuleID && c.UserID == o.UserID
	})
}

// identities numbers all rules of a history and a candidate. New rules come after all others.
func identities(h *History, candidate *Candidate) map[rules.RuleIdentity]rules.RuleID {
	ids := map[rules.RuleIdentity]rules.RuleID{}
	highest := rules.RuleID(0)
	note := func(all []rules.Rule) {
		for i := range all {
			ids[all[i].Identity()] = all[i].ID // a later rule of the same identity wins
			highest = max(highest, all[i].ID)
		}
	}
	note(h.Start.Rules)
	for i := range h.Changes {
		note(h.Changes[i].Rules)
	}
	if candidate != nil {
		for i := range candidate.Config.Rules {
			id := candidate.Config.Rules[i].Identity()
			if _, known := ids[id]; !known {
				highest++
				ids[id] = highest
			}
		}
	}
	return ids
}

// longest returns how long buckets of these versions remember at most.
func longest(all []version) (most time.Duration) {
	for _, v := range all {
		for rule := range v.tenant.Rules() {
			if !rule.Active || rule.Action != rules.ActionLimit {
				continue
			}
			limit := rule.Limit()
			switch {
			case rule.Window != rules.Window{}:
				most = max(most, cmp.Or(time.Duration(limit.Interval)*time.Microsecond, mostWarm))
			case limit.Rate > 0:
				most = max(most, time.Duration(min(float64(limit.Burst)/limit.Rate, mostWarm.Seconds())*float64(time.Second)))
			}
		}
	}
	return min(most, mostWarm)
}

// mostWarm caps the time before the range that fills buckets.
const mostWarm = 24 * time.Hour
