package pgstore

import (
	"context"
	"math"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// WriteCheckpoints leaves out checkpoints that are older than the stored one, of a removed tenant, or from before their
// user's erasure.
func (s *Store) WriteCheckpoints(ctx context.Context, rows []rules.Checkpoint) error {
	var p dbsqlc.WriteCheckpointsParams
	for i := range rows {
		row := &rows[i]
		p.TenantIds, p.RuleIds = append(p.TenantIds, int64(row.Tenant)), append(p.RuleIds, int64(row.Rule))
		p.Subjects, p.Stamps = append(p.Subjects, []byte(row.Subject)), append(p.Stamps, row.Stamp)
		p.States, p.Owners = append(p.States, row.State), append(p.Owners, row.Owner)
	}
	err := s.transaction(ctx, classRecord, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := q.ShareCheckpoints(ctx); err != nil {
			return err
		}
		return q.WriteCheckpoints(ctx, p)
	})
	return wrap(err, "write %d checkpoints", len(rows))
}

// CheckpointsAfter returns a page of the checkpoints of all tenants.
func (s *Store) CheckpointsAfter(ctx context.Context, after rules.CheckpointPlace, limit int) ([]rules.Checkpoint,
	error,
) {
	rows, err := s.queriesFor(classBackground, everyTenant).CheckpointsAfter(ctx, dbsqlc.CheckpointsAfterParams{
		TenantID: after.Tenant, RuleID: int64(after.Rule), Subject: []byte(after.Subject),
		PageSize: rowLimit(limit),
	})
	return each(rows, checkpointFromRow), wrap(err, "read checkpoints")
}

// CheckpointsOf returns the checkpoints of some buckets of any tenants.
func (s *Store) CheckpointsOf(ctx context.Context, places []rules.CheckpointPlace) ([]rules.Checkpoint, error) {
	var p struct {
		tenants, rules []int64
		subjects       [][]byte
	}
	for i := range places {
		p.tenants, p.rules = append(p.tenants, int64(places[i].Tenant)), append(p.rules, int64(places[i].Rule))
		p.subjects = append(p.subjects, []byte(places[i].Subject))
	}
	rows, err := s.queriesFor(classBackground, everyTenant).CheckpointsOfBuckets(ctx, p.tenants, p.rules, p.subjects)
	return each(rows, checkpointFromRow), wrap(err, "read the checkpoints of %d buckets", len(places))
}

// TenantsWithCheckpoints returns which of some tenants have a checkpoint.
func (s *Store) TenantsWithCheckpoints(ctx context.Context, tenants []rules.TenantID) ([]rules.TenantID, error) {
	ids := each(tenants, func(id rules.TenantID) int64 { return int64(id) })
	found, err := s.queriesFor(classBackground, everyTenant).TenantsWithCheckpoints(ctx, ids)
	return each(found, func(id int64) rules.TenantID { return rules.TenantID(id) }),
		wrap(err, "find out which of %d tenants have checkpoints", len(tenants))
}

// CheckpointsOfUser returns a page of the checkpoints of a user's buckets.
func (s *Store) CheckpointsOfUser(ctx context.Context, tenant rules.TenantID, userID string,
	after rules.CheckpointPlace, limit int,
) ([]rules.Checkpoint, error) {
	if after == (rules.CheckpointPlace{}) {
		after.Rule = math.MinInt64 // the rules of own limits are below 0
	}
	rows, err := s.queriesFor(classRead, only(tenant)).CheckpointsOfUser(ctx, dbsqlc.CheckpointsOfUserParams{
		TenantID: tenant, UserID: []byte(userID), RuleID: int64(after.Rule), Subject: []byte(after.Subject),
		PageSize: rowLimit(limit),
	})
	return each(rows, checkpointFromRow), wrap(err, "read the checkpoints of a user")
}

// DropCheckpoints deletes checkpoints that are still as they were read.
func (s *Store) DropCheckpoints(ctx context.Context, rows []rules.Checkpoint) (dropped int64, err error) {
	var p dbsqlc.DropCheckpointsParams
	for i := range rows {
		row := &rows[i]
		p.TenantIds, p.RuleIds = append(p.TenantIds, int64(row.Tenant)), append(p.RuleIds, int64(row.Rule))
		p.Subjects, p.Stamps = append(p.Subjects, []byte(row.Subject)), append(p.Stamps, row.Stamp)
	}
	err = s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) (err error) {
		dropped, err = q.DropCheckpoints(ctx, p)
		return err
	})
	return dropped, wrap(err, "drop checkpoints")
}

func checkpointFromRow(row dbsqlc.BucketCheckpoint) rules.Checkpoint {
	return rules.Checkpoint{
		CheckpointPlace: rules.CheckpointPlace{Tenant: row.TenantID, Rule: row.RuleID, Subject: string(row.Subject)},
		Stamp:           row.Stamp, State: row.State, Owner: row.Owner,
	}
}
