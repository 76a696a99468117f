package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/rules"
)

// IdentityProvider is where people sign in elsewhere, and the rules for who of them may come in here.
type IdentityProvider struct {
	Slug, Name string
	// Issuer is who vouches for its people. An identity is known by its issuer and subject, never by an address.
	Issuer       string
	EmailDomains []string // of verified addresses, in lower case; empty for any
	NeedsClaim   string   // name=value; "" for none. Identity.HasClaim says whether somebody has it
	// CreatesAccounts makes an account at the first sign-in of somebody whose address has none.
	CreatesAccounts bool
	Grants          []Grant
	// CountsAsTwoFactors: who signs in there, with the FactorClaim if there is one, is asked for no second factor here.
	CountsAsTwoFactors bool
	FactorClaim        string // name=value, such as amr=mfa; "" for none
	SignsOut           bool   // signing out of Sluice signs out there too
}

// Grant is what the members of a group have: a role in the tenant with a slug, or platform admin.
type Grant struct {
	Group, Tenant string
	Role          Role
	PlatformAdmin bool
}

// Identity is a person as a provider knows and has just vouched for.
type Identity struct {
	Provider      *IdentityProvider
	Subject       string
	Email         string // as the provider tells it; it may be anything
	EmailVerified bool   // the provider says so
	Name          string
	HasClaim      bool // that the provider's rule needs
	TwoFactors    bool // this sign-in there counts as two factors
	Groups        []string
}

// LinkedIdentity is an identity that signs in to an account.
type LinkedIdentity struct {
	ID              int64
	Issuer, Subject string
	Email           string // as the provider told it last
	CreatedAt       time.Time
	LastUsedAt      time.Time // to the minute; zero: never to sign in
}

// ProviderReason is why somebody who came from a provider may not come in.
type ProviderReason string

// The reasons.
const (
	ProviderAway            ProviderReason = "unavailable"      // it does not answer, or is too busy
	ProviderDenied          ProviderReason = "denied"           // it refused, or the person did there
	ProviderWrong           ProviderReason = "wrong_answer"     // its answer cannot be trusted
	ProviderFlowEnded       ProviderReason = "expired"          // the browser began no such sign-in, or long ago, or has used it
	ProviderEmailUnverified ProviderReason = "email_unverified" // a new account needs a verified address
	ProviderEmailDomain     ProviderReason = "email_domain"     // the provider's rule lets other domains in only
	ProviderClaim           ProviderReason = "claim"            // the provider's rule needs a claim
	ProviderNoAccount       ProviderReason = "no_account"       // the identity has none, and none is made
	ProviderAccountExists   ProviderReason = "account_exists"   // the address has one that is not linked
	ProviderAccountDisabled ProviderReason = "account_disabled"
	ProviderIdentityTaken   ProviderReason = "identity_taken"  // it is linked with another account
	ProviderSessionChanged  ProviderReason = "session_changed" // the session that it was for is not in this browser any more
	ProviderOtherAccount    ProviderReason = "other_account"   // the identity that was to confirm a session is not its account's
	ProviderTellsNoTime     ProviderReason = "no_auth_time"    // the provider does not say when the person signed in there
	ProviderNotAsked        ProviderReason = "not_asked_again" // the provider took an earlier sign-in where a new one was wanted
)

// ProviderError refuses somebody who came from a provider.
type ProviderError struct {
	Reason ProviderReason
	Detail string // for platform admins; without secrets
}

// Error has both.
func (e ProviderError) Error() string { return fmt.Sprintf("%s: %s", e.Reason, e.Detail) }

// What changes of how an account signs in answer.
var (
	// ErrLastWayIn is for an identity without which its account could not sign in.
	ErrLastWayIn = errors.New("the last way to sign in")
	// ErrPasswordsOff is for a password where people sign in at providers only.
	ErrPasswordsOff = errors.New("signing in by password is off")
)

// GrantedRole is the role of an account in a tenant, as far as grants go.
type GrantedRole struct {
	Tenant rules.TenantID
	Slug   string
	Role   Role   // "" for none
	Issuer string // whose groups gave it; "" for a person, or an invitation
}

