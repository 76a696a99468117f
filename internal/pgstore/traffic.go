package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

var (
	_ traffic.Sink  = (*Store)(nil)
	_ traffic.Store = (*Store)(nil)
)

const (
	// blocksPerPage blocks are some megabytes of memory.
	blocksPerPage = 16
	// latestBlocks caps the blocks that Latest looks at. A process makes at most seven a minute.
	latestBlocks = 20_000
	// longestBlock is far more than the 5 minutes after which recorders end a block.
	longestBlock = time.Hour
)

// WriteTraffic writes blocks of any tenants within 5 s.
func (s *Store) WriteTraffic(ctx context.Context, blocks []traffic.Block) error {
	err := s.transaction(ctx, classRecord, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		for i := range blocks {
			if err := writeBlock(ctx, q, &blocks[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err = recordError(err); errors.Is(err, violations.ErrRefused) {
		err = errors.Join(traffic.ErrRefused, err)
	}
	if err != nil {
		return fmt.Errorf("write %d blocks of recorded checks: %w", len(blocks), err)
	}
	return nil
}

func writeBlock(ctx context.Context, q *dbsqlc.Queries, b *traffic.Block) error {
	written, err := q.WriteTrafficBlock(ctx, dbsqlc.WriteTrafficBlockParams{
		TenantID: b.Tenant, Day: dayOf(b.First), Writer: b.Writer, Number: b.Number, FirstAt: b.First, LastAt: b.Last,
		Stratum: int16(b.Stratum), Level: int16(b.Level), Checks: int32(b.Checks),
		Seen: b.Seen, LeftOut: b.LeftOut, Dropped: b.Dropped, Users: listOf(b.Users), Payload: b.Payload,
	})
	if err != nil || written == 0 {
		return err
	}
	return q.CountTrafficBlock(ctx, dbsqlc.CountTrafficBlockParams{
		TenantID: b.Tenant, Day: dayOf(b.First), Bytes: int64(b.Bytes()), Checks: int64(b.Checks),
		Seen: b.Seen, LeftOut: b.LeftOut, Dropped: b.Dropped, Level: int16(b.Level), FirstAt: b.First, LastAt: b.Last,
	})
}

func dayOf(at time.Time) pgtype.Date {
	return pgtype.Date{Time: at.UTC().Truncate(24 * time.Hour), Valid: true}
}

// TrafficUsage returns what tenants use.
func (s *Store) TrafficUsage(ctx context.Context, of []rules.TenantID) (usage []traffic.Usage, all int64, tenants int,
	err error,
) {
	q := s.queriesFor(classBackground, everyTenant)
	rows, err := q.TrafficUses(ctx, dayOf(time.Now()), each(of, func(id rules.TenantID) int64 { return int64(id) }))
	if err != nil {
		return nil, 0, 0, wrap(err, "read the use of recorded checks")
	}
	total, err := q.TrafficTotal(ctx)
	return each(rows, func(row dbsqlc.TrafficUsesRow) traffic.Usage {
		return traffic.Usage{
			Tenant: row.TenantID, Days: int(row.RecordDays), Bytes: row.Bytes,
			TodayBytes: row.TodayBytes, YesterdayBytes: int64(row.YesterdayBytes),
		}
	}), total.Bytes, int(total.Tenants), wrap(err, "read the use of recorded checks")
}

// UsageOf returns what a tenant has recorded.
func (s *Store) UsageOf(ctx context.Context, tenant rules.TenantID) (u traffic.Usage, err error) {
	u.Tenant = tenant
	rows, err := s.queriesFor(classRead, only(tenant)).TrafficDays(ctx, tenant)
	if err != nil {
		return u, wrap(err, "read the use of recorded checks")
	}
	for i := range rows {
		row := &rows[i]
		u.Bytes += row.Bytes
		u.Checks += row.Checks
		u.Seen += row.Seen
		u.LeftOut += row.LeftOut
		u.Dropped += row.Dropped
		u.Level = int(row.Level)
		if u.Oldest.IsZero() {
			u.Oldest = row.FirstAt.UTC()
		}
		u.Newest = row.LastAt.UTC()
	}
	return u, nil
}

// Blocks reads day by day: a page is then one range of the index.
func (s *Store) Blocks(ctx context.Context, tenant rules.TenantID, of traffic.Range) iter.Seq2[traffic.Block, error] {
	return func(yield func(traffic.Block, error) bool) {
		p := dbsqlc.TrafficBlocksParams{
			TenantID: tenant, Day: dayOf(of.Since), Since: of.Since, Until: of.Until,
			LeastStratum: int16(of.LeastStratum), MostStratum: mostStratum(of), AfterAt: of.Since.Add(-longestBlock),
			PageSize: blocksPerPage,
		}
		for last := dayOf(of.Until).Time; !p.Day.Time.After(last); {
			rows, err := s.queriesFor(classHeavy, only(tenant)).TrafficBlocks(ctx, p)
			if err != nil {
				yield(traffic.Block{}, wrap(err, "read recorded checks"))
				return
			}
			for i := range rows {
				if !yield(blockFromRow(&rows[i]), nil) {
					return
				}
			}
			if len(rows) < blocksPerPage {
				p.Day.Time = p.Day.Time.AddDate(0, 0, 1)
				continue
			}
			end := &rows[len(rows)-1]
			p.AfterAt, p.AfterWriter, p.AfterNumber = end.FirstAt, end.Writer, end.Number
		}
	}
}

// BlocksOfUser lists the blocks with the user among the newest 20,000, then reads them in pages.
func (s *Store) BlocksOfUser(
	ctx context.Context, tenant rules.TenantID, user string, of traffic.Range, checks int64,
) (since time.Time, blocks iter.Seq2[traffic.Block, error], err error) {
	if since, err = s.Latest(ctx, tenant, of, math.MaxInt64, math.MaxInt64); err != nil {
		return since, nil, err
	}
	places, err := s.queriesFor(classHeavy, only(tenant)).TrafficPlacesOfUser(ctx, dbsqlc.TrafficPlacesOfUserParams{
		TenantID: tenant, UserID: user, FirstDay: dayOf(since), LastDay: dayOf(of.Until), Since: since,
		Until:        of.Until,
		LeastStratum: int16(of.LeastStratum), MostStratum: mostStratum(of), Begun: since.Add(-longestBlock),
	})
	if err != nil {
		return since, nil, wrap(err, "find the recorded checks of a user")
	}
	for i := range places {
		if checks -= int64(places[i].Checks); checks <= 0 && places[i].FirstAt.After(since) {
			since = places[i].FirstAt.UTC()
			break
		}
	}
	places = slices.DeleteFunc(places,
		func(place dbsqlc.TrafficPlacesOfUserRow) bool { return place.LastAt.Before(since) })
	slices.Reverse(places)
	return since, s.blocksAt(ctx, tenant, places), nil
}

func (s *Store) blocksAt(ctx context.Context, tenant rules.TenantID,
	places []dbsqlc.TrafficPlacesOfUserRow,
) iter.Seq2[traffic.Block, error] {
	return func(yield func(traffic.Block, error) bool) {
		for page := range slices.Chunk(places, blocksPerPage) {
			p := dbsqlc.TrafficBlocksAtParams{TenantID: tenant}
			for _, place := range page {
				p.Days, p.Writers, p.Numbers = append(p.Days, place.Day), append(p.Writers, place.Writer),
					append(p.Numbers, place.Number)
			}
			rows, err := s.queriesFor(classHeavy, only(tenant)).TrafficBlocksAt(ctx, p)
			if err != nil {
				yield(traffic.Block{}, wrap(err, "read recorded checks"))
				return
			}
			for i := range rows {
				if !yield(blockFromRow(&rows[i]), nil) {
					return
				}
			}
		}
	}
}

func mostStratum(of traffic.Range) int16 { return int16(cmp.Or(of.MostStratum, math.MaxInt16)) }

func blockFromRow(row *dbsqlc.TrafficBlock) traffic.Block {
	return traffic.Block{
		Tenant: row.TenantID, Writer: row.Writer, Number: row.Number, First: row.FirstAt.UTC(), Last: row.LastAt.UTC(),
		Stratum: int(row.Stratum), Level: int(row.Level), Checks: int(row.Checks),
		Counts: traffic.Counts{Seen: row.Seen, LeftOut: row.LeftOut, Dropped: row.Dropped},
		Users:  row.Users, Payload: row.Payload,
	}
}

// Latest looks at the rows of the newest 20,000 blocks and not at their checks.
func (s *Store) Latest(ctx context.Context, tenant rules.TenantID, of traffic.Range, checks, seen int64) (time.Time,
	error,
) {
	since, err := s.queriesFor(classHeavy, only(tenant)).LatestTraffic(ctx, dbsqlc.LatestTrafficParams{
		TenantID: tenant, FirstDay: dayOf(of.Since), LastDay: dayOf(of.Until), Since: of.Since, Until: of.Until,
		LeastStratum: int16(of.LeastStratum), MostStratum: mostStratum(of), Checks: checks, Seen: seen,
		AtMost: latestBlocks, Begun: of.Since.Add(-longestBlock),
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return of.Since, nil
	case err != nil:
		return time.Time{}, wrap(err, "find the latest recorded checks")
	case since.Before(of.Since):
		return of.Since, nil
	}
	return since.UTC(), nil
}

// Summary describes a range.
func (s *Store) Summary(ctx context.Context, tenant rules.TenantID, of traffic.Range) (sum traffic.Summary, err error) {
	rows, err := s.queriesFor(classHeavy, only(tenant)).TrafficSummary(ctx, dbsqlc.TrafficSummaryParams{
		TenantID: tenant, FirstDay: dayOf(of.Since), LastDay: dayOf(of.Until), Since: of.Since, Until: of.Until,
	})
	if err != nil {
		return sum, wrap(err, "describe recorded checks")
	}
	for i := range rows {
		row := &rows[i]
		sum.Blocks += int(row.Blocks)
		sum.Level = max(sum.Level, int(row.Level))
		sum.Checks += row.Checks
		sum.Seen += row.Seen
		sum.LeftOut += row.LeftOut
		sum.Dropped += row.Dropped
		if 0 <= row.Stratum && int(row.Stratum) < len(sum.Strata) {
			sum.Strata[row.Stratum] += row.Checks
		}
		if sum.Oldest.IsZero() || row.FirstAt.Before(sum.Oldest) {
			sum.Oldest = row.FirstAt.UTC()
		}
		if row.LastAt.After(sum.Newest) {
			sum.Newest = row.LastAt.UTC()
		}
	}
	return sum, nil
}

func (e *erasing) eraseFromBlock(ctx context.Context, place *dbsqlc.TrafficBlocksPieceRow) error {
	row, err := e.TrafficBlock(ctx,
		dbsqlc.TrafficBlockParams{TenantID: e.tenant, Day: place.Day, Writer: place.Writer, Number: place.Number})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // it was dropped meanwhile
	}
	if err != nil {
		return err
	}
	block := blockFromRow(&row)
	rest, _, err := block.WithoutUser(e.user)
	if err != nil { // nobody can read it
		rest = block
		rest.SetRuns(nil)
	}
	return e.RewriteTrafficBlock(ctx, dbsqlc.RewriteTrafficBlockParams{
		TenantID: e.tenant, Day: place.Day, Writer: place.Writer, Number: place.Number,
		Checks: int32(rest.Checks), Users: listOf(rest.Users), Payload: rest.Payload,
	})
}
