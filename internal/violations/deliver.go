package violations

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
)

// Sender posts a notice to its receiver.
type Sender interface {
	// Send returns the status of the answer, or 0 and an error without one, within a few seconds. The tenant sees the
	// error.
	Send(ctx context.Context, notice *Notice) (status int, err error)
}

const (
	raiseEvery = 10 * time.Second
	// raiseAtOnce is how many tenants are raised concurrently, so that a slow one does not hold back all others.
	raiseAtOnce = 2
	// raiseRound bounds a round, because each tenant takes seconds while the database hangs.
	raiseRound = time.Minute

	// attemptsAtOnce caps the attempts in flight of this process, attemptsPerTenant those of a tenant in all processes.
	// A receiver that does not answer holds an attempt for 10 s.
	attemptsAtOnce    = 64
	attemptsPerTenant = 4
)

// WatchAlerts raises alerts and delivers them until ctx ends. Any number of processes may do so: each alert is raised
// once, and each attempt is made by one of them. A delivery arrives twice if a process dies between sending it and
// storing that; receivers recognize it by its id.
//
// Tenants do not wait for each other: each is raised by its own statements, and attempts take turns.
func WatchAlerts(ctx context.Context, outbox Outbox, sender Sender, log *slog.Logger) {
	w := NewAlertWatch(outbox, sender, log)
	var loops sync.WaitGroup
	loops.Go(func() {
		for pause := time.Duration(0); wait(ctx, pause); pause = raiseEvery {
			w.raising.Note(ctx, log, w.Raise(ctx, time.Now()))
		}
	})
	loops.Go(func() { w.deliveries.Run(ctx) })
	loops.Wait()
}

// AlertWatch does the rounds of WatchAlerts.
type AlertWatch struct {
	outbox Outbox
	sender Sender
	log    *slog.Logger

	deliveries *jobs.Runner[Notice]
	raising    jobs.Outage
}

// NewAlertWatch returns an AlertWatch without attempts in flight.
func NewAlertWatch(outbox Outbox, sender Sender, log *slog.Logger) *AlertWatch {
	w := &AlertWatch{
		outbox: outbox, sender: sender, log: log,
		raising: jobs.Outage{Failing: "alerts are not raised", Recovered: "alerts are raised again"},
	}
	w.deliveries = jobs.NewRunner(jobs.Queue[Notice]{
		Claim: outbox.ClaimDeliveries, Attempt: w.attempt, AtOnce: attemptsAtOnce, PerTenant: attemptsPerTenant,
		Failing: "alerts are not delivered", Recovered: "alerts are delivered again",
	}, log)
	return w
}

// Raise raises the alerts of all tenants. A failure for one tenant does not stop the others.
func (w *AlertWatch) Raise(ctx context.Context, now time.Time) error {
	tenants, err := w.outbox.AlertingTenants(ctx)
	if err != nil {
		return err
	}
	// A random order, so that a round that is cut short does not always skip the same tenants.
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
					failed[i] = err // only the last: in an outage they are alike
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

// Deliver claims due deliveries, as many as there are free slots, and begins their attempts without waiting for them.
func (w *AlertWatch) Deliver(ctx context.Context, now time.Time) error {
	return w.deliveries.Claim(ctx, now)
}

// Wait waits for the attempts in flight.
func (w *AlertWatch) Wait() { w.deliveries.Wait() }

var errSecretIsClosed = errors.New("the secret is sealed under a key that this server does not have; give it anew")

func (w *AlertWatch) attempt(ctx context.Context, notice *Notice, now time.Time) {
	var status int
	var err error
	switch {
	case notice.Of.Format == FormatEmail:
		refused, mailErr := w.outbox.MailDelivery(ctx, notice, now)
		if mailErr != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "an alert was not handed over to the mail, so it is tried again",
				"tenant", notice.TenantSlug, "delivery_id", notice.ID, "error", mailErr)
		}
		if mailErr != nil || refused == "" {
			return
		}
		err = errors.New(refused)
	case notice.Of.SecretIsClosed:
		err = errSecretIsClosed
	default:
		status, err = w.sender.Send(ctx, notice)
	}
	if ctx.Err() != nil {
		return // this process is stopping; another one tries after the lease
	}
	if err := w.outbox.FinishDelivery(ctx, notice.attempted(now, status, err)); err != nil && ctx.Err() == nil {
		w.log.WarnContext(ctx, "the result of a webhook was not stored, so it is sent again",
			"tenant", notice.TenantSlug, "delivery_id", notice.ID, "error", err)
	}
}

// attempted returns the delivery after an attempt. A test is attempted once: its sender is watching and can repeat it.
func (d Delivery) attempted(now time.Time, status int, err error) Delivery {
	d.AttemptedAt, d.Status, d.Error = now, status, ""
	if err != nil {
		d.Error = jobs.ShortLine(err.Error())
	}
	switch {
	case err == nil && status >= 200 && status < 300:
		d.State = DeliveryDelivered
	case d.Attempts >= jobs.MaxAttempts, d.Test:
		d.State = DeliveryFailed
	default:
		d.NextAttemptAt = now.Add(jobs.Pause(d.Attempts))
	}
	return d
}
