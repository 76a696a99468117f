package rules

import (
	"context"
	"errors"
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
)

// Source is where the Watcher reads from.
type Source interface {
	// Read visits every row that is newer than the given revision of its tenant, removals
	// included, in pages of one consistent view of the database. A tenant that is missing from the
	// map is read whole, so Read with a nil map reads everything. The Tenants of all that changed
	// come first. Read stops at the first error of visit and returns it.
	//
	// A visit is a sign of life as well, and who reads may give up when none comes for seconds. So
	// visit is called, if need be with empty Rows, whenever the database has answered.
	Read(ctx context.Context, newerThan map[TenantID]int64, visit func(Rows) error) error
}

// Rows is one page of what a check depends on. Any of its slices may be empty.
type Rows struct {
	Tenants     []Tenant
	Plans       []Plan
	Rules       []Rule
	Overrides   []Override
	Assignments []Assignment
	Keys        []Key
}

// Store is where tenants and what they own are written down, and read back for people and for
// files; checks read by way of Source.
//
// A write is all or nothing and raises its tenant's revision unless it changed nothing. Writers of
// one tenant wait for each other. A store expects values that were validated, and answers with them
// as they are stored: ids, versions, times and revisions are the store's. Lists start after the
// given id, in its order, and hold at most limit rows.
type Store interface {
	// CreateTenant also creates the default plan, if the tenant names one.
	CreateTenant(ctx context.Context, tenant Tenant) (Tenant, error)
	// UpdateTenant changes all but the slug.
	UpdateTenant(ctx context.Context, tenant Tenant) (Tenant, error)
	Tenant(ctx context.Context, id TenantID) (Tenant, error)
	TenantBySlug(ctx context.Context, slug string) (Tenant, error)
	Tenants(ctx context.Context) ([]Tenant, error) // by slug

	Plans(ctx context.Context, tenant TenantID) ([]Plan, error) // by name
	CreatePlan(ctx context.Context, plan Plan) (Plan, error)
	// UpdatePlan is ErrChanged unless the plan's Revision is that of the stored one.
	UpdatePlan(ctx context.Context, plan Plan) (Plan, error)
	// RemovePlan is ErrInUse while rules or users are on the plan or it is the tenant's default.
	RemovePlan(ctx context.Context, tenant TenantID, name string) error

	Rules(ctx context.Context, tenant TenantID, after RuleID, limit int) ([]Rule, error)
	Rule(ctx context.Context, tenant TenantID, id RuleID) (Rule, error)
	CreateRule(ctx context.Context, rule Rule) (Rule, error)
	// UpdateRule changes all but what identifies the rule. It is ErrChanged unless the rule's
	// Version is that of the stored one.
	UpdateRule(ctx context.Context, rule Rule) (Rule, error)
	// RemoveRule removes the rule's overrides as well.
	RemoveRule(ctx context.Context, tenant TenantID, id RuleID) error

	// Overrides lists expired ones, too.
	Overrides(ctx context.Context, tenant TenantID, rule RuleID, after string, limit int) ([]Override, error)
	// PutOverride creates the user's override for the rule or takes the place of the one there is.
	PutOverride(ctx context.Context, override Override) (Override, error)
	RemoveOverride(ctx context.Context, tenant TenantID, rule RuleID, userID string) error

	// Assignments lists the users on a plan, or on any if it is "".
	Assignments(ctx context.Context, tenant TenantID, plan, after string, limit int) ([]Assignment, error)
	Assignment(ctx context.Context, tenant TenantID, userID string) (Assignment, error)
	// AssignPlan puts users on a plan, and UnassignPlan back on the default. They return how many
	// that changed.
	AssignPlan(ctx context.Context, tenant TenantID, plan string, userIDs []string) (changed int64, err error)
	UnassignPlan(ctx context.Context, tenant TenantID, userIDs []string) (changed int64, err error)

	// Config returns the tenant's plans, rules and unexpired overrides, in the order of their names.
	Config(ctx context.Context, tenant TenantID) (Config, error)
	// ChangeConfig makes the changes that the function derives from the present configuration, while
	// nobody else writes. It returns them with the rows as stored; an error, also from the function,
	// leaves everything as it was.
	ChangeConfig(ctx context.Context, tenant TenantID, change func(current Config) (Changes, error)) (Changes, error)

	Keys(ctx context.Context, tenant TenantID) ([]NamedKey, error) // by creation
	CreateKey(ctx context.Context, key NamedKey) (NamedKey, error)
	// RevokeKey cannot be undone.
	RevokeKey(ctx context.Context, tenant TenantID, keyID string) error
}

// NamedKey is an API key as people manage it.
type NamedKey struct {
	Key
	Name      string
	CreatedAt time.Time
	RevokedAt time.Time // zero: it is not
}

// MaxKeyNameLength is in characters.
const MaxKeyNameLength = 100

// Validate returns all that is wrong with an API key as people describe it.
func (k *NamedKey) Validate() FieldErrors {
	var errs FieldErrors
	if k.Name == "" {
		errs.add("name", "must not be empty")
	}
	errs.add("name", wrongLine(k.Name, MaxKeyNameLength))
	if len(k.Permissions) == 0 {
		errs.add("permissions", "must be at least one of check, explain and manage")
	}
	for _, permission := range k.Permissions {
		errs.add("permissions", wrongChoice(permission, PermissionCheck, PermissionExplain, PermissionManage))
	}
	return errs
}
