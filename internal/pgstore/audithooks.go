package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var (
	_ auth.AuditWebhookStore = (*Store)(nil)
	_ auth.AuditOutbox       = (*Store)(nil)
)

// AuditWebhook returns where a tenant's audit log is sent, and how far it was.
func (s *Store) AuditWebhook(ctx context.Context, tenant rules.TenantID) (auth.AuditWebhook, auth.AuditProgress, error) {
	var waiting dbsqlc.AuditWaitingRow
	row, err := askMuch(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.AuditWebhookRow, error) {
		row, err := q.AuditWebhook(ctx, tenant)
		if err != nil {
			return row, err
		}
		waiting, err = q.AuditWaiting(ctx, tenant, row.AuditWebhookProgress.SentTo, auth.MaxAuditWaiting)
		return row, err
	})
	if err != nil {
		return auth.AuditWebhook{}, auth.AuditProgress{}, fmt.Errorf("read the audit webhook of tenant %d: %w", tenant, err)
	}
	progress := auditProgressFromRow(row.AuditWebhookProgress)
	if progress.Waiting = waiting.Entries; waiting.Entries > 0 {
		progress.OldestWaiting = waiting.Oldest.UTC()
	}
	return s.auditWebhookFromRow(row.AuditWebhook), progress, nil
}

