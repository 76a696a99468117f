package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	daysAhead     = 3
	rowsPerDrop   = 10_000
	blocksPerDrop = 500

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
	parkedRetention     = 30 * 24 * time.Hour
	longestDrop         = 200
)

// Kept is what a step of retention did.
type Kept struct {
	DaysMade, DaysDropped int
	RowsDropped           int64
	IsMore                bool // more than one run drops; the next one follows at once
}

type retention struct {
	name  string
	every time.Duration
	do    func(ctx context.Context, now time.Time) (Kept, error)
}

const (
	keepEvery = time.Hour
	// recentEvery is short, because slots of denials and callers are kept for minutes.
	recentEvery = 5 * time.Minute
)

// Retention returns the periodic jobs that make and drop partitions and drop old rows. Each kind of data has its own
// job, so that a failure or much work holds back no other.
func (s *Store) Retention(keep violations.Retention, log *slog.Logger) (kinds []jobs.Kind) {
	for _, one := range s.retentions(keep) {
		kinds = append(kinds, jobs.Kind{
			Name: "keep " + one.name, Every: one.every, Timeout: time.Hour,
			Do: func(ctx context.Context, _ *jobs.Job) (again time.Time, err error) {
				kept, err := one.do(ctx, time.Now())
				if kept != (Kept{}) {
					log.InfoContext(ctx, "retention", "of", one.name, "days_made", kept.DaysMade,
						"days_dropped", kept.DaysDropped, "rows_dropped", kept.RowsDropped)
				}
				if kept.IsMore {
					again = jobs.DueNow
				}
				return again, err
			},
		})
	}
	return kinds
}

