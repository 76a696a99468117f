package violations

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Sender tells a receiver.
type Sender interface {
	// Send returns the status of the answer, or 0 and an error if there was none. It returns within a
	// few seconds.
	Send(ctx context.Context, notice *Notice) (status int, err error)
}

const (
	watchAlertsEvery = 10 * time.Second
	// deliveriesAtOnce bounds what a round sends, side by side.
	deliveriesAtOnce = 32
	// deliveryLease is longer than any attempt takes.
	deliveryLease = time.Minute
	// maxAttempts are made in about a day, with pauses that double from firstRetry to maxRetry.
	maxAttempts = 12
	firstRetry  = 30 * time.Second
	maxRetry    = 4 * time.Hour
)

// WatchAlerts raises alerts and delivers what is due, until ctx ends. Any number of processes may do so:
// each alert is raised once, and each attempt is made by one of them. A delivery can arrive twice, if a
// process dies after it was sent and before that was written down; receivers know it by its id.
func WatchAlerts(ctx context.Context, outbox Outbox, sender Sender, log *slog.Logger) {
	late := false
	for pause := time.Duration(0); wait(ctx, pause); pause = watchAlertsEvery {
		err := DeliverAlerts(ctx, outbox, sender, time.Now())
		switch {
		case err != nil && ctx.Err() == nil && !late:
			log.ErrorContext(ctx, "alerts are late: the database could not be asked", "error", err)
			late = true
		case err == nil && late:
			log.InfoContext(ctx, "alerts are watched again")
			late = false
		}
	}
}

// DeliverAlerts raises the alerts of a moment, then makes the attempts that are due.
func DeliverAlerts(ctx context.Context, outbox Outbox, sender Sender, now time.Time) error {
	if _, err := outbox.RaiseAlerts(ctx, now); err != nil {
		return err
	}
	notices, err := outbox.ClaimDeliveries(ctx, now, now.Add(deliveryLease), deliveriesAtOnce)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var failed error
	var sending sync.WaitGroup
	for i := range notices {
		sending.Go(func() {
			status, err := sender.Send(ctx, &notices[i])
			if ctx.Err() != nil {
				return // not the receiver's fault: after the lease another process tries
			}
			if err := outbox.FinishDelivery(ctx, notices[i].attempted(now, status, err)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = err
			}
		})
	}
	sending.Wait()
	return failed
}

// attempted returns the delivery as it is after an attempt.
func (d Delivery) attempted(now time.Time, status int, err error) Delivery {
	d.AttemptedAt, d.Status, d.Error = now, status, ""
	if err != nil {
		d.Error = shortLine(err.Error())
	}
	switch {
	case err == nil && status >= 200 && status < 300:
		d.State = DeliveryDelivered
	case d.Attempts >= maxAttempts:
		d.State = DeliveryFailed
	default:
		d.NextAttemptAt = now.Add(retryPause(d.Attempts))
	}
	return d
}

// shortLine makes text that may come from anywhere fit to be stored.
func shortLine(text string) string {
	const most = 500
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// retryPause is how long to wait after so many attempts.
func retryPause(attempts int) time.Duration {
	pause := firstRetry
	for range attempts - 1 {
		pause = min(2*pause, maxRetry)
	}
	return pause
}
