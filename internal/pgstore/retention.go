package pgstore

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
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
	// parkedRetention is how long a parked job waits for a person.
	parkedRetention = 30 * 24 * time.Hour
	// longestDrop is how many transactions one run spends on one kind of rows. The next run goes on.
	longestDrop = 200
)

// partitioned is a table with a partition for each day.
type partitioned struct {
	what    string
	kept    time.Duration
	without func(*dbsqlc.Queries, context.Context, time.Time) ([]pgtype.Date, error)
	create  func(*dbsqlc.Queries, context.Context, pgtype.Date) (bool, error)
	drop    func(*dbsqlc.Queries, context.Context, pgtype.Date) (int32, error)
}

// Kept is what a step of retention did.
type Kept struct {
	DaysMade, DaysDropped int
	RowsDropped           int64
}

// retention is one kind of retention.
type retention struct {
	name string
	do   func(ctx context.Context, now time.Time) (Kept, error)
}

const keepEvery = time.Hour

// Retention returns the periodic jobs that make the partitions of yesterday, today, the next three days and every day
// with rows in a default partition, and drop what is older than the retention.
func (s *Store) Retention(keep violations.Retention, log *slog.Logger) (kinds []jobs.Kind) {
	for _, one := range s.retentions(keep) {
		kinds = append(kinds, jobs.Periodic("keep "+one.name, keepEvery, func(ctx context.Context) error {
			kept, err := one.do(ctx, time.Now())
			if kept != (Kept{}) {
				log.InfoContext(ctx, "retention", "of", one.name, "days_made", kept.DaysMade, "days_dropped",
					kept.DaysDropped,
					"rows_dropped", kept.RowsDropped)
			}
			return err
		}))
	}
	return kinds
}

func (s *Store) retentions(keep violations.Retention) []retention {
	all := []retention{
		s.keepsDays(partitioned{
			"violations", keep.Details, (*dbsqlc.Queries).DaysWithoutPartition,
			(*dbsqlc.Queries).MakeViolationPartition, (*dbsqlc.Queries).DropViolationPartitions,
		}),
		s.keepsDays(partitioned{
			"counts of violations", keep.Counts, (*dbsqlc.Queries).DaysOfMinutesWithoutPartition,
			(*dbsqlc.Queries).MakeViolationMinutePartition, (*dbsqlc.Queries).DropViolationMinutePartitions,
		}),
		s.drops("counts of decisions", keep.Counts, (*dbsqlc.Queries).DropDecisionMinutes),
		s.drops("sums of decisions", keep.Counts,
			func(q *dbsqlc.Queries, ctx context.Context, before time.Time, atMost int32) (int64, error) {
				return q.DropDecisionSpans(ctx, spans, before, atMost)
			}),
		s.drops("counts of users' months", keep.Counts, (*dbsqlc.Queries).DropUserMonths),
		s.drops("counts of months' users", keep.Counts, (*dbsqlc.Queries).DropMonthUsers),
		s.drops("crossings", keep.Counts, (*dbsqlc.Queries).DropCrossings),
		s.drops("deliveries of alerts", keep.Details, (*dbsqlc.Queries).DropAlertDeliveries),
		s.drops("numbers of batches", batchRetention, (*dbsqlc.Queries).DropRecorderBatches),
		s.drops("removed overrides", tombstoneRetention, (*dbsqlc.Queries).DropOverrideTombstones),
		s.drops("ended steps", tombstoneRetention, (*dbsqlc.Queries).DropStepTombstones),
		s.drops("removed assignments", unassignedRetention, (*dbsqlc.Queries).DropAssignmentTombstones),
		s.drops("parked jobs", parkedRetention, (*dbsqlc.Queries).DropParkedJobs),
		s.drops("receipts of erasures", keep.Counts, (*dbsqlc.Queries).DropErasures),
		s.drops("sessions", sessionRetention, (*dbsqlc.Queries).DropSessions),
		s.drops("links in mail", linkRetention, (*dbsqlc.Queries).DropExpiredLinks),
		s.drops("invitations", invitationRetention, (*dbsqlc.Queries).DropInvitations),
		{"recorded checks", func(ctx context.Context, now time.Time) (Kept, error) {
			dropped, err := s.keepTraffic(ctx, now)
			return Kept{RowsDropped: dropped}, err
		}},
		{"counts of what tenants hold", func(ctx context.Context, _ time.Time) (Kept, error) {
			return Kept{}, s.recountHeld(ctx)
		}},
	}
	if keep.Access != 0 {
		all = append(all, s.drops("the security log", keep.Access, (*dbsqlc.Queries).DropAccessEvents))
	}
	if keep.Audit != 0 {
		all = append(all, s.drops("audit logs", keep.Audit, (*dbsqlc.Queries).DropAuditEvents))
	}
	return all
}

// drops returns the retention of rows that are older than a time.
func (s *Store) drops(
	name string, after time.Duration, do func(*dbsqlc.Queries, context.Context, time.Time, int32) (int64, error),
) retention {
	return retention{name, func(ctx context.Context, now time.Time) (Kept, error) {
		dropped, err := s.dropPieces(ctx, rowsPerDrop, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return do(q, ctx, now.Add(-after), rowsPerDrop)
		})
		return Kept{RowsDropped: dropped}, err
	}}
}

// dropPieces drops rows in transactions of so many until fewer are left.
func (s *Store) dropPieces(
	ctx context.Context, piece int64, drop func(context.Context, *dbsqlc.Queries) (int64, error),
) (dropped int64, err error) {
	rows := piece
	for pieces := 0; rows == piece && pieces < longestDrop; pieces++ {
		err := s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) (err error) {
			if err := q.SetActor(ctx, actorSetting(rules.Actor{
				Kind: rules.ActorSystem, Name: "sluice",
				Act: "retention",
			})); err != nil {
				return err
			}
			rows, err = drop(ctx, q)
			return err
		})
		if err != nil {
			return dropped, err
		}
		dropped += rows
	}
	return dropped, nil
}

func midnight(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

// keepsDays returns the retention of a partitioned table.
func (s *Store) keepsDays(table partitioned) retention {
	return retention{table.what, func(ctx context.Context, now time.Time) (kept Kept, err error) {
		oldest := midnight(now.Add(-table.kept))
		var days []time.Time
		for ahead := -1; ahead <= daysAhead; ahead++ {
			days = append(days, midnight(now).AddDate(0, 0, ahead))
		}
		err = s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
			strays, err := table.without(q, ctx, oldest)
			for _, day := range strays {
				days = append(days, day.Time)
			}
			return err
		})
		if err != nil {
			return kept, fmt.Errorf("look for days without a partition: %w", err)
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
				return kept, fmt.Errorf("make the partition of %s: %w", day.Format(time.DateOnly), err)
			}
		}
		err = s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
			dropped, err := table.drop(q, ctx, pgtype.Date{Time: oldest, Valid: true})
			kept.DaysDropped += int(dropped)
			return err
		})
		if err != nil {
			return kept, fmt.Errorf("drop days before %s: %w", oldest.Format(time.DateOnly), err)
		}
		return kept, nil
	}}
}

// upkeep does one step of upkeep in a transaction.
func (s *Store) upkeep(ctx context.Context, step func(context.Context, *dbsqlc.Queries) error) error {
	return s.transaction(ctx, classUpkeep, everyTenant, step)
}
