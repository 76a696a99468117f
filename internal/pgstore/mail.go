package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var _ auth.MailStore = (*Store)(nil)

// QueueMail stores a message and its job, which is due at once.
func (s *Store) QueueMail(ctx context.Context, mail auth.Mail, limits auth.MailLimits) (auth.Mail, error) {
	var queued auth.Mail
	err := s.transaction(ctx, classWrite, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (err error) {
		queued, err = queueMail(ctx, q, mail, limits)
		return err
	})
	return queued, wrap(err, "queue mail")
}

// CreateMailedLink stores the link of a message, instead of the account's former one for the same purpose.
func (s *Store) CreateMailedLink(ctx context.Context, account auth.AccountID, purpose auth.MailKind, token auth.Digest,
	expiresAt time.Time,
) error {
	err := s.queriesFor(classWrite, everyTenant).CreateMailedLink(ctx, dbsqlc.CreateMailedLinkParams{
		AccountID: account, Purpose: string(purpose), TokenDigest: token[:], ExpiresAt: expiresAt,
	})
	return wrap(err, "store a link for account %d", account)
}

// MailedLinkOf returns the account of an open link.
func (s *Store) MailedLinkOf(ctx context.Context, purpose auth.MailKind, token auth.Digest) (auth.Account, error) {
	q := s.queriesFor(classRead, everyTenant)
	id, err := q.MailedLinkOf(ctx, token[:], string(purpose))
	if err != nil {
		return auth.Account{}, wrap(err, "read a mailed link")
	}
	row, err := q.Account(ctx, id)
	return accountFromRow(row), wrap(err, "read a mailed link")
}

// UseLink uses a link up, and returns its account and the hash of the password.
func (s *Store) UseLink(ctx context.Context, purpose auth.MailKind, token auth.Digest) (auth.Account, string, error) {
	var row dbsqlc.Account
	err := s.inTransaction(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		id, err := q.UseMailedLink(ctx, token[:], string(purpose))
		if err != nil {
			return err
		}
		row, err = q.Account(ctx, id)
		return err
	})
	return accountFromRow(row), row.PasswordHash, wrap(err, "use a link")
}

// ResetPassword uses a link up: it replaces the password and ends all sessions.
func (s *Store) ResetPassword(ctx context.Context, by rules.Actor, token auth.Digest,
	passwordHash string,
) (account auth.Account, err error) {
	err = s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		id, err := q.UseMailedLink(ctx, token[:], string(auth.MailReset))
		if err != nil {
			return err
		}
		if err := q.ReplacePasswordHash(ctx, passwordHash, id); err != nil {
			return err
		}
		if err := endAccess(ctx, q, id); err != nil {
			return err
		}
		row, err := q.Account(ctx, id)
		account = accountFromRow(row)
		return err
	})
	return account, wrap(err, "reset a password")
}

// ProveByMail uses a link up that proves the address of an account.
func (s *Store) ProveByMail(ctx context.Context, by rules.Actor, token auth.Digest,
	account auth.AccountID,
) (proven auth.Account, err error) {
	by.Act = "verify the address by mail"
	err = s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		id, err := q.UseMailedLink(ctx, token[:], string(auth.MailProof))
		if err != nil {
			return err
		}
		if id != account {
			return auth.ErrOtherAddress
		}
		row, err := q.ProveAccount(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			row, err = q.Account(ctx, id) // it is proven already
		}
		proven = accountFromRow(row)
		return err
	})
	return proven, wrap(err, "prove an address by mail")
}

