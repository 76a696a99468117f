package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// What a store answers beside rules.ErrNotFound and the like.
var (
	// ErrLastOwner is for a change that would leave a tenant without an owner who can sign in.
	ErrLastOwner = errors.New("the last owner of the tenant")
	// ErrLastAdmin is for a change that would leave no platform admin who can sign in.
	ErrLastAdmin = errors.New("the last platform admin")
	// ErrOtherAddress is for an invitation that was made out to another address than the account's.
	ErrOtherAddress = errors.New("the invitation is for another address")
	// ErrUnproven is for an account that has not proven its address and would join another tenant.
	ErrUnproven = errors.New("the account has not proven its address")
	// ErrSuspended is for an invitation to a tenant that is suspended.
	ErrSuspended = errors.New("the tenant is suspended")
)

// OnlyOwnerError is the ErrLastOwner of an account that is not to be disabled.
type OnlyOwnerError struct{ Tenants []string } // their slugs

// Error names the tenants.
func (e OnlyOwnerError) Error() string {
	return fmt.Sprintf("the last owner of %s", strings.Join(e.Tenants, ", "))
}

// Unwrap is ErrLastOwner.
func (OnlyOwnerError) Unwrap() error { return ErrLastOwner }

// MaxSessions is how many sessions an account has at most; further sign-ins end the oldest.
const MaxSessions = 100

// Digest is the SHA-256 of a secret token; the token itself is never stored.
type Digest [32]byte

// Subject is who failed sign-ins are counted for: an address, one device of an account, or a session. It is a
// digest, because people type passwords as addresses by mistake.
type Subject [32]byte

// Counter names what is counted: attempts for a subject that come from a network, or from 0.0.0.0/0 for those
// from anywhere.
type Counter struct {
	Subject Subject
	Network netip.Prefix
}

// Limit slows down what a counter counts.
type Limit struct {
	Counter
	Pace Pace
}

// Use says whether a session is used by its owner or only looked at.
type Use bool

// The uses of a session.
const (
	Used     Use = true
	LookedAt Use = false
)

// Live says which sessions have not ended by themselves.
type Live struct {
	SeenSince    time.Time
	CreatedSince time.Time
}

// NewSession is a session to be created.
type NewSession struct {
	Session
	Token Digest
	// PasswordHash is what the password was judged by.
	PasswordHash string
	// Replaces is the token of the session that the browser had before; zero for none.
	Replaces Digest
}

