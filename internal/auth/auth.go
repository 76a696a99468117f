// Package auth is the domain of people and their access: accounts, sign-in, sessions, members and
// their roles, invitations.
package auth

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// AccountID identifies an account.
type AccountID int64

// Account is a person who signs in. It never means a user, who is limited.
type Account struct {
	ID    AccountID
	Email string // as typed; compared without case
	Name  string
	// PlatformAdmin may do everything in every tenant, and manages tenants.
	PlatformAdmin bool
	CreatedAt     time.Time
	DisabledAt    time.Time // zero: may sign in
	Version       int64
}

// Role is what a member may do in a tenant.
type Role string

// The roles; each may do what the one before may. A viewer reads everything but secrets. An editor changes plans,
// rules, overrides, users and their buckets. An owner changes settings, API keys, members and alerts.
const (
	Viewer Role = "viewer"
	Editor Role = "editor"
	Owner  Role = "owner"
)

// Member is an account's role in one tenant.
type Member struct {
	TenantID  rules.TenantID
	Account   Account
	Role      Role
	CreatedAt time.Time
	Version   int64
}

// Membership is a tenant that an account is a member of.
type Membership struct {
	Tenant rules.Tenant
	Role   Role
}

// Invitation lets whoever holds its token become a member, once. The inviter passes the link on.
type Invitation struct {
	ID         int64
	TenantID   rules.TenantID
	Email      string
	Role       Role
	InvitedBy  string // the e-mail address of the inviter
	CreatedAt  time.Time
	ExpiresAt  time.Time
	AcceptedAt time.Time // zero: it was not
	RevokedAt  time.Time // zero: it was not
}

// Session is one sign-in of an account in one browser.
type Session struct {
	ID         int64 // to list and end sessions by; no secret
	Account    Account
	CreatedAt  time.Time
	LastSeenAt time.Time // to the minute
	UserAgent  string
	IP         netip.Addr
}

// Digest is the SHA-256 of a secret token; the token itself is never stored.
type Digest [32]byte

// What a store answers beside rules.ErrNotFound and the like.
var (
	// ErrLastOwner is for a change that would leave a tenant without an owner.
	ErrLastOwner = errors.New("the last owner of the tenant")
)

// Store is where accounts, sessions, members and invitations are written down. Changes to what a tenant owns
// are written to the tenant's audit log in the same transaction; by says in whose name.
type Store interface {
	// CreateAccount is rules.ErrExists if the address is taken.
	CreateAccount(ctx context.Context, account Account, passwordHash string) (Account, error)
	Account(ctx context.Context, id AccountID) (Account, error)
	// PasswordOf returns the account with an e-mail address and its password's hash.
	PasswordOf(ctx context.Context, email string) (account Account, passwordHash string, err error)
	// Accounts lists by e-mail address those whose address or name contains the text.
	Accounts(ctx context.Context, text, after string, limit int) ([]Account, error)
	// UpdateAccount changes the name, PlatformAdmin and whether it is disabled, at the account's Version. Disabling
	// ends all its sessions.
	UpdateAccount(ctx context.Context, account Account) (Account, error)
	// ChangePassword ends all sessions of the account but keep.
	ChangePassword(ctx context.Context, id AccountID, passwordHash string, keep int64) error

	CreateSession(ctx context.Context, session Session, token Digest) (Session, error)
	// SessionOf returns the session with a token, unless it was idle since idleSince or created before oldest,
	// and notes that it was seen.
	SessionOf(ctx context.Context, token Digest, idleSince, oldest time.Time) (Session, error)
	Sessions(ctx context.Context, account AccountID) ([]Session, error) // the latest first
	EndSession(ctx context.Context, account AccountID, id int64) error
	EndSessions(ctx context.Context, account AccountID) (ended int64, err error)

	// Memberships lists the tenants of an account by slug.
	Memberships(ctx context.Context, account AccountID, after string, limit int) ([]Membership, error)
	// RoleIn is rules.ErrNotFound if the account is no member of the tenant.
	RoleIn(ctx context.Context, tenant rules.TenantID, account AccountID) (Role, error)
	Members(ctx context.Context, tenant rules.TenantID, after string, limit int) ([]Member, error) // by e-mail address
	Member(ctx context.Context, tenant rules.TenantID, account AccountID) (Member, error)
	ChangeRole(ctx context.Context, by rules.Actor, member Member) (Member, error) // at its Version; or ErrLastOwner
	RemoveMember(ctx context.Context, by rules.Actor, tenant rules.TenantID, account AccountID, expected rules.Expected) error

	Invite(ctx context.Context, by rules.Actor, invitation Invitation, token Digest) (Invitation, error)
	Invitations(ctx context.Context, tenant rules.TenantID, before int64, limit int) ([]Invitation, error) // open ones, the latest first
	RevokeInvitation(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64) error
	// InvitationOf returns the open invitation with a token, and its tenant.
	InvitationOf(ctx context.Context, token Digest) (Invitation, rules.Tenant, error)
	// Accept uses an invitation up: the account becomes a member, or keeps a higher role that it has.
	Accept(ctx context.Context, by rules.Actor, token Digest, account AccountID) (Member, error)
	// AcceptAsNew creates the account of the invited address as well, or nothing at all.
	AcceptAsNew(ctx context.Context, token Digest, account Account, passwordHash string) (Member, error)

	// Attempt notes an attempt to sign in to the account with an address, before its password is looked at, and
	// returns how long to wait if it comes too soon after failed ones; then nothing is noted. Addresses without an
	// account count too, so that nobody can tell which exist.
	Attempt(ctx context.Context, email string) (wait time.Duration, err error)
	// ForgetAttempts is for a sign-in that succeeded.
	ForgetAttempts(ctx context.Context, email string) error
}
