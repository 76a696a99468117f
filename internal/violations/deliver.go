package violations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
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

// Queries of deliveries name these kinds of jobs.
const (
	DeliveryKind = "alert delivery"
	TestKind     = "alert test"
)

const (
	raiseEvery = 10 * time.Second
	// raiseRound bounds a pass, because each batch takes seconds while the database hangs.
	raiseRound = time.Minute
	// alertsAtOnce are judged in one transaction, alertsPerTurn of a tenant before those of another.
	alertsAtOnce  = 500
	alertsPerTurn = 10

	// attemptsAtOnce bounds this process's attempts, attemptsPerTenant a tenant's in all processes. A receiver that
	// does not answer occupies an attempt for 10 s.
	attemptsAtOnce    = 64
	attemptsPerTenant = 4
)

// AlertKinds returns the jobs that raise and deliver alerts. A delivery is sent again if a process dies before it
// stores the result, so receivers recognize deliveries by id. A test has one attempt, since its sender watches.
func AlertKinds(outbox Outbox, sender Sender, log *slog.Logger) []jobs.Kind {
	c := courier{outbox, sender}
	delivery := jobs.Kind{
		Name: DeliveryKind, MaxConcurrent: attemptsAtOnce, PerTenant: attemptsPerTenant, Timeout: time.Minute,
		Do: c.attempt, GiveUp: c.giveUp,
	}
	test := delivery
	test.Name, test.Attempts = TestKind, 1
	return []jobs.Kind{
		{
			Name: "raise alerts", Every: raiseEvery, Timeout: raiseRound,
			Do: func(ctx context.Context, _ *jobs.Job) (time.Time, error) {
				return time.Time{}, RaiseAll(ctx, outbox, time.Now(), log)
			},
		},
		delivery, test,
	}
}

// RaiseAll raises the alerts of all tenants. An error of one tenant does not stop the others.
func RaiseAll(ctx context.Context, outbox Outbox, now time.Time, log *slog.Logger) error {
	alerts, err := outbox.ActiveAlerts(ctx)
	if err != nil {
		return err
	}
	raise := func(batch []ActiveAlert) error {
		return panics.Do(log, "raising alerts", func() error {
			_, err := outbox.RaiseAlerts(ctx, batch, now)
			return err
		})
	}
	var again []ActiveAlert
	for batch := range slices.Chunk(inTurns(alerts), alertsAtOnce) {
		err := raise(batch)
		if ctx.Err() != nil || errors.Is(err, rules.ErrAway) {
			return err
		}
		if err != nil {
			again = append(again, batch...)
		}
	}
	var failed error
	for _, alone := range byTenant(again) {
		for batch := range slices.Chunk(alone, alertsPerTurn) {
			err := raise(batch)
			if ctx.Err() != nil || errors.Is(err, rules.ErrAway) {
				return err
			}
			if err != nil {
				failed = err // one is enough, since an outage's errors are alike
				break
			}
		}
	}
	return failed
}

// inTurns orders alerts so that each tenant has some before any has more. Chance decides the first, so that a pass that
// runs out of time does not always omit the same ones.
func inTurns(alerts []ActiveAlert) []ActiveAlert {
	waiting := byTenant(alerts)
	rand.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
	for i, of := range waiting {
		first := rand.IntN(len(of))
		waiting[i] = slices.Concat(of[first:], of[:first])
	}
	ordered := make([]ActiveAlert, 0, len(alerts))
	for len(waiting) > 0 {
		for i, of := range waiting {
			n := min(len(of), alertsPerTurn)
			ordered, waiting[i] = append(ordered, of[:n]...), of[n:]
		}
		waiting = slices.DeleteFunc(waiting, func(of []ActiveAlert) bool { return len(of) == 0 })
	}
	return ordered
}

func byTenant(alerts []ActiveAlert) (tenants [][]ActiveAlert) {
	place := map[rules.TenantID]int{}
	for _, alert := range alerts {
		i, ok := place[alert.Tenant]
		if !ok {
			i = len(tenants)
			place[alert.Tenant], tenants = i, append(tenants, nil)
		}
		tenants[i] = append(tenants[i], alert)
	}
	return tenants
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
			failure = jobs.ErrorText(sendErr.Error())
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
		failure = jobs.ErrorText(err.Error())
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
