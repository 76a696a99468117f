package control

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/enforce"
)

// credited writes the checkpoints of credits and resets before they are answered, so that the loss of the store
// does not undo them.
type credited struct {
	app.ManageableBuckets
	process *app.Process
}

func creditedBuckets(process *app.Process, checksHere bool) app.ManageableBuckets {
	buckets := process.Buckets.Manageable(checksHere)
	if buckets == nil {
		return nil
	}
	return credited{buckets, process}
}

// Credit implements enforce.Creditor.
func (c credited) Credit(
	ctx context.Context, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, err error) {
	if before, after, err = c.ManageableBuckets.Credit(ctx, key, limit, amount); err == nil {
		c.write(ctx, key, after)
	}
	return before, after, err
}

// CreditOnce implements enforce.Creditor. The first attempt at a repeated credit may not have written its
// checkpoint.
func (c credited) CreditOnce(
	ctx context.Context, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, isRepeated bool, err error) {
	before, after, isRepeated, err = c.ManageableBuckets.CreditOnce(ctx, id, key, limit, amount)
	if err == nil {
		c.write(ctx, key, after)
	}
	return before, after, isRepeated, err
}

const writeWithin = 2 * time.Second // after the caller has left: the store has the credit already

func (c credited) write(ctx context.Context, key enforce.Key, after enforce.Bucket) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeWithin)
	defer cancel()
	if err := c.process.WriteCredited(ctx, key, after); err != nil {
		c.process.Log.Warn("could not write the checkpoint of a credited bucket at once; it is written with the others",
			"error", err)
	}
}
