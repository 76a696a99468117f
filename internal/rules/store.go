package rules

import (
	"context"
	"errors"
	"strings"
	"time"
)

// What a store answers beside FieldErrors; the error around it says of what, for people.
var (
	// ErrNotFound is for a row that does not exist or belongs to another tenant; the two cannot be
	// told apart.
	ErrNotFound = errors.New("not found")
	// ErrExists is for a new row whose name or identity is taken.
	ErrExists = errors.New("exists already")
	// ErrInUse is for a plan that rules or users still need.
	ErrInUse = errors.New("in use")
	// ErrChanged is for an update of a row that somebody else changed since it was read.
	ErrChanged = errors.New("changed meanwhile")
	// ErrFinal is for a change that cannot be undone.
	ErrFinal = errors.New("final")
	// ErrAway is for a store that cannot answer now, and may soon. What was to be written may have been.
	ErrAway = errors.New("the store is away")
	// ErrBeingWritten is for a write that gave up waiting for another write of the same tenant.
	ErrBeingWritten = errors.New("another write of the tenant is under way")
	// ErrOutcomeUnknown is for a change that may have been made: its answer was lost.
	ErrOutcomeUnknown = errors.New("it is not known whether that was done")
)

// Actor is who changes something, as the audit log names them.
type Actor struct {
	Kind ActorKind
	ID   string // the account's or the key's id; "" for the others
	Name string // the account's e-mail address, the key's name, or the command
	// Act is what the actor asked for, where the changed rows alone do not say it: "promote",
	// "import", "revert 812"; else "".
	Act string
	// RequestID is the id under which the request is logged; "" without one.
	RequestID string
}

// ActorKind is what sort of actor changes something.
type ActorKind string

// A person, an API key, somebody at a command line, or a program that
// acts on its own.
const (
	ActorAccount ActorKind = "account"
	ActorKey     ActorKind = "api_key"
	ActorCommand ActorKind = "command"
	ActorSystem  ActorKind = "system"
)

// Reader reads tenants and what they own, for people and files. Checks read a Snapshot instead. Lists start after the given name or id, in its order, and hold at most limit rows.
type Reader interface {
	Tenant(ctx context.Context, id TenantID) (Tenant, error)
	TenantBySlug(ctx context.Context, slug string) (Tenant, error)
	// Tenants lists by slug those whose slug or name contains the text, in any case; "" is in all.
	Tenants(ctx context.Context, text, after string, limit int) ([]Tenant, error)
	// RemovedTenants lists by slug, whether erased or not.
	RemovedTenants(ctx context.Context, after string, limit int) ([]RemovedTenant, error)

	Plans(ctx context.Context, tenant TenantID, after string, limit int) ([]PlanUse, error) // by name
	Plan(ctx context.Context, tenant TenantID, name string) (PlanUse, error)

	Rules(ctx context.Context, tenant TenantID, filter RuleFilter, after RuleID, limit int) (RulePage, error)
	Rule(ctx context.Context, tenant TenantID, id RuleID) (Rule, error)
	// RulesByID returns those of the rules that there are, in no order.
	RulesByID(ctx context.Context, tenant TenantID, ids []RuleID) ([]Rule, error)
	// RulesEver is RulesByID with removed rules, as they were last.
	RulesEver(ctx context.Context, tenant TenantID, ids []RuleID) ([]Rule, error)
	// Matrix lists the rules of the next limit rows of the plan matrix, a row being what has one
	// pattern and name, by pattern and name. It starts after the given row, of which Plan means
	// nothing. A row always comes whole.
	Matrix(ctx context.Context, tenant TenantID, after RuleIdentity, limit int) ([]Rule, error)

	// Overrides lists a rule's overrides by user, expired ones too.
	Overrides(ctx context.Context, tenant TenantID, rule RuleID, after string, limit int) ([]Override, error)
	// FindOverrides lists those of the whole tenant that a filter selects, expired ones too.
	FindOverrides(ctx context.Context, tenant TenantID, filter OverrideFilter, after OverridePlace, limit int) (OverridePage, error)
	// OverridesOfUser lists a user's overrides by rule, expired ones too.
	OverridesOfUser(ctx context.Context, tenant TenantID, userID string, after RuleID, limit int) ([]Override, error)
	Override(ctx context.Context, tenant TenantID, rule RuleID, userID string) (Override, error)

	// Assignments lists by user id who is on a plan, or on any if it is "", of those whose id
	// begins with prefix.
	Assignments(ctx context.Context, tenant TenantID, plan, prefix, after string, limit int) ([]Assignment, error)
	Assignment(ctx context.Context, tenant TenantID, userID string) (Assignment, error)

	// Gateways lists by kind the mappings that the tenant has.
	Gateways(ctx context.Context, tenant TenantID) ([]Gateway, error)
	Gateway(ctx context.Context, tenant TenantID, kind GatewayKind) (Gateway, error)
	ScheduledChange(ctx context.Context, tenant TenantID, id int64) (ScheduledChange, error)
	// ScheduledChanges returns a page of the changes of a rule (0: all rules), the latest first, before an id; 0 begins at the
	// latest. isOpen selects those that wait or are in force until an end.
	ScheduledChanges(ctx context.Context, tenant TenantID, rule RuleID, isOpen bool, before int64, limit int) ([]ScheduledChange, error)
}

