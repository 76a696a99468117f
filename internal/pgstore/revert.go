package pgstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Revert undoes one entry of the audit log, or with whole all entries of its change, and returns the id of the new
// entry about the same object. If anything cannot be undone, nothing is, and it returns an auth.UndoError.
func (s Writer) Revert(ctx context.Context, tenant rules.TenantID, audit auth.AuditID, whole bool) (auth.AuditID,
	error,
) {
	return s.revert(ctx, tenant, audit, 0, whole)
}

// RevertRow is Revert for one row of a packed entry, from 1.
func (s Writer) RevertRow(ctx context.Context, tenant rules.TenantID, audit auth.AuditID, row int) (auth.AuditID,
	error,
) {
	return s.revert(ctx, tenant, audit, row, false)
}

func isErased(entry auth.AuditEntry) bool {
	for _, text := range []json.RawMessage{entry.Before, entry.After} {
		if image, err := decodeImage[erasedImage](text); err == nil && image != nil && image.Erased {
			return true
		}
	}
	return false
}

type erasedImage struct {
	Erased bool `json:"erased"`
}

func (s Writer) revert(ctx context.Context, tenant rules.TenantID, audit auth.AuditID, row int, whole bool) (
	revert auth.AuditID, err error,
) {
	act := fmt.Sprintf("revert %d", audit)
	if row != 0 {
		act += fmt.Sprintf(" row %d", row)
	}
	err = s.acting(act).inTenant(ctx, classBulk, tenant,
		func(ctx context.Context, w write) error {
			entries, err := w.unpacked(ctx, audit)
			if err != nil {
				return err
			}
			if row != 0 {
				at := slices.IndexFunc(entries, func(e auth.AuditEntry) bool { return e.Row == row })
				if at < 0 {
					return fmt.Errorf("row %d: %w", row, rules.ErrNotFound)
				}
				entries = entries[at : at+1]
			}
			first := entries[0]
			if whole {
				if entries, err = w.entriesOf(ctx, entries[0].Change); err != nil {
					return err
				}
			}
			if entries = slices.DeleteFunc(entries, isErased); len(entries) == 0 {
				return fmt.Errorf("its user was erased: %w", rules.ErrFinal)
			}
			if entries, err = w.withoutEnded(ctx, entries); err != nil {
				return err
			}
			if !slices.ContainsFunc(entries, func(e auth.AuditEntry) bool { return e.Object == first.Object }) {
				first = entries[0]
			}
			if err := w.revertAll(ctx, entries); err != nil {
				return err
			}
			id, err := w.LatestOfChange(ctx, w.tenant, first.Object.Kind, first.Object.ID)
			revert = auth.AuditID(id)
			return err
		})
	return revert, wrap(err, "revert audit entry %d", audit)
}

func (w write) unpacked(ctx context.Context, audit auth.AuditID) ([]auth.AuditEntry, error) {
	row, err := w.AuditEntry(ctx, w.tenant, int64(audit))
	if err != nil {
		return nil, err
	}
	entry, err := auditEntryFromRow(row)
	return entry.Unpacked(), err
}

func (w write) entriesOf(ctx context.Context, change int64) ([]auth.AuditEntry, error) {
	rows, err := w.AuditPage(ctx, dbsqlc.AuditPageParams{
		TenantID: w.tenant, BeforeAt: latestEnd, ChangeID: change, PageSize: auth.MaxUndone + 1,
	})
	if err != nil {
		return nil, err
	}
	var objects int
	for i := range rows {
		objects += int(rows[i].RowCount)
	}
	if objects > auth.MaxUndone {
		return nil, fmt.Errorf("the change has more than %d objects: %w", auth.MaxUndone, rules.ErrFinal)
	}
	var entries []auth.AuditEntry
	for _, entry := range auditEntriesFromRows(rows) {
		if !entry.IsPacked() {
			entries = append(entries, entry)
			continue
		}
		all, err := w.unpacked(ctx, entry.ID)
		if err != nil {
			return nil, err
		}
		entries = append(entries, all...)
	}
	isScheduled := func(entry auth.AuditEntry) bool { return entry.Object.Kind == "scheduled_change" }
	if kept := slices.DeleteFunc(slices.Clone(entries), isScheduled); len(kept) > 0 {
		entries = kept
	}
	return entries, nil
}

