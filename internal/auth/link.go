package auth

import (
	"context"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const linkSignIn MailKind = "sign_in"

const signInLinkLife = 15 * time.Minute

// SignInLink creates the token of a link that signs an enabled account in, once, for operators.
func (g *Gate) SignInLink(ctx context.Context, email string) (token string, err error) {
	account, _, err := g.store.PasswordOf(ctx, email, "")
	if err == nil && !account.DisabledAt.IsZero() {
		err = rules.ErrNotFound
	}
	if err != nil {
		return "", fmt.Errorf("make a link to sign in: %w", err)
	}
	token, digest := newToken()
	return token, g.store.CreateMailedLink(ctx, account.ID, linkSignIn, digest, g.options.Now().Add(signInLinkLife))
}

// SignInByLink uses up a link of SignInLink, and opens a session. Returns rules.ErrNotFound for a link that is not
// open, and SecondFactorError for an account with a second factor.
func (g *Gate) SignInByLink(ctx context.Context, token string, from Browser) (Entry, error) {
	if len(token) != tokenLength {
		return Entry{}, rules.ErrNotFound
	}
	account, hash, err := g.store.UseLink(ctx, linkSignIn, digestOf(token))
	if err != nil {
		return Entry{}, err
	}
	entry, err := g.enter(ctx, account, hash, from)
	if err != nil {
		return Entry{}, err
	}
	g.notify(ctx, account, NoticeBrowser, from)
	return entry, nil
}
