package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// enter opens a session or, for an account with a second factor, returns SecondFactorError for FinishSignIn. Returns
// rules.ErrNotFound if the account was disabled or its password hash is no longer hash.
func (g *Gate) enter(ctx context.Context, account Account, hash string, from Browser) (Entry, error) {
	if !account.HasSecondFactor() {
		return g.openSession(ctx, account, hash, from, false)
	}
	token, digest := newToken()
	now := g.options.Now()
	expires := now.Add(PendingLife)
	if err := g.store.CreatePending(ctx, account.ID, hash, digest, expires, now, maxPending); err != nil {
		return Entry{}, err
	}
	return Entry{}, SecondFactorError{token, expires}
}

// FinishSignIn opens the session of a sign-in that waits for the second factor. Returns ErrSignedOut if the sign-in has
// ended, ErrWrongCode, or TooSoonError.
func (g *Gate) FinishSignIn(ctx context.Context, token, code string, from Browser) (Entry, error) {
	entry, err := g.finishSignIn(ctx, token, code, from)
	if err != nil {
		return Entry{Session: entry.Session}, fmt.Errorf("finish a sign-in: %w", err)
	}
	return entry, nil
}

// finishSignIn also returns the account with an error, for the log.
func (g *Gate) finishSignIn(ctx context.Context, token, code string, from Browser) (entry Entry, err error) {
	if len(token) != tokenLength {
		return Entry{}, ErrSignedOut
	}
	digest := digestOf(token)
	account, hash, tries, err := g.store.TryPending(ctx, digest, g.options.Now(), pendingTries)
	if errors.Is(err, rules.ErrNotFound) {
		err = ErrSignedOut
	}
	if err != nil {
		return Entry{}, err
	}
	entry.Session.Account = account
	if err := g.useCode(ctx, &account, hash, code, from); err != nil {
		if errors.Is(err, ErrWrongCode) && tries == pendingTries {
			g.notify(ctx, account, NoticeGuesses, from)
		}
		return entry, err
	}
	err = g.store.EndPending(ctx, digest)
	if err == nil {
		_, isKnownDevice := deviceLimits(from.Device, account.ID, hash)
		if entry, err = g.openSession(ctx, account, hash, from, true); err == nil && !isKnownDevice {
			g.notify(ctx, account, NoticeBrowser, from)
		}
	}
	if errors.Is(err, rules.ErrNotFound) {
		err = ErrSignedOut
	}
	return entry, err
}

// ConfirmIdentity is step-up authentication by password and perhaps code. Returns ErrWrongPassword, ErrNeedsCode,
// ErrWrongCode, TooSoonError or ErrBusy.
func (g *Gate) ConfirmIdentity(ctx context.Context, session Session, password, code string, from Browser) error {
	account := session.Account
	hasFactor := account.HasSecondFactor()
	switch {
	case hasFactor && code == "":
		return ErrNeedsCode
	case len(password) > maxPasswordBytes:
		return ErrWrongPassword
	}
	hash, err := g.store.PasswordHash(ctx, account.ID)
	if err != nil {
		return err
	}
	limits := sessionLimits(session.ID)
	if _, err := g.judge(ctx, limits, true, password, hash); err != nil {
		return fmt.Errorf("confirm who uses the session: %w", err)
	}
	if hasFactor {
		if err := g.useCode(ctx, &account, hash, code, from); err != nil {
			return err
		}
	}
	if err := g.store.ConfirmSession(ctx, session.ID); err != nil {
		return err
	}
	g.forget(ctx, limits[0].Subject)
	return nil
}

// IsFresh reports whether the session was authenticated or stepped up within FreshFor.
func (s *Session) IsFresh(now time.Time) bool { return now.Sub(s.ConfirmedAt) < FreshFor }

// HasTwoFactors reports whether the account has a second factor, or the provider of the sign-in counts as two.
func (s *Session) HasTwoFactors() bool {
	return s.Account.HasSecondFactor() || s.SecondFactor && s.Provider != ""
}

// RequireFactor is who must have a second factor, whatever tenants require.
type RequireFactor string

// The requirements of the platform.
const (
	RequireNobody   RequireFactor = ""
	RequireAdmins   RequireFactor = "admins"
	RequireEveryone RequireFactor = "everyone"
)

// RequiresSecondFactor reports whether the platform requires a second factor of an account.
func (g *Gate) RequiresSecondFactor(account *Account) bool {
	required := g.options.RequireFactor
	return required == RequireEveryone || required == RequireAdmins && account.PlatformAdmin
}

// TakesSecondFactors reports whether accounts can have a second factor, which needs a key to seal its secret.
func (g *Gate) TakesSecondFactors() bool { return g.options.Vault.HasKey() }
