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

// IdentityProvider is an OpenID provider and the rules for its people.
type IdentityProvider struct {
	Slug, Name         string
	Issuer             string   // identifies a person together with the subject; an address never does
	EmailDomains       []string // of verified addresses, in lower case; empty for any
	NeedsClaim         string   // name=value; "" for none. Identity.HasClaim is the result
	CreatesAccounts    bool     // at the first sign-in of an unknown identity
	Grants             []Grant
	CountsAsTwoFactors bool   // a sign-in there, with the FactorClaim if there is one, needs no factor here
	FactorClaim        string // name=value, such as amr=mfa; "" for none
	SignsOut           bool   // signing out also signs out there
}

// Grant gives the members of a group a role in a tenant, or platform admin.
type Grant struct {
	Group, Tenant string
	Role          Role
	PlatformAdmin bool
}

// Identity is a person whom a provider has just authenticated.
type Identity struct {
	Provider      *IdentityProvider
	Subject       string
	Email         string // unvalidated
	EmailVerified bool   // according to the provider
	Name          string
	HasClaim      bool // has the claim of NeedsClaim
	TwoFactors    bool
	Groups        []string
}

// LinkedIdentity is an identity that signs in to an account.
type LinkedIdentity struct {
	ID              int64
	Issuer, Subject string
	Email           string // according to the provider
	CreatedAt       time.Time
	LastUsedAt      time.Time // to the minute; zero: never
}

// ProviderReason is why a sign-in at a provider was refused.
type ProviderReason string

// The reasons.
const (
	ProviderAway   ProviderReason = "unavailable"  // no answer, or too busy
	ProviderDenied ProviderReason = "denied"       // by the provider, or by the person there
	ProviderWrong  ProviderReason = "wrong_answer" // untrusted
	// the flow is unknown, too old or used
	ProviderFlowEnded       ProviderReason = "expired"
	ProviderEmailUnverified ProviderReason = "email_unverified"
	ProviderEmailDomain     ProviderReason = "email_domain"
	ProviderClaim           ProviderReason = "claim"
	ProviderNoAccount       ProviderReason = "no_account"
	ProviderAccountExists   ProviderReason = "account_exists" // but not linked
	ProviderAccountDisabled ProviderReason = "account_disabled"
	ProviderIdentityTaken   ProviderReason = "identity_taken"
	// the browser has another session now
	ProviderSessionChanged ProviderReason = "session_changed"
	// the confirming identity is not linked with the session's account
	ProviderOtherAccount ProviderReason = "other_account"
	// the provider does not say when the person signed in there
	ProviderTellsNoTime ProviderReason = "no_auth_time"
	// the provider reused an earlier sign-in where a new one is required
	ProviderNotAsked ProviderReason = "not_asked_again"
)

// ProviderError refuses a sign-in at a provider.
type ProviderError struct {
	Reason ProviderReason
	Detail string // for platform admins; without secrets
}

func (e ProviderError) Error() string { return fmt.Sprintf("%s: %s", e.Reason, e.Detail) }

// The errors of changes to how an account signs in.
var (
	ErrLastWayIn    = errors.New("the last way to sign in")
	ErrPasswordsOff = errors.New("signing in by password is off") // people can only sign in at providers
)

// GrantedRole is the role of an account in a tenant.
type GrantedRole struct {
	Tenant rules.TenantID
	Slug   string
	Role   Role   // "" for none
	Issuer string // of the groups; "" for a person or an invitation
}