// RemovedTenant is a tenant that was removed. What is stored of it is erased after a grace period.
type RemovedTenant struct {
	Slug, Name string // the name is gone when the erasure begins
	RemovedAt  time.Time
	BeganAt    time.Time        // zero: its erasure has not begun
	ErasedAt   time.Time        // zero: rows are left
	Rows       map[string]int64 // erased so far, by table
}

// Store is where tenants and what they own are written down, in the name of one Actor.
//
// A write is all or nothing, is written to the audit log in the same transaction, and raises its
// tenant's revision unless it changed nothing. Writers of one tenant wait for each other. A store
// expects values that were validated, and answers with them as they are stored: ids, versions,
// times and revisions are the store's.
//
// Where a method takes an Expected, or a row that has a version, it is ErrChanged unless that fits what
// is stored.
type Store interface {
	Reader

	// CreateTenant also creates the default plan, if the tenant names one.
	CreateTenant(ctx context.Context, tenant Tenant) (Tenant, error)
	// UpdateTenant changes all but the slug, at the tenant's Version.
	UpdateTenant(ctx context.Context, tenant Tenant) (Tenant, error)
	// RemoveTenant removes a suspended tenant: it is ErrInUse unless suspended, and afterwards nothing of it is found any
	// more. Its slug is not free again. What is stored of it is erased after a grace period, and until then it can be restored.
	RemoveTenant(ctx context.Context, id TenantID, expected Expected) error
	// RestoreTenant undoes RemoveTenant; the tenant is suspended as before. It is ErrNotFound for a slug that no removed
	// tenant has, and ErrFinal once its erasure has begun.
	RestoreTenant(ctx context.Context, slug string) (Tenant, error)

	CreatePlan(ctx context.Context, plan Plan) (Plan, error)
	// UpdatePlan changes a plan at its Revision.
	UpdatePlan(ctx context.Context, plan Plan) (Plan, error)
	// RemovePlan is ErrInUse while rules or users are on the plan or it is the tenant's default.
	RemovePlan(ctx context.Context, tenant TenantID, name string, expected Expected) error

	// CreateRule is FieldErrors on key_pattern if there are MaxRulesPerPattern of its pattern and plan.
	CreateRule(ctx context.Context, rule Rule) (Rule, error)
	// UpdateRule changes all but what identifies the rule, at its Version.
	UpdateRule(ctx context.Context, rule Rule) (Rule, error)
	// CreateCandidate creates a shadow rule beside the live rule that its CandidateFor names, under a free name. It is ErrExists
	// if the live rule has a candidate, and ErrInUse unless the live rule CanBeTried.
	CreateCandidate(ctx context.Context, candidate Rule) (Rule, error)
	// RemoveRule removes the rule's overrides and its candidate as well.
	RemoveRule(ctx context.Context, tenant TenantID, id RuleID, expected Expected) error
	// Schedule lets a change wait for its time, all of its rules or none; after are they as the change would leave them now. A
	// change without a start is made at once. The change that it replaces is canceled: ErrChanged if that no longer waits. An error is ErrTooManyScheduled, or tells by index what is wrong with single rules:
	// FieldErrors on change if it changes nothing, ErrChanged, ErrNotFound or ErrScheduledOverlap.
	Schedule(ctx context.Context, change ScheduledChange, after []Rule) (ScheduledChange, error)
	// CancelScheduled cancels a change that waits, and takes back all of one that is in force. Others stay as they are.
	CancelScheduled(ctx context.Context, tenant TenantID, id int64) (ScheduledChange, error)
	// PromoteRule gives the limit, action and failure mode of a shadow rule, the candidate, to the
	// live rule beside it, which keeps its id, its buckets and its overrides, and removes the
	// candidate. Both have one pattern and plan. With a live of 0 the candidate itself is enforced
	// from now on. It returns the rule that is in force, which becomes active if it was not.
	PromoteRule(ctx context.Context, tenant TenantID, candidate RuleID, expected Expected, live RuleID, liveExpected Expected) (Rule, error)

	// PutOverride creates the user's override for the rule (NoneStored) or takes the place of the one
	// there is (its Revision, or AnyStored).
	PutOverride(ctx context.Context, override Override, expected Expected) (Override, error)
	RemoveOverride(ctx context.Context, tenant TenantID, rule RuleID, userID string, expected Expected) error

	// Assign puts one user on a plan, or back on the tenant's default if the plan is "".
	Assign(ctx context.Context, assignment Assignment, expected Expected) (Assignment, error)
	// AssignAll does so for many, each named once, whatever was stored, and returns how many that
	// changed.
	AssignAll(ctx context.Context, tenant TenantID, assignments []Assignment) (changed int64, err error)

	// PutGateway creates the mapping of its kind (NoneStored) or replaces it (its Revision, or AnyVersion).
	PutGateway(ctx context.Context, gateway Gateway, expected Expected) (Gateway, error)
	// RemoveGateway returns to the default mapping.
	RemoveGateway(ctx context.Context, tenant TenantID, kind GatewayKind, expected Expected) error
}

