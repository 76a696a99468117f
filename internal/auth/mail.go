package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
)

// MailKind is the purpose of a message.
type MailKind string

// The kinds.
const (
	MailInvitation MailKind = "invitation"
	MailReset      MailKind = "password_reset"
	MailProof      MailKind = "address_proof"
	MailNotice     MailKind = "notice"
	MailTest       MailKind = "test"
	MailKeysExpire MailKind = "keys_expire"
	MailKeysLeft   MailKind = "keys_left"
	MailAlert      MailKind = "alert" // counted separately by queries
)

// The facts of mail about an alert, beside those of its tenant.
const (
	FactAlert    = "alert"
	FactAlertID  = "alert_id"
	FactRaisedAt = "raised_at" // RFC 3339
	FactText     = "text"      // never about a user, because a sent message cannot be erased
)

// MailState is the state of a message.
type MailState string

// A message is queued until the mail server accepts it or the last attempt fails.
const (
	MailQueued MailState = "queued"
	MailSent   MailState = "sent"
	MailFailed MailState = "failed"
)

// ErrTooMuchMail means that a limit is reached; see MailLimits.
var ErrTooMuchMail = errors.New("too much mail")

// ErrMailRefused is wrapped by a MailSender's permanent errors.
var ErrMailRefused = errors.New("refused for good")

// MailLimits bound the mail of one tenant; 0 is no limit.
type MailLimits struct {
	Queued int64 // waiting messages
	Day    int64 // messages within 24 hours
}

// TenantMail bounds a tenant's invitations, and separately its alerts, so that a tenant cannot flood people with
// mail.
var TenantMail = MailLimits{Queued: 100, Day: 200}

// Mail is a message and its state, without secrets: the token of its link is created when it is sent.
type Mail struct {
	ID         int64
	Tenant     rules.TenantID // whose share it uses; 0 for the platform's
	Kind       MailKind
	To         string
	Account    AccountID
	Invitation int64
	Facts      map[string]string
	CreatedAt  time.Time
	GiveUpAt   time.Time

	State         MailState
	Attempts      int
	NextAttemptAt time.Time // zero if it is not queued or that was not read
	AttemptedAt   time.Time
	Error         string // of the latest attempt
}

// Letter is a message with the content for its recipient.
type Letter struct {
	Mail
	TenantName string
	InvitedBy  string
	Role       Role
	ExpiresAt  time.Time // of the link
	Token      string    // of the link; "" for none
}

// MailStore has mail, and the links in it.
type MailStore interface {
	// QueueMail stores a message and its job. Returns ErrTooMuchMail above the limits, and for a notice that was
	// already sent to the account within a day.
	QueueMail(ctx context.Context, mail Mail, limits MailLimits) (Mail, error)
	// MailToSend returns rules.ErrNotFound if the message was sent or is gone.
	MailToSend(ctx context.Context, tenant rules.TenantID, id int64) (Mail, error)
	// FinishMail stores the State and the Error, unless the message was sent meanwhile, another claim was made since,
	// or the job is gone.
	FinishMail(ctx context.Context, job *jobs.Job, mail *Mail) error
	GiveUpMail(ctx context.Context, job *jobs.Job, id int64, failure string) error
	// DropMail deletes a message that was not sent.
	DropMail(ctx context.Context, mail *Mail) error
	// Mails lists all tenants' messages, latest first, before an id; 0 is no bound.
	Mails(ctx context.Context, before int64, limit int) ([]Mail, error)
	RenewInvitation(ctx context.Context, tenant rules.TenantID, id int64, token Digest) (Invitation, rules.Tenant,
		error)
	// CreateMailedLink replaces the former link of the account for this purpose.
	CreateMailedLink(ctx context.Context, account AccountID, purpose MailKind, token Digest, expiresAt time.Time) error
	MailedLinkOf(ctx context.Context, purpose MailKind, token Digest) (Account, error)
	// UseLink uses up a link, and returns its account and password hash.
	UseLink(ctx context.Context, purpose MailKind, token Digest) (Account, string, error)
	// ResetPassword uses up a link and ends all sessions.
	ResetPassword(ctx context.Context, by rules.Actor, token Digest, passwordHash string) (Account, error)
	// ProveByMail returns ErrOtherAddress for a link of another account, and rules.ErrExists if another account has
	// proven the address.
	ProveByMail(ctx context.Context, by rules.Actor, token Digest, account AccountID) (Account, error)
}

// MailSender hands letters to a mail server.
type MailSender interface {
	Send(ctx context.Context, letter *Letter) error // ends within 30 s
}

const (
	mailAtOnce    = 8 // the platform's own mail counts as a tenant's
	mailPerTenant = 2
)

// MailJob is the kind of jobs that send mail, which queries name.
const MailJob = "mail"

// PostOffice sends queued mail.
type PostOffice struct {
	store  Store
	sender MailSender
	log    *slog.Logger

	sent, failed atomic.Int64 // attempts
}

// NewPostOffice returns a PostOffice.
func NewPostOffice(store Store, sender MailSender, log *slog.Logger) *PostOffice {
	return &PostOffice{store: store, sender: sender, log: log}
}