// IdentityStore keeps the identities of accounts.
type IdentityStore interface {
	// AccountOf returns the account that an identity signs in to, and its password's hash.
	AccountOf(ctx context.Context, issuer, subject string) (Account, string, error)
	// CreateWithIdentity makes an account that has proven its address, and its identity. It is rules.ErrExists if another
	// account has proven the address, or has the identity.
	CreateWithIdentity(ctx context.Context, by rules.Actor, account Account, passwordHash string, identity LinkedIdentity) (Account, error)
	// Link adds an identity to an account. It is rules.ErrExists if an account has it.
	Link(ctx context.Context, by rules.Actor, account AccountID, identity LinkedIdentity) error
	// Unlink removes an identity of an account. With needsOther it is ErrLastWayIn unless the account has another
	// identity of one of the issuers.
	Unlink(ctx context.Context, by rules.Actor, account AccountID, identity int64, needsOther bool, issuers []string) error
	Identities(ctx context.Context, account AccountID) ([]LinkedIdentity, error) // the oldest first
	// IdentityUsed notes a sign-in, and the address that the provider told.
	IdentityUsed(ctx context.Context, identity LinkedIdentity) error
	// UseFlow notes that a sign-in was used. It is rules.ErrExists for one that was used before; it is forgotten after until.
	UseFlow(ctx context.Context, flow Digest, until time.Time) error

	// GrantedRoles returns the roles of an account in the tenants with the slugs, and all that an issuer's groups gave it.
	GrantedRoles(ctx context.Context, account AccountID, issuer string, slugs []string) ([]GrantedRole, error)
	// GrantRole makes the role of an account in a tenant what an issuer's groups say; "" ends the membership. It does
	// nothing to a role that the issuer did not give. It is ErrLastOwner if nobody else owns the tenant.
	GrantRole(ctx context.Context, by rules.Actor, account AccountID, granted GrantedRole) error
	// GrantAdmin makes an account a platform admin, or no longer one, if the issuer made it one. It is ErrLastAdmin if there
	// would be none.
	GrantAdmin(ctx context.Context, by rules.Actor, account AccountID, issuer string, isAdmin bool) error
}

// judge returns a ProviderError unless the provider's rule lets the identity in. It holds for every sign-in, not the first alone.
func (i *Identity) judge() error {
	p := i.Provider
	if !i.HasClaim {
		return ProviderError{ProviderClaim, fmt.Sprintf("%s lacks the claim %s", i.describe(), p.NeedsClaim)}
	}
	if len(p.EmailDomains) == 0 {
		return nil
	}
	if !i.EmailVerified {
		return ProviderError{ProviderEmailUnverified, i.describe() + " has no verified address"}
	}
	if _, domain, _ := strings.Cut(foldAddress(i.Email), "@"); !isAddress(i.Email) || !slices.Contains(p.EmailDomains, domain) {
		return ProviderError{ProviderEmailDomain, i.describe() + " is of another domain than " + strings.Join(p.EmailDomains, ", ")}
	}
	return nil
}

func (i *Identity) describe() string {
	return fmt.Sprintf("%.100q (subject %.60q)", i.Email, i.Subject)
}

func (i *Identity) linked(now time.Time) LinkedIdentity {
	email := i.Email
	if !isAddress(email) {
		email = ""
	}
	return LinkedIdentity{Issuer: i.Provider.Issuer, Subject: i.Subject, Email: email, LastUsedAt: now}
}

// proves reports whether the provider says that an account's address is this person's.
func (i *Identity) proves(account *Account) bool {
	return i.EmailVerified && isAddress(i.Email) && SameAddress(i.Email, account.Email)
}

// flowKept is longer than a flow lives.
const flowKept = time.Hour

// SignInWith opens a session for the account of an identity, of a sign-in flow that was not used before. If no account has the
// identity and the provider's rule says so, an account is made. What the groups give is set before. It is
// SecondFactorError for an account with a second factor, unless the provider counts as two. Errors of a person's are ProviderError.
func (g *Gate) SignInWith(ctx context.Context, requestID string, flow Digest, identity Identity, from Browser) (Entry, error) {
	entry, err := g.signInWith(ctx, requestID, flow, identity, from)
	if err != nil {
		return Entry{}, fmt.Errorf("sign in with %s: %w", identity.Provider.Slug, err)
	}
	return entry, nil
}

func (g *Gate) signInWith(ctx context.Context, requestID string, flow Digest, identity Identity, from Browser) (Entry, error) {
	if err := identity.judge(); err != nil {
		return Entry{}, err
	}
	if err := g.useFlow(ctx, flow); err != nil {
		return Entry{}, err
	}
	by := identity.actor(requestID)
	account, hash, err := g.store.AccountOf(ctx, identity.Provider.Issuer, identity.Subject)
	if errors.Is(err, rules.ErrNotFound) {
		account, hash, err = g.createFor(ctx, by, &identity)
	} else if err == nil {
		err = g.store.IdentityUsed(ctx, identity.linked(g.options.Now()))
	}
	if err != nil {
		return Entry{}, err
	}
	if !account.DisabledAt.IsZero() {
		return Entry{}, ProviderError{ProviderAccountDisabled, account.Email + " is disabled"}
	}
	if account, err = g.settle(ctx, by, account, &identity); err != nil {
		return Entry{}, err
	}
	from.Provider = identity.Provider.Slug
	var entry Entry
	if identity.TwoFactors {
		entry, err = g.openSession(ctx, account, hash, from, true)
	} else {
		entry, err = g.enter(ctx, account, hash, from)
	}
	if errors.Is(err, rules.ErrNotFound) {
		return Entry{}, ProviderError{ProviderAccountDisabled, account.Email + " was disabled a moment ago"}
	}
	if err != nil {
		return Entry{}, err
	}
	if _, isKnown := deviceLimits(from.Device, account.ID, hash); !isKnown {
		g.notify(ctx, account, NoticeBrowser, from)
	}
	return entry, nil
}

