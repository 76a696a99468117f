package violations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

// Sender posts notices to receivers.
type Sender interface {
	// Send returns the status of the answer, or 0 and an error that the tenant sees, within a few seconds.
	Send(ctx context.Context, notice *Notice) (status int, err error)
}

// The kinds of jobs about a delivery: one that was raised, and a test. Queries of deliveries name them, too.
const (
	DeliveryKind = "alert delivery"
	TestKind     = "alert test"
)

const (
	raiseEvery = 10 * time.Second
	// raiseAtOnce is the number of tenants processed concurrently, so that a slow one does not block all others.
	raiseAtOnce = 2
	// raiseRound bounds a round, because each tenant takes seconds while the database hangs.
	raiseRound = time.Minute

	// attemptsAtOnce bounds this process's attempts in flight, attemptsPerTenant a tenant's in all processes. A
	// receiver that does not answer occupies an attempt for 10 s.
	attemptsAtOnce    = 64
	attemptsPerTenant = 4
)

// AlertKinds returns the jobs that raise and deliver alerts. If a process dies between a post and storing its result,
// the delivery is sent again, so receivers recognize deliveries by id. A test has one attempt, since its sender watches
// and can repeat it, and does not wait for what was raised.
func AlertKinds(outbox Outbox, sender Sender, log *slog.Logger) []jobs.Kind {
	c := courier{outbox, sender}
	delivery := jobs.Kind{
		Name: DeliveryKind, AtOnce: attemptsAtOnce, PerTenant: attemptsPerTenant, Longest: time.Minute,
		Do: c.attempt, GiveUp: c.giveUp,
	}
	test := delivery
	test.Name, test.Attempts = TestKind, 1
	return []jobs.Kind{
		{
			Name: "raise alerts", Every: raiseEvery, Longest: raiseRound,
			Do: func(ctx context.Context, _ *jobs.Job) (time.Time, error) {
				return time.Time{}, RaiseAll(ctx, outbox, time.Now(), log)
			},
		},
		delivery, test,
	}
}

// RaiseAll raises the alerts of all tenants. An error of one tenant does not stop the others.
func RaiseAll(ctx context.Context, outbox Outbox, now time.Time, log *slog.Logger) error {
	tenants, err := outbox.AlertingTenants(ctx)
	if err != nil {
		return err
	}
	// A random order, so that a round that runs out of time does not always skip the same tenants.
	rand.Shuffle(len(tenants), func(i, j int) { tenants[i], tenants[j] = tenants[j], tenants[i] })
	todo := make(chan rules.TenantID)
	failed := make([]error, raiseAtOnce)
	var raising panics.Group
	for i := range failed {
		raising.Go(log, "raising alerts", func() {
			for tenant := range todo {
				err := panics.Do(log, "raising alerts", func() error {
					_, err := outbox.RaiseAlerts(ctx, tenant, now)
					return err
				})
				if err != nil {
					failed[i] = err // the last one is enough, since an outage's errors are alike
				}
			}
		})
	}
	for _, tenant := range tenants {
		todo <- tenant
	}
	close(todo)
	panicked := raising.Wait()
	return errors.Join(errors.Join(failed...), panicked)
}

type courier struct {
	outbox Outbox
	sender Sender
}

const secretIsClosed = "the secret is sealed under a key that this server does not have; give it anew"

func (c courier) attempt(ctx context.Context, job *jobs.Job) (again time.Time, err error) {
	tenant := rules.TenantID(job.Tenant)
	id, err := deliveryOf(job)
	if err != nil {
		return again, err
	}
	notice, err := c.outbox.Notice(ctx, tenant, id)
	if errors.Is(err, rules.ErrNotFound) {
		return again, nil
	}
	if err != nil {
		return again, err
	}
	var status int
	var failure string
	switch {
	case notice.Of.Format == FormatEmail:
		if failure, err = c.outbox.MailDelivery(ctx, &notice); err != nil || failure == "" {
			return again, err
		}
	case notice.Of.SecretIsClosed:
		failure = secretIsClosed
	default:
		var sendErr error
		if status, sendErr = c.sender.Send(ctx, &notice); sendErr != nil {
			failure = jobs.ShortLine(sendErr.Error())
		}
	}
	delivered := failure == "" && status >= 200 && status < 300
	if !delivered && ctx.Err() != nil {
		return again, ctx.Err()
	}
	storing, cancel := jobs.Storing(ctx)
	defer cancel()
	if err := c.outbox.FinishDelivery(storing, job, id, status, failure, delivered); err != nil {
		return again, err
	}
	if !delivered {
		err = jobs.Elsewhere(fmt.Errorf("the receiver answered %d %s", status, failure))
	}
	return again, err
}

func (c courier) giveUp(ctx context.Context, job *jobs.Job, err error) error {
	id, idErr := deliveryOf(job)
	if idErr != nil {
		return nil //nolint:nilerr // there is no delivery to end
	}
	failure := ""
	if !jobs.IsElsewhere(err) { // which FinishDelivery has stored
		failure = jobs.ShortLine(err.Error())
	}
	return c.outbox.GiveUpDelivery(ctx, job, id, failure)
}

func deliveryOf(job *jobs.Job) (int64, error) {
	id, err := strconv.ParseInt(job.About, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the id of a delivery: %w", err)
	}
	return id, nil
}