// withoutEnded leaves out removed overrides that have ended since, which the database refuses, unless nothing else is
// undone.
func (w write) withoutEnded(ctx context.Context, entries []auth.AuditEntry) ([]auth.AuditEntry, error) {
	now, err := w.DatabaseTime(ctx)
	if err != nil {
		return nil, err
	}
	var kept []auth.AuditEntry
	for _, entry := range entries {
		if entry.Object.Kind == "override" && entry.After == nil {
			before, err := decodeImage[overrideImage](entry.Before)
			if err != nil {
				return nil, fmt.Errorf("read the override before: %w", err)
			}
			if before.ExpiresAt != nil && !before.ExpiresAt.After(now) {
				continue
			}
		}
		kept = append(kept, entry)
	}
	if len(kept) == 0 {
		return entries, nil
	}
	return kept, nil
}

// revertAll returns all entries that clash. An object whose values are refused is tried again after the others, which
// may have made room for it; an override is not, because the database's refusal ends the transaction.
func (w write) revertAll(ctx context.Context, entries []auth.AuditEntry) error {
	var clashes []auth.UndoClash
	var refused []auth.AuditEntry
	for i, entry := range entries {
		err := w.revert(ctx, entry)
		if err == nil {
			continue
		}
		err = writeError(err)
		if errors.As(err, new(rules.FieldErrors)) && entry.Object.Kind != "override" && i < len(entries)-1 {
			refused = append(refused, entry)
			continue
		}
		if !isClash(err) {
			return err
		}
		clashes = append(clashes, auth.UndoClash{Entry: entry, Err: err})
		if !errors.Is(err, rules.ErrChanged) && !errors.Is(err, rules.ErrFinal) {
			break
		}
	}
	switch {
	case len(clashes) > 0:
		return &auth.UndoError{Clashes: clashes}
	case len(refused) > 0:
		return w.revertAll(ctx, refused)
	}
	return nil
}

func isClash(err error) bool {
	return errors.As(err, new(rules.FieldErrors)) || slices.ContainsFunc([]error{
		rules.ErrChanged, rules.ErrFinal, rules.ErrInUse, rules.ErrExists, rules.ErrNotFound, auth.ErrLastOwner,
	}, func(clash error) bool { return errors.Is(err, clash) })
}

func (w write) revert(ctx context.Context, entry auth.AuditEntry) error {
	switch entry.Object.Kind {
	case "tenant":
		return revertWith(ctx, entry, w.revertTenant)
	case "plan":
		return revertWith(ctx, entry, w.revertPlan)
	case "rule":
		return revertWith(ctx, entry, w.revertRule)
	case "override":
		return revertWith(ctx, entry, w.revertOverride)
	case "user":
		return revertWith(ctx, entry, w.revertAssignment)
	case "api_key":
		return revertWith(ctx, entry, w.revertKey)
	case "gateway":
		return revertWith(ctx, entry, w.revertGateway)
	case "alert":
		return revertWith(ctx, entry, w.revertAlert)
	default:
		return fmt.Errorf("a change of a %s: %w", entry.Object.Kind, rules.ErrFinal)
	}
}

func revertWith[Image any](ctx context.Context, entry auth.AuditEntry,
	revert func(ctx context.Context, before, after *Image) error,
) error {
	before, err := decodeImage[Image](entry.Before)
	if err != nil {
		return fmt.Errorf("read the object before: %w", err)
	}
	after, err := decodeImage[Image](entry.After)
	if err != nil {
		return fmt.Errorf("read the object after: %w", err)
	}
	return revert(ctx, before, after)
}

func decodeImage[Image any](text json.RawMessage) (*Image, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // nil means that there was no object
	}
	image := new(Image)
	return image, json.Unmarshal(text, image)
}

func unlessChanged(same bool, err error) error {
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.Is(err, rules.ErrNotFound):
		return fmt.Errorf("it no longer exists: %w", rules.ErrChanged)
	case err != nil:
		return err
	case !same:
		return rules.ErrChanged
	}
	return nil
}

type tenantImage struct {
	Name               string            `json:"name"`
	DefaultPlan        *string           `json:"default_plan"`
	SuspendedAt        *time.Time        `json:"suspended_at"`
	Enforcement        rules.Enforcement `json:"enforcement"` // "" means on, in entries older than this field
	RetryJitterPercent int               `json:"retry_jitter_percent"`
	IPv4Prefix         int               `json:"ipv4_prefix"`
	IPv6Prefix         int               `json:"ipv6_prefix"`
	FailureMode        rules.FailureMode `json:"failure_mode"`
	FixedRates         bool              `json:"fixed_rates"` // absent in entries older than this field
	RecordDays         int               `json:"record_days"` // likewise
}

