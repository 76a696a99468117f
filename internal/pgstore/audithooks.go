package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// AuditWebhook returns where a tenant's audit log is sent, and how far it was.
func (s *Store) AuditWebhook(ctx context.Context, tenant rules.TenantID) (auth.AuditWebhook, auth.AuditProgress,
	error,
) {
	var waiting dbsqlc.AuditWaitingRow
	row, err := askMuch(ctx, s, only(tenant),
		func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.AuditWebhookRow, error) {
			row, err := auditWebhookRow(ctx, q, tenant)
			if err != nil {
				return row, err
			}
			waiting, err = q.AuditWaiting(ctx, tenant, row.AuditWebhookProgress.SentTo, auth.MaxAuditWaiting)
			return row, err
		})
	if err != nil {
		return auth.AuditWebhook{}, auth.AuditProgress{},
			fmt.Errorf("read the audit webhook of tenant %d: %w", tenant, err)
	}
	progress := auditProgressFromRow(&row)
	if progress.Waiting = waiting.Entries; waiting.Entries > 0 {
		progress.OldestWaiting = waiting.Oldest.UTC()
	}
	return s.auditWebhookFromRow(row.AuditWebhook), progress, nil
}

// CreateAuditWebhook makes the tenant's webhook. What was logged before is not sent.
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
	if err != nil {
		return auth.AuditWebhook{}, fmt.Errorf("create the audit webhook of tenant %d: %w", webhook.Tenant, err)
	}
	return created, nil
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
			// An attempt in flight may be at the former URL, and what it does must not delay the new one.
			if err := q.DropJobsOfKinds(ctx, tenant, []string{auth.AuditWebhookKind}); err != nil {
				return row, err
			}
			return row, resumeAuditWebhook(ctx, q, tenant)
		})
	if err != nil {
		return auth.AuditWebhook{}, fmt.Errorf("update the audit webhook of tenant %d: %w", tenant, err)
	}
	return updated, nil
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
	if err != nil {
		return auth.AuditWebhook{}, fmt.Errorf("rotate the secret of the audit webhook of tenant %d: %w", tenant, err)
	}
	return rotated, nil
}

// RemoveAuditWebhook ends the sending. What waits is not sent.
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
	if err != nil {
		return fmt.Errorf("remove the audit webhook of tenant %d: %w", tenant, err)
	}
	return nil
}

// resumeAuditWebhook ends the back-off, so that what waits is due at once.
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

// expectAuditWebhook returns an error unless the webhook has the expected version. The tenant is locked, so it stays.
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
	_, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (any, error) {
		if _, err := auditWebhookRow(ctx, q, tenant); err != nil {
			return nil, err
		}
		asked, err := q.EnqueueJob(ctx, dbsqlc.EnqueueJobParams{TenantID: tenant, Kind: auth.AuditTestKind})
		if err == nil && asked == 0 {
			err = rules.ErrInUse
		}
		return nil, err
	})
	if err != nil {
		return fmt.Errorf("test the audit webhook of tenant %d: %w", tenant, err)
	}
	return nil
}

// AuditErrand returns a tenant's webhook for an attempt.
func (s *Store) AuditErrand(ctx context.Context, tenant rules.TenantID) (auth.AuditErrand, error) {
	row, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.AuditWebhookRow, error) {
		return auditWebhookRow(ctx, q, tenant)
	})
	if err != nil {
		return auth.AuditErrand{}, fmt.Errorf("read the audit webhook of tenant %d: %w", tenant, err)
	}
	return auth.AuditErrand{
		AuditWebhook: s.auditWebhookFromRow(row.AuditWebhook), AuditProgress: auditProgressFromRow(&row),
		TenantSlug: row.Slug,
	}, nil
}

// AuditAfter returns the entries after one. Their order is that of their ids, and none with a lower id becomes visible
// later, because all writers of a tenant lock it before they log. Packed ones have their rows, so that a few fill a
// batch.
func (s *Store) AuditAfter(ctx context.Context, tenant rules.TenantID, after auth.AuditID,
	limit int,
) ([]auth.AuditEntry, error) {
	rows, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.AuditEvent, error) {
		return q.AuditAfter(ctx, dbsqlc.AuditAfterParams{
			TenantID: tenant, After: int64(after), PageSize: rowLimit(limit), AtMost: auth.MaxAuditRows,
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the audit log of tenant %d: %w", tenant, err)
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
	_, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (any, error) {
		return nil, q.FinishAuditBatch(ctx, dbsqlc.FinishAuditBatchParams{
			SentTo: int64(received), Succeeded: received != 0, HttpStatus: int32(status), Error: failure,
			TenantID: tenant, JobID: job.ID, Claim: job.Claim,
		})
	})
	if err != nil {
		return fmt.Errorf("store how the audit log of tenant %d was sent: %w", tenant, err)
	}
	return nil
}

// FinishAuditTest stores the result of a test. One that was received ends the back-off of entries.
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
	if err != nil {
		return fmt.Errorf("store the test of the audit webhook of tenant %d: %w", tenant, err)
	}
	return nil
}

// RestAuditWebhook ends a tenant's job if no entries are left. While somebody writes, that is seen a second later.
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
	if err != nil {
		return time.Time{}, fmt.Errorf("end the job of the audit webhook of tenant %d: %w", tenant, err)
	}
	return again, nil
}

func (s *Store) auditWebhookFromRow(row dbsqlc.AuditWebhook) auth.AuditWebhook {
	webhook := auth.AuditWebhook{Tenant: row.TenantID, URL: row.Url, Active: row.IsActive, Version: row.Version}
	webhook.Secret, webhook.SecretIsClosed = s.opened(auditUse, row.TenantID, row.Secret)
	return webhook
}

func auditProgressFromRow(row *dbsqlc.AuditWebhookRow) auth.AuditProgress {
	status := func(stored *int32) int {
		if stored == nil {
			return 0
		}
		return int(*stored)
	}
	p := &row.AuditWebhookProgress
	return auth.AuditProgress{
		SentTo: auth.AuditID(p.SentTo), Skipped: p.Skipped, Failures: int(p.Failures),
		NextAttemptAt: sinceEpoch(row.NextRunAt), UnderWay: row.UnderWay,
		AttemptedAt: orZero(p.AttemptedAt), SucceededAt: orZero(p.SucceededAt),
		Status: status(p.HttpStatus), Error: p.Error,
		Test: auth.AuditTest{
			Waits: row.TestWaits, EndedAt: orZero(p.TestedAt), Status: status(p.TestStatus), Error: p.TestError,
		},
	}
}
