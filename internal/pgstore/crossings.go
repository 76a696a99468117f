package pgstore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func recordCrossings(ctx context.Context, queries *dbsqlc.Queries, crossings []violations.Crossing) error {
	if len(crossings) == 0 {
		return nil
	}
	var rows dbsqlc.CrossingsRecordedParams
	for i := range crossings {
		c := &crossings[i]
		rows.TenantIds = append(rows.TenantIds, int64(c.Tenant))
		rows.RuleIds = append(rows.RuleIds, int64(c.Rule))
		rows.Subjects = append(rows.Subjects, c.Subject)
		rows.WindowStarts = append(rows.WindowStarts, c.WindowStart)
		rows.Shares = append(rows.Shares, int16(c.Share))
		rows.WindowEnds = append(rows.WindowEnds, c.WindowEnd)
		rows.CrossedAt = append(rows.CrossedAt, c.At)
		rows.Used = append(rows.Used, c.Used.Float())
		rows.Bursts = append(rows.Bursts, c.Burst)
		rows.Modes = append(rows.Modes, string(c.Mode))
		rows.RuleNames = append(rows.RuleNames, c.RuleName)
		rows.KeyPatterns = append(rows.KeyPatterns, c.Pattern)
		rows.UserIds = append(rows.UserIds, c.UserID)
		rows.Meters = append(rows.Meters, string(c.Meter))
	}
	if err := queries.CrossingsRecorded(ctx, rows); err != nil {
		return fmt.Errorf("record crossings: %w", err)
	}
	return nil
}

var farAhead = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Crossings reads a page by the index of the user, of the rule, or of the time.
func (s *Store) Crossings(
	ctx context.Context, tenant rules.TenantID, filter violations.CrossingFilter, before violations.CrossingPlace,
	limit int,
) ([]violations.Crossing, error) {
	if before == (violations.CrossingPlace{}) {
		before = violations.CrossingPlace{At: farAhead, Number: math.MaxInt64}
	}
	rows, err := s.queriesFor(classRead, only(tenant)).CrossingsBefore(ctx, dbsqlc.CrossingsBeforeParams{
		TenantID: tenant, UserID: filter.UserID, RuleID: int64(filter.Rule), BeforeAt: before.At,
		BeforeID: before.Number, PageSize: rowLimit(limit),
	})
	return each(rows, crossingFromRow), wrap(err, "read crossings")
}

func crossingFromRow(row dbsqlc.QuotaCrossing) violations.Crossing {
	return violations.Crossing{
		Number: row.CrossingID, Tenant: row.TenantID, Rule: row.RuleID, Subject: row.Subject,
		WindowStart: row.WindowStart.UTC(), WindowEnd: row.WindowEnd.UTC(), Share: int(row.Share),
		At:   row.CrossedAt.UTC(),
		Used: tokens(row.Used), Burst: row.BurstCapacity,
		Mode: rules.Mode(row.Mode), RuleName: row.RuleName, Pattern: row.KeyPattern, UserID: orEmpty(row.UserID),
		Meter: rules.Meter(row.Meter),
	}
}
