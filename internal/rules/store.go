package rules

import (
	"context"
	"errors"
	"strings"
	"time"
)

// The errors of a store beside FieldErrors. The error around one names the row.
var (
	// ErrNotFound means that the row does not exist or belongs to another tenant; callers cannot distinguish the two.
	ErrNotFound = errors.New("not found")
	// ErrExists means that the name or identity of a new row is taken.
	ErrExists = errors.New("exists already")
	// ErrInUse means that rules or users still need the plan.
	ErrInUse = errors.New("in use")
	// ErrChanged means that somebody else has changed the row since it was read.
	ErrChanged = errors.New("changed meanwhile")
	// ErrFinal means that the change cannot be undone.
	ErrFinal = errors.New("final")
	// ErrAway means that the store cannot answer now. The write may have happened.
	ErrAway = errors.New("the store is away")
	// ErrBeingWritten means that the write gave up waiting for another write of the same tenant.
	ErrBeingWritten = errors.New("another write of the tenant is under way")
	// ErrOutcomeUnknown means that the answer was lost: the change may have been made.
	ErrOutcomeUnknown = errors.New("it is not known whether that was done")
)

// Actor is the author of a change, as the audit log names it.
type Actor struct {
	Kind ActorKind
	ID   string // the account's or the key's id; "" for the others
	Name string // the account's e-mail address, the key's name, or the command
	// Act names the request if the changed rows alone do not: "promote", "import", "revert 812"; else "".
	Act string
	// RequestID is the id of the request in the log; "" without one.
	RequestID string
}

// ActorKind is the kind of an actor.
type ActorKind string

// ActorAccount is a person, ActorKey an API key, ActorCommand a command line, ActorSystem a program that acts on its
// own.
const (
	ActorAccount ActorKind = "account"
	ActorKey     ActorKind = "api_key"
	ActorCommand ActorKind = "command"
	ActorSystem  ActorKind = "system"
)

// Reader reads tenants and what belongs to them, for people and files. Checks read a Snapshot instead. A list continues
// after the given name or id, in its order, and holds at most limit rows.
type Reader interface {
	Tenant(ctx context.Context, id TenantID) (Tenant, error)
	TenantBySlug(ctx context.Context, slug string) (Tenant, error)
	// Tenants lists by slug the tenants whose slug or name contains the text, in any case; "" selects all.
	Tenants(ctx context.Context, text, after string, limit int) ([]Tenant, error)
	// RemovedTenants lists by slug all removed tenants, erased or not.
	RemovedTenants(ctx context.Context, after string, limit int) ([]RemovedTenant, error)

	Plans(ctx context.Context, tenant TenantID, after string, limit int) ([]PlanUse, error) // by name
	Plan(ctx context.Context, tenant TenantID, name string) (PlanUse, error)

	Rules(ctx context.Context, tenant TenantID, filter RuleFilter, after RuleID, limit int) (RulePage, error)
	Rule(ctx context.Context, tenant TenantID, id RuleID) (Rule, error)
	// RulesByID returns the existing ones of the rules, in no order.
	RulesByID(ctx context.Context, tenant TenantID, ids []RuleID) ([]Rule, error)
	// Meters returns what a tenant's rules count beside requests.
	Meters(ctx context.Context, tenant TenantID) ([]Meter, error)
	// RulesEver is RulesByID including removed rules in their last state.
	RulesEver(ctx context.Context, tenant TenantID, ids []RuleID) ([]Rule, error)
	// Matrix lists the rules of up to limit rows of the plan matrix, by pattern and name. One row holds all rules of
	// a pattern and name, and is never split. The list continues after the given row, whose Plan is ignored.
	Matrix(ctx context.Context, tenant TenantID, after RuleIdentity, limit int) (MatrixPage, error)

	// Overrides lists a rule's overrides by user, including expired ones.
	Overrides(ctx context.Context, tenant TenantID, rule RuleID, after string, limit int) ([]Override, error)
	// FindOverrides lists the tenant's overrides that a filter selects, including expired ones.
	FindOverrides(ctx context.Context, tenant TenantID, filter OverrideFilter, after OverridePlace,
		limit int) (OverridePage, error)
	// OverridesOfUser lists a user's overrides by rule, including expired ones.
	OverridesOfUser(ctx context.Context, tenant TenantID, userID string, after RuleID, limit int) ([]Override, error)
	Override(ctx context.Context, tenant TenantID, rule RuleID, userID string) (Override, error)

	// Assignments lists by user id the users on a plan ("": on any) whose id begins with prefix.
	Assignments(ctx context.Context, tenant TenantID, plan, prefix, after string, limit int) ([]Assignment, error)
	Assignment(ctx context.Context, tenant TenantID, userID string) (Assignment, error)
	// IsSentPlan reports whether a denied check of the user named its plan, which is not the user's own. That is known
	// if the plan still exists, and neither the user's plan nor the tenant's default has changed since the denial.
	IsSentPlan(ctx context.Context, tenant TenantID, userID, plan string, deniedAt time.Time) (bool, error)

	// Gateways lists by kind the tenant's mappings.
	Gateways(ctx context.Context, tenant TenantID) ([]Gateway, error)
	Gateway(ctx context.Context, tenant TenantID, kind GatewayKind) (Gateway, error)
	ScheduledChange(ctx context.Context, tenant TenantID, id int64) (ScheduledChange, error)
	// ScheduledChanges returns the changes of a rule (0: all rules), latest first, before an id (0: from the latest).
	// isOpen selects those that wait or are in force until an end.
	ScheduledChanges(ctx context.Context, tenant TenantID, rule RuleID, isOpen bool, before int64,
		limit int) ([]ScheduledChange, error)
}

