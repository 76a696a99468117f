// Package oidc signs people in at OpenID Connect providers: it finds out a provider's addresses, sends browsers there, and
// turns what comes back into an [auth.Identity] that the provider has signed. Who may come in with it is for package auth to
// say.
//
// # What is checked
//
// A sign-in is the authorization code flow with PKCE (S256), a state and a nonce of 256 random bits each. They travel in an
// encrypted cookie that belongs to one provider and lives 10 minutes, so a code or an answer of another browser, or of
// another provider, is refused. The issuer is checked in the discovery document, in the answer (RFC 9207: if it is there,
// or if the provider says that it always is) and in the ID token, whose signature, audience, authorized party, expiry, nonce and
// access token hash are checked too. Tokens without a signature or with a symmetric one are refused.
//
// # When a provider is down
//
// Discovery happens at the first sign-in or look at the status, takes at most [callTimeout], and is shared by those who wait
// for it. Its result is used for [refreshAfter], and longer while the provider does not answer; a failure is remembered for
// [retryAfter]. Nothing else waits for it: the process starts without, and other providers and passwords work. At most
// [maxCalls] people at once have their codes exchanged, [maxCallsPerNetwork] of them from one network.
//
// # What is remembered
//
// The last failures of each provider, in words and without secrets, in this process's memory: [maxFailures] of each.
package oidc

import (
	"context"
	"crypto/cipher"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
)

const (
	callTimeout  = 5 * time.Second // of one request to a provider
	refreshAfter = time.Hour
	retryAfter   = 5 * time.Second

	maxCalls           = 64
	maxCallsPerNetwork = 8
)

// Options of Providers. Client and Now are optional.
type Options struct {
	// URL returns where browsers reach Sluice, without a slash at its end.
	URL func() string
	// Client talks to the providers. Its default trusts the operating system's authorities and the proxy of the environment.
	Client *http.Client
	Log    *slog.Logger
	Now    func() time.Time
}

// Providers are all that people can sign in at. They are safe for concurrent use.
type Providers struct {
	options Options
	list    []*provider
	calls   *shares.Shares
}

