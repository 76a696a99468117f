// Package auth is the domain of access: accounts, sign-in, sessions, members and roles, invitations, API keys, and the
// audit log.
//
// A [Gate] signs people in. A [Store] keeps the data; while it is away nobody signs in and no session is recognized.
// Failed attempts cause a back-off for the address and network (see [Tight] and [Loose]), and unknown addresses behave
// exactly like known ones. A sign-in costs one argon2id run (19 MiB, tens of milliseconds), at a tenant's address two
// if
// refused; Options.Hashes bounds the runs in progress.
package auth

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// AccountID identifies an account.
type AccountID int64

// Account is a person who signs in, never a limited user.
type Account struct {
	ID            AccountID
	Email         string // as typed; ASCII letters are compared case-insensitively
	Name          string // may be ""
	PlatformAdmin bool   // may do everything in every tenant
	AdminBy       string // the issuer whose groups made the account a platform admin; "" if a person did
	HasPassword   bool
	CreatedAt     time.Time
	DisabledAt    time.Time
	Version       int64
	// UnprovenIn is the tenant that invited the account by a link that others could have used; 0 once the account has
	// proven its address. An unproven account belongs to that tenant only, and other accounts may have its address.
	UnprovenIn     rules.TenantID
	SecondFactorAt time.Time
}

// Proven reports whether the account has proven its address.
func (a *Account) Proven() bool { return a.UnprovenIn == 0 }

// HasSecondFactor reports whether a sign-in needs a code.
func (a *Account) HasSecondFactor() bool { return !a.SecondFactorAt.IsZero() }

// Actor returns the account as an author in the audit log.
func (a *Account) Actor() rules.Actor {
	name := a.Email
	if !a.Proven() {
		name += " (not verified)"
	}
	return rules.Actor{Kind: rules.ActorAccount, ID: strconv.FormatInt(int64(a.ID), 10), Name: name}
}

// AccountPlace is a cursor in a list of accounts by address.
type AccountPlace struct {
	Email string
	ID    AccountID
}

// Place returns the account's cursor.
func (a *Account) Place() AccountPlace { return AccountPlace{a.Email, a.ID} }

// Role is the set of permissions of a member.
type Role string

// The roles, each including the one before: a viewer reads everything but secrets, an editor changes limits and users,
// and an owner changes settings, API keys, members and alerts.
const (
	Viewer Role = "viewer"
	Editor Role = "editor"
	Owner  Role = "owner"
)

// ascending
var roles = []Role{Viewer, Editor, Owner}

// May reports whether the role includes another.
func (r Role) May(least Role) bool {
	rank := slices.Index(roles, r)
	return rank >= 0 && rank >= slices.Index(roles, least)
}

// Member is an account's role in a tenant.
type Member struct {
	TenantID  rules.TenantID
	Account   Account
	Role      Role
	GrantedBy string // the issuer whose groups gave the role; "" if a person did
	CreatedAt time.Time
	Version   int64
}

// Membership is an account's role in a tenant, seen from the account.
type Membership struct {
	Tenant rules.Tenant
	Role   Role
}

// Invitation lets the person with the address become a member, once.
type Invitation struct {
	ID         int64
	TenantID   rules.TenantID
	Email      string
	Role       Role
	InvitedBy  string // e-mail address
	CreatedAt  time.Time
	ExpiresAt  time.Time
	AcceptedAt time.Time
	RevokedAt  time.Time
	ByMail     bool  // the link was mailed, which proves the address; the inviter does not have it
	Mail       *Mail // nil for none
}

// Session is a sign-in of an account in a browser.
type Session struct {
	ID           int64 // public, to list and end sessions
	Account      Account
	CreatedAt    time.Time
	LastSeenAt   time.Time // to the minute
	UserAgent    string
	IP           netip.Addr
	SecondFactor bool      // was used; a session without it ends when its account gets a factor
	ConfirmedAt  time.Time // last full or step-up authentication
	Provider     string    // slug of the provider of the sign-in; "" for a password
}
