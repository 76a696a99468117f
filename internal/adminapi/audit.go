package adminapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func showEntry(e *auth.AuditEntry) (openapi.AuditEntry, error) {
	before, beforeErr := asObject(e.Before)
	after, afterErr := asObject(e.After)
	if err := errors.Join(beforeErr, afterErr); err != nil {
		return openapi.AuditEntry{}, fmt.Errorf("read audit entry %d: %w", e.ID, err)
	}
	shown := openapi.AuditEntry{
		AuditId: openapi.ID(e.ID), ChangeId: openapi.ID(e.Change), At: e.At.UTC(),
		Action: openapi.AuditAction(e.Action),
		Actor: openapi.Actor{
			Kind: openapi.ActorKind(e.Actor.Kind), Id: e.Actor.ID, Name: e.Actor.Name, Act: e.Actor.Act,
			RequestId: e.Actor.RequestID,
		},
		Object: openapi.AuditObject{Kind: openapi.AuditObjectKind(e.Object.Kind), Id: e.Object.ID},
		Before: before, After: after,
	}
	if e.Row != 0 {
		shown.Row = &e.Row
	}
	if e.IsPacked() {
		shown.RowCount = &e.Objects
	}
	if e.Rows == nil {
		return shown, nil
	}
	rows := make([]openapi.AuditRow, len(e.Rows))
	for i, row := range e.Rows {
		before, beforeErr := asObject(row.Before)
		after, afterErr := asObject(row.After)
		if err := errors.Join(beforeErr, afterErr); err != nil {
			return openapi.AuditEntry{}, fmt.Errorf("read row %d of audit entry %d: %w", i+1, e.ID, err)
		}
		rows[i] = openapi.AuditRow{Id: row.ID, Before: before, After: after}
	}
	shown.Rows = &rows
	return shown, nil
}

func showPlatformEntry(e *auth.AuditEntry) (openapi.PlatformAuditEntry, error) {
	shown, err := showEntry(e)
	return openapi.PlatformAuditEntry{
		AuditId: shown.AuditId, At: shown.At, Action: openapi.PlatformAuditEntryAction(shown.Action),
		Actor: shown.Actor,
		Object: openapi.PlatformAuditObject{
			Kind: openapi.PlatformAuditObjectKind(shown.Object.Kind),
			Id:   shown.Object.Id,
		},
		Before: shown.Before, After: shown.After,
	}, err
}