func (i *tenantImage) tenant() rules.Tenant {
	return rules.Tenant{
		Name: i.Name, DefaultPlan: orEmpty(i.DefaultPlan), Suspended: i.SuspendedAt != nil,
		InShadow: i.Enforcement == rules.EnforcementShadow,
		Settings: rules.Settings{
			RetryJitterPercent: i.RetryJitterPercent, IPv4Prefix: i.IPv4Prefix, IPv6Prefix: i.IPv6Prefix,
			FailureMode: i.FailureMode,
			FixedRates:  i.FixedRates, RecordDays: i.RecordDays,
		},
	}
}

func (w write) revertTenant(ctx context.Context, before, after *tenantImage) error {
	if before == nil || after == nil {
		return fmt.Errorf("creating or removing a tenant cannot be undone: %w", rules.ErrFinal)
	}
	stored, err := w.Tenant(ctx, w.tenant)
	present, former, left := tenantFromRow(stored), before.tenant(), after.tenant()
	// Only owners change whether a second factor is required, after signing in again.
	former.Settings.RequireSecondFactor = present.Settings.RequireSecondFactor
	left.Settings.RequireSecondFactor = present.Settings.RequireSecondFactor
	if err := unlessChanged(sameTenant(present, left), err); err != nil {
		return err
	}
	if sameTenant(former, left) {
		return fmt.Errorf("only the required second factor was changed: %w", rules.ErrFinal)
	}
	_, err = w.updateTenant(ctx, former)
	return err
}

type planImage struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Position    float64 `json:"position"`
}

func (i *planImage) plan() rules.Plan {
	return rules.Plan{Name: i.Name, Description: i.Description, Position: i.Position}
}

func (w write) revertPlan(ctx context.Context, before, after *planImage) error {
	if after == nil {
		_, err := w.createPlan(ctx, before.plan())
		if errors.Is(err, rules.ErrExists) {
			return fmt.Errorf("it was created again since: %w", rules.ErrChanged)
		}
		return err
	}
	stored, err := w.Plan(ctx, w.tenant, after.Name)
	same := stored.Description == after.Description && stored.Position == after.Position
	if err := unlessChanged(same, err); err != nil {
		return err
	}
	if before == nil {
		return w.removePlan(ctx, after.Name)
	}
	_, err = w.updatePlan(ctx, before.plan())
	return err
}

type ruleImage struct{ rules.Rule }

// UnmarshalJSON leaves fields that the image does not have as those of a new rule.
func (i *ruleImage) UnmarshalJSON(text []byte) error {
	i.Rule = rules.Standard()
	image := struct {
		RuleID       rules.RuleID `json:"rule_id,string"`
		Name         string       `json:"name"`
		KeyPattern   string       `json:"key_pattern"`
		Plan         *string      `json:"plan"`
		Version      int64        `json:"version"`
		InForceSince time.Time    `json:"in_force_since"`
		rules.Fields
	}{Fields: i.Fields()}
	if err := json.Unmarshal(text, &image); err != nil {
		return err
	}
	if wrong := i.SetFields(&image.Fields); len(wrong) > 0 {
		return wrong
	}
	i.ID, i.Name, i.Plan = image.RuleID, image.Name, orEmpty(image.Plan)
	i.Version, i.InForceSince = image.Version, image.InForceSince.UTC()
	var err error
	i.Pattern, err = rules.ParsePattern(image.KeyPattern)
	return err
}

func (w write) revertRule(ctx context.Context, before, after *ruleImage) error {
	if after == nil {
		return w.reviveRule(ctx, before)
	}
	stored, err := w.ruleAt(ctx, after.ID, rules.AnyVersion)
	if err := unlessChanged(stored.HasSameFields(&after.Rule), err); err != nil {
		return err
	}
	if before == nil {
		return w.removeRule(ctx, after.ID)
	}
	_, err = w.updateRule(ctx, &stored, &before.Rule)
	return err
}

func (w write) reviveRule(ctx context.Context, before *ruleImage) error {
	row, err := w.RemovedRule(ctx, w.tenant, before.ID)
	if err != nil {
		return unlessChanged(true, err)
	}
	stored, err := ruleFromRow(row)
	if err != nil {
		return err
	}
	if err := unlessChanged(stored.HasSameFields(&before.Rule), nil); err != nil {
		return err
	}
	if err := errors.Join(w.requireRoom(ctx, &stored), w.requireKnown(ctx, stored),
		w.requireAdaptRoom(ctx, []rules.Rule{stored})); err != nil {
		return err
	}
	return w.ReviveRule(ctx, w.revision, w.tenant, before.ID)
}

type overrideImage struct {
	RuleID        rules.RuleID   `json:"rule_id,string"`
	UserID        string         `json:"user_id"`
	RatePerSecond float64        `json:"rate_per_second"`
	RateUnit      rules.RateUnit `json:"rate_unit"`
	BurstCapacity int64          `json:"burst_capacity"`
	Reason        string         `json:"reason"`
	ExpiresAt     *time.Time     `json:"expires_at"`
}

