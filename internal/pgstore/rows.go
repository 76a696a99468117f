package pgstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// This file is the one place where the database's rows become the domain's.

func each[Row, Value any](rows []Row, convert func(Row) Value) []Value {
	values := make([]Value, len(rows))
	for i := range rows {
		values[i] = convert(rows[i])
	}
	return values
}

// first returns the first value, or zero if there is none.
func first[Value any](values []Value) (value Value) {
	if len(values) > 0 {
		value = values[0]
	}
	return value
}

// rowLimit converts a limit for the database, which refuses negative ones. There is always room for one more row.
func rowLimit(limit int) int32 { return int32(min(max(limit, 0), math.MaxInt32-1)) }

func tenantFromRow(row dbsqlc.Tenant) rules.Tenant {
	return rules.Tenant{
		ID:          row.TenantID,
		Slug:        row.Slug,
		Name:        row.Name,
		DefaultPlan: orEmpty(row.DefaultPlan),
		Suspended:   row.SuspendedAt != nil,
		InShadow:    row.Enforcement == rules.EnforcementShadow,
		Spread:      row.Buckets == rules.BucketsSpread,
		Settings: rules.Settings{
			RetryJitterPercent: int(row.RetryJitterPercent),
			IPv4Prefix:         int(row.Ipv4Prefix),
			IPv6Prefix:         int(row.Ipv6Prefix),
			FailureMode:        row.FailureMode,
			FixedRates:         row.FixedRates,
			RecordDays:         int(row.RecordDays),

			RequireSecondFactor: row.RequireSecondFactor,
		},
		Version:   row.Version,
		Revision:  row.Revision,
		CreatedAt: row.CreatedAt.UTC(),
		Removed:   row.RemovedAt != nil,
	}
}

func planFromRow(row dbsqlc.Plan) rules.Plan {
	return rules.Plan{
		TenantID:    row.TenantID,
		Name:        row.Name,
		Description: row.Description,
		Revision:    row.Revision,
		Removed:     row.RemovedAt != nil,
	}
}

func planUseFromRow(row dbsqlc.PlanUsesRow) rules.PlanUse {
	return rules.PlanUse{Plan: planFromRow(row.Plan), Rules: row.Rules, Users: row.Users, IsDefault: row.IsDefault}
}

func ruleFromRow(row dbsqlc.RateLimitRule) (rules.Rule, error) {
	pattern, err := rules.ParsePattern(row.KeyPattern)
	if err != nil {
		return rules.Rule{}, fmt.Errorf("stored pattern of rule %d: %w", row.RuleID, err)
	}
	return rules.Rule{
		ID:             row.RuleID,
		TenantID:       row.TenantID,
		Name:           row.Name,
		Pattern:        pattern,
		Plan:           orEmpty(row.Plan),
		RatePerSecond:  row.RatePerSecond,
		RateUnit:       oneOf(row.RateUnit, rules.PerSecond, rules.PerMinute, rules.PerHour, rules.PerDay),
		Burst:          row.BurstCapacity,
		Algorithm:      oneOf(row.Algorithm, rules.Algorithms...),
		Window:         windowOf(row.WindowSeconds, row.WindowCalendar, row.WindowZone, row.WindowStartDay),
		RefillInterval: seconds(row.RefillIntervalSeconds),
		MaxHold:        seconds(row.MaxHoldSeconds),
		NotifyAt:       percents(row.NotifyAt),
		Adapt:          adaptOf(row.AdaptBackend, row.AdaptFloorPercent, row.AdaptP99Ms, row.AdaptErrorPercent),
		Mode:           oneOf(row.Mode, rules.ModeEnforce, rules.ModeShadow),
		Action:         oneOf(row.Action, rules.ActionLimit, rules.ActionBlock, rules.ActionBypass),
		FailureMode:    oneOf(rules.FailureMode(orEmpty(row.FailureMode)), rules.FailLocal, rules.FailOpen, rules.FailClosed),
		NeverLeased:    row.NeverLeased,
		CandidateFor:   rules.RuleID(orZeroValue(row.CandidateFor)),
		ExpiresAt:      orZero(row.ExpiresAt),
		Active:         row.IsActive,
		Description:    row.Description,
		Version:        row.Version,
		InForceSince:   row.InForceSince.UTC(),
		CreatedAt:      row.CreatedAt.UTC(),
		UpdatedAt:      row.UpdatedAt.UTC(),
		Revision:       row.Revision,
		Removed:        row.RemovedAt != nil,
	}, nil
}

