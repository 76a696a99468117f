package auth

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// AuditID numbers the entries of the audit log, in no particular order between tenants.
type AuditID int64

// AuditAction is what happened to an object.
type AuditAction string

// What can happen to a row, and to a bucket.
const (
	AuditCreate AuditAction = "create"
	AuditUpdate AuditAction = "update"
	AuditRemove AuditAction = "remove"
	AuditReset  AuditAction = "reset"
	AuditCredit AuditAction = "credit"
)

// AuditObject is what was changed.
type AuditObject struct {
	// Kind is tenant, plan, rule, override, user, api_key, member, invitation, alert or bucket; on the
	// platform it is tenant or account.
	Kind string
	// ID is what the API calls it: a rule's number, a plan's name, a user's id; an override's is its rule
	// and user, as in 12:42.
	ID string
}

// AuditEntry is one change to one object.
type AuditEntry struct {
	ID     AuditID
	At     time.Time
	Actor  rules.Actor
	Action AuditAction
	Object AuditObject
	// Change is the same for all that one write changed.
	Change int64
	// Before and After are the object as it is stored, without what must stay secret; nil where there
	// was or is none.
	Before, After json.RawMessage
}

// AuditFilter selects entries; what is left empty selects all.
type AuditFilter struct {
	From, Until time.Time // From <= At < Until
	ActorID     string
	Action      AuditAction // looks at a bounded number of entries a page, unlike the others
	ObjectKind  string
	ObjectID    string // with ObjectKind
	Change      int64
}

// AuditCursor is a place in the log; the zero value is its latest end.
type AuditCursor struct {
	At time.Time
	ID AuditID
}

// AuditLog reads what a Store wrote, the latest first.
type AuditLog interface {
	// AuditOfUser returns up to limit entries that name a tenant's user, the latest first.
	AuditOfUser(ctx context.Context, tenant rules.TenantID, userID string, limit int) ([]AuditEntry, error)
	// UserStory returns up to limit entries since a time and before the cursor about a user's plan and overrides, the latest
	// first. Entries about overrides of more than 500 rules are left out.
	UserStory(ctx context.Context, tenant rules.TenantID, userID string, since time.Time, before AuditCursor, limit int) ([]AuditEntry, error)
	// Audit returns the entries before the cursor, at most limit, and where to go on; the zero cursor
	// at the end.
	Audit(ctx context.Context, tenant rules.TenantID, filter AuditFilter, before AuditCursor, limit int) ([]AuditEntry, AuditCursor, error)
	AuditEntry(ctx context.Context, tenant rules.TenantID, id AuditID) (AuditEntry, error)
	// PlatformAudit returns what happened to accounts, and that tenants came, were suspended and went: the
	// entries before an id, at most limit; 0 is no bound. They have numbers of their own, and no Change.
	PlatformAudit(ctx context.Context, before AuditID, limit int) ([]AuditEntry, error)
}

// AuditWriter records changes outside the store and undoes recorded ones, in the name of one Actor.
type AuditWriter interface {
	// RecordChange runs a change to something that is not in this store, such as a bucket, and
	// writes it to the audit log: the entry is written first and stays only if the change was made.
	RecordChange(ctx context.Context, tenant rules.TenantID, object AuditObject, action AuditAction, change func(context.Context) (before, after any, err error)) error
	// Revert undoes one change, as a change of its own, if what it changed is still as it left it; else
	// it is ErrChanged. What cannot be undone (a revoked key, a bucket, a created tenant) is ErrFinal. It
	// returns the id of the new entry.
	Revert(ctx context.Context, tenant rules.TenantID, audit AuditID) (AuditID, error)
}
