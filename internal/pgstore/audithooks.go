package pgstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var (
	_ auth.AuditWebhookStore = (*Store)(nil)
	_ auth.AuditOutbox       = (*Store)(nil)
)

// AuditWebhook returns a tenant's webhook and its progress.
func (s *Store) AuditWebhook(ctx context.Context, tenant rules.TenantID) (auth.AuditWebhook, auth.AuditProgress,
	error,
) {
	q := s.queriesFor(classHeavy, only(tenant))
	row, err := auditWebhookRow(ctx, q, tenant)
	var waiting dbsqlc.AuditWaitingRow
	if err == nil {
		waiting, err = q.AuditWaiting(ctx, tenant, row.AuditWebhookProgress.SentTo, auth.MaxAuditWaiting)
	}
	if err != nil {
		return auth.AuditWebhook{}, auth.AuditProgress{}, wrap(err, "read the audit webhook of tenant %d", tenant)
	}
	progress := auditProgressFromRow(&row)
	if progress.Waiting = waiting.Entries; waiting.Entries > 0 {
		progress.OldestWaiting = waiting.Oldest.UTC()
	}
	return s.auditWebhookFromRow(row.AuditWebhook), progress, nil
}

// CreateAuditWebhook makes the tenant's webhook, which gets no earlier entries.
func (s *Store) CreateAuditWebhook(ctx context.Context, by rules.Actor, webhook auth.AuditWebhook) (auth.AuditWebhook,
	error,
) {
	created, err := s.changeAuditWebhook(ctx, by, webhook.Tenant,
		func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.AuditWebhook, error) {
			before, err := q.LastAuditID(ctx, webhook.Tenant)
			if err != nil {
				return dbsqlc.AuditWebhook{}, err
			}
			secret, err := s.vault.SealText(auditUse, int64(webhook.Tenant), webhook.Secret)
			if err != nil {
				return dbsqlc.AuditWebhook{}, err
			}
			row, err := q.CreateAuditWebhook(ctx, dbsqlc.CreateAuditWebhookParams{
				TenantID: webhook.Tenant, Url: webhook.URL, Secret: secret, IsActive: webhook.Active,
			})
			if err != nil {
				return row, err
			}
			return row, q.BeginAuditWebhook(ctx, webhook.Tenant, before)
		})
	return created, wrap(err, "create the audit webhook of tenant %d", webhook.Tenant)
}

// UpdateAuditWebhook changes all but the secret.
func (s *Store) UpdateAuditWebhook(ctx context.Context, by rules.Actor, webhook auth.AuditWebhook) (auth.AuditWebhook,
	error,
) {
	tenant := webhook.Tenant
	updated, err := s.changeAuditWebhook(ctx, by, tenant,
		func(ctx context.Context, q *dbsqlc.Queries) (row dbsqlc.AuditWebhook, err error) {
			if err := expectAuditWebhook(ctx, q, tenant, rules.Expected(webhook.Version)); err != nil {
				return row, err
			}
			if row, err = q.UpdateAuditWebhook(ctx, webhook.URL, webhook.Active, tenant); err != nil {
				return row, err
			}
			// An attempt in flight may be at the former URL, and must not delay the new one.
			if err := q.DropJobsOfKinds(ctx, tenant, []string{auth.AuditWebhookKind}); err != nil {
				return row, err
			}
			return row, resumeAuditWebhook(ctx, q, tenant)
		})
	return updated, wrap(err, "update the audit webhook of tenant %d", tenant)
}

