package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

var _ violations.Keeper = (*Store)(nil)

const (
	// upkeepLock is an advisory lock that lets one process at a time do upkeep.
	upkeepLock = 0x736c75696365_01
	// daysAhead is how many days get their partition early.
	daysAhead = 3
	// rowsPerDrop is how many rows one transaction drops.
	rowsPerDrop = 10_000

	// A batch is retried within seconds after an outage.
	batchRetention = 7 * 24 * time.Hour
	// A bucket remembers its limit for at most a year.
	tombstoneRetention = 400 * 24 * time.Hour
	// Processes read all assignments again each minute.
	unassignedRetention = 30 * 24 * time.Hour
	// A session lives for a week at most; see auth.Options.
	sessionRetention = 30 * 24 * time.Hour
	// Counted from its expiry: an expired link works no longer.
	linkRetention = 24 * time.Hour
	// The audit log shows an invitation for longer.
	invitationRetention = 30 * 24 * time.Hour
	// longestDrop is how many transactions one upkeep spends on one kind of rows. The next upkeep goes on.
	longestDrop = 200
)

// partitioned is a table with a partition for each day.
type partitioned struct {
	what    string
	oldest  time.Time // the first day that is kept
	without func(*dbsqlc.Queries, context.Context, time.Time) ([]pgtype.Date, error)
	create  func(*dbsqlc.Queries, context.Context, pgtype.Date) (bool, error)
	drop    func(*dbsqlc.Queries, context.Context, pgtype.Date) (int32, error)
}

// KeepViolations makes the partitions of yesterday, today, the next three days and every day with rows in the default
// partition, then drops what is older than the retention: of violations, and of their counts. Each step is a transaction that
// one process does and others skip.
func (s *Store) KeepViolations(ctx context.Context, now time.Time, keep violations.Retention) (kept violations.Kept, err error) {
	today := midnight(now)
	for _, table := range []partitioned{
		{
			"violations", midnight(now.Add(-keep.Details)), (*dbsqlc.Queries).DaysWithoutPartition,
			(*dbsqlc.Queries).MakeViolationPartition, (*dbsqlc.Queries).DropViolationPartitions,
		},
		{
			"counts of violations", midnight(now.Add(-keep.Counts)), (*dbsqlc.Queries).DaysOfMinutesWithoutPartition,
			(*dbsqlc.Queries).MakeViolationMinutePartition, (*dbsqlc.Queries).DropViolationMinutePartitions,
		},
	} {
		if err := s.keepDays(ctx, today, table, &kept); err != nil {
			return kept, err
		}
	}
	if kept.RowsDropped, err = s.dropOldRows(ctx, now, keep); err != nil {
		return kept, err
	}
	recorded, err := s.keepTraffic(ctx, now)
	kept.RowsDropped += recorded
	return kept, errors.Join(err, s.recountHeld(ctx))
}

func midnight(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

func (s *Store) keepDays(ctx context.Context, today time.Time, table partitioned, kept *violations.Kept) error {
	days, err := s.daysWithoutPartition(ctx, today, table)
	if err != nil {
		return fmt.Errorf("look for days of %s without a partition: %w", table.what, err)
	}
	for _, day := range days {
		err := s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
			made, err := table.create(q, ctx, pgtype.Date{Time: day, Valid: true})
			if made {
				kept.DaysMade++
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("make the partition of %s of %s: %w", table.what, day.Format(time.DateOnly), err)
		}
	}
	err = s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		dropped, err := table.drop(q, ctx, pgtype.Date{Time: table.oldest, Valid: true})
		kept.DaysDropped += int(dropped)
		return err
	})
	if err != nil {
		return fmt.Errorf("drop %s before %s: %w", table.what, table.oldest.Format(time.DateOnly), err)
	}
	return nil
}