func queueMail(ctx context.Context, q *dbsqlc.Queries, mail auth.Mail, limits auth.MailLimits) (auth.Mail, error) {
	facts, err := json.Marshal(mail.Facts)
	if err != nil || mail.Facts == nil {
		facts = []byte("{}")
	}
	row, err := q.QueueMail(ctx, dbsqlc.QueueMailParams{
		Facts: facts, TenantID: int64(mail.Tenant), Kind: string(mail.Kind), Recipient: mail.To,
		AccountID: int64(mail.Account), InvitationID: unlessZero(mail.Invitation),
		GiveUpAt: mail.GiveUpAt, MostQueued: limits.Queued, MostADay: limits.Day,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return auth.Mail{}, auth.ErrTooMuchMail
	}
	if err != nil {
		return auth.Mail{}, err
	}
	queued := mailFromRow(row)
	queued.NextAttemptAt = queued.CreatedAt
	return queued, enqueue(ctx, q, mail.Tenant, auth.MailJob, queued.ID, time.Time{})
}

// MailToSend returns a message that was not sent.
func (s *Store) MailToSend(ctx context.Context, tenant rules.TenantID, id int64) (auth.Mail, error) {
	row, err := s.queriesFor(classRead, everyTenant).MailToSend(ctx, tenant, id)
	return mailFromRow(row), wrap(err, "read mail %d", id)
}

// FinishMail stores the result of an attempt, and deletes some old mail.
func (s *Store) FinishMail(ctx context.Context, job *jobs.Job, mail *auth.Mail) error {
	q := s.queriesFor(classWrite, everyTenant)
	err := q.DropOldMail(ctx)
	if err == nil {
		err = q.FinishMail(ctx, dbsqlc.FinishMailParams{
			State: string(mail.State), Error: mail.Error, TenantID: mail.Tenant, MailID: mail.ID,
			JobID: job.ID, Claim: job.Claim,
		})
	}
	return wrap(err, "finish mail %d", mail.ID)
}

// GiveUpMail ends a message that was not sent.
func (s *Store) GiveUpMail(ctx context.Context, job *jobs.Job, id int64, failure string) error {
	err := s.queriesFor(classWrite, everyTenant).GiveUpMail(ctx, dbsqlc.GiveUpMailParams{
		Error: failure, TenantID: rules.TenantID(job.Tenant), MailID: id, JobID: job.ID, Claim: job.Claim,
	})
	return wrap(err, "give mail %d up", id)
}

// DropMail deletes a message that was not sent.
func (s *Store) DropMail(ctx context.Context, mail *auth.Mail) error {
	err := s.queriesFor(classWrite, everyTenant).DropMail(ctx, mail.Tenant, mail.ID)
	return wrap(err, "delete mail %d", mail.ID)
}

// Mails returns the mail of all tenants, the latest first, before an id.
func (s *Store) Mails(ctx context.Context, before int64, limit int) ([]auth.Mail, error) {
	rows, err := s.queriesFor(classRead, everyTenant).MailsBefore(ctx, before, rowLimit(limit))
	return each(rows, func(row dbsqlc.MailsBeforeRow) auth.Mail {
		mail := mailFromRow(row.Mail)
		mail.NextAttemptAt = orZero(row.NextRunAt)
		return mail
	}), wrap(err, "read mail")
}

// RenewInvitation replaces the token of an open invitation.
func (s *Store) RenewInvitation(ctx context.Context, tenant rules.TenantID, id int64,
	token auth.Digest,
) (auth.Invitation, rules.Tenant, error) {
	q := s.queriesFor(classWrite, only(tenant))
	of, err := q.Tenant(ctx, tenant)
	var renewed dbsqlc.Invitation
	if err == nil {
		renewed, err = q.RenewInvitation(ctx, token[:], tenant, id)
	}
	return invitationFromRow(renewed), tenantFromRow(of), wrap(err, "renew invitation %d", id)
}

func mailFromRow(row dbsqlc.Mail) auth.Mail {
	mail := auth.Mail{
		ID: row.MailID, Tenant: row.TenantID, Kind: auth.MailKind(row.Kind), To: row.Recipient, Account: row.AccountID,
		CreatedAt: row.CreatedAt.UTC(), GiveUpAt: row.GiveUpAt.UTC(), State: auth.MailState(row.State),
		Attempts: int(row.Attempts), AttemptedAt: orZero(row.AttemptedAt), Error: row.Error,
		Invitation: orZeroValue(row.InvitationID),
	}
	if json.Unmarshal(row.Facts, &mail.Facts) != nil {
		mail.Facts = nil // cannot happen: it was stored by queueMail
	}
	return mail
}
