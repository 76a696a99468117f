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

// The errors of a store beside rules.ErrNotFound and the like.
var (
	ErrLastOwner    = errors.New("the last owner of the tenant")
	ErrLastAdmin    = errors.New("the last platform admin")
	ErrOtherAddress = errors.New("the invitation is for another address")
	// ErrUnproven means that an account without a proven address cannot join another tenant.
	ErrUnproven  = errors.New("the account has not proven its address")
	ErrSuspended = errors.New("the tenant is suspended")
)

// OnlyOwnerError is the ErrLastOwner of disabling an account.
type OnlyOwnerError struct{ Tenants []string } // slugs

func (e OnlyOwnerError) Error() string {
	return fmt.Sprintf("the last owner of %s", strings.Join(e.Tenants, ", "))
}

func (OnlyOwnerError) Unwrap() error { return ErrLastOwner }

// MaxSessions bounds the sessions of an account; further sign-ins end the oldest.
const MaxSessions = 100

// Digest is the SHA-256 of a secret token, which itself is never stored.
type Digest [32]byte

// Subject is a digest, because people type passwords as addresses by mistake.
type Subject [32]byte

// Counter counts the attempts on a subject from a network; 0.0.0.0/0 is anywhere.
type Counter struct {
	Subject Subject
	Network netip.Prefix
}

// Limit is the pace of a counter.
type Limit struct {
	Counter
	Pace Pace
}

// Use says whether a session's owner uses it.
type Use bool

// The uses of a session.
const (
	Used     Use = true
	LookedAt Use = false
)

// Live selects the sessions within their idle and absolute limits.
type Live struct {
	SeenSince    time.Time
	CreatedSince time.Time
}

// NewSession is a session to be created.
type NewSession struct {
	Session
	Token        Digest
	PasswordHash string // with which the password was checked
	Replaces     Digest // the browser's former session; zero for none
}

// Store stores accounts, sessions, members and invitations, and records changes in the same transaction.
type Store interface {
	MailStore
	FactorStore
	IdentityStore

	// CreateAccount returns rules.ErrExists if an account has proven the address or, for an unproven account, if
	// another one of the same tenant has it.
	CreateAccount(ctx context.Context, by rules.Actor, account Account, passwordHash string) (Account, error)
	Account(ctx context.Context, id AccountID) (Account, error)
	// PasswordOf returns the account that has proven an address, or with a tenant's slug the unproven one that joined
	// there by a link.
	PasswordOf(ctx context.Context, email, slug string) (account Account, passwordHash string, err error)
	PasswordHash(ctx context.Context, id AccountID) (string, error)
	// ProveAddress returns rules.ErrExists if another account has proven the address.
	ProveAddress(ctx context.Context, by rules.Actor, id AccountID, expected rules.Expected) (Account, error)
	// Accounts lists accounts whose address or name contains the text, by address, after a cursor.
	Accounts(ctx context.Context, text string, after AccountPlace, limit int) ([]Account, error)
	// UpdateAccount revokes the open invitations by an account that may no longer invite, and disabling ends all
	// sessions. Returns ErrLastAdmin or an OnlyOwnerError if the change would leave nobody in charge.
	UpdateAccount(ctx context.Context, by rules.Actor, account Account) (Account, error)
	// ChangePassword ends all sessions, or returns rules.ErrChanged if the hash is not from.
	ChangePassword(ctx context.Context, by rules.Actor, id AccountID, from, to string) error
	Rehash(ctx context.Context, id AccountID, from, to string) error

	// CreateSession ends the replaced session, expired ones, and those above MaxSessions. Returns rules.ErrNotFound if
	// the account was disabled, got another password, or got a second factor that was not used, meanwhile.
	CreateSession(ctx context.Context, session NewSession, live Live) (Session, error)
	// SessionOf returns a live session of an enabled account, and with Used resets its idle limit, at most once a
	// minute.
	SessionOf(ctx context.Context, token Digest, live Live, use Use) (Session, error)
	Sessions(ctx context.Context, account AccountID, live Live) ([]Session, error) // latest first
	EndSession(ctx context.Context, account AccountID, id int64) error
	EndSessions(ctx context.Context, account AccountID) (ended int64, err error)
	// SignOutAccount is EndSessions by somebody else, recorded in the platform's audit log.
	SignOutAccount(ctx context.Context, by rules.Actor, account AccountID) error

	Memberships(ctx context.Context, account AccountID, after string, limit int) ([]Membership, error)
	RoleIn(ctx context.Context, tenant rules.TenantID, account AccountID) (Role, error)
	// by e-mail address
	Members(ctx context.Context, tenant rules.TenantID, after AccountPlace, limit int) ([]Member, error)
	Member(ctx context.Context, tenant rules.TenantID, account AccountID) (Member, error)
	// AddMember returns rules.ErrExists for a member, and ErrUnproven for an unproven account of another tenant.
	AddMember(ctx context.Context, by rules.Actor, tenant rules.TenantID, account AccountID, role Role) (Member, error)
	// RemoveMember with cancels also cancels the account's waiting scheduled changes.
	ChangeRole(ctx context.Context, by rules.Actor, member Member) (Member, error) // at its Version; or ErrLastOwner
	RemoveMember(ctx context.Context, by rules.Actor, tenant rules.TenantID, account AccountID, expected rules.Expected,
		cancels bool) error

	// Invite returns rules.ErrNotFound if the inviter is no longer an owner or platform admin, and rules.ErrExists if a
	// member has the address.
	Invite(ctx context.Context, by rules.Actor, invitation Invitation, token Digest) (Invitation, error)
	// Invitations lists the open invitations, latest first, before an id; 0 is no bound.
	Invitations(ctx context.Context, tenant rules.TenantID, before int64, limit int) ([]Invitation, error)
	RevokeInvitation(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64) error
	InvitationOf(ctx context.Context, token Digest) (Invitation, rules.Tenant, error)
	// Accept returns ErrOtherAddress unless the account has the invited address, ErrUnproven for an unproven account of
	// another tenant, and ErrSuspended for a suspended tenant.
	Accept(ctx context.Context, by rules.Actor, token Digest, account AccountID) (Member, error)
	// AcceptAsNew makes the account the actor. It is unproven unless the invitation was mailed.
	AcceptAsNew(ctx context.Context, by rules.Actor, token Digest, account Account, passwordHash string) (Member, error)

	ServiceKeyUsed(ctx context.Context, keyID string) error

	// Attempt counts an attempt for all limits, before its password is checked. If it is too soon for any (see
	// Pace.WaitAfter), nothing is counted, and the longest wait is returned with its counter. Limits must be sorted by
	// network, 0.0.0.0/0 first.
	Attempt(ctx context.Context, limits []Limit) (by Counter, wait time.Duration, err error)
	ForgetAttempts(ctx context.Context, subject Subject) error
}