// oneOf returns the constant that equals a word, so that a hundred thousand rules share the memory of their words.
func oneOf[T ~string](word T, constants ...T) T {
	if i := slices.Index(constants, word); i >= 0 {
		return constants[i]
	}
	return word
}

// rulesFromRows skips rules whose pattern does not parse. Only something other than Sluice can have written them, and
// one such row must not block all others.
func (s *Store) rulesFromRows(ctx context.Context, rows []dbsqlc.RateLimitRule) []rules.Rule {
	readable := make([]rules.Rule, 0, len(rows))
	for _, row := range rows {
		rule, err := ruleFromRow(row)
		if err != nil {
			s.unreadable.Add(1)
			s.log.ErrorContext(ctx, "a stored rule was skipped: its pattern does not parse", "tenant_id", row.TenantID, "rule_id", row.RuleID, "error", err)
			continue
		}
		readable = append(readable, rule)
	}
	return readable
}

func overrideFromRow(row dbsqlc.RateLimitOverride) rules.Override {
	return rules.Override{
		TenantID:      row.TenantID,
		RuleID:        row.RuleID,
		UserID:        row.UserID,
		RatePerSecond: row.RatePerSecond,
		RateUnit:      row.RateUnit,
		Burst:         row.BurstCapacity,
		Reason:        row.Reason,
		ExpiresAt:     orZero(row.ExpiresAt),
		InForceSince:  row.InForceSince.UTC(),
		RemovedAt:     orZero(row.RemovedAt),
		Revision:      row.Revision,
	}
}

func assignmentFromRow(row dbsqlc.PlanAssignment) rules.Assignment {
	return rules.Assignment{
		TenantID: row.TenantID,
		UserID:   row.UserID,
		Plan:     row.Plan,
		Revision: row.Revision,
		Removed:  row.RemovedAt != nil,
	}
}

func keyFromRow(row dbsqlc.ApiKey) auth.Key {
	key := auth.Key{
		ID:          row.KeyID,
		TenantID:    row.TenantID,
		Permissions: row.Permissions,
		Networks:    row.Networks,
		ExpiresAt:   orZero(row.ExpiresAt),
		Revoked:     row.RevokedAt != nil,
		Revision:    row.Revision,
	}
	for i := range key.Permissions {
		key.Permissions[i] = oneOf(key.Permissions[i], auth.Permissions...)
	}
	copy(key.Digest[:], row.Digest)
	return key
}

func namedKeyFromRow(row dbsqlc.ApiKey) auth.NamedKey {
	return auth.NamedKey{
		Key:       keyFromRow(row),
		Name:      row.Name,
		CreatedAt: row.CreatedAt.UTC(),
		RevokedAt: orZero(row.RevokedAt),
		KeptAt:    orZero(row.KeptAt),
		CreatedBy: rules.Actor{Kind: rules.ActorKind(row.CreatedByKind), ID: row.CreatedByID, Name: row.CreatedByName},
	}
}

func usedKeyFromRow(row dbsqlc.KeysRow) auth.NamedKey {
	key := namedKeyFromRow(row.ApiKey)
	key.LastUsedAt = orZero(row.LastUsedAt)
	key.CreatorLeft = row.CreatorLeft
	return key
}

func auditEntryFromRow(row dbsqlc.AuditEvent) auth.AuditEntry {
	return auth.AuditEntry{
		ID: auth.AuditID(row.AuditID),
		At: row.At.UTC(),
		Actor: rules.Actor{
			Kind: rules.ActorKind(row.ActorKind), ID: row.ActorID, Name: row.ActorName, Act: row.Act, RequestID: row.RequestID,
		},
		Action: auth.AuditAction(row.Action),
		Object: auth.AuditObject{Kind: row.ObjectKind, ID: row.ObjectID},
		Change: row.ChangeID,
		Before: row.Before,
		After:  row.After,
	}
}

