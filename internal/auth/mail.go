package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
)

// MailKind is what a message is for.
type MailKind string

// The kinds of mail.
const (
	MailInvitation MailKind = "invitation"
	MailReset      MailKind = "password_reset"
	MailProof      MailKind = "address_proof"
	MailNotice     MailKind = "notice"
	MailTest       MailKind = "test"
	MailKeysExpire MailKind = "keys_expire"
	MailKeysLeft   MailKind = "keys_left"
	MailAlert      MailKind = "alert" // queries count it apart
)

// The facts of mail about an alert, beside those of its tenant.
const (
	FactAlert   = "alert" // its name
	FactAlertID = "alert_id"
	FactText    = "text" // what happened; nothing about a user, because a sent message cannot be erased
)

// MailState is how far a message is.
type MailState string

// A message is queued until the mail server accepts it or the last attempt fails.
const (
	MailQueued MailState = "queued"
	MailSent   MailState = "sent"
	MailFailed MailState = "failed"
)

// ErrTooMuchMail is for a message that its tenant may not queue now; see MailLimits.
var ErrTooMuchMail = errors.New("too much mail")

// ErrMailRefused is wrapped by a MailSender's error if another attempt would fail in the same way.
var ErrMailRefused = errors.New("refused for good")

// MailLimits bound the mail of one tenant.
type MailLimits struct {
	Queued int64 // messages that wait
	Day    int64 // messages within 24 hours
}

// TenantMail are the limits of invitations, and again of alerts. They keep a tenant from using this server to flood people.
var TenantMail = MailLimits{Queued: 100, Day: 200}

// Mail is a message to a person and the state of sending it. It holds no secret: the token of its link is made when it
// is sent.
type Mail struct {
	ID         int64
	Tenant     rules.TenantID // in whose share it is sent; 0 is the platform's own
	Kind       MailKind
	To         string
	Account    AccountID // 0: none is known
	Invitation int64     // 0: it is about none
	Facts      map[string]string
	CreatedAt  time.Time
	GiveUpAt   time.Time // it is not sent later

	State         MailState
	Attempts      int
	NextAttemptAt time.Time // while it is queued
	AttemptedAt   time.Time // zero: not yet
	Error         string    // of the latest attempt
}

// Letter is a message with what its recipient reads.
type Letter struct {
	Mail
	TenantName string
	InvitedBy  string
	Role       Role
	ExpiresAt  time.Time // of the link
	Token      string    // for the link; "" has none
}

// MailStore keeps mail until it is sent.
type MailStore interface {
	// QueueMail stores a message that is due at once. It is ErrTooMuchMail above the limits, of which 0 is none, and for a
	// notice that the account was sent within a day.
	QueueMail(ctx context.Context, mail Mail, limits MailLimits) (Mail, error)
	// ClaimMail leases up to limit due messages; tenants take turns. Nobody else gets them until the lease ends. A tenant
	// has at most perTenant leases in all processes.
	ClaimMail(ctx context.Context, now, leaseEnds time.Time, perTenant, limit int) ([]Mail, error)
	// FinishMail stores the result of an attempt. It does nothing if the lease ended and another attempt began.
	FinishMail(ctx context.Context, mail Mail) error
	// DropMail deletes a message that is not to be sent.
	DropMail(ctx context.Context, mail Mail) error
	// Mails lists all tenants' messages, the latest first, those before an id; 0 is no bound.
	Mails(ctx context.Context, before int64, limit int) ([]Mail, error)
	// RenewInvitation replaces the token of an open invitation, and returns the invitation and its tenant.
	RenewInvitation(ctx context.Context, tenant rules.TenantID, id int64, token Digest) (Invitation, rules.Tenant, error)
	// CreateMailedLink stores the token of a link to an account, in place of its former one for the same purpose.
	CreateMailedLink(ctx context.Context, account AccountID, purpose MailKind, token Digest, expiresAt time.Time) error
	// MailedLinkOf returns the account of an open link.
	MailedLinkOf(ctx context.Context, purpose MailKind, token Digest) (Account, error)
	// UseLink uses a link up, and returns its account and the hash of the password.
	UseLink(ctx context.Context, purpose MailKind, token Digest) (Account, string, error)
	// ResetPassword uses a link up, replaces the password and ends all sessions.
	ResetPassword(ctx context.Context, by rules.Actor, token Digest, passwordHash string) (Account, error)
	// ProveByMail uses a link up; its account has proven its address. It is ErrOtherAddress for a link of another account,
	// and rules.ErrExists if another account has proven the address.
	ProveByMail(ctx context.Context, by rules.Actor, token Digest, account AccountID) (Account, error)
}

