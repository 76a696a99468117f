package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

var errNotLoaded = errors.New("the rules were not loaded yet")

// fillBuckets fills the buckets of a user who is erased, at their rules' limits as of now: an erased override left no
// trace, and a bucket keeps the later one of two limits.
func fillBuckets(watcher *snapshot.Watcher, buckets app.ManageableBuckets, forget func(enforce.Key),
) pgstore.FillBuckets {
	return func(ctx context.Context, id rules.TenantID, userID string) (filled int64, err error) {
		if buckets == nil {
			return 0, nil
		}
		latest := watcher.Snapshot()
		if latest == nil || latest.Tenant(id) == nil {
			return 0, errNotLoaded
		}
		tenant := latest.Tenant(id)
		fill := func(match rules.Match) error {
			if match.Owner() != userID {
				return nil // shared with others
			}
			key := enforce.KeyOf(&tenant.Tenant, &match)
			if _, _, err := buckets.Credit(ctx, key, match.Limit, enforce.Fill); err != nil {
				return fmt.Errorf("fill the buckets of a user who was erased: %w", err)
			}
			forget(key)
			filled++
			return nil
		}
		for match := range tenant.UserBucketsOfPlans(userID, time.Now()) {
			limit := match.Rule.Limit()
			limit.Since = max(limit.Since, match.Limit.Since+1, time.Now().UnixMicro())
			match.Limit = limit
			if err := fill(match); err != nil {
				return filled, err
			}
		}
		own, err := enforce.OwnBuckets(ctx, buckets, tenant, userID)
		if err != nil {
			return filled, fmt.Errorf("find the buckets of a user who was erased: %w", err)
		}
		for _, match := range own {
			if err := fill(match); err != nil {
				return filled, err
			}
		}
		return filled, nil
	}
}