// IdentityStore stores the identities of accounts.
type IdentityStore interface {
	AccountOf(ctx context.Context, issuer, subject string) (Account, string, error)
	// CreateWithIdentity returns rules.ErrExists if another account has proven the address or has the identity.
	CreateWithIdentity(ctx context.Context, by rules.Actor, account Account, passwordHash string,
		identity LinkedIdentity) (Account, error)
	// Link returns rules.ErrExists if an account has the identity.
	Link(ctx context.Context, by rules.Actor, account AccountID, identity LinkedIdentity) error
	// Unlink with needsOther returns ErrLastWayIn unless the account has another identity of one of the issuers.
	Unlink(ctx context.Context, by rules.Actor, account AccountID, identity int64, needsOther bool,
		issuers []string) error
	Identities(ctx context.Context, account AccountID) ([]LinkedIdentity, error) // oldest first
	IdentityUsed(ctx context.Context, identity LinkedIdentity) error
	// UseFlow marks a sign-in flow as used until a time, or returns rules.ErrExists for a used one.
	UseFlow(ctx context.Context, flow Digest, until time.Time) error

	// GrantedRoles returns the roles of an account in these tenants, and all that the issuer's groups gave.
	GrantedRoles(ctx context.Context, account AccountID, issuer string, slugs []string) ([]GrantedRole, error)
	// GrantRole sets a role from an issuer's groups, unless the role is from elsewhere, or returns ErrLastOwner.
	GrantRole(ctx context.Context, by rules.Actor, account AccountID, granted GrantedRole) error
	// GrantAdmin grants or revokes in an issuer's name, or returns ErrLastAdmin.
	GrantAdmin(ctx context.Context, by rules.Actor, account AccountID, issuer string, isAdmin bool) error
}

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
	if _, domain, _ := strings.Cut(foldAddress(i.Email), "@"); !isAddress(i.Email) ||
		!slices.Contains(p.EmailDomains, domain) {
		return ProviderError{ProviderEmailDomain, i.describe() + " is of another domain than " +
			strings.Join(p.EmailDomains, ", ")}
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

func (i *Identity) proves(account *Account) bool {
	return i.EmailVerified && isAddress(i.Email) && SameAddress(i.Email, account.Email)
}

const flowKept = time.Hour // exceeds the life of a flow

// SignInWith opens a session for an identity, and creates its account if the provider allows that. Returns a
// SecondFactorError unless the sign-in counts as two, or a ProviderError for mistakes that the user can fix.
func (g *Gate) SignInWith(ctx context.Context, requestID string, flow Digest, identity Identity, from Browser) (Entry,
	error,
) {
	entry, err := g.signInWith(ctx, requestID, flow, identity, from)
	if err != nil {
		return Entry{}, fmt.Errorf("sign in with %s: %w", identity.Provider.Slug, err)
	}
	return entry, nil
}

func (g *Gate) signInWith(ctx context.Context, requestID string, flow Digest, identity Identity, from Browser) (Entry,
	error,
) {
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
	if account, err = g.syncAccount(ctx, by, account, &identity); err != nil {
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

func (i *Identity) actor(requestID string) rules.Actor {
	return rules.Actor{
		Kind: rules.ActorSystem, Name: "sign-in at " + i.Provider.Name, Act: "sign in at a provider",
		RequestID: requestID,
	}
}

func (g *Gate) useFlow(ctx context.Context, flow Digest) error {
	err := g.store.UseFlow(ctx, flow, g.options.Now().Add(flowKept))
	if errors.Is(err, rules.ErrExists) {
		return ProviderError{ProviderFlowEnded, "the same sign-in was used twice"}
	}
	return err
}

// createFor creates an account for an identity. A matching address does not link an existing account: whoever
// controls the provider, or the address there, could take the account over.
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

func (g *Gate) syncAccount(ctx context.Context, by rules.Actor, account Account, identity *Identity) (Account, error) {
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

// Identities returns the linked identities of an account.
func (g *Gate) Identities(ctx context.Context, account AccountID) ([]LinkedIdentity, error) {
	return g.store.Identities(ctx, account)
}

// Link links an identity with a session's account. Mistakes that the user can fix are returned as ProviderError.
func (g *Gate) Link(ctx context.Context, by rules.Actor, session Session, flow Digest, identity Identity,
	from Browser,
) error {
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

// Unlink removes an identity from the account of a session, or returns ErrLastWayIn.
func (g *Gate) Unlink(ctx context.Context, by rules.Actor, session Session, id int64, configured []*IdentityProvider,
	from Browser,
) error {
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
