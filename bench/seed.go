package main

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
)

//go:embed seed.lua
var seedSource string

// seedDesign is the design before Sluice's: one EVALSHA per tier, all in one pipeline without a transaction.
type seedDesign struct {
	rdb redis.UniversalClient
	sha string
}

func newSeedDesign(ctx context.Context, rdb redis.UniversalClient) (*seedDesign, error) {
	sha, err := rdb.ScriptLoad(ctx, seedSource).Result()
	if err != nil {
		return nil, fmt.Errorf("load the seed design's script: %w", err)
	}
	return &seedDesign{rdb: rdb, sha: sha}, nil
}

func (s *seedDesign) Take(ctx context.Context, batch []enforce.BucketCheck) error {
	now := strconv.FormatFloat(float64(time.Now().UnixMicro())/1e6, 'f', 6, 64)
	pipe := s.rdb.Pipeline()
	var answers []*redis.Cmd
	for i := range batch {
		for j := range batch[i].Tiers {
			tier := &batch[i].Tiers[j]
			answers = append(answers, pipe.EvalSha(ctx, s.sha, []string{seedKey(tier.Key)},
				tier.Limit.Rate, tier.Limit.Burst, now, batch[i].Cost.Whole()))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("ask redis in the seed design: %w", err)
	}
	for i := range batch {
		batch[i].Allowed = true
		for j := range batch[i].Tiers {
			answer, err := answers[0].Int64Slice()
			if err != nil {
				return fmt.Errorf("read redis's answer in the seed design: %w", err)
			}
			answers = answers[1:]
			batch[i].Tiers[j].Holds = answer[0] == 1
			batch[i].Allowed = batch[i].Allowed && answer[0] == 1
		}
	}
	return nil
}

func seedKey(key enforce.Key) string {
	return fmt.Sprintf("rl:%d:%d:%s", key.Tenant, key.Rule, key.Subject)
}