func (i *overrideImage) override() rules.Override {
	return rules.Override{
		RuleID: i.RuleID, UserID: i.UserID, RatePerSecond: i.RatePerSecond, RateUnit: i.RateUnit,
		Burst:  i.BurstCapacity,
		Reason: i.Reason, ExpiresAt: orZero(i.ExpiresAt),
	}
}

func (w write) revertOverride(ctx context.Context, before, after *overrideImage) error {
	if after == nil {
		if _, err := w.overrideAt(ctx, before.RuleID, before.UserID, rules.NoneStored); err != nil {
			return err
		}
		_, err := w.putOverride(ctx, before.override())
		return unlessChanged(true, err)
	}
	stored, err := w.overrideAt(ctx, after.RuleID, after.UserID, rules.AnyVersion)
	left := after.override()
	if err := unlessChanged(sameOverride(&stored, &left), err); err != nil {
		return err
	}
	if before == nil {
		return w.removeOverride(ctx, after.RuleID, after.UserID)
	}
	_, err = w.putOverride(ctx, before.override())
	return err
}

type assignmentImage struct {
	UserID string `json:"user_id"`
	Plan   string `json:"plan"`
}

func (w write) revertAssignment(ctx context.Context, before, after *assignmentImage) error {
	if before == nil {
		before = &assignmentImage{UserID: after.UserID}
	}
	if after == nil {
		after = &assignmentImage{UserID: before.UserID}
	}
	stored, err := w.Assignment(ctx, w.tenant, after.UserID)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil // the user has no plan
	}
	if err := unlessChanged(stored.Plan == after.Plan, err); err != nil {
		return err
	}
	_, err = w.assign(ctx, rules.Assignment{UserID: before.UserID, Plan: before.Plan}, rules.AnyVersion)
	return err
}

type keyImage struct {
	KeyID     string     `json:"key_id"`
	Name      string     `json:"name"`
	ExpiresAt *time.Time `json:"expires_at"`
	KeptAt    *time.Time `json:"kept_at"`
}

func (w write) revertKey(ctx context.Context, before, after *keyImage) error {
	if after == nil {
		return fmt.Errorf("a revoked API key stays revoked: %w", rules.ErrFinal)
	}
	keys := w.keys()
	stored, err := keys.keyAt(ctx, after.KeyID, rules.AnyVersion)
	asLeft := stored.RevokedAt.IsZero() && stored.Name == after.Name &&
		stored.ExpiresAt.Equal(orZero(after.ExpiresAt)) &&
		stored.KeptAt.Equal(orZero(after.KeptAt))
	if err := unlessChanged(asLeft, err); err != nil {
		return err
	}
	switch {
	case before == nil:
		return keys.revokeKey(ctx, after.KeyID)
	case !stored.ExpiresAt.IsZero() && !stored.ExpiresAt.After(time.Now()), before.Name != after.Name:
		return fmt.Errorf("an expired API key and a key's name cannot be restored: %w", rules.ErrFinal)
	}
	if _, err = keys.expireKey(ctx, before.KeyID, orZero(before.ExpiresAt)); err == nil {
		err = keys.keepKey(ctx, before.KeyID, orZero(before.KeptAt))
	}
	return err
}

// The audit log lacks an alert's secrets.
type alertImage map[string]json.RawMessage

func isTurnedOff(before, after alertImage) bool {
	if string(before["is_active"]) != "true" || string(after["is_active"]) != "false" {
		return false
	}
	left := func(image alertImage) alertImage {
		image = maps.Clone(image)
		for _, name := range []string{"is_active", "version", "updated_at"} {
			delete(image, name)
		}
		return image
	}
	return maps.EqualFunc(left(before), left(after), slices.Equal[json.RawMessage])
}

// revertAlert only turns on an alert that was turned off, since the log lacks secrets.
func (w write) revertAlert(ctx context.Context, before, after *alertImage) error {
	if before == nil || after == nil || !isTurnedOff(*before, *after) {
		return fmt.Errorf("a change of an alert: %w", rules.ErrFinal)
	}
	var id, version int64
	if err := errors.Join(json.Unmarshal(bytes.Trim((*after)["alert_id"], `"`), &id),
		json.Unmarshal((*after)["version"], &version)); err != nil {
		return fmt.Errorf("read the alert: %w", err)
	}
	turnedOn, err := w.TurnOnAlert(ctx, w.tenant, id, version)
	return unlessChanged(turnedOn == 1, err)
}