// actor is in whose name a sign-in changes things.
func (i *Identity) actor(requestID string) rules.Actor {
	return rules.Actor{Kind: rules.ActorSystem, Name: "sign-in at " + i.Provider.Name, Act: "sign in at a provider", RequestID: requestID}
}

func (g *Gate) useFlow(ctx context.Context, flow Digest) error {
	err := g.store.UseFlow(ctx, flow, g.options.Now().Add(flowKept))
	if errors.Is(err, rules.ErrExists) {
		return ProviderError{ProviderFlowEnded, "the same sign-in was used twice"}
	}
	return err
}

// createFor makes an account for an identity, if the rule says so. An address that an account has proven is not enough to become
// that account: whoever controls the provider, or the address there, would take it over.
func (g *Gate) createFor(ctx context.Context, by rules.Actor, identity *Identity) (Account, string, error) {
	refuse := func(reason ProviderReason, why string) (Account, string, error) {
		return Account{}, "", ProviderError{reason, identity.describe() + " " + why}
	}
	if isAddress(identity.Email) && identity.EmailVerified {
		_, _, err := g.store.PasswordOf(ctx, identity.Email, "")
		switch {
		case err == nil:
			return refuse(ProviderAccountExists, "has an account here that is not linked")
		case !errors.Is(err, rules.ErrNotFound):
			return Account{}, "", err
		}
	}
	switch {
	case !identity.Provider.CreatesAccounts:
		return refuse(ProviderNoAccount, "has no account here, and this provider makes none")
	case !identity.EmailVerified || !isAddress(identity.Email):
		return refuse(ProviderEmailUnverified, "has no account here, and no verified address for a new one")
	}
	account := Account{Email: identity.Email, Name: tidyName(identity.Name)}
	hash := NoPassword()
	account, err := g.store.CreateWithIdentity(ctx, by, account, hash, identity.linked(g.options.Now()))
	if errors.Is(err, rules.ErrExists) {
		return refuse(ProviderAccountExists, "got an account here a moment ago")
	}
	return account, hash, err
}

// tidyName makes what a provider calls somebody a name that can be stored.
func tidyName(name string) string {
	account := Account{Email: "a@example.com", Name: strings.Join(strings.Fields(name), " ")}
	if utf8.RuneCountInString(account.Name) > maxNameLength {
		account.Name = strings.TrimSpace(string([]rune(account.Name)[:maxNameLength]))
	}
	if len(account.Validate()) > 0 {
		return ""
	}
	return account.Name
}

// settle brings an account in line with what its provider says: the proof of its address, and what its groups give.
func (g *Gate) settle(ctx context.Context, by rules.Actor, account Account, identity *Identity) (Account, error) {
	if !account.Proven() && identity.proves(&account) {
		proven, err := g.store.ProveAddress(ctx, by, account.ID, rules.AnyVersion)
		switch {
		case err == nil:
			account = proven
		case !errors.Is(err, rules.ErrExists): // another account has proven it
			return Account{}, err
		}
	}
	return g.grant(ctx, by, account, identity)
}

// Identities returns what an account signs in with beside its password.
func (g *Gate) Identities(ctx context.Context, account AccountID) ([]LinkedIdentity, error) {
	return g.store.Identities(ctx, account)
}

// Link adds an identity to the account of a session, of a sign-in flow that was not used before. Errors of a person's are ProviderError.
func (g *Gate) Link(ctx context.Context, by rules.Actor, session Session, flow Digest, identity Identity, from Browser) error {
	if err := identity.judge(); err != nil {
		return err
	}
	if err := g.useFlow(ctx, flow); err != nil {
		return err
	}
	by.Act = "link an identity of " + identity.Provider.Name
	linked := identity.linked(time.Time{})
	if err := g.store.Link(ctx, by, session.Account.ID, linked); errors.Is(err, rules.ErrExists) {
		return ProviderError{ProviderIdentityTaken, identity.describe() + " is linked already"}
	} else if err != nil {
		return err
	}
	if !session.Account.Proven() && identity.proves(&session.Account) {
		g.finish(ctx, func(ctx context.Context) error {
			_, err := g.store.ProveAddress(ctx, by, session.Account.ID, rules.AnyVersion)
			if errors.Is(err, rules.ErrExists) {
				return nil // another account has proven it
			}
			return err
		})
	}
	g.notify(ctx, session.Account, NoticeLinked, from)
	return nil
}

// Unlink removes an identity from the account of a session. It is ErrLastWayIn if the account could not sign in without it.
func (g *Gate) Unlink(ctx context.Context, by rules.Actor, session Session, id int64, configured []*IdentityProvider, from Browser) error {
	var issuers []string
	for _, p := range configured {
		issuers = append(issuers, p.Issuer)
	}
	by.Act = "unlink an identity"
	needsOther := !session.Account.HasPassword || g.options.NoPasswords
	if err := g.store.Unlink(ctx, by, session.Account.ID, id, needsOther, issuers); err != nil {
		return err
	}
	g.notify(ctx, session.Account, NoticeUnlinked, from)
	return nil
}
