// Package snapshot holds the data of checks in memory and finds the rules that match a request.
//
// A [Watcher] polls a [Source], the database, every second for a new immutable [Snapshot]. While the database is away,
// the last good one stays, with its [Watcher.Age]. Matching never blocks, and costs the same with ten rules or a
// hundred thousand: see [Tenant.Match].
package snapshot

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

var errUnknownPlan = errors.New("unknown plan")

// Snapshot is the immutable data of all tenants' checks at one moment.
type Snapshot struct {
	tenants table[rules.TenantID, *Tenant]
	keys    table[string, *Key]
	sizes   Sizes
	readAt  int64 // see Tenant.ReadAt
}

// Sizes counts the rows of a Snapshot.
type Sizes struct {
	Tenants         int
	TenantsInShadow int
	Rules           int // including inactive ones
	// Overrides includes expired and removed ones.
	Overrides   int
	Assignments int
	Keys        int // including revoked ones
	// UnknownRules and AdaptingRules count active ones.
	UnknownRules  int
	AdaptingRules int
}

// New returns a Snapshot of these pages of rows.
func New(pages ...Rows) *Snapshot {
	return new(Snapshot).With(pages...)
}

// With returns a copy with these rows changed, which shares the rest; a changed rule rebuilds its tenant's index. Rows
// of an unknown tenant are dropped, except for keys.
func (s *Snapshot) With(pages ...Rows) *Snapshot {
	d := newDraft(s)
	for i := range pages {
		d.add(&pages[i])
	}
	next, _ := d.snapshot()
	return next
}

// Tenant returns a tenant, or nil.
func (s *Snapshot) Tenant(id rules.TenantID) *Tenant {
	t, _ := s.tenants.get(id)
	return t
}

// Tenants iterates over all tenants, in no order.
func (s *Snapshot) Tenants() iter.Seq[*Tenant] {
	return func(yield func(*Tenant) bool) {
		for _, t := range s.tenants.all() {
			if !yield(t) {
				return
			}
		}
	}
}

// Key returns a key, which may be revoked or expired; do not modify it.
func (s *Snapshot) Key(id string) (*Key, bool) { return s.keys.get(id) }

// Sizes counts the Snapshot's rows.
func (s *Snapshot) Sizes() Sizes { return s.sizes }

func (s *Snapshot) revisions() map[rules.TenantID]int64 {
	revisions := make(map[rules.TenantID]int64, s.tenants.size)
	for id, t := range s.tenants.all() {
		revisions[id] = t.Tenant.Revision
	}
	return revisions
}

// Tenant is a tenant's part of a Snapshot.
type Tenant struct {
	Tenant rules.Tenant

	plans       table[string, string] // each name to itself
	rules       table[rules.RuleID, *rules.Rule]
	overrides   table[overrideKey, override]
	overridden  func() map[rules.RuleID]bool // the rules with overrides
	assignments table[string, string]        // user id to plan
	gateways    table[rules.GatewayKind, rules.Gateway]
	mappings    mappings
	index       *index
	steps       table[rules.RuleID, step]
	readAt      int64

	unknownRules int           // active ones
	adapting     []*rules.Rule // active ones, by id
}

// ReadAt is the time of the last reread by the database's clock, in microseconds. A rule in force well before it that
// is not here does not exist: see enforce.BucketCheck.
func (t *Tenant) ReadAt() int64 { return t.readAt }

// PlanOf returns the plan that a request names, or the user's, or the tenant's default, which may be "". Naming an
// unknown plan is an error.
func (t *Tenant) PlanOf(r *rules.Request) (string, error) {
	if r.Plan != "" {
		plan, ok := t.plans.get(r.Plan)
		if !ok {
			return "", fmt.Errorf("%w %q", errUnknownPlan, r.Plan)
		}
		return plan, nil
	}
	if plan, ok := t.AssignedPlan(r.UserID); ok {
		return plan, nil
	}
	return t.Tenant.DefaultPlan, nil
}

// Rules iterates by id, including inactive ones; do not modify them.
func (t *Tenant) Rules() iter.Seq[*rules.Rule] { return slices.Values(t.index.rules) }

// NamesAttribute reports whether a rule, active or not, names an attribute.
func (t *Tenant) NamesAttribute(name string) bool { return t.index.named[name] }

// CountsMeter reports whether a rule, active or not, counts a meter.
func (t *Tenant) CountsMeter(meter rules.Meter) bool { return t.index.meters[meter] }

// CountsMeters reports whether a rule, active or not, counts something else than requests.
func (t *Tenant) CountsMeters() bool {
	return len(t.index.meters) > 1 || len(t.index.meters) == 1 && !t.index.meters[""]
}

// AssignedPlan returns the user's assigned plan, if any.
func (t *Tenant) AssignedPlan(userID string) (string, bool) {
	if userID == "" {
		return "", false
	}
	return t.assignments.get(userID)
}

type overrideKey struct {
	rule rules.RuleID
	user string
}

// override is the part of a rules.Override for checks; times are in microseconds.
type override struct {
	rate      float64
	burst     int64
	since     int64
	expiresAt int64 // 0: never
	removedAt int64 // 0: not removed
}

func newOverride(row *rules.Override) override {
	return override{
		rate:      row.RatePerSecond,
		burst:     row.Burst,
		since:     rules.UnixMicro(row.InForceSince),
		expiresAt: rules.UnixMicro(row.ExpiresAt),
		removedAt: rules.UnixMicro(row.RemovedAt),
	}
}

// A bucket keeps the limit with the latest Since, so after an override the rule's own limit needs the end as its Since.
// The end is never before the override's start, or editing a long expired one would give a Since that the bucket has
// passed.
//
// A process that missed the rule's latest edit computes the same end with an older limit, so each version of the rule
// adds a microsecond. The query PutOverride keeps a new override later than that.
//
// A step does not lower an override, but its Since applies, so that buckets recover from a missed renewal of the step.
func (o override) effective(rule *rules.Rule, own rules.Limit, now int64) rules.Limit {
	expired := o.expiresAt != 0 && o.expiresAt <= now
	if !expired && o.removedAt == 0 {
		return rule.Limit().Overridden(o.rate, o.burst, max(o.since, own.Since))
	}
	end := max(o.since, o.removedAt)
	if expired {
		end = max(end, o.expiresAt)
	}
	own.Since = max(own.Since, end+max(0, rule.Version-1))
	return own
}