func (s *Store) daysWithoutPartition(ctx context.Context, today time.Time, table partitioned) (days []time.Time, err error) {
	for ahead := -1; ahead <= daysAhead; ahead++ {
		days = append(days, today.AddDate(0, 0, ahead))
	}
	err = s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		strays, err := table.without(q, ctx, table.oldest)
		for _, day := range strays {
			days = append(days, day.Time)
		}
		return err
	})
	return days, err
}

func (s *Store) dropOldRows(ctx context.Context, now time.Time, keep violations.Retention) (dropped int64, err error) {
	type drop struct {
		what   string
		before time.Time
		do     func(*dbsqlc.Queries, context.Context, time.Time, int32) (int64, error)
	}
	drops := []drop{
		{"counts of violations", midnight(now.Add(-keep.Counts)), (*dbsqlc.Queries).DropViolationMinutes},
		{"counts of decisions", now.Add(-keep.Counts), (*dbsqlc.Queries).DropDecisionMinutes},
		{"sums of decisions", now.Add(-keep.Counts), func(q *dbsqlc.Queries, ctx context.Context, before time.Time, atMost int32) (int64, error) {
			return q.DropDecisionSpans(ctx, spans, before, atMost)
		}},
		{"counts of users' months", now.Add(-keep.Counts), (*dbsqlc.Queries).DropUserMonths},
		{"counts of months' users", now.Add(-keep.Counts), (*dbsqlc.Queries).DropMonthUsers},
		{"crossings", now.Add(-keep.Counts), (*dbsqlc.Queries).DropCrossings},
		{"deliveries of alerts", now.Add(-keep.Details), (*dbsqlc.Queries).DropAlertDeliveries},
		{"numbers of batches", now.Add(-batchRetention), (*dbsqlc.Queries).DropRecorderBatches},
		{"traces of removed overrides", now.Add(-tombstoneRetention), (*dbsqlc.Queries).DropOverrideTombstones},
		{"traces of ended steps", now.Add(-tombstoneRetention), (*dbsqlc.Queries).DropStepTombstones},
		{"traces of removed assignments", now.Add(-unassignedRetention), (*dbsqlc.Queries).DropAssignmentTombstones},
		{"sessions", now.Add(-sessionRetention), (*dbsqlc.Queries).DropSessions},
		{"links in mail", now.Add(-linkRetention), (*dbsqlc.Queries).DropExpiredLinks},
		{"invitations", now.Add(-invitationRetention), (*dbsqlc.Queries).DropInvitations},
	}
	if keep.Access != 0 {
		drops = append(drops, drop{"entries of the security log", now.Add(-keep.Access), (*dbsqlc.Queries).DropAccessEvents})
	}
	if keep.Audit != 0 {
		drops = append(drops, drop{"audit entries", now.Add(-keep.Audit), (*dbsqlc.Queries).DropAuditEvents})
	}
	for _, d := range drops {
		rows := int64(rowsPerDrop)
		for pieces := 0; rows == rowsPerDrop && pieces < longestDrop; pieces++ {
			rows = 0
			err := s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) (err error) {
				if err := q.SetActor(ctx, actorSetting(rules.Actor{Kind: rules.ActorSystem, Name: "sluice", Act: "retention"})); err != nil {
					return err
				}
				rows, err = d.do(q, ctx, d.before, rowsPerDrop)
				return err
			})
			if err != nil {
				return dropped, fmt.Errorf("drop old %s: %w", d.what, err)
			}
			dropped += rows
		}
	}
	return dropped, nil
}

// upkeep does one step in a transaction, unless another process is doing one.
func (s *Store) upkeep(ctx context.Context, step func(context.Context, *dbsqlc.Queries) error) error {
	return s.transaction(ctx, classUpkeep, everyTenant, func(ctx context.Context, queries *dbsqlc.Queries) error {
		ours, err := queries.TryUpkeep(ctx, upkeepLock)
		if err != nil || !ours {
			return err
		}
		return step(ctx, queries)
	})
}
