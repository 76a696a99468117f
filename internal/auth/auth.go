// Package auth is the domain of access: accounts, sign-in, sessions, members and their roles, invitations, API keys, and
// the audit log of what they changed.
//
// A [Gate] signs people in: it checks passwords, slows guesses down, and turns tokens into sessions and memberships. A
// [Store] keeps all of that. What a signed-in account may do follows from its [Role] in the tenant, which is read for each
// request, so that a change takes effect with the next one.
//
// # Secrets
//
// Passwords are kept as argon2id hashes. The tokens of sessions and invitations are 256 random bits,
// and only their digests are kept, so a reader of the database can neither sign in nor continue a
// session. A password change ends all sessions of the account and opens a new one, disabling it ends all. The secret of a
// second factor is needed as it is, so it is sealed under a key that the database does not have; see [Vault].
//
// # Two steps
//
// An account with a second factor signs in by two steps: the password makes a pending sign-in, which lives for five minutes,
// takes five codes and gives access to nothing; a code makes the session. Dangerous operations want a session that is fresh:
// its owner has signed in, or signed in again, within ten minutes; see [Gate.ConfirmIdentity].
//
// # Guessing
//
// Each attempt is counted in the database when it is its turn and before its password is looked at, so
// parallel guesses do not pass together. Attempts at an address from one network, which is an address of IPv4 or
// a /64 of IPv6, have the pace [Tight]: the first 5 are free; after each further one the next must wait, 1 s at
// first, doubling up to a minute. All attempts at an address together have the pace [Loose]: 100 are free, and
// nobody waits for more than 4 s. A day without attempts forgets them, an hour if they were fewer than 5, and so
// does a success. Addresses without an account are counted and hashed in the same way; nothing tells which exist.
//
// An attacker can slow sign-ins for a known address to one a minute, but only from the attacker's own network. Guesses
// from very many networks can slow the owner's new browser to one attempt in 4 s, and the owner competes for each turn. A
// browser in which the account has signed in before is not affected: it holds a device token, and its attempts have a
// separate counter, as OWASP's "device cookies" describe.
//
// The network is that of [Browser].IP, the connection's other end. Behind an untrusted proxy all callers share the proxy's
// network, so guesses make the owner's new browser wait for up to a minute.
//
// # When the database is away
//
// Nobody signs in and no session is recognised: methods return the store's error, which is none of
// this package's. A Gate itself holds nothing that must survive it: who must wait, to refuse a flood of
// guesses without the database, in bounded memory.
//
// # Cost
//
// A sign-in costs one argon2id run (19 MiB, tens of milliseconds of a core) whatever its outcome, unless it must
// wait. At most Options.Hashes run at once, and one more for callers with a known device, a session or an invitation. 16
// of either kind wait for their turn or the end of their context; further ones get ErrBusy at once.
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

// Account is a person who signs in. It never means a user, who is limited.
type Account struct {
	ID    AccountID
	Email string // as typed; ASCII letters are compared without case
	Name  string // "" if it has none
	// PlatformAdmin may do everything in every tenant, and manages tenants.
	PlatformAdmin bool
	// AdminBy is the issuer whose groups made it a platform admin; "" for a person. HasPassword says whether it can sign in by
	// password. Lists of members have neither.
	AdminBy     string
	HasPassword bool
	CreatedAt   time.Time
	DisabledAt  time.Time // zero: may sign in
	Version     int64
	// UnprovenIn is the tenant that invited the account by a link that others could have used; 0 once it has proven its
	// address. Until then the address is only a claim: the account is a member of no other tenant and signs in at the
	// tenant's own address, and others may have the same e-mail address.
	UnprovenIn rules.TenantID
	// SecondFactorAt is when the account got its second factor; zero: it has none.
	SecondFactorAt time.Time
}

// Proven reports whether the account has proven its address.
func (a *Account) Proven() bool { return a.UnprovenIn == 0 }

// HasSecondFactor reports whether signing in to the account needs a code.
func (a *Account) HasSecondFactor() bool { return !a.SecondFactorAt.IsZero() }

// Actor is the account as the audit log names it.
func (a *Account) Actor() rules.Actor {
	name := a.Email
	if !a.Proven() {
		name += " (unproven)"
	}
	return rules.Actor{Kind: rules.ActorAccount, ID: strconv.FormatInt(int64(a.ID), 10), Name: name}
}

// AccountPlace is a place in a list of accounts by address; the zero value is the beginning.
type AccountPlace struct {
	Email string
	ID    AccountID
}

// Place is the account's own.
func (a *Account) Place() AccountPlace { return AccountPlace{a.Email, a.ID} }

// Role is what a member may do in a tenant.
type Role string

// The roles; each may do what the one before may. A viewer reads everything but secrets. An editor changes plans,
// rules, overrides, users and their buckets. An owner changes settings, API keys, members and alerts.
const (
	Viewer Role = "viewer"
	Editor Role = "editor"
	Owner  Role = "owner"
)

// roles in ascending order.
var roles = []Role{Viewer, Editor, Owner}

// May says whether the role may do what the least role may. A role that does not exist may nothing.
func (r Role) May(least Role) bool {
	rank := slices.Index(roles, r)
	return rank >= 0 && rank >= slices.Index(roles, least)
}

// Member is an account's role in one tenant.
type Member struct {
	TenantID  rules.TenantID
	Account   Account
	Role      Role
	GrantedBy string // the issuer whose groups gave the role; "" for a person
	CreatedAt time.Time
	Version   int64
}

// Membership is a tenant that an account is a member of.
type Membership struct {
	Tenant rules.Tenant
	Role   Role
}

// Invitation lets the person with its address become a member, once.
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
	// ByMail: the link went to the address by mail, so who has it has proven the address. Otherwise the inviter passes
	// the link on, and could also use it.
	ByMail bool
	Mail   *Mail // the state of that mail; nil for none
}

// Session is one sign-in of an account in one browser.
type Session struct {
	ID         int64 // to list and end sessions by; no secret
	Account    Account
	CreatedAt  time.Time
	LastSeenAt time.Time // to the minute
	UserAgent  string    // at sign-in
	IP         netip.Addr
	// SecondFactor says that the second factor was shown. A session without it ends when its account gets a factor.
	SecondFactor bool
	// ConfirmedAt is when its owner signed in, or signed in again.
	ConfirmedAt time.Time
	Provider    string // the slug of the provider that it began at; "" for a password
}
