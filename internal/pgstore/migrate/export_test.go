package migrate

import (
	"context"
	"log/slog"
	"time"
)

func UpWithin(ctx context.Context, databaseURL string, answer time.Duration) error {
	return up(ctx, databaseURL, slog.New(slog.DiscardHandler), timeouts{time.Minute, time.Minute, answer})
}
