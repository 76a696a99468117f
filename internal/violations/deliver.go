package violations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Sender tells a receiver.
type Sender interface {
	// Send returns the status of the answer, or 0 and an error if there was none. It returns within a
	// few seconds. The error is shown to the tenant.
	Send(ctx context.Context, notice *Notice) (status int, err error)
}

const (
	raiseEvery = 10 * time.Second
	// raiseAtOnce is how many tenants' alerts are raised side by side, so that one whose alerts take long
	// does not hold back all others.
	raiseAtOnce = 2
	// raiseRound bounds a round. When the database stands still each tenant takes seconds.
	raiseRound = time.Minute

	claimEvery = time.Second
	// attemptsAtOnce bounds the attempts of this process, attemptsPerTenant those of one tenant in all
	// processes. Receivers that do not answer keep an attempt for 10 s.
	attemptsAtOnce    = 64
	attemptsPerTenant = 4
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
//
// Tenants do not wait for each other: each is raised by statements of its own, and takes turns with the others
// for the attempts.
func WatchAlerts(ctx context.Context, outbox Outbox, sender Sender, log *slog.Logger) {
	w := NewAlertWatch(outbox, sender, log)
	var loops sync.WaitGroup
	loops.Go(func() {
		for pause := time.Duration(0); wait(ctx, pause); pause = raiseEvery {
			w.raising.note(ctx, log, w.Raise(ctx, time.Now()))
		}
	})
	loops.Go(func() {
		for ctx.Err() == nil {
			err := w.Deliver(ctx, time.Now())
			w.claiming.note(ctx, log, err)
			room := w.ended
			if err != nil {
				room = nil // only time helps
			}
			select {
			case <-ctx.Done():
			case <-time.After(claimEvery):
			case <-room:
			}
		}
	})
	loops.Wait()
	w.Wait()
}

// AlertWatch raises alerts and delivers them; WatchAlerts does so until it is stopped.
type AlertWatch struct {
	outbox Outbox
	sender Sender
	log    *slog.Logger

	slots    chan struct{} // holds a token for each attempt under way
	ended    chan struct{} // has a value when an attempt has ended since the last claim
	attempts sync.WaitGroup

	raising, claiming outage
}

// NewAlertWatch returns an AlertWatch without attempts under way.
func NewAlertWatch(outbox Outbox, sender Sender, log *slog.Logger) *AlertWatch {
	return &AlertWatch{
		outbox: outbox, sender: sender, log: log,
		slots: make(chan struct{}, attemptsAtOnce), ended: make(chan struct{}, 1),
		raising: outage{what: "alerts are not raised"}, claiming: outage{what: "alerts are not delivered"},
	}
}

// Raise raises the alerts of a moment. What fails for one tenant does not keep it from raising those of others.
func (w *AlertWatch) Raise(ctx context.Context, now time.Time) error {
	tenants, err := w.outbox.AlertingTenants(ctx)
	if err != nil {
		return err
	}
	// A round that is cut short is not always cut before the same tenants.
	rand.Shuffle(len(tenants), func(i, j int) { tenants[i], tenants[j] = tenants[j], tenants[i] })
	ctx, cancel := context.WithTimeout(ctx, raiseRound)
	defer cancel()
	todo := make(chan rules.TenantID)
	failed := make([]error, raiseAtOnce)
	var raising sync.WaitGroup
	for i := range failed {
		raising.Go(func() {
			for tenant := range todo {
				if _, err := w.outbox.RaiseAlerts(ctx, tenant, now); err != nil {
					failed[i] = err // the last of many: when the database is away they are alike
				}
			}
		})
	}
	for _, tenant := range tenants {
		todo <- tenant
	}
	close(todo)
	raising.Wait()
	return errors.Join(failed...)
}

// Deliver begins attempts for deliveries that are due, as many as there is room for, and does not wait for
// their end.
func (w *AlertWatch) Deliver(ctx context.Context, now time.Time) error {
	room := cap(w.slots) - len(w.slots)
	if room == 0 {
		return nil
	}
	notices, err := w.outbox.ClaimDeliveries(ctx, now, now.Add(deliveryLease), attemptsPerTenant, room)
	if err != nil {
		return err
	}
	for i := range notices {
		w.slots <- struct{}{}
		w.attempts.Go(func() {
			defer func() {
				<-w.slots
				select {
				case w.ended <- struct{}{}:
				default:
				}
			}()
			w.attempt(ctx, &notices[i], now)
		})
	}
	return nil
}

// Wait waits for the attempts under way.
func (w *AlertWatch) Wait() { w.attempts.Wait() }

func (w *AlertWatch) attempt(ctx context.Context, notice *Notice, now time.Time) {
	status, err := w.sender.Send(ctx, notice)
	if ctx.Err() != nil {
		return // not the receiver's fault: after the lease another process tries
	}
	if err := w.outbox.FinishDelivery(ctx, notice.attempted(now, status, err)); err != nil && ctx.Err() == nil {
		w.log.WarnContext(ctx, "how a webhook went was not written down, so it is sent again",
			"tenant", notice.TenantSlug, "delivery_id", notice.ID, "error", err)
	}
}

// outage logs when something begins to fail, and when it works again.
type outage struct {
	what   string
	isLate bool
}

func (o *outage) note(ctx context.Context, log *slog.Logger, err error) {
	switch {
	case ctx.Err() != nil || o.isLate == (err != nil):
		return
	case err != nil:
		log.ErrorContext(ctx, o.what, "error", err)
	default:
		log.InfoContext(ctx, fmt.Sprintf("no longer: %s", o.what))
	}
	o.isLate = err != nil
}

// attempted returns the delivery as it is after an attempt. A test is tried once: whoever asked for it looks on,
// and can ask again.
func (d Delivery) attempted(now time.Time, status int, err error) Delivery {
	d.AttemptedAt, d.Status, d.Error = now, status, ""
	if err != nil {
		d.Error = shortLine(err.Error())
	}
	switch {
	case err == nil && status >= 200 && status < 300:
		d.State = DeliveryDelivered
	case d.Attempts >= maxAttempts, d.Test:
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
