package app_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/sluicegate/sluice/internal/app"
)

func TestAPanicInAPartEndsTheProcessInOrderOrBeginsThePartAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parts, ctx := app.NewParts(t.Context(), slog.New(slog.DiscardHandler))
		again := make(chan struct{})
		turns, flushed := 0, false
		parts.Loop(ctx, "a loop", func(ctx context.Context) {
			if turns++; turns == 1 {
				panic("by the test")
			}
			close(again)
			<-ctx.Done()
			flushed = true
		})
		<-again
		parts.Go("an address", func() error { panic("by the test") })
		if err := parts.Wait(); err == nil || err.Error() != "panic: by the test" || !flushed {
			t.Errorf("the parts end with %v, and the loop at once (%t)", err, !flushed)
		}
	})
}
