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

// Revert undoes one entry of the audit log, if its object is still as the entry left it in all that people can change.
// A removed rule returns under its id. Other objects of the same change stay as they are, such as the overrides of a
// removed rule, which have their own entries. The exception is a promotion: undoing the live rule's update also
// restores the shadow rule and its candidate. Undoing a rule's creation can remove many overrides.
func (s Writer) Revert(ctx context.Context, tenant rules.TenantID, audit auth.AuditID) (revert auth.AuditID, err error) {
	err = s.acting(fmt.Sprintf("revert %d", audit)).inTenant(ctx, classBulk, tenant, func(ctx context.Context, w write) error {
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
		switch _, err := w.Rule(ctx, w.tenant, rule.RuleID); {
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
func revertWith[Image any](ctx context.Context, entry auth.AuditEntry, revert func(ctx context.Context, before, after *Image) error) error {
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
			RetryJitterPercent: i.RetryJitterPercent, IPv4Prefix: i.IPv4Prefix, IPv6Prefix: i.IPv6Prefix, FailureMode: i.FailureMode,
			FixedRates: i.FixedRates, RecordDays: i.RecordDays,
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

type ruleImage struct {
	RuleID        rules.RuleID    `json:"rule_id"`
	RatePerSecond float64         `json:"rate_per_second"`
	RateUnit      rules.RateUnit  `json:"rate_unit"`
	BurstCapacity int64           `json:"burst_capacity"`
	Algorithm     rules.Algorithm `json:"algorithm"`
	Mode          rules.Mode      `json:"mode"`
	Action        rules.Action    `json:"action"`
	FailureMode   *string         `json:"failure_mode"`
	IsActive      bool            `json:"is_active"`
	Description   string          `json:"description"`

	// Entries older than these fields have none of them.
	WindowSeconds         *int32  `json:"window_seconds"`
	WindowCalendar        *string `json:"window_calendar"`
	WindowZone            *string `json:"window_zone"`
	WindowStartDay        *int16  `json:"window_start_day"`
	RefillIntervalSeconds *int32  `json:"refill_interval_seconds"`
	MaxHoldSeconds        *int32  `json:"max_hold_seconds"`
	NotifyAt              []int16 `json:"notify_at"`

	AdaptBackend      *string  `json:"adapt_backend"`
	AdaptFloorPercent *int16   `json:"adapt_floor_percent"`
	AdaptP99Ms        *int32   `json:"adapt_p99_ms"`
	AdaptErrorPercent *float64 `json:"adapt_error_percent"`

	NeverLeased bool       `json:"never_leased"`
	ExpiresAt   *time.Time `json:"expires_at"`
}

// rule returns the image without the fields that identify a rule.
func (i *ruleImage) rule() rules.Rule {
	return rules.Rule{
		ID: i.RuleID, RatePerSecond: i.RatePerSecond, RateUnit: i.RateUnit, Burst: i.BurstCapacity,
		Algorithm: i.Algorithm, Mode: i.Mode, Action: i.Action, FailureMode: rules.FailureMode(orEmpty(i.FailureMode)),
		Active: i.IsActive, Description: i.Description,
		Window:         windowOf(i.WindowSeconds, i.WindowCalendar, i.WindowZone, i.WindowStartDay),
		RefillInterval: seconds(i.RefillIntervalSeconds), MaxHold: seconds(i.MaxHoldSeconds), NotifyAt: percents(i.NotifyAt),
		Adapt: adaptOf(i.AdaptBackend, i.AdaptFloorPercent, i.AdaptP99Ms, i.AdaptErrorPercent), NeverLeased: i.NeverLeased,
		ExpiresAt: orZero(i.ExpiresAt),
	}
}

func (w write) revertRule(ctx context.Context, before, after *ruleImage) error {
	if after == nil {
		return w.reviveRule(ctx, before)
	}
	stored, err := w.ruleAt(ctx, after.RuleID, rules.AnyVersion)
	left := after.rule()
	if err := unlessChanged(sameRule(&stored, &left), err); err != nil {
		return err
	}
	if before == nil {
		return w.removeRule(ctx, after.RuleID)
	}
	_, err = w.updateRule(ctx, before.rule())
	return err
}

// reviveRule restores a removed rule if no other has its pattern, plan and name.
func (w write) reviveRule(ctx context.Context, before *ruleImage) error {
	row, err := w.RemovedRule(ctx, w.tenant, before.RuleID)
	if err != nil {
		return unlessChanged(true, err)
	}
	stored, err := ruleFromRow(row)
	if err != nil {
		return err
	}
	left := before.rule()
	if err := unlessChanged(sameRule(&stored, &left), nil); err != nil {
		return err
	}
	if err := errors.Join(w.requireRoom(ctx, &stored), w.requireKnown(ctx, stored), w.requireAdaptRoom(ctx, []rules.Rule{stored})); err != nil {
		return err
	}
	return w.ReviveRule(ctx, w.revision, w.tenant, before.RuleID)
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
		RuleID: i.RuleID, UserID: i.UserID, RatePerSecond: i.RatePerSecond, RateUnit: i.RateUnit, Burst: i.BurstCapacity,
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
	stored, err := w.keyAt(ctx, after.KeyID, rules.AnyVersion)
	asLeft := stored.RevokedAt.IsZero() && stored.Name == after.Name && stored.ExpiresAt.Equal(orZero(after.ExpiresAt)) &&
		stored.KeptAt.Equal(orZero(after.KeptAt))
	if err := unlessChanged(asLeft, err); err != nil {
		return err
	}
	switch {
	case before == nil:
		return foundOne(w.RevokeKey(ctx, w.revision, w.tenant, after.KeyID))
	case !stored.ExpiresAt.IsZero() && !stored.ExpiresAt.After(time.Now()), before.Name != after.Name:
		return fmt.Errorf("an expired API key and a key's name cannot be restored: %w", rules.ErrFinal)
	}
	if _, err = w.expireKey(ctx, before.KeyID, orZero(before.ExpiresAt)); err == nil {
		err = w.keepKey(ctx, before.KeyID, orZero(before.KeptAt))
	}
	return err
}
