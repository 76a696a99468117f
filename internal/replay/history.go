package replay

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// History is a tenant's rules from a time until now, with everything else that checks depended on.
type History struct {
	Start   snapshot.Rows // the tenant, its rules and its overrides
	Changes []Change      // in order of time
	// KnownSince is later than the requested time if the audit log begins later. Start then stands for all time before.
	KnownSince time.Time
}

// hold makes the state at a time stand for all time before it.
func (h *History) hold(at time.Time) {
	hasEnded := func(expires time.Time) bool { return !expires.IsZero() && !expires.After(at) }
	h.Start.Rules = slices.DeleteFunc(slices.Clone(h.Start.Rules),
		func(r rules.Rule) bool { return hasEnded(r.ExpiresAt) })
	h.Start.Overrides = slices.DeleteFunc(slices.Clone(h.Start.Overrides),
		func(o rules.Override) bool { return hasEnded(o.ExpiresAt) })
	for i := range h.Start.Rules {
		h.Start.Rules[i].InForceSince = time.Time{}
	}
	for i := range h.Start.Overrides {
		h.Start.Overrides[i].InForceSince = time.Time{}
	}
}

// Change is rows that changed together. Removed ones are marked.
type Change struct {
	At time.Time
	snapshot.Rows
}

// Candidate replaces rules for a whole replay.
type Candidate struct {
	Config ruleset.Config // replaces rules of the same identity, and overrides of the same rule and user
	Prune  bool           // removes rules that Config lacks, only those of Plan if it is not ""
	Plan   string
	Remove []rules.RuleIdentity
}

// course is a tenant's rules over time. Only the present ones have an index, because each index holds all rules, and a
// history may have thousands of changes.
type course struct {
	start   snapshot.Rows
	changes []Change // to come
	now     *snapshot.Snapshot
}

// at returns the rules in force at a time, which must not go back, in microseconds. Changes since the last call are
// applied together.
func (c *course) at(tenant rules.TenantID, micros int64) *snapshot.Tenant {
	if c.now == nil {
		c.now = snapshot.New(c.start)
	}
	due := 0
	for due < len(c.changes) && c.changes[due].At.UnixMicro() <= micros {
		due++
	}
	if due > 0 {
		pages := make([]snapshot.Rows, due)
		for i := range pages {
			pages[i] = c.changes[i].Rows
		}
		c.now, c.changes = c.now.With(pages...), c.changes[due:]
	}
	return c.now.Tenant(tenant)
}

func (c *course) rules() iter.Seq[*rules.Rule] {
	return func(yield func(*rules.Rule) bool) {
		for i := range c.start.Rules {
			if !yield(&c.start.Rules[i]) {
				return
			}
		}
		for i := range c.changes {
			all := c.changes[i].Rules
			for j := range all {
				if !yield(&all[j]) {
					return
				}
			}
		}
	}
}

type world struct {
	tenant     rules.TenantID
	leaveOut   func(*rules.Rule) string    // why a rule takes no part; else ""
	candidate  *Candidate                  // nil for the rules as they were
	replaced   map[rules.RuleIdentity]bool // by the candidate, which has or removes them
	overridden map[overrideKey]bool
	ids        map[rules.RuleIdentity]rules.RuleID // of all rules that ever were, and of the candidate's
	leftOut    map[rules.RuleID]LeftOut
	names      map[rules.RuleID]*rules.Rule // the latest
}

func (w *world) course(h *History) *course {
	c := &course{start: w.start(&h.Start)}
	for i := range h.Changes {
		if rows, changed := w.change(&h.Changes[i].Rows); changed {
			c.changes = append(c.changes, Change{h.Changes[i].At, rows})
		}
	}
	return c
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

// change returns the changed rows that the candidate leaves; changed is false for none.
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
		if o := from.Overrides[i]; !w.overridden[overrideKey{o.RuleID, o.UserID}] {
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

func (w *world) use(candidate *Candidate) {
	if w.candidate = candidate; candidate == nil {
		return
	}
	w.replaced, w.overridden = map[rules.RuleIdentity]bool{}, map[overrideKey]bool{}
	for _, id := range candidate.Remove {
		w.replaced[id] = true
	}
	for i := range candidate.Config.Rules {
		w.replaced[candidate.Config.Rules[i].Identity()] = true
	}
	for i := range candidate.Config.Overrides {
		o := &candidate.Config.Overrides[i]
		w.overridden[overrideKey{w.ids[o.Rule], o.UserID}] = true
	}
}

func (w *world) replaces(id rules.RuleIdentity) bool {
	c := w.candidate
	return c != nil && (c.Prune || c.Plan != "" && c.Plan == id.Plan || w.replaced[id])
}

type overrideKey struct {
	rule rules.RuleID
	user string
}

// identities numbers all rules of a history and a candidate, new ones last.
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

func longest(all *course) (most time.Duration) {
	for rule := range all.rules() {
		if rule.Removed || !rule.Active || rule.Action != rules.ActionLimit {
			continue
		}
		limit := rule.Limit()
		switch {
		case rule.Window != rules.Window{}:
			most = max(most, cmp.Or(time.Duration(limit.Interval)*time.Microsecond, mostWarm))
		case limit.Rate > 0:
			most = max(most, time.Duration(min(float64(limit.Burst)/limit.Rate,
				mostWarm.Seconds())*float64(time.Second)))
		}
	}
	return min(most, mostWarm)
}

const mostWarm = 24 * time.Hour
