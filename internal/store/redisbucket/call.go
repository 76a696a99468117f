package redisbucket

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// call runs a script of its own, such as a credit, in its tenant's queue with checks.
type call struct {
	scriptRun
	source *source
	keys   []string
	args   []any
	weight int
	reply  string
}

const (
	ownScriptWeight = 8
	ownBucketWeight = 2
)

func ownScript(buckets int) (weight int) { return ownScriptWeight + ownBucketWeight*buckets }

func weight(check *enforce.BucketCheck) int {
	if c, isCall := check.Call.(*call); isCall {
		return c.weight
	}
	if check.Reserve != nil || check.HasRecordID() {
		return ownScript(len(check.Tiers))
	}
	return len(check.Tiers)
}

// After an error the script may have run, unless it is an enforce.ErrNothingTaken.
func (s *Store) run(tenant rules.TenantID, c *call) (reply string, err error) {
	line := enforce.Tier{Key: enforce.Key{Tenant: tenant}}
	err = s.submit([]enforce.BucketCheck{{Tiers: []enforce.Tier{line}, Call: c}})
	return c.reply, err
}

func (c *call) command(ctx context.Context, _ *node, bySource bool, _ int64) *noRetryCmd {
	args := append(slices.Clone(c.source.eval(bySource)), len(c.keys))
	for _, key := range c.keys {
		args = append(args, key)
	}
	return &noRetryCmd{redis.NewStringCmd(ctx, append(args, c.args...)...)}
}

func (c *call) readReply(reply string) error {
	c.reply, c.checks[0].Answered = reply, true
	return nil
}
