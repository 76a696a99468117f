package auth

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// resetGivenUp is when a message that was asked for in a hurry is not sent any more.
	resetGivenUp  = 15 * time.Minute
	noticeGivenUp = 24 * time.Hour
)

// resetPace is how requests for reset links slow further ones down, for an address from one network.
var resetPace = Pace{Free: 3, Longest: time.Minute}

// platformMail keeps a flood of made-up addresses from filling the database.
var platformMail = MailLimits{Queued: 10_000}

// AskReset queues a link to the account that has proven an address. It does the same for an address without an account,
// in the same time: only the PostOffice looks the account up. It is rules.FieldErrors on email, TooSoonError or
// ErrTooMuchMail.
func (g *Gate) AskReset(ctx context.Context, email string, from netip.Addr) error {
	if g.options.NoPasswords {
		return ErrPasswordsOff
	}
	if !isAddress(email) {
		return rules.FieldErrors{wrongAddress(email)}
	}
	subject := subjectOf("reset", []byte(foldAddress(email)))
	limits := []Limit{{Counter{subject, anywhere}, Loose}, {Counter{subject, networkOf(from)}, resetPace}}
	if _, wait, err := g.store.Attempt(ctx, limits); err != nil {
		return err
	} else if wait > 0 {
		return TooSoonError{wait}
	}
	_, err := g.store.QueueMail(ctx, Mail{Kind: MailReset, To: email, GiveUpAt: g.options.Now().Add(resetGivenUp)}, platformMail)
	return err
}

// Reset gives the account of a reset link another password, and ends all its sessions. The link is used up. It is
// rules.ErrNotFound for a link that is not open, and rules.FieldErrors on password.
func (g *Gate) Reset(ctx context.Context, requestID, token, password string, from Browser) (Account, error) {
	if g.options.NoPasswords {
		return Account{}, ErrPasswordsOff
	}
	if len(token) != tokenLength {
		return Account{}, rules.ErrNotFound
	}
	account, err := g.store.MailedLinkOf(ctx, MailReset, digestOf(token))
	if err != nil {
		return Account{}, err
	}
	if wrong := wrongPassword("password", password, account.Email); len(wrong) > 0 {
		return Account{}, wrong
	}
	hash, err := g.hasher.hash(ctx, password)
	if err != nil {
		return Account{}, err
	}
	by := account.Actor()
	by.Act, by.RequestID = "reset the password by mail", requestID
	if _, err := g.store.ResetPassword(ctx, by, digestOf(token), hash); err != nil {
		return Account{}, err
	}
	g.forget(ctx, addressSubject(account.Email))
	g.notify(ctx, account, NoticePassword, from)
	return account, nil
}

// AskProof queues a link to an account that has not proven its address.
func (g *Gate) AskProof(ctx context.Context, account Account) error {
	subject := accountSubject(&account, account.Email)
	limits := []Limit{{Counter{subjectOf("proof", subject[:]), anywhere}, resetPace}}
	if _, wait, err := g.store.Attempt(ctx, limits); err != nil {
		return err
	} else if wait > 0 {
		return TooSoonError{wait}
	}
	_, err := g.store.QueueMail(ctx, Mail{
		Kind: MailProof, To: account.Email, Account: account.ID, GiveUpAt: g.options.Now().Add(resetGivenUp),
	}, platformMail)
	return err
}

// Prove uses up a link that was mailed to the account of a session, which thereby has proven its address. Having the
// link is not enough: otherwise the person who has the address would prove a stranger's claim to it by a click.
func (g *Gate) Prove(ctx context.Context, by rules.Actor, session Session, token string) (Account, error) {
	if len(token) != tokenLength {
		return Account{}, rules.ErrNotFound
	}
	return g.store.ProveByMail(ctx, by, digestOf(token), session.Account.ID)
}

// Notice is what the holder of an account is told.
type Notice string

// What accounts are told by mail.
const (
	NoticeBrowser   Notice = "new_browser"
	NoticePassword  Notice = "password_changed"
	NoticeFactorOn  Notice = "second_factor_on"
	NoticeFactorOff Notice = "second_factor_off"
	NoticeCodes     Notice = "recovery_codes_replaced"
	NoticeRecovery  Notice = "recovery_code_used"
	NoticeGuesses   Notice = "second_factor_guessed" // by somebody with the password
	NoticeLinked    Notice = "identity_linked"
	NoticeUnlinked  Notice = "identity_unlinked"
)

// notify queues a notice to an account. Of a new browser and of guesses it is sent once a day, of a change each time. Nobody is told about an account that is
// unproven: the address may be a stranger's.
func (g *Gate) notify(ctx context.Context, account Account, notice Notice, from Browser) {
	if !g.options.Mail || !account.Proven() {
		return
	}
	facts := map[string]string{"notice": string(notice), "browser": tidyUserAgent(from.UserAgent)}
	if from.IP.IsValid() { // a command's is not
		facts["ip"] = rules.PlainIP(from.IP).String()
	}
	if notice != NoticeBrowser && notice != NoticeGuesses {
		facts["at"] = g.options.Now().UTC().Format(time.RFC3339Nano) // the store leaves out a notice with the same facts
	}
	g.finish(ctx, func(ctx context.Context) error {
		_, err := g.store.QueueMail(ctx, Mail{
			Kind: MailNotice, To: account.Email, Account: account.ID, GiveUpAt: g.options.Now().Add(noticeGivenUp), Facts: facts,
		}, platformMail)
		if errors.Is(err, ErrTooMuchMail) {
			return nil // it was sent a while ago, or others wait already
		}
		return err
	})
}
