// Package oidc authenticates people at OpenID Connect providers and returns the signed [auth.Identity].
//
// A sign-in is the authorization code flow with PKCE (S256), a state and a nonce of 256 random bits each, in an
// encrypted cookie. The issuer is checked in the discovery document, in the answer (RFC 9207) and in the ID token,
// whose
// signature, audience, authorized party, expiry, nonce and access token hash are checked too. Discovery runs on demand,
// is cached for [refreshAfter] and longer while the provider is down; a failure is cached for [retryAfter].
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
	callTimeout  = 5 * time.Second // for each request to a provider
	refreshAfter = time.Hour
	retryAfter   = 5 * time.Second

	maxCalls           = 64
	maxCallsPerNetwork = 8
)

// Options configure Providers. Client and Now are optional.
type Options struct {
	URL    func() string // of Sluice for browsers, without a slash at its end
	Client *http.Client  // default: the operating system's authorities, and the environment's proxy
	Log    *slog.Logger
	Now    func() time.Time
}

// Providers are the configured providers.
type Providers struct {
	options Options
	list    []*provider
	calls   *shares.Shares
}

// New validates the settings without calling a provider, and lists all mistakes.
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
		Slots: maxCalls, PerAccount: maxCallsPerNetwork, Waiting: maxCallsPerNetwork, Timeout: callTimeout,
	})}
	for i := range settings {
		box, err := settings[i].box()
		if err != nil {
			return nil, fmt.Errorf("%s: derive the key of its cookies: %w", entryName(i, &settings[i]), err)
		}
		ps.list = append(ps.list, &provider{
			Settings: settings[i], Rule: settings[i].rule(), options: &ps.options,
			box: box,
		})
	}
	return ps, nil
}

// List returns the providers in the order of their settings.
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

// OfIssuer returns the provider with an issuer, or nil.
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

type provider struct {
	Settings
	Rule    *auth.IdentityProvider
	options *Options
	box     cipher.AEAD

	discovery singleflight.Group
	mu        sync.Mutex
	found     *found
	failed    error // of the last discovery
	triedAt   time.Time
	failures  []Failure
}

// Purpose is the reason for a sign-in at a provider.
type Purpose struct {
	Next    string `json:"r,omitempty"` // local path to continue at
	Session int64  `json:"l,omitempty"` // links the identity with the session's account; 0 to sign in
	// Confirm is the session of a step-up authentication; 0 to sign in, as releases before this field take it.
	Confirm   int64 `json:"c,omitempty"`
	CodeShown bool  `json:"f,omitempty"` // the second factor of the Confirm session was used
}

// Start returns the provider's address for the browser, and the value of a cookie for Finish. Returns
// rules.ErrNotFound, or an auth.ProviderError while the provider does not answer.
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
		State: random(), Nonce: random(), Verifier: oauth2.GenerateVerifier(), Purpose: purpose,
		Until: p.options.Now().Add(FlowLife).Unix(),
	}
	if cookie, err = p.seal(f); err != nil {
		return "", "", err
	}
	extra := []oauth2.AuthCodeOption{oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)}
	if f.Session != 0 || f.Confirm != 0 {
		// max_age makes the provider add auth_time to the ID token.
		extra = append(extra, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	return p.oauth(found).AuthCodeURL(f.State, extra...), cookie, nil
}

// Finished is the result of a sign-in.
type Finished struct {
	Purpose
	Identity auth.Identity
	Flow     auth.Digest // identifies the sign-in, which must not be used twice
}

// Finish reads the query of a provider's callback. The Purpose is also valid after an auth.ProviderError, unless the
// error is about the cookie.
func (ps *Providers) Finish(ctx context.Context, slug, cookie string, query url.Values, from netip.Addr) (Finished,
	error,
) {
	p, err := ps.find(slug)
	if err != nil {
		return Finished{}, err
	}
	f, err := p.open(cookie, p.options.Now())
	if err != nil || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(f.State)) != 1 {
		// Anybody could fill the list of failures without a sign-in.
		return Finished{}, auth.ProviderError{Reason: auth.ProviderFlowEnded, Detail: errFlow.Error()}
	}
	finished := Finished{Purpose: f.Purpose, Flow: auth.DigestSecret(f.State)}
	leave, err := ps.calls.Take(ctx, shares.Caller{Account: rules.CustomerNetwork(plain(from)).String()})
	if err != nil {
		return finished, p.fail(auth.ProviderError{
			Reason: auth.ProviderAway,
			Detail: "too many sign-ins are under way at once",
		})
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

// SignOutURL returns the provider's address for a sign-out, after which the browser returns to the sign-in page;
// "" if the provider has none or does not answer.
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

// CallbackPath returns the path of the callback.
func CallbackPath(slug string) string { return "/api/v1/auth/" + slug + "/callback" }

// RedirectURL returns the callback's URL, which must be registered at the provider.
func (ps *Providers) RedirectURL(slug string) string { return ps.options.URL() + CallbackPath(slug) }
