package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// AuditID is the id of an entry, ordered only within a tenant.
type AuditID int64

// AuditAction is the kind of a change.
type AuditAction string

// Actions on rows and on buckets.
const (
	AuditCreate AuditAction = "create"
	AuditUpdate AuditAction = "update"
	AuditRemove AuditAction = "remove"
	AuditReset  AuditAction = "reset"
	AuditCredit AuditAction = "credit"
)

// AuditObject is the changed object.
type AuditObject struct {
	Kind string // a table's singular, such as rule or api_key
	ID   string // the API's; an override's is its rule and user, as in 12:42
}

// AuditEntry is a change of one object, or packed: a change of many objects of one kind by one statement.
type AuditEntry struct {
	ID            AuditID
	Row           int // number of the object in a packed entry, from 1; else 0
	At            time.Time
	Actor         rules.Actor
	Action        AuditAction
	Object        AuditObject
	Change        int64           // the same for all entries of one write
	Before, After json.RawMessage // without secrets, or nil
	Objects       int             // at most MaxAuditRows; a packed entry has several, no Object.ID and no images
	Rows          []AuditRow      // of a packed entry; lists leave them out
}

// MaxAuditRows is how many objects a packed entry may have.
const MaxAuditRows = 1000

// AuditRow is one object of a packed entry.
type AuditRow struct {
	ID     string          `json:"id"` // see AuditObject
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// IsPacked reports whether the entry stands for all its objects.
func (e *AuditEntry) IsPacked() bool { return e.Objects > 1 && e.Row == 0 }

// Unpacked returns an entry for each object of an entry with its Rows.
func (e *AuditEntry) Unpacked() []AuditEntry {
	if !e.IsPacked() {
		return []AuditEntry{*e}
	}
	all := make([]AuditEntry, len(e.Rows))
	for i, row := range e.Rows {
		all[i] = *e
		all[i].Row, all[i].Rows = i+1, nil
		all[i].Object.ID, all[i].Before, all[i].After = row.ID, row.Before, row.After
	}
	return all
}

// AuditFilter selects entries; empty fields select all.
type AuditFilter struct {
	From, Until time.Time // From <= At < Until
	ActorID     string
	Action      AuditAction // reads a bounded number of entries a page
	ObjectKind  string
	ObjectID    string // with ObjectKind
	Change      int64
	RequestID   string // like Action
}

// Selects reports whether the filter selects an entry, apart from its objects and time.
func (f *AuditFilter) Selects(e *AuditEntry) bool {
	return (f.ActorID == "" || f.ActorID == e.Actor.ID) && (f.Action == "" || f.Action == e.Action) &&
		(f.Change == 0 || f.Change == e.Change) && (f.RequestID == "" || f.RequestID == e.Actor.RequestID)
}

// MaxUndone is how many objects a change that is undone as a whole may have.
const MaxUndone = 1000

// UndoError says which entries of a change keep it from being undone.
type UndoError struct{ Clashes []UndoClash }

// UndoClash is an entry that cannot be undone, because of rules.ErrChanged, rules.ErrFinal, or the violated condition.
type UndoClash struct {
	Entry AuditEntry
	Err   error
}

func (e *UndoError) Error() string {
	first := e.Clashes[0]
	return fmt.Sprintf("%d entries cannot be undone, the first %s %s %s: %v", len(e.Clashes), first.Entry.Action,
		first.Entry.Object.Kind, first.Entry.Object.ID, first.Err)
}

func (e *UndoError) Unwrap() []error {
	causes := make([]error, len(e.Clashes))
	for i := range e.Clashes {
		causes[i] = e.Clashes[i].Err
	}
	return causes
}

// LogCursor is a position in the audit log or the security log; zero is the latest end.
type LogCursor struct {
	At time.Time
	ID int64
}

// AuditLog reads the entries of a Store, latest first.
type AuditLog interface {
	// AuditOfUser returns the entries that name a user among the next entries after one, and the last of these; 0 at
	// the end.
	AuditOfUser(ctx context.Context, tenant rules.TenantID, userID string, after AuditID) ([]AuditEntry, AuditID, error)
	// UserStory returns entries about a user's plan and overrides of at most 500 rules, since a time and before the
	// cursor.
	UserStory(ctx context.Context, tenant rules.TenantID, userID string, since time.Time, before LogCursor,
		limit int) ([]AuditEntry, error)
	// Audit returns entries before the cursor, and the next cursor, which is zero at the end.
	Audit(ctx context.Context, tenant rules.TenantID, filter AuditFilter, before LogCursor, limit int) ([]AuditEntry,
		LogCursor, error)
	AuditEntry(ctx context.Context, tenant rules.TenantID, id AuditID) (AuditEntry, error)
	// PlatformAudit returns entries about accounts and about tenants' life before an id (0: the latest).
	PlatformAudit(ctx context.Context, before AuditID, limit int) ([]AuditEntry, error)
}
