package awake

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAtRestAWatchIsAClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := Start()
		defer w.Stop()
		time.Sleep(time.Second + beat/2) //nolint:forbidigo // the bubble's clock
		began := w.Now()
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock
		if took := w.Since(began); took != time.Second {
			t.Errorf("a second took %s", took)
		}
	})
}

func TestHowLongTheProcessWasKeptWaitingHardlyCounts(t *testing.T) {
	t.Parallel()
	var w Watch
	for _, gap := range []time.Duration{beat, time.Minute, beat} {
		w.count(gap)
	}
	if got := w.Now(); got != 2*beat+most {
		t.Errorf("two beats and a minute without a processor are %s, want %s", got, 2*beat+most)
	}
}
