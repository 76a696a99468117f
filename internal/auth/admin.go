package auth

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// CreateAdmin creates a platform admin, or gives an existing account the password and the right, so that operators can
// recover a lost account. Returns rules.FieldErrors on email and password.
func (g *Gate) CreateAdmin(ctx context.Context, by rules.Actor, email, password string) (Account, error) {
	admin := Account{Email: email, PlatformAdmin: true}
	wrong := append(admin.Validate(), wrongPassword("password", password, email)...)
	if len(wrong) > 0 {
		return Account{}, wrong
	}
	hash, err := g.hasher.hash(ctx, password)
	if err != nil {
		return Account{}, err
	}
	created, err := g.store.CreateAccount(ctx, by, admin, hash)
	if !errors.Is(err, rules.ErrExists) {
		return created, err
	}
	account, err := g.replacePassword(ctx, by, email, hash)
	if err != nil {
		return Account{}, err
	}
	account.PlatformAdmin, account.DisabledAt = true, time.Time{}
	if account, err = g.store.UpdateAccount(ctx, by, account); err != nil {
		return Account{}, err
	}
	g.replacedByOperator(ctx, account)
	return account, nil
}

// SetPassword replaces the password of an account and signs it out everywhere. Returns rules.ErrNotFound for an
// unknown address, and rules.FieldErrors on password.
func (g *Gate) SetPassword(ctx context.Context, by rules.Actor, email, password string) (Account, error) {
	if wrong := wrongPassword("password", password, email); len(wrong) > 0 {
		return Account{}, wrong
	}
	hash, err := g.hasher.hash(ctx, password)
	if err != nil {
		return Account{}, err
	}
	account, err := g.replacePassword(ctx, by, email, hash)
	if err != nil {
		return Account{}, err
	}
	g.replacedByOperator(ctx, account)
	return account, nil
}

var operator = Browser{UserAgent: "the command line of an operator"}

func (g *Gate) replacedByOperator(ctx context.Context, account Account) {
	g.forget(ctx, addressSubject(account.Email))
	g.notify(ctx, account, NoticePassword, operator)
}

func (g *Gate) replacePassword(ctx context.Context, by rules.Actor, email, hash string) (Account, error) {
	account, from, err := g.store.PasswordOf(ctx, email, "")
	if err != nil {
		return Account{}, err
	}
	return account, g.store.ChangePassword(ctx, by, account.ID, from, hash)
}
