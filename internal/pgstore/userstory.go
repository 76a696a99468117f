package pgstore

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const maxStoryRules = 500

// UserStory reads the entries of each object by the log's index.
func (s *Store) UserStory(
	ctx context.Context, tenant rules.TenantID, userID string, since time.Time, before auth.LogCursor, limit int,
) ([]auth.AuditEntry, error) {
	if before == (auth.LogCursor{}) {
		before = auth.LogCursor{At: farAhead, ID: math.MaxInt64}
	}
	const attempted = "read the story of a user"
	ctx, cancel := s.within(ctx, classRead)
	defer cancel()
	q := s.queriesFor(classRead, only(tenant))
	overridden, err := q.RulesEverOverridden(ctx, tenant, userID, maxStoryRules)
	if err != nil {
		return nil, wrap(err, attempted)
	}
	named, err := q.RulesEverOfPattern(ctx, tenant, patternOfUser(userID), maxStoryRules)
	if err != nil {
		return nil, wrap(err, attempted)
	}
	number := func(rule rules.RuleID) string { return strconv.FormatInt(int64(rule), 10) }
	var entries []auth.AuditEntry
	for kind, ids := range map[string][]string{
		"user":     {userID},
		"rule":     each(named, number),
		"override": each(overridden, func(rule rules.RuleID) string { return number(rule) + ":" + userID }),
	} {
		rows, err := q.AuditOfObjects(ctx, dbsqlc.AuditOfObjectsParams{
			TenantID: tenant, ObjectKind: kind, ObjectIds: ids, Since: since,
			BeforeAt: before.At, BeforeID: before.ID, PageSize: rowLimit(limit),
		})
		if err != nil {
			return nil, wrap(err, attempted)
		}
		packed, err := q.AuditRowsOfObjects(ctx, dbsqlc.AuditRowsOfObjectsParams{
			TenantID: tenant, ObjectKind: kind, ObjectIds: ids, Since: since,
			BeforeAt: before.At, BeforeID: before.ID, PageSize: rowLimit(limit),
		})
		if err != nil {
			return nil, wrap(err, attempted)
		}
		entries = append(append(entries, auditEntriesFromRows(rows)...), auditEntriesFromRows(packed)...)
	}
	entries = latestFirst(entries)
	return entries[:min(len(entries), limit)], nil
}

// DenialsOfUser looks at the newest violations.MaxTopRows counts of the tenant, and at as many rows of the user.
func (s *Store) DenialsOfUser(
	ctx context.Context, tenant rules.TenantID, userID string, since, until time.Time, limit int,
) ([]violations.UserDenials, error) {
	rows, err := s.queriesFor(classHeavy, only(tenant)).DenialsOfUser(ctx, dbsqlc.DenialsOfUserParams{
		TenantID: tenant, UserID: userID, Since: since, Until: until, AtMost: int64(s.topRows),
		PageSize: rowLimit(limit),
	})
	return each(rows, func(row dbsqlc.DenialsOfUserRow) violations.UserDenials {
		return violations.UserDenials{
			Hour: row.Hour.UTC(), Rule: row.RuleID, Mode: rules.Mode(row.Mode), Denied: row.Denied, Exact: row.IsExact,
		}
	}), wrap(err, "count the denials of a user")
}

func patternOfUser(userID string) string {
	quoted := `user:"` + strings.ReplaceAll(userID, `"`, `""`) + `"`
	pattern, err := rules.ParsePattern(quoted)
	if err != nil {
		return quoted // no rule has such a pattern
	}
	return pattern.String()
}