func platformAuditEntryFromRow(row dbsqlc.PlatformAuditEvent) auth.AuditEntry {
	return auth.AuditEntry{
		ID: auth.AuditID(row.AuditID),
		At: row.At.UTC(),
		Actor: rules.Actor{
			Kind: rules.ActorKind(row.ActorKind), ID: row.ActorID, Name: row.ActorName, Act: row.Act, RequestID: row.RequestID,
		},
		Action: auth.AuditAction(row.Action),
		Object: auth.AuditObject{Kind: row.ObjectKind, ID: row.ObjectID},
		Before: row.Before,
		After:  row.After,
	}
}

// shapeColumns are the columns of a rule's limit that most rules leave null.
type shapeColumns struct {
	WindowSeconds, RefillIntervalSeconds, MaxHoldSeconds *int32
	WindowCalendar, WindowZone                           *string
	WindowStartDay                                       *int16
	NotifyAt                                             []int16
	AdaptBackend                                         *string
	AdaptFloorPercent                                    *int16
	AdaptP99Ms                                           *int32
	AdaptErrorPercent                                    *float64
}

// shapeOf expects a valid rule, whose numbers are in the columns' range.
func shapeOf(rule *rules.Rule) shapeColumns {
	columns := shapeColumns{
		WindowSeconds:         unlessZero(int32(rule.Window.Length / time.Second)),
		WindowCalendar:        unlessZero(string(rule.Window.Calendar)),
		WindowZone:            unlessZero(rule.Window.Zone),
		WindowStartDay:        unlessZero(int16(rule.Window.StartDay)),
		RefillIntervalSeconds: unlessZero(int32(rule.RefillInterval / time.Second)),
		MaxHoldSeconds:        unlessZero(int32(rule.MaxHold / time.Second)),
		AdaptBackend:          unlessZero(rule.Adapt.Backend),
		AdaptFloorPercent:     unlessZero(int16(rule.Adapt.FloorPercent)),
		AdaptP99Ms:            unlessZero(int32(rule.Adapt.P99 / time.Millisecond)),
		AdaptErrorPercent:     unlessZero(rule.Adapt.ErrorPercent),
	}
	for _, percent := range rule.NotifyAt {
		columns.NotifyAt = append(columns.NotifyAt, int16(percent))
	}
	return columns
}

func windowOf(length *int32, calendar, zone *string, startDay *int16) rules.Window {
	return rules.Window{
		Length:   seconds(length),
		Calendar: oneOf(rules.CalendarUnit(orZeroValue(calendar)), rules.CalendarDay, rules.CalendarWeek, rules.CalendarMonth),
		Zone:     orZeroValue(zone),
		StartDay: int(orZeroValue(startDay)),
	}
}

func adaptOf(backend *string, floor *int16, p99 *int32, errorPercent *float64) rules.Adapt {
	return rules.Adapt{
		Backend: orZeroValue(backend), FloorPercent: int(orZeroValue(floor)),
		P99: time.Duration(orZeroValue(p99)) * time.Millisecond, ErrorPercent: orZeroValue(errorPercent),
	}
}

func seconds(n *int32) time.Duration { return time.Duration(orZeroValue(n)) * time.Second }

// wholeSeconds returns nil for none.
func wholeSeconds(length *time.Duration) *int64 {
	if length == nil {
		return nil
	}
	return new(int64(*length / time.Second))
}

func percents(column []int16) []int {
	if len(column) == 0 {
		return nil
	}
	return each(column, func(percent int16) int { return int(percent) })
}

func orEmpty(text *string) string { return orZeroValue(text) }

func orZeroValue[T any](value *T) (zero T) {
	if value == nil {
		return zero
	}
	return *value
}

// unlessZero is the inverse of orZeroValue.
func unlessZero[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// orNull is the inverse of orZero.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
