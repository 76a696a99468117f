// Package snapshot holds the data of checks in memory and finds the rules that match a request.
//
// A [Snapshot] is an immutable copy of all tenants' plans, rules, overrides, assignments and API keys at one moment. A
// [Watcher] polls a [Source], the database, every second and replaces the Snapshot. While the database is away, the
// last good Snapshot stays and [Watcher.Age] returns its age. Matching never blocks, and costs the same with ten rules
// or a hundred thousand: see [Tenant.Match].
package snapshot

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

var errUnknownPlan = errors.New("unknown plan")

// Snapshot is the data of checks at one moment. It is immutable and safe for concurrent use.
type Snapshot struct {
	tenants table[rules.TenantID, *Tenant]
	keys    table[string, *Key]
	sizes   Sizes
	readAt  int64 // see Tenant.ReadAt
}

// Sizes counts the rows of a Snapshot.
type Sizes struct {
	Tenants int
	// TenantsInShadow counts tenants in shadow: see rules.Tenant.InShadow.
	TenantsInShadow int
	Rules           int // including inactive ones
	// Overrides includes expired and removed ones: see rules.Override.RemovedAt.
	Overrides   int
	Assignments int
	Keys        int // including revoked ones
	// UnknownRules counts active rules that this process cannot apply: see rules.Rule.Unknown.
	UnknownRules int
	// AdaptingRules counts active rules that adapt.
	AdaptingRules int
}

// New returns a Snapshot of these pages of rows.
func New(pages ...Rows) *Snapshot {
	return new(Snapshot).With(pages...)
}

// With returns a copy of s with these rows changed. The copy shares unchanged data: one new assignment does not copy a
// million others, but a changed rule rebuilds its tenant's index. Rows of a tenant that neither s nor the pages contain
// are dropped, except for keys.
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

// Key returns the API key with a public id, which may be revoked or expired. Do not modify it.
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
	// Tenant is the tenant's row. Do not modify it.
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

// ReadAt is the time of the last reread, in microseconds since the Unix epoch; 0 if unknown. It is the database's
// clock, or this process's if that is behind. A rule in force well before ReadAt that is not here does not exist: see
// enforce.BucketCheck.
func (t *Tenant) ReadAt() int64 { return t.readAt }

// PlanOf returns the plan of a request: the one it names, else the user's assigned plan, else the tenant's default,
// which may be "". Naming an unknown plan is an error.
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

// Rules iterates over all rules by id, including inactive ones. Do not modify them.
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

// override is the part of a rules.Override that a check needs. Times are in microseconds since the Unix epoch.
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

// effective returns the limit of a user with the override.
//
// A bucket keeps the limit with the latest Since. After an override has ended, the rule's own limit therefore needs the
// end as its Since, or the bucket would stay at the override. The end is never before the override's start, so that
// editing a long expired override cannot give a Since that the bucket has already passed.
//
// A process that missed the rule's latest edit computes the same end with an older limit. Each version of the rule adds
// a microsecond, so that the later edit wins. The query PutOverride keeps a new override later than that.
//
// own is the rule's limit with its step. A step does not lower an override, but its Since applies, so that buckets
// recover from a process that missed a renewal of the step.
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
