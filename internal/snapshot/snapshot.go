// Package snapshot holds in memory what checks depend on, and finds the rules that a request meets.
//
// A [Snapshot] is all tenants' plans, rules, overrides, assignments and API keys as they stood at one moment. It is
// immutable. A [Watcher] reads a [Source], which is the database, every second and puts a new Snapshot in the place
// of the one before.
//
// When the database is away, the last good Snapshot stays in force and [Watcher.Age] says how old it is; until one
// was loaded there is none. Matching neither blocks nor does input or output.
//
// A match costs the same with ten rules or a hundred thousand: see [Tenant.Match]. A poll copies little but what is
// new: see [Snapshot.With].
package snapshot

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

// errUnknownPlan is what a check gets that names a plan which its tenant does not have.
var errUnknownPlan = errors.New("unknown plan")

// Snapshot is everything that checks depend on, as it stood at one moment. It is immutable, and
// any number of goroutines may use it.
type Snapshot struct {
	tenants table[rules.TenantID, *Tenant]
	keys    table[string, *Key]
	sizes   Sizes
	readAt  int64 // see Tenant.ReadAt
}

// Sizes says how much a Snapshot holds.
type Sizes struct {
	Tenants int
	// TenantsInShadow counts the tenants whose rules all act as shadow rules.
	TenantsInShadow int
	Rules           int // inactive ones too
	// Overrides includes expired and removed ones: see rules.Override.RemovedAt.
	Overrides   int
	Assignments int
	Keys        int // revoked ones too
	// UnknownRules counts the active rules that this process cannot apply: see rules.Rule.Unknown.
	UnknownRules int
	// AdaptingRules counts the active rules whose rate adapts.
	AdaptingRules int
}

// New returns a Snapshot of these pages of rows.
func New(pages ...Rows) *Snapshot {
	return new(Snapshot).With(pages...)
}

// With returns a Snapshot in which these rows are as they say and all others as in s. The two share
// what did not change, so that one new assignment among a million does not copy the million; a
// changed rule costs its tenant a new index of its rules. Rows of a tenant that neither s nor the
// pages hold are left out, but for keys.
func (s *Snapshot) With(pages ...Rows) *Snapshot {
	d := newDraft(s, false)
	for i := range pages {
		d.add(&pages[i])
	}
	next, _ := d.snapshot()
	return next
}

// Tenant returns what belongs to a tenant, or nil if there is no such tenant.
func (s *Snapshot) Tenant(id rules.TenantID) *Tenant {
	t, _ := s.tenants.get(id)
	return t
}

// Tenants visits all tenants, in no order.
func (s *Snapshot) Tenants() iter.Seq[*Tenant] {
	return func(yield func(*Tenant) bool) {
		for _, t := range s.tenants.all() {
			if !yield(t) {
				return
			}
		}
	}
}

// Key returns the API key with that public id. It may be revoked or expired. Do not change it.
func (s *Snapshot) Key(id string) (*Key, bool) { return s.keys.get(id) }

// Sizes says how much the Snapshot holds.
func (s *Snapshot) Sizes() Sizes { return s.sizes }

// revisions are the tenants' revisions, for Source.Read.
func (s *Snapshot) revisions() map[rules.TenantID]int64 {
	revisions := make(map[rules.TenantID]int64, s.tenants.size)
	for id, t := range s.tenants.all() {
		revisions[id] = t.Tenant.Revision
	}
	return revisions
}

// Tenant is one tenant's part of a Snapshot: its plans, who is on which, and its rules, indexed
// so that Match costs the same however many there are.
type Tenant struct {
	// Tenant is the tenant itself. Do not change it.
	Tenant rules.Tenant

	plans       table[string, string] // each name to itself
	rules       table[rules.RuleID, *rules.Rule]
	overrides   table[overrideKey, override]
	overridden  func() map[rules.RuleID]bool // the rules that overrides are for
	assignments table[string, string]        // user id to plan
	gateways    table[rules.GatewayKind, rules.Gateway]
	mappings    mappings
	index       *index
	steps       table[rules.RuleID, step]
	readAt      int64

	unknownRules int           // active ones
	adapting     []*rules.Rule // active ones, by id
}

// ReadAt is when all rules were last read, these among them, in microseconds since the Unix epoch; 0 if the source
// did not say. It is on the database's clock or, if that is behind, on this process's. What came into force
// well before then and is not here does not exist: see enforce.BucketCheck.
func (t *Tenant) ReadAt() int64 { return t.readAt }

// PlanOf returns the plan that a request is judged on: the one it names, else its user's, else the
// tenant's default, which may be "". A named plan that does not exist is an error.
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

// Rules visits all rules in order of id, inactive ones too. Do not change them.
func (t *Tenant) Rules() iter.Seq[*rules.Rule] { return slices.Values(t.index.rules) }

// NamesAttribute reports whether a rule, active or not, looks at an attribute.
func (t *Tenant) NamesAttribute(name string) bool { return t.index.named[name] }

// AssignedPlan returns the plan that a user is assigned to, if any.
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

// override is what a check needs of an Override. Times are in microseconds since the Unix epoch.
type override struct {
	rate      float64
	burst     int64
	since     int64
	expiresAt int64 // 0: never
	removedAt int64 // 0: not
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

// effective returns what holds for a user that has the override for the rule.
//
// An override that ended leaves its end as the Since of the rule's limit: a bucket remembers the
// Since of the limit it holds and a later one wins, so without that trace it would stay at the
// override. An override cannot have ended before it began, so that editing one that had long
// expired cannot leave a Since which the bucket already passed.
//
// A process that has not read the rule's latest edit knows the same end and another limit. So that the later
// edit wins, each version of the rule counts as a microsecond later than the one before it. The query
// PutOverride keeps a new override later than that.
//
// own is the rule's limit, with its step. A step lowers no override, but its Since counts for overrides too, so that
// their buckets are rid of what a process held that missed a renewal of the step.
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
