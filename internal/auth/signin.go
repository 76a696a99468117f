package auth

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluicegate/sluice/internal/rules"
)

// SignIn opens a session for the account with an address, and ends the one that the browser had. It is
// ErrWrongPassword, a TooSoonError or ErrBusy for who may not come in, and SecondFactorError for who is to show a code.
func (g *Gate) SignIn(ctx context.Context, email, password string, from Browser) (Entry, error) {
	entry, err := g.signIn(ctx, email, password, from)
	if err != nil {
		return Entry{}, fmt.Errorf("sign in: %w", err)
	}
	return entry, nil
}

func (g *Gate) signIn(ctx context.Context, email, password string, from Browser) (Entry, error) {
	if g.options.NoPasswords {
		return Entry{}, ErrPasswordsOff
	}
	if len(email) > maxEmailLength || len(password) > maxPasswordBytes {
		return Entry{}, ErrWrongPassword // no account has such
	}
	account, hash, err := g.store.PasswordOf(ctx, email, from.Tenant)
	isKnown := err == nil
	limits, isKnownDevice := addressLimits(accountSubject(&account, email), from.IP), false
	switch {
	case errors.Is(err, rules.ErrNotFound):
		hash = g.hasher.dummy
	case err != nil:
		return Entry{}, err
	default:
		if device, ok := deviceLimits(from.Device, account.ID, hash); ok {
			limits, isKnownDevice = device, true
		}
	}
	if wait := g.sprays.left(from.IP, g.options.Now()); wait > 0 && !isKnownDevice {
		return Entry{}, TooSoonError{wait}
	}
	weak, err := g.judge(ctx, limits, isKnownDevice, password, hash)
	if err == nil && (!isKnown || !account.DisabledAt.IsZero()) {
		err = ErrWrongPassword
	}
	if errors.Is(err, ErrWrongPassword) {
		g.sprays.failed(from.IP, g.options.Now())
	}
	if err != nil {
		return Entry{}, err
	}
	entry, err := g.enter(ctx, account, hash, from)
	isPending := errors.As(err, new(SecondFactorError))
	switch {
	case errors.Is(err, rules.ErrNotFound):
		return Entry{}, ErrWrongPassword // since a moment ago
	case err != nil && !isPending:
		return Entry{}, err
	}
	if weak {
		renewed, err := g.rehash(ctx, account.ID, hash, password)
		switch {
		case err == nil:
			hash = renewed
		case !errors.Is(err, ErrBusy): // the next sign-in renews it
			g.options.Unfinished(ctx, err)
		}
	}
	g.forget(ctx, limits[0].Subject)
	if isPending {
		return Entry{}, err
	}
	entry.Device = newDevice(account.ID, hash)
	if !isKnownDevice {
		g.notify(ctx, account, NoticeBrowser, from)
	}
	return entry, nil
}

// openSession makes a new token always: one that was planted in the browser before is worth nothing. Only enter,
// FinishSignIn and ChangePassword call it, after all factors of the account are proven.
func (g *Gate) openSession(ctx context.Context, account Account, hash string, from Browser, secondFactor bool) (Entry, error) {
	token, digest := newToken()
	created := NewSession{
		Session: Session{
			Account: account, UserAgent: tidyUserAgent(from.UserAgent), IP: rules.PlainIP(from.IP), SecondFactor: secondFactor,
			Provider: from.Provider,
		},
		Token: digest, PasswordHash: hash,
	}
	if from.Session != "" {
		created.Replaces = digestOf(from.Session)
	}
	session, err := g.store.CreateSession(ctx, created, g.live())
	if err != nil {
		return Entry{}, err
	}
	return Entry{session, token, newDevice(account.ID, hash)}, nil
}

func (g *Gate) rehash(ctx context.Context, id AccountID, from, password string) (string, error) {
	to, err := g.hasher.hash(ctx, password)
	if err != nil {
		return "", err
	}
	return to, g.store.Rehash(ctx, id, from, to)
}

func (g *Gate) live() Live {
	now := g.options.Now()
	return Live{SeenSince: now.Add(-g.options.IdleLimit), CreatedSince: now.Add(-g.options.AbsoluteLimit)}
}

// Authenticate returns the session with a token, or ErrSignedOut. The session counts as used.
func (g *Gate) Authenticate(ctx context.Context, token string) (Session, error) {
	return g.session(ctx, token, Used)
}

// Recheck is Authenticate for a request that goes on without its owner, such as a stream: the session
// does not count as used, so the idle limit still ends it.
func (g *Gate) Recheck(ctx context.Context, token string) (Session, error) {
	return g.session(ctx, token, LookedAt)
}

func (g *Gate) session(ctx context.Context, token string, use Use) (Session, error) {
	if len(token) != tokenLength {
		return Session{}, ErrSignedOut
	}
	session, err := g.store.SessionOf(ctx, digestOf(token), g.live(), use)
	if errors.Is(err, rules.ErrNotFound) {
		return Session{}, ErrSignedOut
	}
	return session, err
}

// SignOut ends the session. One that has ended already is no error.
func (g *Gate) SignOut(ctx context.Context, session Session) error {
	err := g.store.EndSession(ctx, session.Account.ID, session.ID)
	if errors.Is(err, rules.ErrNotFound) {
		return nil
	}
	return err
}

// Sessions lists the live sessions of an account, the latest first. Store.EndSession ends one of them,
// Store.EndSessions all.
func (g *Gate) Sessions(ctx context.Context, account AccountID) ([]Session, error) {
	return g.store.Sessions(ctx, account, g.live())
}

// ChangePassword ends all sessions of the account and opens a new one: whoever has a copy of this session's
// token is out as well. It returns the new secrets of this browser; ErrWrongPassword or a TooSoonError is
// about the current password, rules.FieldErrors on new_password about the next, rules.ErrChanged about
// another change at the same time. With any other error the password may be changed and nobody signed in.
func (g *Gate) ChangePassword(ctx context.Context, session Session, current, next string, from Browser) (Entry, error) {
	account := session.Account
	if g.options.NoPasswords {
		return Entry{}, ErrPasswordsOff
	}
	if wrong := wrongPassword("new_password", next, account.Email); wrong != nil {
		return Entry{}, wrong
	}
	if len(current) > maxPasswordBytes {
		return Entry{}, ErrWrongPassword
	}
	old, err := g.store.PasswordHash(ctx, account.ID)
	if err != nil {
		return Entry{}, err
	}
	limits := sessionLimits(session.ID)
	if _, err := g.judge(ctx, limits, true, current, old); err != nil {
		return Entry{}, fmt.Errorf("change the password: %w", err)
	}
	to, err := g.hasher.hash(ctx, next)
	if err != nil {
		return Entry{}, err
	}
	if err := g.store.ChangePassword(ctx, account.Actor(), account.ID, old, to); err != nil {
		return Entry{}, err
	}
	g.notify(ctx, account, NoticePassword, from)
	g.forget(ctx, limits[0].Subject)
	return g.openSession(ctx, account, to, from, session.SecondFactor)
}
