package auth

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
)

// AuditWebhook is where a tenant's audit log is sent.
type AuditWebhook struct {
	Tenant  rules.TenantID
	URL     string // Secret signs what is posted to it
	Secret  string
	Active  bool  // while it is off, entries wait
	Version int64 // 1 for a new one, raised by each change to it
	// SecretIsClosed means that the secret is sealed under a key that is not configured. Secret is empty then, and nothing can be
	// sent.
	SecretIsClosed bool
}

// Validate returns all that is wrong with it. Whether its URL may be posted to is judged by webhook.Sender.
func (w *AuditWebhook) Validate() (wrong rules.FieldErrors) {
	wrong.Add("url", rules.WrongWebhookURL(w.URL))
	return wrong
}

// MaxAuditWaiting caps AuditProgress.Waiting, because counting more takes long.
const MaxAuditWaiting = 10_000

// AuditProgress is how far a tenant's audit log was sent, and how the latest attempt ended.
type AuditProgress struct {
	SentTo        AuditID   // the last entry that was received
	Waiting       int64     // entries to be sent, at most MaxAuditWaiting
	OldestWaiting time.Time // zero: none waits
	Skipped       int64     // entries that retention deleted before they were received

	Failures      int       // attempts since the last success
	NextAttemptAt time.Time // while entries wait
	UnderWay      bool      // an attempt is in flight
	AttemptedAt   time.Time // zero: not yet
	SucceededAt   time.Time // zero: not yet
	Status        int       // of the latest answer; 0 for none
	Error         string    // of the latest attempt
	Test          AuditTest
}

// AuditTest is the latest test of a webhook.
type AuditTest struct {
	Waits   bool      // it is to be sent
	EndedAt time.Time // of the latest one; zero: there was none
	Status  int       // of its answer; 0 for none
	Error   string
}

// AuditWebhookStore keeps one webhook for each tenant. Changes are logged in the actor's name. A tenant without one is
// rules.ErrNotFound. A method that takes an Expected, or a webhook with its Version, returns rules.ErrChanged unless that
// version is stored.
type AuditWebhookStore interface {
	AuditWebhook(ctx context.Context, tenant rules.TenantID) (AuditWebhook, AuditProgress, error)
	// CreateAuditWebhook begins with the entry of the creation itself. It is rules.ErrExists if the tenant has one.
	CreateAuditWebhook(ctx context.Context, by rules.Actor, webhook AuditWebhook) (AuditWebhook, error)
	// UpdateAuditWebhook keeps the secret, and how far the log was sent. What waits is due at once.
	UpdateAuditWebhook(ctx context.Context, by rules.Actor, webhook AuditWebhook) (AuditWebhook, error)
	// RotateAuditSecret replaces the secret. Later posts are signed with the new one.
	RotateAuditSecret(ctx context.Context, by rules.Actor, tenant rules.TenantID, expected rules.Expected, secret string) (AuditWebhook, error)
	RemoveAuditWebhook(ctx context.Context, by rules.Actor, tenant rules.TenantID, expected rules.Expected) error
	// TestAuditWebhook asks for a test, which is attempted once, also if the webhook is off. It is rules.ErrInUse while the
	// previous one waits.
	TestAuditWebhook(ctx context.Context, tenant rules.TenantID) error
}

// AuditOutbox has the webhooks of all tenants.
type AuditOutbox interface {
	// ClaimAuditErrands leases up to limit webhooks that have something to send; tenants take turns. Nobody else gets them
	// until the lease ends.
	ClaimAuditErrands(ctx context.Context, now, leaseEnds time.Time, limit int) ([]AuditErrand, error)
	// AuditAfter returns up to limit entries after one, in the order in which they became visible.
	AuditAfter(ctx context.Context, tenant rules.TenantID, after AuditID, limit int) ([]AuditEntry, error)
	// FinishAuditErrand stores the result of an attempt. It does nothing if the lease ended and another attempt began.
	FinishAuditErrand(ctx context.Context, errand AuditErrand) error
}

// AuditErrand is one attempt to send entries, or a test.
type AuditErrand struct {
	AuditWebhook
	AuditProgress
	TenantSlug string
	LeaseEnds  time.Time
	IsTest     bool
}

// AuditBatch is what one post says.
type AuditBatch struct {
	Errand  *AuditErrand
	Entries []AuditEntry // none for a test
}

// AuditSender posts batches to their receivers.
type AuditSender interface {
	// SendAudit returns the status of the answer, or 0 and an error without one, within a few seconds. The tenant sees the
	// error.
	SendAudit(ctx context.Context, batch *AuditBatch) (status int, err error)
}

const (
	// auditBatch and auditBatchBytes bound a post. One entry is sent however large it is.
	auditBatch      = 100
	auditBatchBytes = 1 << 20
	// auditAtOnce caps the attempts in flight of this process. A receiver that does not answer holds one for 10 s.
	auditAtOnce = 32
)

