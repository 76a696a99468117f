package auth

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// CreateAdmin makes a platform admin: a new account, or the one with the address, which gets this password,
// is enabled again and signed out everywhere. It is the way back in for those who lost theirs. It is
// rules.FieldErrors on email and password.
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

// SetPassword gives the account with an address another password, and signs it out everywhere; what it may
// do stays as it is. It is for who lost theirs and cannot change it themselves. It is rules.ErrNotFound if there is no such
// account, and rules.FieldErrors on password.
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

// operator is the Browser of a command.
var operator = Browser{UserAgent: "the command line of an operator"}

// replacedByOperator lets an account sign in at once with the password that a command gave it, and tells its holder.
func (g *Gate) replacedByOperator(ctx context.Context, account Account) {
	g.forget(ctx, addressSubject(account.Email))
	g.notify(ctx, account, NoticePassword, operator)
}

// replacePassword changes the password of the account with an address, and ends all its sessions.
func (g *Gate) replacePassword(ctx context.Context, by rules.Actor, email, hash string) (Account, error) {
	account, from, err := g.store.PasswordOf(ctx, email, "")
	if err != nil {
		return Account{}, err
	}
	return account, g.store.ChangePassword(ctx, by, account.ID, from, hash)
}