// New checks the settings and returns their providers. It asks none of them. The error lists all that is wrong.
func New(settings []Settings, options Options) (*Providers, error) {
	if err := check(settings); err != nil {
		return nil, err
	}
	if options.Client == nil {
		options.Client = newClient()
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	ps := &Providers{options: options, calls: shares.New(shares.Limits{
		Places: maxCalls, PerAccount: maxCallsPerNetwork, Waiting: maxCallsPerNetwork, Patience: callTimeout,
	})}
	for i := range settings {
		box, err := settings[i].box()
		if err != nil {
			return nil, fmt.Errorf("%s: derive the key of its cookies: %w", entryName(i, &settings[i]), err)
		}
		ps.list = append(ps.list, &provider{Settings: settings[i], Rule: settings[i].rule(), options: &ps.options, box: box})
	}
	return ps, nil
}

// List returns the providers in the order of their settings. A nil Providers has none.
func (ps *Providers) List() []*auth.IdentityProvider {
	if ps == nil {
		return nil
	}
	rules := make([]*auth.IdentityProvider, len(ps.list))
	for i, p := range ps.list {
		rules[i] = p.Rule
	}
	return rules
}

// Get returns the provider with a slug, or rules.ErrNotFound.
func (ps *Providers) Get(slug string) (*auth.IdentityProvider, error) {
	p, err := ps.find(slug)
	if err != nil {
		return nil, err
	}
	return p.Rule, nil
}

// OfIssuer returns the provider with an issuer, or nil if it is not configured any more.
func (ps *Providers) OfIssuer(issuer string) *auth.IdentityProvider {
	for _, rule := range ps.List() {
		if rule.Issuer == issuer {
			return rule
		}
	}
	return nil
}

func (ps *Providers) find(slug string) (*provider, error) {
	if ps != nil {
		if i := slices.IndexFunc(ps.list, func(p *provider) bool { return p.Slug == slug }); i >= 0 {
			return ps.list[i], nil
		}
	}
	return nil, rules.ErrNotFound
}

// provider is one of them.
type provider struct {
	Settings
	Rule    *auth.IdentityProvider
	options *Options
	box     cipher.AEAD

	discovery singleflight.Group
	mu        sync.Mutex
	found     *found
	failed    error // of the last discovery; nil if it succeeded
	triedAt   time.Time
	failures  []Failure
}

// Purpose is what somebody goes to a provider for.
type Purpose struct {
	Next    string // the local path to continue at
	Session int64  // the session whose account the identity is to be linked with; 0 to sign in
	Confirm int64  // the session whose owner is to sign in again; 0 to sign in
	// CodeShown: the owner of the Confirm session has shown the second factor of the account already.
	CodeShown bool
}

// Start begins a sign-in. It returns the provider's address to send the browser to, and the value of a cookie that Finish
// needs. It is rules.ErrNotFound, or an auth.ProviderError while the provider does not answer.
func (ps *Providers) Start(ctx context.Context, slug string, purpose Purpose) (address, cookie string, err error) {
	p, err := ps.find(slug)
	if err != nil {
		return "", "", err
	}
	found, err := p.discover(ctx)
	if err != nil {
		return "", "", p.fail(auth.ProviderError{Reason: auth.ProviderAway, Detail: err.Error()})
	}
	f := flow{
		State: random(), Nonce: random(), Verifier: oauth2.GenerateVerifier(), Next: purpose.Next, Session: purpose.Session,
		Confirm: purpose.Confirm, CodeShown: purpose.CodeShown, Until: p.options.Now().Add(FlowLife).Unix(),
	}
	if cookie, err = p.seal(f); err != nil {
		return "", "", err
	}
	extra := []oauth2.AuthCodeOption{oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)}
	if f.Session != 0 || f.Confirm != 0 {
		// Whoever has the browser proves the identity again. With max_age the ID token has auth_time.
		extra = append(extra, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	return p.oauth(found).AuthCodeURL(f.State, extra...), cookie, nil
}

// Finished is a sign-in that came back.
type Finished struct {
	Purpose
	Identity auth.Identity
	// Flow is what identifies the sign-in: it must not be used twice.
	Flow auth.Digest
}

// Finish reads a provider's answer: the query of the address that the browser was sent back to. The Purpose is valid after
// an error too, unless the error is about the cookie. Errors are auth.ProviderError.
func (ps *Providers) Finish(ctx context.Context, slug, cookie string, query url.Values, from netip.Addr) (Finished, error) {
	p, err := ps.find(slug)
	if err != nil {
		return Finished{}, err
	}
	f, err := p.open(cookie, p.options.Now())
	if err != nil || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(f.State)) != 1 {
		// Nothing proves that this browser ever asked, so strangers could fill the list of failures with this.
		return Finished{}, auth.ProviderError{Reason: auth.ProviderFlowEnded, Detail: errFlow.Error()}
	}
	finished := Finished{Purpose: f.purpose(), Flow: auth.DigestSecret(f.State)}
	leave, err := ps.calls.Take(ctx, shares.Caller{Account: rules.CustomerNetwork(plain(from)).String()})
	if err != nil {
		return finished, p.fail(auth.ProviderError{Reason: auth.ProviderAway, Detail: "too many sign-ins are under way at once"})
	}
	defer leave()
	finished.Identity, err = p.identify(ctx, f, query)
	var refused auth.ProviderError
	if err != nil && !errors.As(err, &refused) {
		refused = auth.ProviderError{Reason: auth.ProviderWrong, Detail: words(err)}
	}
	if err != nil {
		return finished, p.fail(refused)
	}
	return finished, nil
}

func plain(ip netip.Addr) netip.Addr {
	if !ip.IsValid() {
		return netip.IPv6Unspecified()
	}
	return rules.PlainIP(ip)
}

// SignOutURL returns where a browser signs out at the provider, to come back to the sign-in page; "" if the provider has no such
// address, or does not answer.
func (ps *Providers) SignOutURL(ctx context.Context, slug string) (string, error) {
	p, err := ps.find(slug)
	if err != nil || !p.SignOut {
		return "", err
	}
	found, err := p.discover(ctx)
	if err != nil {
		return "", p.fail(auth.ProviderError{Reason: auth.ProviderAway, Detail: err.Error()})
	}
	if found.endSession == nil {
		return "", nil
	}
	end := *found.endSession
	query := end.Query()
	query.Set("client_id", p.ClientID)
	query.Set("post_logout_redirect_uri", p.options.URL()+"/sign-in")
	end.RawQuery = query.Encode()
	return end.String(), nil
}

// CallbackPath is the path that providers send browsers back to.
func CallbackPath(slug string) string { return "/api/v1/auth/" + slug + "/callback" }

// RedirectURL is what the provider must have been told to allow.
func (ps *Providers) RedirectURL(slug string) string { return ps.options.URL() + CallbackPath(slug) }