// asObject decodes an image and keeps numbers as they are written.
func asObject(raw json.RawMessage) (nullable.Nullable[map[string]any], error) {
	if len(raw) == 0 {
		return nullable.NewNullNullable[map[string]any](), nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	return nullable.NewNullableWithValue(object), nil
}

func auditFilter(
	from, until *time.Time, actor *string, action *openapi.AuditAction, kind *openapi.AuditObjectKind, object *string,
	change *openapi.ID, request *string,
) (auth.AuditFilter, error) {
	filter := auth.AuditFilter{
		From: valueOf(from), Until: valueOf(until), ActorID: valueOf(actor), Action: auth.AuditAction(valueOf(action)),
		ObjectKind: string(valueOf(kind)), ObjectID: valueOf(object), Change: int64(valueOf(change)),
		RequestID: valueOf(request),
	}
	if filter.ObjectID != "" && filter.ObjectKind == "" {
		return filter, wrongQuery("object_kind", "is missing: different kinds can have the same id")
	}
	return filter, nil
}

func (s *surface) ListAudit(ctx context.Context,
	request openapi.ListAuditRequestObject,
) (openapi.ListAuditResponseObject, error) {
	before, err := after[auth.LogCursor](ctx)
	if err != nil {
		return nil, err
	}
	p := request.Params
	filter, err := auditFilter(p.From, p.Until, p.ActorId, p.Action, p.ObjectKind, p.ObjectId, p.ChangeId, p.RequestId)
	if err != nil {
		return nil, err
	}
	entries, cursor, err := s.Stores.Audit(ctx, requestOf(ctx).tenant.ID, filter, before, limitOf(p.Limit))
	if err != nil {
		return nil, err
	}
	items, err := tryItems(entries, showEntry)
	return openapi.ListAudit200JSONResponse{Items: items, NextCursor: next(ctx, cursor)}, err
}

func (s *surface) GetAuditEntry(ctx context.Context,
	request openapi.GetAuditEntryRequestObject,
) (openapi.GetAuditEntryResponseObject, error) {
	entry, err := s.auditEntry(ctx, auth.AuditID(request.AuditId))
	return openapi.GetAuditEntry200JSONResponse(entry), err
}

func (s *surface) auditEntry(ctx context.Context, id auth.AuditID) (openapi.AuditEntry, error) {
	entry, err := s.Stores.AuditEntry(ctx, requestOf(ctx).tenant.ID, id)
	if err != nil {
		return openapi.AuditEntry{}, err
	}
	return showEntry(&entry)
}

// leastToRevert returns the role and the key permission that a change needs; undoing it needs the same.
func leastToRevert(entry *auth.AuditEntry) (access, auth.Permission, error) {
	switch entry.Object.Kind {
	case "plan", "rule", "override", "gateway", "scheduled_change":
		return anEditor, auth.PermissionRules, nil
	case "user", "bucket":
		return anEditor, auth.PermissionUsers, nil
	case "api_key":
		return anOwner, auth.PermissionKeys, nil
	case "alert":
		return anOwner, auth.PermissionAlerts, nil
	case "tenant":
		was, wasErr := isSuspended(entry.Before)
		is, err := isSuspended(entry.After)
		if err := errors.Join(wasErr, err); err != nil {
			return "", "", fmt.Errorf("read audit entry %d: %w", entry.ID, err)
		}
		if was != is {
			return aPlatformAdmin, auth.PermissionTenants, nil
		}
		return anOwner, auth.PermissionSettings, nil
	case "capacity":
		return aPlatformAdmin, auth.PermissionTenants, nil
	}
	// Other kinds, such as a member's role, may give access.
	return anOwner, auth.PermissionMembers, nil
}

func isSuspended(row json.RawMessage) (bool, error) {
	var tenant struct {
		SuspendedAt *time.Time `json:"suspended_at"`
	}
	if len(row) == 0 {
		return false, nil
	}
	err := json.Unmarshal(row, &tenant)
	return tenant.SuspendedAt != nil, err
}

func (s *surface) RevertChange(ctx context.Context,
	request openapi.RevertChangeRequestObject,
) (openapi.RevertChangeResponseObject, error) {
	q, id, whole := requestOf(ctx), auth.AuditID(request.AuditId), valueOf(request.Params.Whole)
	row := valueOf(request.Params.Row)
	if whole && row != 0 {
		return nil, wrongQuery("row", "must not be given with whole, which undoes all rows")
	}
	entry, err := s.Stores.AuditEntry(ctx, q.tenant.ID, id)
	if err != nil {
		return nil, err
	}
	undone := []auth.AuditEntry{entry}
	if whole {
		undone, _, err = s.Stores.Audit(ctx, q.tenant.ID, auth.AuditFilter{Change: entry.Change}, auth.LogCursor{},
			auth.MaxUndone)
		if err != nil {
			return nil, err
		}
	}
	for i := range undone {
		if err := s.mayRevert(q, &undone[i], len(undone) > 1); err != nil {
			return nil, err
		}
	}
	act := "revert " + formatInt(request.AuditId)
	var reverted auth.AuditID
	if row == 0 {
		reverted, err = s.acting(ctx, act).Revert(ctx, q.tenant.ID, id, whole)
	} else {
		reverted, err = s.acting(ctx, act+" row "+formatInt(int64(row))).RevertRow(ctx, q.tenant.ID, id, row)
	}
	var clash *auth.UndoError
	switch {
	case errors.As(err, &clash):
		return nil, undoProblem(clash)
	case errors.Is(err, rules.ErrFinal):
		return nil, httpapi.Conflict.Problem(
			fmt.Sprintf("A change of more than %d objects cannot be undone as a whole.", auth.MaxUndone))
	case err != nil:
		return nil, err
	}
	answer, err := s.auditEntry(ctx, reverted)
	if err != nil {
		return nil, fmt.Errorf("show the reverting change: %w", err)
	}
	return openapi.RevertChange200JSONResponse(answer), nil
}

// mayRevert judges one entry. A removed rule turned its alerts off in the same change, so whoever may restore the rule
// may turn them on again.
func (s *surface) mayRevert(q *apiRequest, entry *auth.AuditEntry, isPart bool) error {
	if isPart && entry.Object.Kind == "alert" {
		return nil
	}
	least, area, err := leastToRevert(entry)
	if err != nil {
		return err
	}
	if err := q.judge(least, area, false); err != nil {
		return err
	}
	// Undoing may revoke a key or restore its expiry, and may resume a tenant.
	if entry.Object.Kind == "api_key" || least == aPlatformAdmin {
		if err := s.requireFreshProof(q); err != nil {
			return err
		}
	}
	if entry.Object.Kind == "api_key" {
		return q.mustBePerson("undo a change of an API key")
	}
	return nil
}

const maxClashes = 20

func undoProblem(clash *auth.UndoError) *httpapi.Problem {
	detail := "It has changed again since; look at the later changes."
	fields := make([]httpapi.FieldError, 0, min(len(clash.Clashes), maxClashes))
	for _, one := range clash.Clashes[:cap(fields)] {
		why := "has changed again since"
		var wrong rules.FieldErrors
		switch {
		case errors.Is(one.Err, rules.ErrChanged):
		case errors.Is(one.Err, rules.ErrFinal):
			why, detail = "is of a kind that cannot be undone", "A change of this kind cannot be undone."
		case errors.As(one.Err, &wrong):
			why = "cannot become what it was: " + wrong.Error()
			detail = "Its former state is no longer valid; see errors."
		default:
			why = "cannot become what it was, because of later changes"
			detail = "Later changes prevent this, such as a plan that was removed or is in use; undo those first."
		}
		pointer := "/audit/" + formatInt(int64(one.Entry.ID))
		if one.Entry.Row != 0 {
			pointer += "/rows/" + formatInt(int64(one.Entry.Row))
		}
		fields = append(fields, httpapi.FieldError{Pointer: pointer, Detail: why})
	}
	return httpapi.Conflict.Problem(detail, fields...)
}

func (s *surface) ListPlatformAudit(ctx context.Context,
	request openapi.ListPlatformAuditRequestObject,
) (openapi.ListPlatformAuditResponseObject, error) {
	entries, cursor, err := list(ctx, request.Params.Limit,
		func(before auth.AuditID, limit int) ([]auth.AuditEntry, error) {
			return s.Stores.PlatformAudit(ctx, before, limit)
		}, func(e *auth.AuditEntry) auth.AuditID { return e.ID })
	if err != nil {
		return nil, err
	}
	items, err := tryItems(entries, showPlatformEntry)
	return openapi.ListPlatformAudit200JSONResponse{Items: items, NextCursor: cursor}, err
}