// RemovedTenant is a removed tenant, whose rows are erased after a grace period.
type RemovedTenant struct {
	Slug, Name string // Name is "" once the erasure has begun
	RemovedAt  time.Time
	BeganAt    time.Time        // zero: its erasure has not begun
	ErasedAt   time.Time        // zero: rows are left
	Rows       map[string]int64 // erased so far, by table
}

// Expected is the condition on which a write replaces the stored row: the version of a rule or tenant, or the revision
// of another row.
type Expected int64

// NoneStored requires that the row does not exist, AnyStored that it does. AnyVersion creates or replaces it.
const (
	AnyStored  Expected = -2
	AnyVersion Expected = -1
	NoneStored Expected = 0
)

// PlanUse is a plan and how many rules and users need it.
type PlanUse struct {
	Plan
	Rules     int64 // that name it
	Users     int64 // assigned explicitly; users on the plan by default are not counted
	IsDefault bool  // of the tenant
}

// RuleFilter selects rules; an empty field selects all.
type RuleFilter struct {
	Scope Scope
	// Plan selects the rules of one plan, or those for all plans if it points to "".
	Plan *string
	// Name selects the rules of one name, or those without one if it points to "".
	Name *string
	// Meter selects the rules that count one meter; it points to "" for requests.
	Meter  *Meter
	Mode   Mode
	Action Action
	Active *bool
	// Pattern selects the rules with one key pattern, in its canonical form.
	Pattern string
	// Text is a part of the pattern, name or description, in any case of ASCII letters.
	Text string
}

// OverrideFilter selects overrides of a tenant; an unset field selects all.
type OverrideFilter struct {
	Rule       RuleID
	User       string
	UserPrefix string // a prefix of the user id
	// EndsAfter and EndsBefore select an end at or after the one time and before the other; an override without an end
	// matches neither.
	EndsAfter, EndsBefore time.Time
	// NotEndedBefore selects an end at this time or later, and overrides without an end.
	NotEndedBefore time.Time
	// ByEnd orders by end and leaves out overrides without one; otherwise the order is by user.
	ByEnd bool
}

// Selects reports whether the filter selects an override.
func (f *OverrideFilter) Selects(o *Override) bool {
	end := o.ExpiresAt
	return (f.Rule == 0 || o.RuleID == f.Rule) &&
		(f.User == "" || o.UserID == f.User) && strings.HasPrefix(o.UserID, f.UserPrefix) &&
		(f.EndsAfter.IsZero() || !end.IsZero() && !end.Before(f.EndsAfter)) &&
		(f.EndsBefore.IsZero() || !end.IsZero() && end.Before(f.EndsBefore)) &&
		(end.IsZero() || !end.Before(f.NotEndedBefore)) &&
		(!f.ByEnd || !end.IsZero())
}

// OverridePlace is a cursor in a list of overrides; the zero value is the beginning.
type OverridePlace struct {
	End  time.Time // only in a list by end
	User string
	Rule RuleID
}

// Place returns an override's cursor.
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
	// Next is the cursor of the next page, zero at the end. A page reads a bounded number of overrides, so it can be
	// short or empty and not be the last.
	Next OverridePlace
}

// RulePage is one page of rules by id.
type RulePage struct {
	Rules []Rule
	// Next is the last rule of the page, 0 at the end. A page reads a bounded number of rules, so it can be short or
	// empty and not be the last.
	Next RuleID
}

// MatrixPage is a page of a tenant's plan matrix, in whole rows.
type MatrixPage struct {
	Rules []Rule
	// Next is the last row of the page, without a plan; zero at the end. A page of many rules ends early.
	Next RuleIdentity
}
