package redisbucket

import (
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/store/buckettest"
)

func TestConcurrentChecksThroughQueueAndDenialCacheAreLinearizable(t *testing.T) {
	t.Parallel()
	t.Run("while Redis answers", func(t *testing.T) {
		t.Parallel()
		buckettest.RunChecks(t, repeats(3), func(t *testing.T) (enforce.ReservingBuckets, func()) {
			return processes(t, 1)[0], func() {}
		})
	})
	t.Run("while replies are lost", func(t *testing.T) {
		t.Parallel()
		buckettest.RunChecks(t, repeats(3), func(t *testing.T) (enforce.ReservingBuckets, func()) {
			p := newProxy(t, devdbtest.Redis(t).Addr())
			return New(client(t, "redis://"+p.addr(), testTimeout), testTimeout), func() { p.loseReply.Store(true) }
		})
	})
}