// RotateAuditSecret replaces the secret.
func (s *Store) RotateAuditSecret(
	ctx context.Context, by rules.Actor, tenant rules.TenantID, expected rules.Expected, secret string,
) (auth.AuditWebhook, error) {
	by.Act = cmp.Or(by.Act, "rotate secret") // the log leaves out secrets
	rotated, err := s.changeAuditWebhook(ctx, by, tenant,
		func(ctx context.Context, q *dbsqlc.Queries) (row dbsqlc.AuditWebhook, err error) {
			if err := expectAuditWebhook(ctx, q, tenant, expected); err != nil {
				return row, err
			}
			sealed, err := s.vault.SealText(auditUse, int64(tenant), secret)
			if err != nil {
				return row, err
			}
			return q.RotateAuditSecret(ctx, sealed, tenant)
		})
	return rotated, wrap(err, "rotate the secret of the audit webhook of tenant %d", tenant)
}

// RemoveAuditWebhook ends the sending of entries.
func (s *Store) RemoveAuditWebhook(ctx context.Context, by rules.Actor, tenant rules.TenantID,
	expected rules.Expected,
) error {
	err := s.inTenantAs(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := expectAuditWebhook(ctx, q, tenant, expected); err != nil {
			return err
		}
		if err := foundOne(q.RemoveAuditWebhook(ctx, tenant)); err != nil {
			return err
		}
		// The tenant's next webhook must not inherit their back-off.
		return q.DropJobsOfKinds(ctx, tenant, []string{auth.AuditWebhookKind, auth.AuditTestKind})
	})
	return wrap(err, "remove the audit webhook of tenant %d", tenant)
}

func resumeAuditWebhook(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID) error {
	if err := q.ForgetAuditFailures(ctx, tenant); err != nil {
		return err
	}
	_, err := q.EnqueueJob(ctx, dbsqlc.EnqueueJobParams{
		TenantID: tenant, Kind: auth.AuditWebhookKind, IsRetry: true,
	})
	return err
}

func (s *Store) changeAuditWebhook(
	ctx context.Context, by rules.Actor, tenant rules.TenantID,
	change func(context.Context, *dbsqlc.Queries) (dbsqlc.AuditWebhook, error),
) (changed auth.AuditWebhook, err error) {
	err = s.inTenantAs(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := change(ctx, q)
		changed = s.auditWebhookFromRow(row)
		return err
	})
	return changed, err
}

func expectAuditWebhook(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, expected rules.Expected) error {
	row, err := auditWebhookRow(ctx, q, tenant)
	if err != nil {
		return err
	}
	return expect(expected, row.AuditWebhook.Version)
}

func auditWebhookRow(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID) (dbsqlc.AuditWebhookRow, error) {
	return q.AuditWebhook(ctx, auth.AuditWebhookKind, auth.AuditTestKind, tenant)
}

// TestAuditWebhook asks for a test that is due at once.
func (s *Store) TestAuditWebhook(ctx context.Context, tenant rules.TenantID) error {
	q := s.queriesFor(classWrite, only(tenant))
	_, err := auditWebhookRow(ctx, q, tenant)
	if err == nil {
		var asked int64
		asked, err = q.EnqueueJob(ctx, dbsqlc.EnqueueJobParams{TenantID: tenant, Kind: auth.AuditTestKind})
		if err == nil && asked == 0 {
			err = rules.ErrInUse
		}
	}
	return wrap(err, "test the audit webhook of tenant %d", tenant)
}

// AuditErrand returns a tenant's webhook for an attempt.
func (s *Store) AuditErrand(ctx context.Context, tenant rules.TenantID) (auth.AuditErrand, error) {
	row, err := auditWebhookRow(ctx, s.queriesFor(classRead, only(tenant)), tenant)
	return auth.AuditErrand{
		AuditWebhook: s.auditWebhookFromRow(row.AuditWebhook), AuditProgress: auditProgressFromRow(&row),
		TenantSlug: row.Slug,
	}, wrap(err, "read the audit webhook of tenant %d", tenant)
}

