package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
)

// AuditWebhook is the receiver of a tenant's audit log.
type AuditWebhook struct {
	Tenant         rules.TenantID
	URL            string
	Secret         string
	Active         bool
	Version        int64
	SecretIsClosed bool // no configured key opens the secret, so nothing can be sent
}

// Validate returns the mistakes. webhook.Sender decides whether the URL may be called.
func (w *AuditWebhook) Validate() (wrong rules.FieldErrors) {
	wrong.Add("url", rules.WrongWebhookURL(w.URL))
	return wrong
}

// MaxAuditWaiting bounds AuditProgress.Waiting, because counting more is slow.
const MaxAuditWaiting = 10_000

// AuditProgress is the state of sending a tenant's audit log.
type AuditProgress struct {
	SentTo        AuditID
	Waiting       int64     // at most MaxAuditWaiting
	OldestWaiting time.Time // zero: none waits
	Skipped       int64     // deleted by retention before they were received

	Failures      int       // since the last success
	NextAttemptAt time.Time // zero: no entries wait
	UnderWay      bool
	AttemptedAt   time.Time
	SucceededAt   time.Time
	Status        int // of the latest answer; 0 for none
	Error         string
	Test          AuditTest
}

// AuditTest is the latest test of a webhook.
type AuditTest struct {
	Waits   bool
	EndedAt time.Time // zero: none
	Status  int       // 0 for none
	Error   string
}

// AuditWebhookStore stores one webhook for each tenant. Methods return rules.ErrNotFound for a tenant without one, and
// rules.ErrChanged for another version.
type AuditWebhookStore interface {
	AuditWebhook(ctx context.Context, tenant rules.TenantID) (AuditWebhook, AuditProgress, error)
	CreateAuditWebhook(ctx context.Context, by rules.Actor, webhook AuditWebhook) (AuditWebhook, error)
	// UpdateAuditWebhook keeps the secret and the progress, and makes waiting entries due at once.
	UpdateAuditWebhook(ctx context.Context, by rules.Actor, webhook AuditWebhook) (AuditWebhook, error)
	RotateAuditSecret(ctx context.Context, by rules.Actor, tenant rules.TenantID, expected rules.Expected,
		secret string) (AuditWebhook, error)
	RemoveAuditWebhook(ctx context.Context, by rules.Actor, tenant rules.TenantID, expected rules.Expected) error
	// TestAuditWebhook returns rules.ErrInUse while another test is queued.
	TestAuditWebhook(ctx context.Context, tenant rules.TenantID) error
}

// AuditOutbox stores the webhooks of all tenants and the audit entries that wait to be sent.
type AuditOutbox interface {
	AuditErrand(ctx context.Context, tenant rules.TenantID) (AuditErrand, error)
	AuditAfter(ctx context.Context, tenant rules.TenantID, after AuditID, limit int) ([]AuditEntry, error)
	// FinishAuditBatch stores the last entry received and the status of the answer (0: none), unless another claim was
	// made since or the job is gone.
	FinishAuditBatch(ctx context.Context, job *jobs.Job, received AuditID, status int, failure string) error
	// FinishAuditTest is like FinishAuditBatch, and makes waiting entries due at once if the test was received.
	FinishAuditTest(ctx context.Context, job *jobs.Job, received bool, status int, failure string) error
	// RestAuditWebhook ends a tenant's job if no entries are left, or returns when it is due again.
	RestAuditWebhook(ctx context.Context, job *jobs.Job) (again time.Time, err error)
}

// AuditErrand is an attempt to send entries, or a test.
type AuditErrand struct {
	AuditWebhook
	AuditProgress
	TenantSlug string
	IsTest     bool
}

// AuditBatch is the content of a post.
type AuditBatch struct {
	Errand  *AuditErrand
	Entries []AuditEntry
}

// AuditSender posts batches to receivers.
type AuditSender interface {
	// SendAudit returns the status of the answer, or 0 and an error for the tenant, within a few seconds.
	SendAudit(ctx context.Context, batch *AuditBatch) (status int, err error)
}

// The kinds of jobs that send audit logs and tests, one of each for a tenant.
const (
	AuditWebhookKind = "audit webhook" // the database's function enqueue_audit_webhook names it, too
	AuditTestKind    = "audit webhook test"
)

