package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

func each[Row, Value any](rows []Row, convert func(Row) Value) []Value {
	values := make([]Value, len(rows))
	for i := range rows {
		values[i] = convert(rows[i])
	}
	return values
}

func first[Value any](values []Value) (value Value) {
	if len(values) > 0 {
		value = values[0]
	}
	return value
}

// rowLimit always leaves room for one more row.
func rowLimit(limit int) int32 { return int32(min(max(limit, 0), math.MaxInt32-1)) }

func tenantFromRow(row dbsqlc.Tenant) rules.Tenant {
	return rules.Tenant{
		ID:          row.TenantID,
		Slug:        row.Slug,
		Name:        row.Name,
		DefaultPlan: orEmpty(row.DefaultPlan),
		Suspended:   row.SuspendedAt != nil,
		InShadow:    row.Enforcement == rules.EnforcementShadow,
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
		Position:    row.Position,
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
	rule := rules.Standard()
	fields := rule.Fields()
	if len(row.Parameters) > len("{}") {
		if err := json.Unmarshal(row.Parameters, &fields); err != nil {
			return rules.Rule{}, fmt.Errorf("stored parameters of rule %d: %w", row.RuleID, err)
		}
	}
	fields.RatePerSecond, fields.BurstCapacity = row.RatePerSecond, row.BurstCapacity
	fields.RateUnit = oneOf(row.RateUnit, rules.PerSecond, rules.PerMinute, rules.PerHour, rules.PerDay)
	fields.Algorithm = oneOf(row.Algorithm, rules.Algorithms...)
	fields.Mode = oneOf(row.Mode, rules.ModeEnforce, rules.ModeShadow)
	fields.Action = oneOf(row.Action, rules.ActionLimit, rules.ActionBlock, rules.ActionBypass)
	fields.FailureMode, fields.IsActive, fields.ExpiresAt = row.FailureMode, row.IsActive, row.ExpiresAt
	fields.Description = row.Description
	if wrong := rule.SetFields(&fields); len(wrong) > 0 {
		return rules.Rule{}, fmt.Errorf("stored parameters of rule %d: %w", row.RuleID, wrong)
	}
	rule.FailureMode = oneOf(rule.FailureMode, rules.FailLocal, rules.FailOpen, rules.FailClosed)
	rule.ID, rule.TenantID, rule.Name, rule.Pattern = row.RuleID, row.TenantID, row.Name, pattern
	rule.Plan, rule.CandidateFor = orEmpty(row.Plan), rules.RuleID(orZeroValue(row.CandidateFor))
	rule.Version, rule.Revision, rule.Removed = row.Version, row.Revision, row.RemovedAt != nil
	rule.InForceSince, rule.CreatedAt, rule.UpdatedAt = row.InForceSince.UTC(), row.CreatedAt.UTC(), row.UpdatedAt.UTC()
	return rule, nil
}

var columns = []string{
	"rate_per_second", "rate_unit", "burst_capacity", "algorithm", "mode", "action", "failure_mode", "is_active",
	"expires_at", "description",
}

func parametersOf(fields *rules.Fields) ([]byte, error) {
	parameters := map[string]any{}
	for name, value := range fields.Chosen() {
		if !slices.Contains(columns, name) {
			parameters[name] = value
		}
	}
	return json.Marshal(parameters)
}

var knownParameters = func() (names []string) {
	for name := range rules.Named(new(rules.Fields)) {
		if !slices.Contains(columns, name) {
			names = append(names, name)
		}
	}
	return names
}()

// oneOf returns the equal constant, so that a hundred thousand rules share the memory of their words.
func oneOf[T ~string](word T, constants ...T) T {
	if i := slices.Index(constants, word); i >= 0 {
		return constants[i]
	}
	return word
}

// rulesFromRows skips rules that do not parse: only something other than Sluice can have written them, and one must not
// block all others.
func (s *Store) rulesFromRows(ctx context.Context, rows []dbsqlc.RateLimitRule) []rules.Rule {
	readable := make([]rules.Rule, 0, len(rows))
	for _, row := range rows {
		rule, err := ruleFromRow(row)
		if err != nil {
			s.unreadable.Add(1)
			s.log.ErrorContext(ctx, "a stored rule was skipped: it cannot be read", "tenant_id", row.TenantID,
				"rule_id", row.RuleID, "error", err)
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

func serviceKeyFromRow(row dbsqlc.ServiceKeysRow) auth.NamedKey {
	k := row.ServiceKey
	return usedKeyFromRow(dbsqlc.KeysRow{
		ApiKey: dbsqlc.ApiKey{
			KeyID: k.KeyID, Name: k.Name, Digest: k.Digest, Permissions: k.Permissions, Networks: k.Networks,
			ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, Revision: k.Version, CreatedAt: k.CreatedAt,
			KeptAt: k.KeptAt, CreatedByKind: k.CreatedByKind, CreatedByID: k.CreatedByID,
			CreatedByName: k.CreatedByName,
		},
		LastUsedAt: k.LastUsedAt, CreatorLeft: row.CreatorLeft,
	})
}

type auditRow interface {
	dbsqlc.AuditPageRow | dbsqlc.AuditOfObjectsRow | dbsqlc.AuditRowsOfObjectsRow | dbsqlc.AuditOfUserRow
}

func auditEntriesFromRows[Row auditRow](rows []Row) []auth.AuditEntry {
	return each(rows, func(r Row) auth.AuditEntry {
		row := dbsqlc.AuditPageRow(r)
		return auth.AuditEntry{
			ID:  auth.AuditID(row.AuditID),
			Row: int(row.RowNumber),
			At:  row.At.UTC(),
			Actor: rules.Actor{
				Kind: rules.ActorKind(row.ActorKind), ID: row.ActorID, Name: row.ActorName, Act: row.Act,
				RequestID: row.RequestID,
			},
			Action:  auth.AuditAction(row.Action),
			Object:  auth.AuditObject{Kind: row.ObjectKind, ID: row.ObjectID},
			Change:  row.ChangeID,
			Before:  shownImage(row.Before),
			After:   shownImage(row.After),
			Objects: int(row.RowCount),
		}
	})
}

func auditEntryFromRow(row dbsqlc.AuditEvent) (auth.AuditEntry, error) {
	entry := first(auditEntriesFromRows([]dbsqlc.AuditPageRow{{
		TenantID: row.TenantID, AuditID: row.AuditID, At: row.At, ActorKind: row.ActorKind, ActorID: row.ActorID,
		ActorName: row.ActorName, Act: row.Act, RequestID: row.RequestID, Action: row.Action,
		ObjectKind: row.ObjectKind, ObjectID: row.ObjectID, ChangeID: row.ChangeID, Before: row.Before,
		After: row.After, RowCount: row.RowCount,
	}}))
	if row.Rows == nil {
		return entry, nil
	}
	if err := json.Unmarshal(row.Rows, &entry.Rows); err != nil {
		return entry, fmt.Errorf("read the rows of audit entry %d: %w", row.AuditID, err)
	}
	for i := range entry.Rows {
		for _, image := range []*json.RawMessage{&entry.Rows[i].Before, &entry.Rows[i].After} {
			if *image = shownImage(*image); string(*image) == "null" {
				*image = nil
			}
		}
	}
	return entry, nil
}

func platformAuditEntryFromRow(row dbsqlc.PlatformAuditEvent) auth.AuditEntry {
	return auth.AuditEntry{
		ID: auth.AuditID(row.AuditID),
		At: row.At.UTC(),
		Actor: rules.Actor{
			Kind: rules.ActorKind(row.ActorKind), ID: row.ActorID, Name: row.ActorName, Act: row.Act,
			RequestID: row.RequestID,
		},
		Action: auth.AuditAction(row.Action),
		Object: auth.AuditObject{Kind: row.ObjectKind, ID: row.ObjectID},
		Before: shownImage(row.Before),
		After:  shownImage(row.After),
	}
}

var imageIDs = regexp.MustCompile(`("(?:[a-z_]*_id|candidate_for)": ?)([0-9]+)`)

// shownImage returns a stored image with ids as text, as the API has them.
func shownImage(image json.RawMessage) json.RawMessage {
	return imageIDs.ReplaceAll(image, []byte(`$1"$2"`))
}

func wholeSeconds(length *time.Duration) *int64 {
	if length == nil {
		return nil
	}
	return new(int64(*length / time.Second))
}

func orEmpty(text *string) string { return orZeroValue(text) }

func orZeroValue[T any](value *T) (zero T) {
	if value == nil {
		return zero
	}
	return *value
}

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

func sinceEpoch(t time.Time) time.Time {
	if t.Unix() <= 0 {
		return time.Time{}
	}
	return t.UTC()
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