// AuditCourier sends the audit logs of tenants to their webhooks.
//
// Each tenant's entries are sent in order, one batch at a time, and again until a receiver answers with 2xx. A batch
// arrives twice if a process dies between sending it and storing that, so receivers recognize entries by their ids. A
// receiver that is away is tried again for as long as entries are kept, with pauses of up to four hours. Tenants take turns,
// so nobody waits for another one's receiver.
type AuditCourier struct {
	outbox AuditOutbox
	sender AuditSender
	log    *slog.Logger
	runner *jobs.Runner[AuditErrand]
}

// NewAuditCourier returns an AuditCourier without attempts in flight.
func NewAuditCourier(outbox AuditOutbox, sender AuditSender, log *slog.Logger) *AuditCourier {
	c := &AuditCourier{outbox: outbox, sender: sender, log: log}
	c.runner = jobs.NewRunner(jobs.Queue[AuditErrand]{
		Claim: func(ctx context.Context, now, leaseEnds time.Time, _, limit int) ([]AuditErrand, error) {
			return outbox.ClaimAuditErrands(ctx, now, leaseEnds, limit) // a tenant has one webhook
		},
		Attempt: c.attempt, AtOnce: auditAtOnce, PerTenant: 1,
		Failing: "audit logs are not sent", Recovered: "audit logs are sent again",
	}, log)
	return c
}

// Run sends until ctx ends. Any number of processes may do so.
func (c *AuditCourier) Run(ctx context.Context) { c.runner.Run(ctx) }

// Deliver attempts what is due, without waiting for the attempts; Wait does.
func (c *AuditCourier) Deliver(ctx context.Context, now time.Time) error {
	return c.runner.Claim(ctx, now)
}

// Wait waits for the attempts in flight.
func (c *AuditCourier) Wait() { c.runner.Wait() }

var errSecretIsClosed = errors.New("the secret is sealed under a key that this server does not have; rotate it")

func (c *AuditCourier) attempt(ctx context.Context, errand *AuditErrand, now time.Time) {
	batch := AuditBatch{Errand: errand}
	if !errand.IsTest {
		entries, err := c.outbox.AuditAfter(ctx, errand.Tenant, errand.SentTo, auditBatch)
		if err != nil {
			if ctx.Err() == nil {
				c.log.WarnContext(ctx, "an audit log was not read, so it is sent after the lease", "tenant", errand.TenantSlug, "error", err)
			}
			return
		}
		batch.Entries = upToBytes(entries, auditBatchBytes)
	}
	var status int
	var err error
	switch {
	case batch.isEmpty():
	case errand.SecretIsClosed:
		err = errSecretIsClosed
	default:
		status, err = c.sender.SendAudit(ctx, &batch)
	}
	if ctx.Err() != nil {
		return // this process is stopping; another one tries after the lease
	}
	if err := c.outbox.FinishAuditErrand(ctx, batch.attempted(now, status, err)); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "the result of sending an audit log was not stored, so its entries are sent again",
			"tenant", errand.TenantSlug, "error", err)
	}
}

// isEmpty reports whether retention has deleted what was claimed, so that there is nothing to attempt.
func (b *AuditBatch) isEmpty() bool { return !b.Errand.IsTest && len(b.Entries) == 0 }

// upToBytes returns the first entries whose images are within a number of bytes, and at least one.
func upToBytes(entries []AuditEntry, limit int) []AuditEntry {
	size := 0
	for i := range entries {
		size += len(entries[i].Before) + len(entries[i].After)
		if i > 0 && size > limit {
			return entries[:i]
		}
	}
	return entries
}

// attempted returns the errand after an attempt. A test is attempted once: its sender is watching and can repeat it. What
// follows a success is due at once.
func (b *AuditBatch) attempted(now time.Time, status int, err error) AuditErrand {
	e := *b.Errand
	shown := ""
	if err != nil {
		shown = jobs.ShortLine(err.Error())
	}
	e.NextAttemptAt = now
	if b.isEmpty() {
		return e
	}
	received := err == nil && status >= 200 && status < 300
	if e.IsTest {
		e.Test = AuditTest{EndedAt: now, Status: status, Error: shown}
		if !received && e.Failures > 0 {
			e.NextAttemptAt = now.Add(jobs.Pause(e.Failures))
		}
		return e
	}
	e.AttemptedAt, e.Status, e.Error = now, status, shown
	if !received {
		e.Failures++
		e.NextAttemptAt = now.Add(jobs.Pause(e.Failures))
		return e
	}
	e.SucceededAt, e.Failures, e.SentTo = now, 0, b.Entries[len(b.Entries)-1].ID
	return e
}