// Jobs returns the jobs that send mail.
func (p *PostOffice) Jobs() jobs.Kind {
	return jobs.Kind{
		Name: MailJob, MaxConcurrent: mailAtOnce, PerTenant: mailPerTenant, Timeout: time.Minute,
		Do: p.attempt, GiveUp: p.giveUp,
	}
}

// Attempts returns the accepted letters and failed attempts since the process started.
func (p *PostOffice) Attempts() (sent, failed int64) { return p.sent.Load(), p.failed.Load() }

func mailOf(job *jobs.Job) (int64, error) {
	id, err := strconv.ParseInt(job.About, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the id of a message: %w", err)
	}
	return id, nil
}

// attempt returns the errors of this platform's mail server or database, so that the job is parked at last.
func (p *PostOffice) attempt(ctx context.Context, job *jobs.Job) (again time.Time, err error) {
	id, err := mailOf(job)
	if err != nil {
		return again, err
	}
	mail, err := p.store.MailToSend(ctx, rules.TenantID(job.Tenant), id)
	if errors.Is(err, rules.ErrNotFound) {
		return again, nil
	}
	if err != nil {
		return again, err
	}
	if time.Now().After(mail.GiveUpAt) {
		return again, p.store.GiveUpMail(ctx, job, id, cmp.Or(mail.Error, "its time ended before it was sent"))
	}
	letter, err := p.write(ctx, mail)
	if errors.Is(err, rules.ErrNotFound) {
		// for example, the invitation was revoked
		return again, p.store.DropMail(ctx, &mail)
	}
	if err == nil {
		err = p.sender.Send(ctx, &letter)
	}
	if err != nil && ctx.Err() != nil {
		return again, ctx.Err()
	}
	storing, cancel := jobs.Storing(ctx)
	defer cancel()
	mail.State, mail.Error = MailSent, ""
	if err == nil {
		p.sent.Add(1)
		return again, p.store.FinishMail(storing, job, &mail)
	}
	p.failed.Add(1)
	mail.State, mail.Error = MailQueued, jobs.ErrorText(err.Error())
	isOver := errors.Is(err, ErrMailRefused) || time.Now().Add(jobs.Pause(job.Attempts)).After(mail.GiveUpAt)
	if isOver {
		mail.State = MailFailed
		p.log.WarnContext(ctx, "mail was not sent", "mail_id", mail.ID, "kind", string(mail.Kind), "error", mail.Error)
	}
	if storeErr := p.store.FinishMail(storing, job, &mail); storeErr != nil || isOver {
		return again, storeErr
	}
	return again, err
}

func (p *PostOffice) giveUp(ctx context.Context, job *jobs.Job, err error) error {
	id, idErr := mailOf(job)
	if idErr != nil {
		return nil //nolint:nilerr // there is no message to end
	}
	return p.store.GiveUpMail(ctx, job, id, jobs.ErrorText(err.Error()))
}

// write replaces the token of a link at each attempt, so that the database never contains one. Returns
// rules.ErrNotFound if the message has lost its purpose.
func (p *PostOffice) write(ctx context.Context, mail Mail) (Letter, error) {
	letter := Letter{Mail: mail}
	switch mail.Kind {
	case MailTest, MailNotice, MailKeysExpire, MailKeysLeft, MailAlert:
		return letter, nil
	case MailReset, MailProof:
		return p.writeLink(ctx, letter)
	case MailInvitation:
		token, digest := newToken()
		invitation, tenant, err := p.store.RenewInvitation(ctx, mail.Tenant, mail.Invitation, digest)
		if err != nil {
			return Letter{}, err
		}
		letter.TenantName, letter.InvitedBy, letter.Role = tenant.Name, invitation.InvitedBy, invitation.Role
		letter.Token, letter.ExpiresAt = token, invitation.ExpiresAt
		return letter, nil
	}
	return Letter{}, fmt.Errorf("write mail of the kind %q, which this version does not know: %w", mail.Kind,
		ErrMailRefused)
}

const linkLife = time.Hour

// writeLink looks the address of a reset up, because the time of the answer to the request would reveal whether it
// has an account.
func (p *PostOffice) writeLink(ctx context.Context, letter Letter) (Letter, error) {
	var account Account
	var err error
	if letter.Kind == MailReset {
		account, _, err = p.store.PasswordOf(ctx, letter.To, "")
		letter.To = account.Email
	} else {
		account, err = p.store.Account(ctx, letter.Account)
	}
	if err == nil && (!account.DisabledAt.IsZero() || letter.Kind == MailProof && account.Proven()) {
		err = rules.ErrNotFound
	}
	if err != nil {
		return Letter{}, err
	}
	token, digest := newToken()
	letter.Token, letter.ExpiresAt = token, time.Now().Add(linkLife)
	return letter, p.store.CreateMailedLink(ctx, account.ID, letter.Kind, digest, letter.ExpiresAt)
}

// TestMail queues a test message, or returns rules.FieldErrors on to.
func (g *Gate) TestMail(ctx context.Context, to string) (Mail, error) {
	if !isAddress(to) {
		return Mail{}, rules.FieldErrors{{Field: "to", Message: wrongAddress(to).Message}}
	}
	return g.store.QueueMail(ctx, Mail{Kind: MailTest, To: to, GiveUpAt: g.options.Now().Add(time.Minute)},
		MailLimits{})
}