const (
	auditBatch      = 100 // a single entry is sent whatever its size
	auditBatchBytes = 1 << 20
	auditAtOnce     = 32 // attempts of this process; a receiver that does not answer occupies one for 10 s
)

// AuditKinds returns the jobs that send the audit logs of tenants to their webhooks. A batch that was posted but not
// recorded, because the process died, is sent again.
func AuditKinds(outbox AuditOutbox, sender AuditSender) []jobs.Kind {
	c := auditCourier{outbox, sender}
	return []jobs.Kind{
		{
			Name: AuditWebhookKind, MaxConcurrent: auditAtOnce, PerTenant: 1, Timeout: time.Minute,
			Attempts: jobs.Endless, Do: c.sendBatch,
		},
		{
			Name: AuditTestKind, MaxConcurrent: auditAtOnce, PerTenant: 1, Timeout: time.Minute, Attempts: 1,
			Do: c.sendTest, GiveUp: c.giveUpTest,
		},
	}
}

type auditCourier struct {
	outbox AuditOutbox
	sender AuditSender
}

const secretIsClosed = "the secret is sealed under a key that this server does not have; rotate it"

func (c auditCourier) sendBatch(ctx context.Context, job *jobs.Job) (again time.Time, err error) {
	errand, err := c.outbox.AuditErrand(ctx, rules.TenantID(job.Tenant))
	if errors.Is(err, rules.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	var entries []AuditEntry
	if errand.Active {
		if entries, err = c.outbox.AuditAfter(ctx, errand.Tenant, errand.SentTo, auditBatch); err != nil {
			return time.Time{}, err
		}
	}
	if len(entries) == 0 {
		return c.outbox.RestAuditWebhook(ctx, job)
	}
	entries = upToBytes(entries, auditBatchBytes)
	status, failure, err := c.send(ctx, &AuditBatch{Errand: &errand, Entries: entries})
	if err != nil {
		return time.Time{}, err
	}
	var received AuditID
	if isReceived(status, failure) {
		received = entries[len(entries)-1].ID
	}
	storing, cancel := jobs.Storing(ctx)
	defer cancel()
	if err := c.outbox.FinishAuditBatch(storing, job, received, status, failure); err != nil {
		return time.Time{}, err
	}
	if received == 0 {
		return time.Time{}, jobs.Elsewhere(fmt.Errorf("the receiver answered %d %s", status, failure))
	}
	return jobs.DueNow, nil
}

func (c auditCourier) sendTest(ctx context.Context, job *jobs.Job) (again time.Time, err error) {
	errand, err := c.outbox.AuditErrand(ctx, rules.TenantID(job.Tenant))
	if errors.Is(err, rules.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	errand.IsTest = true
	status, failure, err := c.send(ctx, &AuditBatch{Errand: &errand})
	if err != nil {
		return time.Time{}, err
	}
	storing, cancel := jobs.Storing(ctx)
	defer cancel()
	return time.Time{}, c.outbox.FinishAuditTest(storing, job, isReceived(status, failure), status, failure)
}

func (c auditCourier) giveUpTest(ctx context.Context, job *jobs.Job, err error) error {
	return c.outbox.FinishAuditTest(ctx, job, false, 0, jobs.ErrorText(err.Error()))
}

func isReceived(status int, failure string) bool {
	return failure == "" && status >= 200 && status < 300
}

// send returns an error only if ctx ended before the batch was received.
func (c auditCourier) send(ctx context.Context, batch *AuditBatch) (status int, failure string, err error) {
	if batch.Errand.SecretIsClosed {
		return 0, secretIsClosed, nil
	}
	status, err = c.sender.SendAudit(ctx, batch)
	if err != nil {
		failure = jobs.ErrorText(err.Error())
	}
	if !isReceived(status, failure) {
		err = ctx.Err()
	}
	return status, failure, err
}

func upToBytes(entries []AuditEntry, limit int) []AuditEntry {
	size := 0
	for i := range entries {
		size += len(entries[i].Before) + len(entries[i].After)
		for _, row := range entries[i].Rows {
			size += len(row.Before) + len(row.After)
		}
		if i > 0 && size > limit {
			return entries[:i]
		}
	}
	return entries
}