func (s *Store) retentions(keep violations.Retention) []retention {
	callers := s.dropsBefore("callers", "recent_check", "slot", violations.CallersKept)
	callers.every = recentEvery
	all := []retention{
		s.sumsDenials(), callers,
		s.keepsDays("violations", "rate_limit_violation", keep.Details),
		s.keepsDays("counts of denials", "denial_count", keep.Details),
		s.keepsDays("counts of violations", "violation_minute", keep.Counts),
		s.keepsDays("counts of decisions", "decision_minute", keep.Counts),
		s.drops("sums of decisions", keep.Counts,
			func(q *dbsqlc.Queries, ctx context.Context, before time.Time, atMost int32) (int64, error) {
				return q.DropDecisionSpans(ctx, spans, before, atMost)
			}),
		s.drops("counts of users' months", keep.Counts, (*dbsqlc.Queries).DropUserMonths),
		s.drops("counts of months' users", keep.Counts, (*dbsqlc.Queries).DropMonthUsers),
		// While a window lasts its crossings stay, because they would be noted again.
		s.dropsBefore("crossings", "quota_crossing", "window_end", keep.Counts),
		s.drops("deliveries of alerts", keep.Details, (*dbsqlc.Queries).DropAlertDeliveries),
		s.dropsBefore("numbers of batches", "recorder_batch", "written_at", batchRetention),
		s.dropsBefore("removed overrides", "rate_limit_override", "removed_at", tombstoneRetention),
		s.dropsBefore("ended steps", "rate_limit_step", "ends_at", tombstoneRetention),
		s.dropsBefore("removed assignments", "plan_assignment", "removed_at", unassignedRetention),
		s.drops("parked jobs", parkedRetention, (*dbsqlc.Queries).DropParkedJobs),
		s.dropsBefore("receipts of erasures", "user_erasure", "finished_at", keep.Counts),
		s.dropsPieces("files of exports", 10, // of up to 128 MB
			func(q *dbsqlc.Queries, ctx context.Context, now time.Time, atMost int32) (int64, error) {
				return q.DropExports(ctx, now.Add(-rules.ExportKept), atMost)
			}),
		s.dropsBefore("sessions", "session", "created_at", sessionRetention),
		s.dropsBefore("links in mail", "mailed_link", "expires_at", linkRetention),
		s.drops("invitations", invitationRetention, (*dbsqlc.Queries).DropInvitations),
		s.dropsBefore("idempotency keys", "idempotency", "started_at", auth.IdempotencyKept),
		s.keepsDays("days of recorded checks", "traffic_block", rules.MaxRecordDays*24*time.Hour),
		s.dropsPieces("recorded checks", blocksPerDrop,
			func(q *dbsqlc.Queries, ctx context.Context, now time.Time, atMost int32) (int64, error) {
				return q.DropTrafficBlocks(ctx, dayOf(now), atMost)
			}),
		s.dropsPieces("sums of recorded checks", s.droppedPerPiece,
			func(q *dbsqlc.Queries, ctx context.Context, now time.Time, atMost int32) (int64, error) {
				return q.DropTrafficDays(ctx, dayOf(now), atMost)
			}),
		s.drops("replays", rules.MaxRecordDays*24*time.Hour, (*dbsqlc.Queries).DropReplays),
		{"counts of what tenants hold", keepEvery, func(ctx context.Context, _ time.Time) (Kept, error) {
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

// sumsDenials replaces slots of denials that are no longer recent by their minute's sum.
func (s *Store) sumsDenials() retention {
	return retention{"sums of denials", recentEvery, func(ctx context.Context, now time.Time) (Kept, error) {
		var err error
		for rows := int64(1); rows > 0 && err == nil; {
			err = s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) (err error) {
				rows, err = q.SumDenialsByMinute(ctx, now.Add(-violations.RecentKept))
				return err
			})
		}
		return Kept{}, err
	}}
}

type dropRows func(q *dbsqlc.Queries, ctx context.Context, at time.Time, atMost int32) (int64, error)

func (s *Store) dropsBefore(name, table, column string, after time.Duration) retention {
	return s.drops(name, after,
		func(q *dbsqlc.Queries, ctx context.Context, before time.Time, atMost int32) (int64, error) {
			return q.DropRowsBefore(ctx, dbsqlc.DropRowsBeforeParams{
				Relation: table, AtColumn: column, Before: before, AtMost: atMost,
			})
		})
}

func (s *Store) drops(name string, after time.Duration, drop dropRows) retention {
	return s.dropsPieces(name, s.droppedPerPiece,
		func(q *dbsqlc.Queries, ctx context.Context, now time.Time, atMost int32) (int64, error) {
			return drop(q, ctx, now.Add(-after), atMost)
		})
}

func (s *Store) dropsPieces(name string, piece int32, drop dropRows) retention {
	return retention{name, keepEvery, func(ctx context.Context, now time.Time) (kept Kept, err error) {
		rows := int64(piece)
		for pieces := 0; rows == int64(piece) && pieces < longestDrop; pieces++ {
			err := s.upkeepAs(ctx, "retention", func(ctx context.Context, q *dbsqlc.Queries) (err error) {
				rows, err = drop(q, ctx, now, piece)
				return err
			})
			if err != nil {
				return kept, err
			}
			kept.RowsDropped += rows
		}
		kept.IsMore = rows == int64(piece)
		return kept, nil
	}}
}

func midnight(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

func (s *Store) keepsDays(name, table string, after time.Duration) retention {
	return retention{name, keepEvery, func(ctx context.Context, now time.Time) (kept Kept, err error) {
		oldest := midnight(now.Add(-after))
		var days []time.Time
		for ahead := -1; ahead <= daysAhead; ahead++ {
			days = append(days, midnight(now).AddDate(0, 0, ahead))
		}
		err = s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
			strays, err := q.DaysWithoutPartition(ctx, table, dayOf(oldest))
			for _, day := range strays {
				days = append(days, day.Time)
			}
			return err
		})
		if err != nil {
			return kept, fmt.Errorf("look for days without a partition: %w", err)
		}
		var failed error // one day that cannot be made keeps no old one from being dropped
		for _, day := range days {
			err := s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
				made, err := q.MakeDayPartition(ctx, table, dayOf(day))
				if made {
					kept.DaysMade++
				}
				return err
			})
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("make the partition of %s: %w", day.Format(time.DateOnly), err))
			}
		}
		err = s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
			dropped, err := q.DropDayPartitions(ctx, table, dayOf(oldest))
			kept.DaysDropped += int(dropped)
			return err
		})
		if err != nil {
			return kept, errors.Join(failed, fmt.Errorf("drop days before %s: %w", oldest.Format(time.DateOnly), err))
		}
		return kept, failed
	}}
}

func (s *Store) upkeep(ctx context.Context, step func(context.Context, *dbsqlc.Queries) error) error {
	return s.transaction(ctx, classUpkeep, everyTenant, step)
}

func (s *Store) upkeepAs(ctx context.Context, act string, step func(context.Context, *dbsqlc.Queries) error) error {
	return s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := q.SetActor(ctx, actorSetting(system(act))); err != nil {
			return err
		}
		return step(ctx, q)
	})
}