// AuditAfter returns the entries after one, in the order of their ids. No lower id becomes visible later, because all
// writers of a tenant lock it before they log.
func (s *Store) AuditAfter(ctx context.Context, tenant rules.TenantID, after auth.AuditID,
	limit int,
) ([]auth.AuditEntry, error) {
	rows, err := s.queriesFor(classRead, only(tenant)).AuditAfter(ctx, dbsqlc.AuditAfterParams{
		TenantID: tenant, After: int64(after), PageSize: rowLimit(limit), AtMost: auth.MaxAuditRows,
	})
	if err != nil {
		return nil, wrap(err, "read the audit log of tenant %d", tenant)
	}
	entries := make([]auth.AuditEntry, len(rows))
	for i := range rows {
		if entries[i], err = auditEntryFromRow(rows[i]); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// FinishAuditBatch stores the result of an attempt to send entries.
func (s *Store) FinishAuditBatch(ctx context.Context, job *jobs.Job, received auth.AuditID, status int,
	failure string,
) error {
	tenant := rules.TenantID(job.Tenant)
	err := s.queriesFor(classWrite, only(tenant)).FinishAuditBatch(ctx, dbsqlc.FinishAuditBatchParams{
		SentTo: int64(received), Succeeded: received != 0, HttpStatus: int32(status), Error: failure,
		TenantID: tenant, JobID: job.ID, Claim: job.Claim,
	})
	return wrap(err, "store how the audit log of tenant %d was sent", tenant)
}

// FinishAuditTest stores the result of a test; success ends the back-off of entries.
func (s *Store) FinishAuditTest(ctx context.Context, job *jobs.Job, received bool, status int, failure string) error {
	tenant := rules.TenantID(job.Tenant)
	err := s.transaction(ctx, classBackground, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) error {
		stored, err := q.FinishAuditTest(ctx, dbsqlc.FinishAuditTestParams{
			HttpStatus: int32(status), Error: failure, TenantID: tenant, JobID: job.ID, Claim: job.Claim,
		})
		if err != nil || stored == 0 || !received {
			return err
		}
		return resumeAuditWebhook(ctx, q, tenant)
	})
	return wrap(err, "store the test of the audit webhook of tenant %d", tenant)
}

// RestAuditWebhook ends a tenant's job if no entries are left, or lets it look again a second later while somebody
// writes.
func (s *Store) RestAuditWebhook(ctx context.Context, job *jobs.Job) (again time.Time, err error) {
	tenant := rules.TenantID(job.Tenant)
	err = s.transaction(ctx, classBackground, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) error {
		switch _, err := q.TryLockTenant(ctx, tenant); {
		case errors.Is(err, pgx.ErrNoRows):
			now, err := q.DatabaseTime(ctx)
			again = now.Add(time.Second)
			return err
		case err != nil:
			return err
		}
		ended, err := q.RestAuditWebhook(ctx, tenant, job.ID, job.Claim)
		if ended == 0 {
			again = jobs.DueNow
		}
		return err
	})
	return again, wrap(err, "end the job of the audit webhook of tenant %d", tenant)
}

func (s *Store) auditWebhookFromRow(row dbsqlc.AuditWebhook) auth.AuditWebhook {
	webhook := auth.AuditWebhook{Tenant: row.TenantID, URL: row.Url, Active: row.IsActive, Version: row.Version}
	webhook.Secret, webhook.SecretIsClosed = s.opened(auditUse, row.TenantID, row.Secret)
	return webhook
}

func auditProgressFromRow(row *dbsqlc.AuditWebhookRow) auth.AuditProgress {
	p := &row.AuditWebhookProgress
	return auth.AuditProgress{
		SentTo: auth.AuditID(p.SentTo), Skipped: p.Skipped, Failures: int(p.Failures),
		NextAttemptAt: sinceEpoch(row.NextRunAt), UnderWay: row.UnderWay,
		AttemptedAt: orZero(p.AttemptedAt), SucceededAt: orZero(p.SucceededAt),
		Status: int(orZeroValue(p.HttpStatus)), Error: p.Error,
		Test: auth.AuditTest{
			Waits: row.TestWaits, EndedAt: orZero(p.TestedAt), Status: int(orZeroValue(p.TestStatus)),
			Error: p.TestError,
		},
	}
}