// CreateAuditWebhook makes the tenant's webhook. What was logged before is not sent.
func (s *Store) CreateAuditWebhook(ctx context.Context, by rules.Actor, webhook auth.AuditWebhook) (auth.AuditWebhook, error) {
	created, err := s.changeAuditWebhook(ctx, by, webhook.Tenant, func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.AuditWebhook, error) {
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
func (s *Store) UpdateAuditWebhook(ctx context.Context, by rules.Actor, webhook auth.AuditWebhook) (auth.AuditWebhook, error) {
	tenant := webhook.Tenant
	updated, err := s.changeAuditWebhook(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) (row dbsqlc.AuditWebhook, err error) {
		if err := expectAuditWebhook(ctx, q, tenant, rules.Expected(webhook.Version)); err != nil {
			return row, err
		}
		if row, err = q.UpdateAuditWebhook(ctx, webhook.URL, webhook.Active, tenant); err != nil {
			return row, err
		}
		return row, q.RetryAuditWebhook(ctx, tenant)
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
	rotated, err := s.changeAuditWebhook(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) (row dbsqlc.AuditWebhook, err error) {
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
func (s *Store) RemoveAuditWebhook(ctx context.Context, by rules.Actor, tenant rules.TenantID, expected rules.Expected) error {
	err := s.inTenantAs(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := expectAuditWebhook(ctx, q, tenant, expected); err != nil {
			return err
		}
		return foundOne(q.RemoveAuditWebhook(ctx, tenant))
	})
	if err != nil {
		return fmt.Errorf("remove the audit webhook of tenant %d: %w", tenant, err)
	}
	return nil
}

func (s *Store) changeAuditWebhook(
	ctx context.Context, by rules.Actor, tenant rules.TenantID, change func(context.Context, *dbsqlc.Queries) (dbsqlc.AuditWebhook, error),
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
	row, err := q.AuditWebhook(ctx, tenant)
	if err != nil {
		return err
	}
	return expect(expected, row.AuditWebhook.Version)
}

// TestAuditWebhook asks for a test that is due at once.
func (s *Store) TestAuditWebhook(ctx context.Context, tenant rules.TenantID) error {
	_, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (any, error) {
		if _, err := q.AuditWebhook(ctx, tenant); err != nil {
			return nil, err
		}
		asked, err := q.TestAuditWebhook(ctx, tenant)
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

// ClaimAuditErrands leases webhooks that have something to send.
func (s *Store) ClaimAuditErrands(ctx context.Context, now, leaseEnds time.Time, limit int) ([]auth.AuditErrand, error) {
	rows, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.ClaimAuditWebhooksRow, error) {
		return q.ClaimAuditWebhooks(ctx, leaseEnds, now, rowLimit(limit))
	})
	if err != nil {
		return nil, fmt.Errorf("claim audit webhooks: %w", err)
	}
	return each(rows, func(row dbsqlc.ClaimAuditWebhooksRow) auth.AuditErrand {
		p := row.AuditWebhookProgress
		return auth.AuditErrand{
			AuditWebhook: s.auditWebhookFromRow(row.AuditWebhook), AuditProgress: auditProgressFromRow(p), TenantSlug: row.Slug,
			LeaseEnds: orZero(p.LeaseEndsAt), IsTest: p.TestRequestedAt != nil,
		}
	}), nil
}

// AuditAfter returns the entries after one. Their order is that of their ids, and none with a lower id becomes visible later,
// because all writers of a tenant lock it before they log.
func (s *Store) AuditAfter(ctx context.Context, tenant rules.TenantID, after auth.AuditID, limit int) ([]auth.AuditEntry, error) {
	rows, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.AuditEvent, error) {
		return q.AuditAfter(ctx, tenant, int64(after), rowLimit(limit))
	})
	if err != nil {
		return nil, fmt.Errorf("read the audit log of tenant %d: %w", tenant, err)
	}
	return each(rows, auditEntryFromRow), nil
}

// FinishAuditErrand stores the result of an attempt.
func (s *Store) FinishAuditErrand(ctx context.Context, e auth.AuditErrand) error {
	_, err := ask(ctx, s, only(e.Tenant), func(ctx context.Context, q *dbsqlc.Queries) (any, error) {
		if e.IsTest {
			return nil, q.FinishAuditTest(ctx, dbsqlc.FinishAuditTestParams{
				TestedAt: e.Test.EndedAt, HttpStatus: int32(e.Test.Status), Error: e.Test.Error, NextAttemptAt: e.NextAttemptAt,
				TenantID: e.Tenant, LeaseEndsAt: e.LeaseEnds,
			})
		}
		return nil, q.FinishAuditBatch(ctx, dbsqlc.FinishAuditBatchParams{
			SentTo: int64(e.SentTo), Failures: int32(e.Failures), NextAttemptAt: e.NextAttemptAt, AttemptedAt: orNull(e.AttemptedAt),
			SucceededAt: orNull(e.SucceededAt), HttpStatus: int32(e.Status), Error: e.Error, TenantID: e.Tenant, LeaseEndsAt: e.LeaseEnds,
		})
	})
	if err != nil {
		return fmt.Errorf("store how the audit log of tenant %d was sent: %w", e.Tenant, err)
	}
	return nil
}

func (s *Store) auditWebhookFromRow(row dbsqlc.AuditWebhook) auth.AuditWebhook {
	webhook := auth.AuditWebhook{Tenant: row.TenantID, URL: row.Url, Active: row.IsActive, Version: row.Version}
	webhook.Secret, webhook.SecretIsClosed = s.opened(auditUse, row.TenantID, row.Secret)
	return webhook
}

func auditProgressFromRow(row dbsqlc.AuditWebhookProgress) auth.AuditProgress {
	status := func(stored *int32) int {
		if stored == nil {
			return 0
		}
		return int(*stored)
	}
	return auth.AuditProgress{
		SentTo: auth.AuditID(row.SentTo), Skipped: row.Skipped, Failures: int(row.Failures), NextAttemptAt: row.NextAttemptAt.UTC(),
		UnderWay: orZero(row.LeaseEndsAt).After(time.Now()), AttemptedAt: orZero(row.AttemptedAt), SucceededAt: orZero(row.SucceededAt),
		Status: status(row.HttpStatus), Error: row.Error,
		Test: auth.AuditTest{
			Waits: row.TestRequestedAt != nil, EndedAt: orZero(row.TestedAt), Status: status(row.TestStatus), Error: row.TestError,
		},
	}
}
