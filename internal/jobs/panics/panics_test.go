package panics_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluicegate/sluice/internal/jobs/panics"
)

func TestAGroupReturnsAPanicAndLogsItsStack(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	before := panics.Caught()
	var group panics.Group
	group.Go(slog.New(slog.NewTextHandler(&log, nil)), "work", func() { panic("a bug") })
	if err := group.Wait(); err == nil || err.Error() != "panic: a bug" {
		t.Errorf("the group returns %v", err)
	}
	if !strings.Contains(log.String(), "panics_test.go") || panics.Caught() == before {
		t.Errorf("%d panics were counted, and the log is %s", panics.Caught()-before, &log)
	}
}

func TestALoopBeginsAgainAfterAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		turns := 0
		again := make(chan struct{})
		once := sync.OnceFunc(func() { close(again) })
		var group panics.Group
		group.Loop(ctx, slog.New(slog.DiscardHandler), "a loop", func(ctx context.Context) {
			if turns++; turns < 3 {
				panic("a bug")
			}
			once()
			<-ctx.Done()
		})
		<-again
		stop()
		if err := group.Wait(); err != nil || turns != 3 {
			t.Errorf("%d turns, %v", turns, err)
		}
	})
}
