package jobs

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// Pause returns the pause after a number of failed attempts.
func Pause(attempts int) time.Duration {
	pause := firstRetry
	for range attempts - 1 {
		pause = min(2*pause, maxRetry)
	}
	return pause
}

// ErrorText returns the first 500 bytes of an error's text, as valid UTF-8 without NUL.
func ErrorText(text string) string {
	const most = 500
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// Outage logs when something begins to fail, and when it works again.
type Outage struct {
	Failing, Recovered string
	isFailing          bool
}

// Note takes the result of one try, one at a time.
func (o *Outage) Note(ctx context.Context, log *slog.Logger, err error) {
	switch {
	case ctx.Err() != nil || o.isFailing == (err != nil):
		return
	case err != nil:
		log.ErrorContext(ctx, o.Failing, "error", err)
	default:
		log.InfoContext(ctx, o.Recovered)
	}
	o.isFailing = err != nil
}
