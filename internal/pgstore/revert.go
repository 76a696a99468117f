package pgstore

import (
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

// Revert undoes one entry of the audit log and returns the id of the new entry. It returns rules.ErrChanged if the
// object was changed later, and rules.ErrFinal for changes that cannot be undone. An entry is undone if its object is
// still as the entry left it in all that people can change. A removed rule returns under its id. Other objects of the
// same change stay as they are, such as the overrides of a removed rule, which have their own entries. The exception is
// a promotion: undoing the live rule's update also restores the shadow rule and its candidate. Undoing a rule's
// creation can remove many overrides.
func (s Writer) Revert(ctx context.Context, tenant rules.TenantID, audit auth.AuditID) (revert auth.AuditID,
	err error,
) {
	err = s.acting(fmt.Sprintf("revert %d", audit)).inTenant(ctx, classBulk, tenant,
		func(ctx context.Context, w write) error {
			row, err := w.AuditEntry(ctx, w.tenant, int64(audit))
			if err != nil {
				return err
			}
			entry := auditEntryFromRow(row)
			if err := w.revert(ctx, entry); err != nil {
				return err
			}
			if entry.Actor.Act == actPromote && entry.Action == auth.AuditUpdate {
				if err := w.restorePromoted(ctx, entry.Change); err != nil {
					return err
				}
			}
			id, err := w.LatestOfChange(ctx, w.tenant, row.ObjectKind, row.ObjectID)
			revert = auth.AuditID(id)
			return err
		})
	if err != nil {
		return 0, fmt.Errorf("revert audit entry %d: %w", audit, err)
	}
	return revert, nil
}

// restorePromoted restores the rules that a promotion removed and that are not back already: the shadow rule, and its
// candidate if the shadow rule was once enforced. None was removed if the shadow rule was enforced in place.
func (w write) restorePromoted(ctx context.Context, promotion int64) error {
	const shadowAndCandidate = 2
	removed, err := w.AuditPage(ctx, dbsqlc.AuditPageParams{
		TenantID: w.tenant, BeforeAt: latestEnd, ChangeID: promotion,
		ObjectKind: "rule", Action: string(auth.AuditRemove), PageSize: shadowAndCandidate,
	})
	if err != nil {
		return err
	}
	for _, row := range slices.Backward(removed) { // a rule before its candidate
		rule, err := decodeImage[ruleImage](auditEntryFromRow(row).Before)
		if err != nil {
			return fmt.Errorf("read the promoted rule: %w", err)
		}
		switch _, err := w.Rule(ctx, w.tenant, rule.ID); {
		case errors.Is(err, pgx.ErrNoRows):
			if err := w.reviveRule(ctx, rule); err != nil {
				return err
			}
		case err != nil:
			return err
		}
	}
	return nil
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
	default:
		return fmt.Errorf("a change of a %s: %w", entry.Object.Kind, rules.ErrFinal)
	}
}

// revertWith decodes the images of an entry: nil before a creation and after a removal.
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

// unlessChanged returns rules.ErrChanged unless the object is stored as the entry left it. A missing object has
// changed.
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
	// Whether a second factor is required is changed by its owners only, after signing in again.
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
	Name        string `json:"name"`
	Description string `json:"description"`
}

func (w write) revertPlan(ctx context.Context, before, after *planImage) error {
	if after == nil {
		_, err := w.createPlan(ctx, rules.Plan{Name: before.Name, Description: before.Description})
		if errors.Is(err, rules.ErrExists) {
			return fmt.Errorf("it was created again since: %w", rules.ErrChanged)
		}
		return err
	}
	stored, err := w.Plan(ctx, w.tenant, after.Name)
	if err := unlessChanged(stored.Description == after.Description, err); err != nil {
		return err
	}
	if before == nil {
		return w.removePlan(ctx, after.Name)
	}
	_, err = w.updatePlan(ctx, rules.Plan{Name: before.Name, Description: before.Description})
	return err
}

// ruleImage is a rule as the audit log shows it.
type ruleImage struct{ rules.Rule }

// UnmarshalJSON leaves fields that the image does not have as those of a new rule.
func (i *ruleImage) UnmarshalJSON(text []byte) error {
	i.Rule = rules.Standard()
	image := struct {
		RuleID       rules.RuleID `json:"rule_id"`
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

// reviveRule restores a removed rule if no other has its pattern, plan and name.
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
	RuleID        rules.RuleID   `json:"rule_id"`
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

// revertOverride returns rules.FieldErrors on expires_at if the override would have ended.
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

// revertKey revokes a created key, or restores a key's expiry until the key has expired, and whether it is kept.
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