// Expected is the condition on which a write replaces what is stored: the version of a rule or tenant, or the
// revision of another row.
type Expected int64

// The other conditions. NoneStored is for a row that must not exist yet, AnyStored for one that must, where
// AnyVersion would create it.
const (
	AnyStored  Expected = -2
	AnyVersion Expected = -1
	NoneStored Expected = 0
)

// PlanUse is a plan and how many need it.
type PlanUse struct {
	Plan
	Rules     int64 // that name it
	Users     int64 // who are assigned to it; those on it by default are not known
	IsDefault bool  // of the tenant
}

// RuleFilter selects rules; what is left empty selects all.
type RuleFilter struct {
	Scope Scope
	// Plan selects the rules of one plan, or those for all plans if it points to "".
	Plan   *string
	Mode   Mode
	Action Action
	Active *bool
	// Pattern selects the rules with one key pattern, in its canonical form.
	Pattern string
	// Text is contained in the pattern, name or description, in any case of ASCII letters.
	Text string
}

// OverrideFilter selects overrides of a tenant; what is not set selects all.
type OverrideFilter struct {
	Rule       RuleID
	User       string
	UserPrefix string // what user ids begin with
	// EndsAfter and EndsBefore select those that end at or after the one time and before the other; an
	// override that never ends does neither.
	EndsAfter, EndsBefore time.Time
	// NotEndedBefore selects those that end at this time or later, and those that never end.
	NotEndedBefore time.Time
	// ByEnd orders by when they end, and leaves out those that never do; else they come by user.
	ByEnd bool
}

// Selects reports whether an override passes the filter.
func (f *OverrideFilter) Selects(o *Override) bool {
	end := o.ExpiresAt
	return (f.Rule == 0 || o.RuleID == f.Rule) &&
		(f.User == "" || o.UserID == f.User) && strings.HasPrefix(o.UserID, f.UserPrefix) &&
		(f.EndsAfter.IsZero() || !end.IsZero() && !end.Before(f.EndsAfter)) &&
		(f.EndsBefore.IsZero() || !end.IsZero() && end.Before(f.EndsBefore)) &&
		(end.IsZero() || !end.Before(f.NotEndedBefore)) &&
		(!f.ByEnd || !end.IsZero())
}

// OverridePlace is a place in a list of overrides; the zero value is the beginning.
type OverridePlace struct {
	End  time.Time // only in a list by end
	User string
	Rule RuleID
}

// Place returns where an override is in a list.
func (f *OverrideFilter) Place(o *Override) OverridePlace {
	place := OverridePlace{User: o.UserID, Rule: o.RuleID}
	if f.ByEnd {
		place.End = o.ExpiresAt
	}
	return place
}

// OverridePage is one page of overrides.
type OverridePage struct {
	Overrides []Override
	// Next is after what to go on, the zero value at the end. A filter that few overrides pass looks at a
	// bounded number of them, so a page can hold few or none and not be the last.
	Next OverridePlace
}

// RulePage is one page of rules by id.
type RulePage struct {
	Rules []Rule
	// Next is after what to go on, 0 at the end. A filter that few rules pass looks at a bounded
	// number of them, so a page can hold few rules or none and not be the last.
	Next RuleID
}
