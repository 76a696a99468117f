package rules

import (
	"context"
	"errors"
	"strings"
	"time"
)

// The errors of a store beside FieldErrors; the error around one names the row.
var (
	// ErrNotFound is also for a row of another tenant: callers cannot distinguish the two.
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("exists already")
	ErrInUse    = errors.New("in use")
	ErrChanged  = errors.New("changed meanwhile")
	ErrFinal    = errors.New("final")
	// ErrAway means that the store cannot answer now; the write may have happened.
	ErrAway = errors.New("the store is away")
	// ErrBeingWritten means that another write of the same tenant took too long.
	ErrBeingWritten   = errors.New("another write of the tenant is under way")
	ErrOutcomeUnknown = errors.New("it is not known whether that was done")
)

// Actor is the author of a change, as the audit log names it.
type Actor struct {
	Kind ActorKind
	ID   string // the account's or the key's id; "" for the others
	Name string // the account's e-mail address, the key's name, or the command
	// Act names the request if the changed rows alone do not: "promote", "import", "revert 812".
	Act       string
	RequestID string
}

// ActorKind is the kind of an actor.
type ActorKind string

// ActorSystem is a program that acts on its own.
const (
	ActorAccount ActorKind = "account"
	ActorKey     ActorKind = "api_key"
	ActorCommand ActorKind = "command"
	ActorSystem  ActorKind = "system"
)

// Reader reads tenants and what they have, for people and files. A list continues after the given name or id.
type Reader interface {
	Tenant(ctx context.Context, id TenantID) (Tenant, error)
	TenantBySlug(ctx context.Context, slug string) (Tenant, error)
	// Tenants lists those by slug whose slug or name contains the text, in any case.
	Tenants(ctx context.Context, text, after string, limit int) ([]Tenant, error)
	RemovedTenants(ctx context.Context, after string, limit int) ([]RemovedTenant, error)

	Plans(ctx context.Context, tenant TenantID, after string, limit int) ([]PlanUse, error) // by name
	Plan(ctx context.Context, tenant TenantID, name string) (PlanUse, error)

	Rules(ctx context.Context, tenant TenantID, filter RuleFilter, after RuleID, limit int) (RulePage, error)
	Rule(ctx context.Context, tenant TenantID, id RuleID) (Rule, error)
	RulesByID(ctx context.Context, tenant TenantID, ids []RuleID) ([]Rule, error)
	Meters(ctx context.Context, tenant TenantID) ([]Meter, error)
	// RulesEver is RulesByID including removed rules.
	RulesEver(ctx context.Context, tenant TenantID, ids []RuleID) ([]Rule, error)
	// Matrix lists the rules of up to limit whole rows of the plan matrix, by pattern and name, after the given row.
	Matrix(ctx context.Context, tenant TenantID, after RuleIdentity, limit int) (MatrixPage, error)

	// Overrides lists by user, including expired ones, as the other lists of overrides do.
	Overrides(ctx context.Context, tenant TenantID, rule RuleID, after string, limit int) ([]Override, error)
	FindOverrides(ctx context.Context, tenant TenantID, filter OverrideFilter, after OverridePlace,
		limit int) (OverridePage, error)
	OverridesOfUser(ctx context.Context, tenant TenantID, userID string, after RuleID, limit int) ([]Override, error)
	Override(ctx context.Context, tenant TenantID, rule RuleID, userID string) (Override, error)

	// Assignments lists by user id the users on a plan ("": on any).
	Assignments(ctx context.Context, tenant TenantID, plan, prefix, after string, limit int) ([]Assignment, error)
	Assignment(ctx context.Context, tenant TenantID, userID string) (Assignment, error)
	// IsSentPlan reports whether a denied check named a plan that is not the user's own, which is known while the plan
	// exists and no default has changed since.
	IsSentPlan(ctx context.Context, tenant TenantID, userID, plan string, deniedAt time.Time) (bool, error)

	Gateways(ctx context.Context, tenant TenantID) ([]Gateway, error)
	Gateway(ctx context.Context, tenant TenantID, kind GatewayKind) (Gateway, error)
	ScheduledChange(ctx context.Context, tenant TenantID, id int64) (ScheduledChange, error)
	// ScheduledChanges returns the changes of a rule (0: all rules), latest first, before an id (0: from the latest).
	// isOpen selects waiting ones and those with an end ahead.
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

// Expected is the version or revision that a write requires of the stored row.
type Expected int64

// NoneStored requires that the row does not exist, AnyStored that it does; AnyVersion creates or replaces it.
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
	// Plan, Name and Meter select rules without one if they point to "".
	Plan   *string
	Name   *string
	Meter  *Meter
	Mode   Mode
	Action Action
	Active *bool
	// Pattern is a key pattern in canonical form.
	Pattern string
	// Text is a part of the pattern, name or description, in any case.
	Text string
}

// OverrideFilter selects overrides of a tenant; an unset field selects all.
type OverrideFilter struct {
	Rule       RuleID
	User       string
	UserPrefix string // a prefix of the user id
	// EndsAfter (inclusive) and EndsBefore select by the end; an override without one matches neither.
	EndsAfter, EndsBefore time.Time
	// NotEndedBefore also selects overrides without an end.
	NotEndedBefore time.Time
	// ByEnd leaves out overrides without an end.
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

// OverridePage is one page, which can be short or empty and not be the last, because it reads a bounded number of rows.
type OverridePage struct {
	Overrides []Override
	Next      OverridePlace
}

// RulePage is one page of rules by id; it can be short and not be the last.
type RulePage struct {
	Rules []Rule
	Next  RuleID
}

// MatrixPage is a page of whole rows; Next has no plan, and is zero at the end.
type MatrixPage struct {
	Rules []Rule
	Next  RuleIdentity
}
