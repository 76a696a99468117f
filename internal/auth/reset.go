package auth

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const (
	resetGivenUp  = 15 * time.Minute
	noticeGivenUp = 24 * time.Hour
)

var resetPace = Pace{Free: 3, Longest: time.Minute}

var platformMail = MailLimits{Queued: 10_000} // against a flood of invented addresses

// AskReset queues a reset link. Only the PostOffice looks the account up, so an unknown address behaves the same.
// Returns rules.FieldErrors on email, TooSoonError or ErrTooMuchMail.
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
	_, err := g.store.QueueMail(ctx, Mail{Kind: MailReset, To: email, GiveUpAt: g.options.Now().Add(resetGivenUp)},
		platformMail)
	return err
}

// Reset uses up a reset link, replaces the password and ends all sessions. Returns rules.ErrNotFound for a link
// that is not open, and rules.FieldErrors on password.
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

// AskProof queues a link that proves the address of an account.
func (g *Gate) AskProof(ctx context.Context, account Account) error {
	subject := subjectOf("proof", binary.BigEndian.AppendUint64(nil, uint64(account.ID)))
	limits := []Limit{{Counter{subject, anywhere}, resetPace}}
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

// Prove uses up a link that was mailed to the session's account. The link alone is not enough: the owner of the
// address would otherwise prove a stranger's claim by a click.
func (g *Gate) Prove(ctx context.Context, by rules.Actor, session Session, token string) (Account, error) {
	if len(token) != tokenLength {
		return Account{}, rules.ErrNotFound
	}
	return g.store.ProveByMail(ctx, by, digestOf(token), session.Account.ID)
}

// Notice is a notice to the holder of an account.
type Notice string

// The notices, sent by mail.
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

// notify queues a notice, about new browsers and guesses at most daily. An unproven account gets none, because the
// address may be a stranger's.
func (g *Gate) notify(ctx context.Context, account Account, notice Notice, from Browser) {
	if !g.options.Mail || !account.Proven() {
		return
	}
	facts := map[string]string{"notice": string(notice), "browser": tidyUserAgent(from.UserAgent)}
	if from.IP.IsValid() {
		facts["ip"] = rules.PlainIP(from.IP).String()
	}
	if notice != NoticeBrowser && notice != NoticeGuesses {
		// makes the facts unique, because the store drops a notice with the same facts
		facts["at"] = g.options.Now().UTC().Format(time.RFC3339Nano)
	}
	g.finish(ctx, func(ctx context.Context) error {
		_, err := g.store.QueueMail(ctx, Mail{
			Kind: MailNotice, To: account.Email, Account: account.ID, GiveUpAt: g.options.Now().Add(noticeGivenUp),
			Facts: facts,
		}, platformMail)
		if errors.Is(err, ErrTooMuchMail) {
			return nil // sent recently, or too many are queued
		}
		return err
	})
}