// MailSender hands letters to a mail server.
type MailSender interface {
	// Send returns when the server has accepted or refused the letter, within 30 s.
	Send(ctx context.Context, letter *Letter) error
}

const (
	// mailAtOnce caps the connections to the mail server of this process, mailPerTenant those for one tenant in all
	// processes. The platform's own mail, such as a password reset, counts as one more tenant.
	mailAtOnce    = 8
	mailPerTenant = 2
)

// PostOffice sends queued mail.
type PostOffice struct {
	store  Store
	sender MailSender
	log    *slog.Logger
	runner *jobs.Runner[Mail]

	sent, failed atomic.Int64 // attempts
}

// NewPostOffice returns a PostOffice without attempts in flight.
func NewPostOffice(store Store, sender MailSender, log *slog.Logger) *PostOffice {
	p := &PostOffice{store: store, sender: sender, log: log}
	p.runner = jobs.NewRunner(jobs.Queue[Mail]{
		Claim: store.ClaimMail, Attempt: p.attempt, AtOnce: mailAtOnce, PerTenant: mailPerTenant,
		Failing: "mail is not sent", Recovered: "mail is sent again",
	}, log)
	return p
}

// Run sends mail until ctx ends. Any number of processes may do so.
func (p *PostOffice) Run(ctx context.Context) { p.runner.Run(ctx) }

// Deliver attempts what is due, without waiting for the attempts; Wait does.
func (p *PostOffice) Deliver(ctx context.Context, now time.Time) error {
	return p.runner.Claim(ctx, now)
}

// Wait waits for the attempts in flight.
func (p *PostOffice) Wait() { p.runner.Wait() }

// Attempts returns how many letters the mail server accepted, and how many attempts failed, since this process began.
func (p *PostOffice) Attempts() (sent, failed int64) { return p.sent.Load(), p.failed.Load() }

func (p *PostOffice) attempt(ctx context.Context, mail *Mail, now time.Time) {
	letter, err := p.write(ctx, *mail)
	if errors.Is(err, rules.ErrNotFound) {
		// Nobody is to get it any more: the invitation was revoked, for example.
		if err := p.store.DropMail(ctx, *mail); err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "mail that is not to be sent was not deleted", "mail_id", mail.ID, "error", err)
		}
		return
	}
	if err == nil {
		err = p.sender.Send(ctx, &letter)
	}
	if ctx.Err() != nil {
		return // this process is stopping; another one tries after the lease
	}
	if err == nil {
		p.sent.Add(1)
	} else {
		p.failed.Add(1)
	}
	done := mail.attempted(now, err)
	if done.State == MailFailed {
		p.log.WarnContext(ctx, "mail was not sent", "mail_id", mail.ID, "kind", string(mail.Kind), "error", done.Error)
	}
	if err := p.store.FinishMail(ctx, done); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "the result of sending mail was not stored, so it is sent again", "mail_id", mail.ID, "error", err)
	}
}

// write makes the letter of a message, and the token of its link. A later attempt makes another token, which replaces
// this one, so the database never holds a token. It is rules.ErrNotFound if the message has lost its purpose.
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
	return Letter{}, fmt.Errorf("write mail of the kind %q, which this version does not know: %w", mail.Kind, ErrMailRefused)
}

// linkLife is how long the link of a reset or a proof can be used after it was sent.
const linkLife = time.Hour

// writeLink makes the link of a password reset or a proof of address. A reset was asked for by an address, which is
// looked up only here, so that who asks learns nothing from the answer's time.
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

// attempted returns the message after an attempt.
func (m Mail) attempted(now time.Time, err error) Mail {
	m.AttemptedAt, m.Error = now, ""
	if err == nil {
		m.State = MailSent
		return m
	}
	m.Error = jobs.ShortLine(err.Error())
	m.NextAttemptAt = now.Add(jobs.Pause(m.Attempts))
	if errors.Is(err, ErrMailRefused) || m.Attempts >= jobs.MaxAttempts || m.NextAttemptAt.After(m.GiveUpAt) {
		m.State = MailFailed
	}
	return m
}

// TestMail queues a message that shows whether mail works. It is rules.FieldErrors on to.
func (g *Gate) TestMail(ctx context.Context, to string) (Mail, error) {
	if !isAddress(to) {
		return Mail{}, rules.FieldErrors{{Field: "to", Message: wrongAddress(to).Message}}
	}
	return g.store.QueueMail(ctx, Mail{Kind: MailTest, To: to, GiveUpAt: g.options.Now().Add(time.Minute)}, MailLimits{})
}