// Store is where accounts, sessions, members and invitations are written down. Changes to what a tenant owns
// are written to the tenant's audit log in the same transaction, those to accounts to the platform's; by says in whose name.
type Store interface {
	ServiceKeyStore
	MailStore
	FactorStore
	IdentityStore

	// CreateAccount is rules.ErrExists if the address is taken by an account that has proven it or, for one that has not,
	// by another of the same tenant.
	CreateAccount(ctx context.Context, by rules.Actor, account Account, passwordHash string) (Account, error)
	Account(ctx context.Context, id AccountID) (Account, error)
	// PasswordOf returns the account that has proven an e-mail address and its password's hash. With the slug of a tenant
	// it prefers the account with this address that is unproven there.
	PasswordOf(ctx context.Context, email, slug string) (account Account, passwordHash string, err error)
	// PasswordHash returns the hash of an account's password.
	PasswordHash(ctx context.Context, id AccountID) (string, error)
	// ProveAddress makes an account the one that has proven its address. It is rules.ErrExists if another one has.
	ProveAddress(ctx context.Context, by rules.Actor, id AccountID, expected rules.Expected) (Account, error)
	// Accounts lists by e-mail address those whose address or name contains the text, after a place.
	Accounts(ctx context.Context, text string, after AccountPlace, limit int) ([]Account, error)
	// UpdateAccount changes the name, PlatformAdmin and whether it is disabled, at the account's Version. Disabling
	// ends all its sessions. Open invitations by an account that may no longer invite are revoked.
	// It is ErrLastAdmin or an OnlyOwnerError if the change would leave nobody in charge.
	UpdateAccount(ctx context.Context, by rules.Actor, account Account) (Account, error)
	// ChangePassword replaces the hash, and ends all sessions of the account. It is rules.ErrChanged if the
	// account has another hash than from.
	ChangePassword(ctx context.Context, by rules.Actor, id AccountID, from, to string) error
	// Rehash replaces the hash by another one of the same password. It does nothing if the account has
	// another hash than from.
	Rehash(ctx context.Context, id AccountID, from, to string) error

	// CreateSession is rules.ErrNotFound if the account has got another password, was disabled, or has got a second
	// factor that was not shown, meanwhile.
	// It ends the session that the new one replaces, those that are not live, and those above MaxSessions.
	CreateSession(ctx context.Context, session NewSession, live Live) (Session, error)
	// SessionOf returns the session with a token, if it is live and its account not disabled. With use
	// Used, it notes at most once a minute that the session was seen, which puts its idle limit off.
	SessionOf(ctx context.Context, token Digest, live Live, use Use) (Session, error)
	Sessions(ctx context.Context, account AccountID, live Live) ([]Session, error) // the latest first
	EndSession(ctx context.Context, account AccountID, id int64) error
	EndSessions(ctx context.Context, account AccountID) (ended int64, err error)
	// SignOutAccount is EndSessions in the name of somebody else, which the platform's audit log has.
	SignOutAccount(ctx context.Context, by rules.Actor, account AccountID) error

	// Memberships lists the tenants of an account by slug.
	Memberships(ctx context.Context, account AccountID, after string, limit int) ([]Membership, error)
	// RoleIn is rules.ErrNotFound if the account is no member of the tenant.
	RoleIn(ctx context.Context, tenant rules.TenantID, account AccountID) (Role, error)
	Members(ctx context.Context, tenant rules.TenantID, after AccountPlace, limit int) ([]Member, error) // by e-mail address
	Member(ctx context.Context, tenant rules.TenantID, account AccountID) (Member, error)
	// AddMember makes an account a member without an invitation; rules.ErrExists if it is one, ErrUnproven if it is an
	// unproven account of another tenant.
	AddMember(ctx context.Context, by rules.Actor, tenant rules.TenantID, account AccountID, role Role) (Member, error)
	// ChangeRole and RemoveMember revoke the open invitations by an account that is no longer an owner.
	ChangeRole(ctx context.Context, by rules.Actor, member Member) (Member, error) // at its Version; or ErrLastOwner
	RemoveMember(ctx context.Context, by rules.Actor, tenant rules.TenantID, account AccountID, expected rules.Expected) error

	// Invite revokes an open invitation of the same address. It is rules.ErrNotFound for an account that is neither
	// an owner nor a platform admin any more, and rules.ErrExists if a member has that address.
	Invite(ctx context.Context, by rules.Actor, invitation Invitation, token Digest) (Invitation, error)
	// Invitations lists the open ones, the latest first, those before an id; 0 is no bound.
	Invitations(ctx context.Context, tenant rules.TenantID, before int64, limit int) ([]Invitation, error)
	RevokeInvitation(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64) error
	// InvitationOf returns the open invitation with a token, and its tenant.
	InvitationOf(ctx context.Context, token Digest) (Invitation, rules.Tenant, error)
	// Accept uses an invitation up: the account becomes a member, or keeps a higher role that it has. It is
	// ErrOtherAddress unless the account has the invitation's address, ErrUnproven if it is an unproven account of another
	// tenant, and ErrSuspended while the tenant is. An invitation by mail proves the account's address.
	Accept(ctx context.Context, by rules.Actor, token Digest, account AccountID) (Member, error)
	// AcceptAsNew creates the account of the invited address as well, or nothing at all. Of by only the
	// RequestID is used: the new account is the actor. Unless the invitation came by mail, the account is unproven.
	AcceptAsNew(ctx context.Context, by rules.Actor, token Digest, account Account, passwordHash string) (Member, error)

	// Attempt counts an attempt to sign in, before its password is looked at, for all of the limits. If it comes too
	// soon for any (see Pace.WaitAfter) it is counted for none, and the longest wait is returned with its counter.
	// Limits come in the order of their networks, 0.0.0.0/0 first.
	Attempt(ctx context.Context, limits []Limit) (by Counter, wait time.Duration, err error)
	// ForgetAttempts is for a subject that has signed in; it forgets attempts from everywhere.
	ForgetAttempts(ctx context.Context, subject Subject) error
}
