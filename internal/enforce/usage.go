package enforce

import (
	"context"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// MaxUsage caps the limits that Usage reads, below the buckets of one script.
const MaxUsage = 100

// Usage reads a user's limits on a plan, in order of rule id, except rules that this process cannot apply.
//
// hasMore: there are more than MaxUsage. Failure modes do not apply: after an error the buckets could not be read.
func (l *Limiter) Usage(ctx context.Context, tenant *snapshot.Tenant, userID, plan string) (limits []TierDecision,
	hasMore bool, err error,
) {
	d := Decision{matches: tenant.UserBuckets(userID, plan, l.now(), MaxUsage+1)}
	if hasMore = len(d.matches) > MaxUsage; hasMore {
		d.matches = d.matches[:MaxUsage]
	}
	d.keepMatches(func(m *rules.Match) bool { return !isUnknown(m) })
	if len(d.Tiers) == 0 {
		return nil, hasMore, nil
	}
	looks := []BucketCheck{{ReadAt: tenant.ReadAt(), Tiers: bucketTiers(tenant, nil, d.Tiers, nil), Look: true}}
	if err := l.takeShared(ctx, looks); err != nil {
		return nil, false, err
	}
	d.read(&looks[0])
	return d.Tiers, hasMore, nil
}
