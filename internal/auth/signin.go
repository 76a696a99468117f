package auth

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluicegate/sluice/internal/rules"
)

// SignIn opens a session. At a tenant's sign-in (Browser.Tenant) the password decides between the account that joined
// by a link and the one that has proven the address. Returns ErrWrongPassword, a TooSoonError or ErrBusy, and
// SecondFactorError if a code is missing.
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
		return Entry{}, ErrWrongPassword
	}
	candidates, err := g.candidates(ctx, email, from)
	if err != nil {
		return Entry{}, err
	}
	spray := g.sprays.left(from.IP, g.options.Now())
	var unjudged error // why an account's password was not compared
	isWrong := false
	for i := range candidates {
		// A device exempts its own account only: a stranger who claimed this address by a link also has a device.
		if spray > 0 && !candidates[i].isKnownDevice {
			unjudged = TooSoonError{spray}
			continue
		}
		entry, err := g.signInAs(ctx, &candidates[i], password, from)
		switch {
		case errors.Is(err, ErrWrongPassword):
			isWrong = true
		case errors.As(err, new(TooSoonError)), errors.Is(err, ErrBusy):
			unjudged = err // the other account need not wait
		default:
			return entry, err
		}
	}
	if isWrong {
		g.sprays.failed(from.IP, g.options.Now())
	}
	if unjudged != nil {
		return Entry{}, unjudged
	}
	return Entry{}, ErrWrongPassword
}

type candidate struct {
	account       Account
	hash          string
	limits        []Limit
	exists        bool
	isKnownDevice bool
}

// candidates returns the accounts that a sign-in may mean, with dummies so that a refusal costs and counts the same for
// unknown addresses. The dummy for an account that joined a tenant by a link is last, so that others sign in there at
// the cost of one hash.
func (g *Gate) candidates(ctx context.Context, email string, from Browser) ([]candidate, error) {
	holder, err := g.candidate(ctx, email, "", addressSubject(email), from)
	if err != nil || from.Tenant == "" {
		return []candidate{holder}, err
	}
	joined, err := g.candidate(ctx, email, from.Tenant, claimSubject(from.Tenant, email), from)
	if joined.exists {
		return []candidate{joined, holder}, err
	}
	return []candidate{holder, joined}, err
}

func (g *Gate) candidate(ctx context.Context, email, tenant string, subject Subject, from Browser) (candidate, error) {
	c := candidate{limits: addressLimits(subject, from.IP)}
	var err error
	c.account, c.hash, err = g.store.PasswordOf(ctx, email, tenant)
	switch {
	case errors.Is(err, rules.ErrNotFound):
		c.hash = g.hasher.dummy
		return c, nil
	case err != nil:
		return candidate{}, err
	}
	c.exists = true
	if device, ok := deviceLimits(from.Device, c.account.ID, c.hash); ok {
		c.limits, c.isKnownDevice = device, true
	}
	return c, nil
}

func (g *Gate) signInAs(ctx context.Context, c *candidate, password string, from Browser) (Entry, error) {
	weak, err := g.judge(ctx, c.limits, c.isKnownDevice, password, c.hash)
	if err == nil && (!c.exists || !c.account.DisabledAt.IsZero()) {
		err = ErrWrongPassword
	}
	if err != nil {
		return Entry{}, err
	}
	hash := c.hash
	entry, err := g.enter(ctx, c.account, hash, from)
	isPending := errors.As(err, new(SecondFactorError))
	switch {
	case errors.Is(err, rules.ErrNotFound):
		return Entry{}, ErrWrongPassword // changed a moment ago
	case err != nil && !isPending:
		return Entry{}, err
	}
	if weak {
		renewed, err := g.rehash(ctx, c.account.ID, hash, password)
		switch {
		case err == nil:
			hash = renewed
		case !errors.Is(err, ErrBusy): // the next sign-in renews the hash
			g.options.Unfinished(ctx, err)
		}
	}
	g.forget(ctx, c.limits[0].Subject)
	if isPending {
		return Entry{}, err
	}
	entry.Device = newDevice(c.account.ID, hash)
	if !c.isKnownDevice {
		g.notify(ctx, c.account, NoticeBrowser, from)
	}
	return entry, nil
}

// openSession creates a new token, which defeats session fixation, once all factors of the account are proven.
func (g *Gate) openSession(ctx context.Context, account Account, hash string, from Browser, secondFactor bool) (Entry,
	error,
) {
	token, digest := newToken()
	created := NewSession{
		Session: Session{
			Account: account, UserAgent: tidyUserAgent(from.UserAgent), IP: rules.PlainIP(from.IP),
			SecondFactor: secondFactor,
			Provider:     from.Provider,
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

// Authenticate returns the session of a token, or ErrSignedOut, and resets its idle limit.
func (g *Gate) Authenticate(ctx context.Context, token string) (Session, error) {
	return g.session(ctx, token, Used)
}

// Recheck is Authenticate without resetting the idle limit, for a request that continues without its owner, such
// as a stream.
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

// SignOut ends the session, if it has not ended.
func (g *Gate) SignOut(ctx context.Context, session Session) error {
	err := g.store.EndSession(ctx, session.Account.ID, session.ID)
	if errors.Is(err, rules.ErrNotFound) {
		return nil
	}
	return err
}

// Sessions lists the live sessions of an account, latest first.
func (g *Gate) Sessions(ctx context.Context, account AccountID) ([]Session, error) {
	return g.store.Sessions(ctx, account, g.live())
}

// ChangePassword ends all sessions of the account and opens a new one, because somebody else may have a copy of this
// session's token. Returns ErrWrongPassword or a TooSoonError about the current password, rules.FieldErrors on
// new_password, or rules.ErrChanged. After any other error the password may be changed and nobody signed in.
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
