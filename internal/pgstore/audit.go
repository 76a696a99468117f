package pgstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var latestEnd = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// Audit reads up to 2,000 entries for a filter that no index serves, so a short page may not be the last.
func (s *Store) Audit(
	ctx context.Context, tenant rules.TenantID, filter auth.AuditFilter, before auth.LogCursor, limit int,
) (entries []auth.AuditEntry, next auth.LogCursor, err error) {
	if limit <= 0 {
		return nil, next, nil
	}
	before = firstCursor(before, filter.Until)
	ctx, cancel := s.within(ctx, classHeavy)
	defer cancel()
	q := s.queriesFor(classHeavy, only(tenant))
	last, err := s.auditLookedAt(ctx, q, tenant, filter, before)
	if err != nil {
		return nil, next, wrap(err, "read the audit log")
	}
	next = last
	if last == (auth.LogCursor{}) {
		last.At = filter.From
	}
	rows, err := q.AuditPage(ctx, dbsqlc.AuditPageParams{
		TenantID:   tenant,
		BeforeAt:   before.At,
		BeforeID:   before.ID,
		LastAt:     last.At,
		LastID:     last.ID,
		ChangeID:   filter.Change,
		ObjectKind: filter.ObjectKind,
		ObjectID:   filter.ObjectID,
		ActorID:    filter.ActorID,
		Action:     string(filter.Action),
		RequestID:  filter.RequestID,
		PageSize:   rowLimit(limit) + 1, // one more shows whether a page follows
	})
	if err != nil {
		return nil, next, wrap(err, "read the audit log")
	}
	entries = auditEntriesFromRows(rows)
	if filter.ObjectID != "" {
		packed, err := q.AuditRowsOfObjects(ctx, dbsqlc.AuditRowsOfObjectsParams{
			TenantID: tenant, ObjectKind: filter.ObjectKind, ObjectIds: []string{filter.ObjectID}, Since: last.At,
			BeforeAt: before.At, BeforeID: before.ID, PageSize: rowLimit(limit) + 1,
		})
		if err != nil {
			return nil, next, wrap(err, "read the audit log")
		}
		if len(packed) > limit { // the page ends before what is older than these
			oldest := packed[limit]
			last = auth.LogCursor{At: oldest.At.UTC(), ID: oldest.AuditID}
			next = last
		}
		entries = latestFirst(append(entries, auditEntriesFromRows(packed)...))
		entries = slices.DeleteFunc(entries, func(e auth.AuditEntry) bool {
			isOlder := e.At.Before(last.At) || e.At.Equal(last.At) && int64(e.ID) < last.ID
			return isOlder || e.Row != 0 && !filter.Selects(&e)
		})
	}
	if len(entries) > limit {
		entries = entries[:limit]
		next = auth.LogCursor{At: entries[limit-1].At, ID: int64(entries[limit-1].ID)}
	}
	return entries, next, nil
}

func latestFirst(entries []auth.AuditEntry) []auth.AuditEntry {
	slices.SortFunc(entries, func(a, b auth.AuditEntry) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.ID, a.ID), cmp.Compare(a.Row, b.Row))
	})
	return entries
}

func firstCursor(before auth.LogCursor, until time.Time) auth.LogCursor {
	if before == (auth.LogCursor{}) {
		before.At = latestEnd
	}
	if !until.IsZero() && until.Before(before.At) {
		return auth.LogCursor{At: until} // ids begin at 1
	}
	return before
}

// auditLookedAt returns the last entry that a page looks at, or the zero cursor if it looks at all.
func (s *Store) auditLookedAt(
	ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, filter auth.AuditFilter, before auth.LogCursor,
) (last auth.LogCursor, err error) {
	rest := filter
	rest.From, rest.Until = time.Time{}, time.Time{}
	found := dbsqlc.AuditLookedAtParams{
		TenantID: tenant, BeforeAt: before.At, BeforeID: before.ID, Since: filter.From, Number: s.lookedAt,
	}
	switch {
	case rest.Change != 0:
		found.ByChangeID, rest.Change = rest.Change, 0
	case rest.ObjectKind != "" && rest.ObjectID != "":
		found.ByObjectKind, found.ByObjectID = rest.ObjectKind, rest.ObjectID
		rest.ObjectKind, rest.ObjectID = "", ""
	case rest.ActorID != "":
		found.ByActorID, rest.ActorID = rest.ActorID, ""
	case rest.ObjectKind != "":
		found.ByObjectKind, rest.ObjectKind = rest.ObjectKind, ""
	}
	if rest == (auth.AuditFilter{}) {
		return last, nil
	}
	row, err := q.AuditLookedAt(ctx, found)
	if errors.Is(err, pgx.ErrNoRows) {
		return last, nil
	}
	return auth.LogCursor{At: row.At.UTC(), ID: row.AuditID}, err
}

// AuditEntry returns one entry with the rows of a packed one.
func (s *Store) AuditEntry(ctx context.Context, tenant rules.TenantID, id auth.AuditID) (auth.AuditEntry, error) {
	row, err := s.queriesFor(classRead, only(tenant)).AuditEntry(ctx, tenant, int64(id))
	if err != nil {
		return auth.AuditEntry{}, wrap(err, "read audit entry %d", id)
	}
	return auditEntryFromRow(row)
}

// PlatformAudit returns entries of the platform's audit log, the latest first, before an id.
func (s *Store) PlatformAudit(ctx context.Context, before auth.AuditID, limit int) ([]auth.AuditEntry, error) {
	rows, err := s.queriesFor(classRead, everyTenant).PlatformAuditPage(ctx, int64(before), rowLimit(limit))
	return each(rows, platformAuditEntryFromRow), wrap(err, "read the platform's audit log")
}

// RecordChange makes a change outside of the database and logs it.
//
// The entry is written and rolled back before the change, so that a database that cannot log prevents it. The tenant is
// not locked in between, so other writes do not wait. A change that was made but not logged is an error that says so;
// rules.ErrOutcomeUnknown is logged as such, and returned.
func (s Writer) RecordChange(
	ctx context.Context, tenant rules.TenantID, object auth.AuditObject, action auth.AuditAction,
	change func(context.Context) (before, after any, err error),
) error {
	entry := dbsqlc.WriteAuditParams{
		TenantID: int64(tenant), Action: string(action), ObjectKind: object.Kind, ObjectID: object.ID,
	}
	rehearsed := errors.New("rehearsed")
	if err := s.writeEntry(ctx, tenant, entry, rehearsed); !errors.Is(err, rehearsed) {
		return fmt.Errorf("%s %s %s: %w", action, object.Kind, object.ID, err)
	}
	before, after, err := change(ctx)
	isUnknown := errors.Is(err, rules.ErrOutcomeUnknown)
	if isUnknown {
		before, after = nil, map[string]string{"outcome": "unknown"}
	} else if err != nil {
		return fmt.Errorf("%s %s %s: %w", action, object.Kind, object.ID, err)
	}
	var errBefore, errAfter error
	entry.Before, errBefore = auditImage(before)
	entry.After, errAfter = auditImage(after)
	// The log must be complete even if the caller leaves now.
	logErr := cmp.Or(errBefore, errAfter, s.writeEntry(context.WithoutCancel(ctx), tenant, entry, nil))
	switch {
	case logErr != nil && isUnknown:
		return fmt.Errorf("%s %s %s may have been made, and is not in the audit log: %w", action, object.Kind,
			object.ID, errors.Join(logErr, err))
	case logErr != nil:
		return fmt.Errorf("%s %s %s was made, and is not in the audit log: %w", action, object.Kind, object.ID, logErr)
	case isUnknown:
		return fmt.Errorf("%s %s %s: %w", action, object.Kind, object.ID, err)
	}
	return nil
}

func (s Writer) writeEntry(ctx context.Context, tenant rules.TenantID, entry dbsqlc.WriteAuditParams,
	undo error,
) error {
	return s.inTenantAs(ctx, s.by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		if _, err := q.WriteAudit(ctx, entry); err != nil {
			return err
		}
		return undo
	})
}

func auditImage(value any) ([]byte, error) {
	if value == nil {
		return nil, nil
	}
	return json.Marshal(value)
}
