package oidc_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/oidc"
	"github.com/sluicegate/sluice/internal/oidc/oidctest"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(
		func(int) { http.DefaultTransport.(*http.Transport).CloseIdleConnections() }))
}

const ours = "https://sluice.example.com"

type world struct {
	*oidc.Providers
	t        *testing.T
	provider *oidctest.Provider
	now      time.Time
}

func newWorld(t *testing.T, change ...func(*oidc.Settings)) *world {
	t.Helper()
	provider := oidctest.Start(t)
	settings := provider.Settings("idp")
	for _, f := range change {
		f(&settings)
	}
	return newWorldOf(t, provider, settings)
}

func newWorldOf(t *testing.T, provider *oidctest.Provider, settings ...oidc.Settings) *world {
	t.Helper()
	w := &world{t: t, provider: provider, now: time.Now()}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	providers, err := oidc.New(settings, oidc.Options{
		URL: func() string { return ours }, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now },
		Client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Providers = providers
	return w
}

func (w *world) start(purpose oidc.Purpose) (cookie string, answer url.Values) {
	w.t.Helper()
	address, cookie, err := w.Start(w.t.Context(), "idp", purpose)
	if err != nil {
		w.t.Fatal(err)
	}
	return cookie, w.provider.Visit(address)
}

func (w *world) finish(cookie string, answer url.Values) (oidc.Finished, error) {
	return w.Finish(w.t.Context(), "idp", cookie, answer, netip.MustParseAddr("203.0.113.9"))
}

func (w *world) signIn() (oidc.Finished, error) {
	w.t.Helper()
	return w.finish(w.start(oidc.Purpose{}))
}

func wantReason(t *testing.T, err error, want auth.ProviderReason, words string) {
	t.Helper()
	var refused auth.ProviderError
	if !errors.As(err, &refused) || refused.Reason != want || !strings.Contains(refused.Detail, words) {
		t.Errorf("error is %v, want the reason %s with %q", err, want, words)
	}
}

func TestASignInTellsWhoTheProviderVouchesFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *oidc.Settings) {
		s.GroupsClaim, s.Groups = "realm.groups", []oidc.Group{{Group: "ops", Tenant: "acme", Role: auth.Editor}}
		s.RequiredClaim = "employee=true"
	})
	w.provider.SignedIn(oidctest.Person("42", "Ada@Example.com"),
		oidctest.Claims{"realm": map[string]any{"groups": []string{"ops", "dev"}}, "employee": true})
	finished, err := w.finish(w.start(oidc.Purpose{Next: "/t/acme/overview#x", Session: 7}))
	if err != nil {
		t.Fatal(err)
	}
	got := finished.Identity
	if got.Provider.Issuer != w.provider.URL || got.Subject != "42" || got.Email != "Ada@Example.com" ||
		!got.EmailVerified || got.Name != "42" ||
		!got.HasClaim || !slices.Equal(got.Groups, []string{"ops", "dev"}) {
		t.Errorf("the identity is %+v", got)
	}
	if finished.Next != "/t/acme/overview#x" || finished.Session != 7 {
		t.Errorf("the purpose became %+v", finished.Purpose)
	}
	w.provider.SignedIn(oidctest.Person("42", "ada@example.com"),
		oidctest.Claims{"email_verified": "false", "employee": "no"})
	finished, err = w.signIn()
	if err != nil || finished.Identity.HasClaim || finished.Identity.EmailVerified || finished.Identity.Groups != nil {
		t.Errorf("without claims the identity is %+v, %v", finished.Identity, err)
	}
}

func TestClaimsMayBeInTheUserInformation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider.Hide("email", "email_verified", "name")
	finished, err := w.signIn()
	if err != nil || finished.Identity.Email != "ada@example.com" || !finished.Identity.EmailVerified {
		t.Errorf("the identity is %+v, %v", finished.Identity, err)
	}
	w.provider.Spoil(func(claims oidctest.Claims) { claims["sub"] = "somebody else" })
	_, err = w.signIn()
	wantReason(t, err, auth.ProviderWrong, "another user's information")
	w.provider.Hide("email_verified")
	w.provider.Spoil(func(claims oidctest.Claims) { claims["email"] = "boss@example.com" })
	if finished, err := w.signIn(); err != nil || finished.Identity.EmailVerified {
		t.Errorf("the identity is %+v, %v", finished.Identity, err)
	}
}

func TestTheRequestUsesPKCEAndSecretsOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen []string
	for range 2 {
		address, cookie, err := w.Start(t.Context(), "idp", oidc.Purpose{})
		if err != nil {
			t.Fatal(err)
		}
		query := must(url.Parse(address))(t).Query()
		for name, want := range map[string]string{
			"response_type": "code", "client_id": oidctest.ClientID, "code_challenge_method": "S256",
			"scope":        "openid email profile",
			"redirect_uri": ours + "/api/v1/auth/idp/callback",
		} {
			if query.Get(name) != want {
				t.Errorf("%s is %q, want %q", name, query.Get(name), want)
			}
		}
		for _, name := range []string{"state", "nonce", "code_challenge"} {
			secret := query.Get(name)
			if len(secret) < 43 || slices.Contains(seen, secret) || strings.Contains(cookie, secret) {
				t.Errorf("%s is %q", name, secret)
			}
			seen = append(seen, secret)
		}
		if query.Get("prompt") != "" {
			t.Error("signing in asks for another sign-in")
		}
	}
}

// The attacks of RFC 9700 and OpenID Connect Core, section 16.
func TestAnswersThatCannotBeTrusted(t *testing.T) {
	t.Parallel()
	const wrong, ended = auth.ProviderWrong, auth.ProviderFlowEnded
	spoil := func(name string, value any) func(*world) {
		return func(w *world) { w.provider.Spoil(func(c oidctest.Claims) { c[name] = value }) }
	}
	for name, test := range map[string]struct {
		before func(*world)
		change func(w *world, cookie string, answer url.Values) string
		reason auth.ProviderReason
		words  string
	}{
		"no cookie": {nil, func(*world, string, url.Values) string { return "" }, ended, ""},
		"another state": {nil, func(_ *world, c string, answer url.Values) string {
			answer.Set("state", "x")
			return c
		}, ended, ""},
		"no state": {nil, func(_ *world, c string, answer url.Values) string {
			answer.Del("state")
			return c
		}, ended, ""},
		"two states": {nil, func(_ *world, c string, answer url.Values) string {
			answer.Add("state", "x")
			return c
		}, wrong, "twice"},
		"an old cookie": {nil, func(w *world, c string, _ url.Values) string {
			w.now = w.now.Add(oidc.FlowLife + 2*time.Second)
			return c
		}, ended, ""},
		"a changed cookie": {
			nil, func(_ *world, c string, _ url.Values) string { return c[:len(c)-2] + "xx" }, ended,
			"",
		},
		"a code of another session, injected": {nil, func(w *world, c string, answer url.Values) string {
			_, theirs := w.start(oidc.Purpose{})
			answer.Set("code", theirs.Get("code"))
			return c
		}, wrong, "invalid_grant"},
		"that, at a provider that ignores PKCE": {
			func(w *world) { w.provider.IgnorePKCE() },
			func(w *world, c string, answer url.Values) string {
				_, theirs := w.start(oidc.Purpose{})
				answer.Set("code", theirs.Get("code"))
				return c
			}, wrong, "nonce",
		},
		"an answer of another browser": {nil, func(w *world, _ string, _ url.Values) string {
			mine, _ := w.start(oidc.Purpose{})
			return mine
		}, ended, ""},
		"a code that was used": {nil, func(w *world, c string, answer url.Values) string {
			if _, err := w.finish(c, answer); err != nil {
				w.t.Error(err)
			}
			return c
		}, wrong, "invalid_grant"},
		"another issuer's answer": {nil, func(_ *world, c string, answer url.Values) string {
			answer.Set("iss", "https://evil.example.com")
			return c
		}, wrong, "another provider"},
		"no issuer": {nil, func(_ *world, c string, answer url.Values) string {
			answer.Del("iss")
			return c
		}, wrong, "another provider"},
		"no code": {nil, func(_ *world, c string, answer url.Values) string {
			answer.Del("code")
			return c
		}, wrong, "no code"},
		"a nonce of another sign-in": {spoil("nonce", "x"), nil, wrong, "nonce"},
		"an ID token of an earlier sign-in, which is valid still": {func(w *world) {
			if _, err := w.signIn(); err != nil {
				w.t.Error(err)
			}
			w.provider.Replay()
		}, nil, wrong, "nonce"},
		"no nonce": {func(
			w *world,
		) {
			w.provider.Spoil(func(c oidctest.Claims) { delete(c, "nonce") })
		}, nil, wrong, "nonce"},
		"another audience":         {spoil("aud", "another client"), nil, wrong, "audience"},
		"two audiences, no azp":    {spoil("aud", []string{oidctest.ClientID, "another"}), nil, wrong, "azp"},
		"another authorized party": {spoil("azp", "another client"), nil, wrong, "azp"},
		"another issuer's token":   {spoil("iss", "https://evil.example.com"), nil, wrong, "issued by"},
		"an expired token":         {spoil("exp", 1), nil, wrong, "expired"},
		"an empty subject":         {spoil("sub", ""), nil, wrong, "sub"},
		"a long subject":           {spoil("sub", strings.Repeat("x", 256)), nil, wrong, "sub"},
		"another access token":     {spoil("at_hash", "AAAAAAAAAAAAAAAAAAAAAA"), nil, wrong, "access token hash"},
		"an unsigned token":        {func(w *world) { w.provider.Unsign(true) }, nil, wrong, "malformed jwt"},
		"a refusal": {
			func(w *world) { w.provider.Refuse("access_denied") }, nil, auth.ProviderDenied,
			"access_denied",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if test.before != nil {
				test.before(w)
			}
			cookie, answer := w.start(oidc.Purpose{})
			if test.change != nil {
				cookie = test.change(w, cookie, answer)
			}
			finished, err := w.finish(cookie, answer)
			wantReason(t, err, test.reason, test.words)
			if finished.Identity.Provider != nil {
				t.Errorf("it tells an identity: %+v", finished.Identity)
			}
			for _, failure := range w.Status(t.Context())[0].Failures {
				if strings.Contains(failure.Detail, answer.Get("code")) && answer.Get("code") != "" {
					t.Errorf("the failure %q has the code", failure.Detail)
				}
			}
		})
	}
}

func TestProvidersAreNotMixedUp(t *testing.T) {
	t.Parallel()
	honest, evil := oidctest.Start(t), oidctest.Start(t)
	w := newWorldOf(t, honest, honest.Settings("idp"), evil.Settings("evil"))
	cookie, answer := w.start(oidc.Purpose{})
	// The evil provider sends the browser to its own callback, to receive the honest one's code.
	_, err := w.Finish(t.Context(), "evil", cookie, answer, netip.Addr{})
	wantReason(t, err, auth.ProviderFlowEnded, "")
	address, evilCookie, err := w.Start(t.Context(), "evil", oidc.Purpose{})
	if err != nil {
		t.Fatal(err)
	}
	answer.Set("state", evil.Visit(address).Get("state"))
	_, err = w.Finish(t.Context(), "evil", evilCookie, answer, netip.Addr{})
	wantReason(t, err, auth.ProviderWrong, "another provider")
}

// The providers omit their issuer: a sign-in begins at the evil provider, which forwards the browser to the honest
// one to receive its code.
func TestSilentProvidersAreNotMixedUp(t *testing.T) {
	t.Parallel()
	honest, evil := oidctest.Start(t), oidctest.Start(t)
	honest.NameNobody()
	evil.NameNobody()
	w := newWorldOf(t, honest, honest.Settings("idp"), evil.Settings("evil"))
	address, cookie, err := w.Start(t.Context(), "evil", oidc.Purpose{})
	if err != nil {
		t.Fatal(err)
	}
	sentOn := strings.Replace(address, evil.URL, honest.URL, 1)
	back := must(url.Parse(must(url.Parse(sentOn))(t).Query().Get("redirect_uri")))(t)
	if back.Path != oidc.CallbackPath("evil") {
		t.Errorf("the evil one's answers come back to %s, so the honest one would not refuse to send its code there",
			back)
	}
	// The honest provider sends codes only to its own callback, where the browser has no flow.
	_, err = w.Finish(t.Context(), "idp", cookie, honest.Visit(sentOn), netip.Addr{})
	wantReason(t, err, auth.ProviderFlowEnded, "")
	evil.Spoil(func(claims oidctest.Claims) { claims["iss"] = honest.URL })
	_, err = w.Finish(t.Context(), "evil", cookie, evil.Visit(address), netip.Addr{})
	wantReason(t, err, auth.ProviderWrong, "issued by")
}

func TestGroupsThatAreToldElsewhereAreNotTakenForNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *oidc.Settings) {
		s.GroupsClaim, s.Groups = "groups", []oidc.Group{{Group: "ops", Tenant: "acme", Role: auth.Editor}}
	})
	elsewhere := func(claim string) oidctest.Claims {
		return oidctest.Claims{
			"_claim_names":   map[string]string{claim: "src1"},
			"_claim_sources": map[string]any{"src1": map[string]string{"endpoint": "https://graph.example.com/ada"}},
		}
	}
	w.provider.SignedIn(oidctest.Person("42", "ada@example.com"), elsewhere("groups"))
	_, err := w.signIn()
	wantReason(t, err, auth.ProviderWrong, "in too many groups")
	w.provider.SignedIn(oidctest.Person("42", "ada@example.com"), elsewhere("photo"))
	if finished, err := w.signIn(); err != nil || finished.Identity.Groups != nil {
		t.Errorf("without groups the identity is %+v, %v", finished.Identity, err)
	}
}

func TestDiscoveryDocumentsThatCannotBeTrusted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		claim string
		value any
		words string
	}{
		"of another issuer":    {"issuer", "https://evil.example.com", "issuer"},
		"without PKCE by S256": {"code_challenge_methods_supported", []string{"plain"}, "PKCE"},
		"with a script as the address": {
			"authorization_endpoint", "javascript://a/%0aalert(1)",
			"authorization_endpoint",
		},
		"with a path as the way out": {"end_session_endpoint", "/end", "end_session_endpoint"},
		"without keys":               {"jwks_uri", "", "jwks_uri"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.provider.SpoilDocument(func(document oidctest.Claims) { document[test.claim] = test.value })
			_, _, err := w.Start(t.Context(), "idp", oidc.Purpose{})
			wantReason(t, err, auth.ProviderAway, test.words)
		})
	}
}

func TestAProviderThatIsDownDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	down, up := oidctest.Start(t), oidctest.Start(t)
	down.GoDown(true)
	w := newWorldOf(t, up, down.Settings("down"), up.Settings("idp"))
	_, _, err := w.Start(t.Context(), "down", oidc.Purpose{})
	wantReason(t, err, auth.ProviderAway, "503")
	if _, err := w.signIn(); err != nil {
		t.Error(err)
	}
	status := w.Status(t.Context())
	if !strings.Contains(status[0].Problem, "503") || len(status[0].Failures) != 1 || status[1].Problem != "" {
		t.Errorf("the status is %+v", status)
	}
	down.GoDown(false)
	w.now = w.now.Add(time.Minute)
	if _, _, err := w.Start(t.Context(), "down", oidc.Purpose{}); err != nil {
		t.Errorf("it came back: %v", err)
	}
	down.GoDown(true)
	w.now = w.now.Add(2 * time.Hour)
	if _, _, err := w.Start(t.Context(), "down", oidc.Purpose{}); err != nil {
		t.Errorf("it forgot the document: %v", err)
	}
}

func TestSomebodyWhoLeavesEndsNoDiscoveryOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := w.Start(ctx, "idp", oidc.Purpose{})
	if err != nil { // it may have been fast enough
		wantReason(t, err, auth.ProviderAway, "")
	}
	if _, _, err := w.Start(t.Context(), "idp", oidc.Purpose{}); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Note("idp", auth.ProviderError{Reason: auth.ProviderClaim, Detail: "lacks the claim"})
	for i := range 30 {
		w.Note("idp", auth.ProviderError{Reason: auth.ProviderDenied, Detail: string(rune('A'+i)) + "\n\x00 " +
			strings.Repeat("x", 1000)})
		w.Note("idp", auth.ProviderError{Reason: auth.ProviderWrong, Detail: "the same"})
	}
	failures := w.Status(t.Context())[0].Failures
	if len(failures) != 7 || failures[0].Detail != "the same" || failures[0].Count != 30 ||
		failures[6].Reason != auth.ProviderClaim {
		t.Errorf("there are %d failures: %+v", len(failures), failures)
	}
	if detail := failures[1].Detail; len(detail) > 400 || strings.ContainsAny(detail, "\n\x00") {
		t.Errorf("a failure says %q", detail)
	}
}

func TestSigningOutAtTheProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *oidc.Settings) { s.SignOut = true })
	address := must(w.SignOutURL(t.Context(), "idp"))(t)
	want := w.provider.URL + "/end?client_id=sluice&post_logout_redirect_uri=https%3A%2F%2Fsluice.example.com%2Fsign-in"
	if address != want {
		t.Errorf("it is %s, want %s", address, want)
	}
	if _, err := w.SignOutURL(t.Context(), "none"); !errors.Is(err, rules.ErrNotFound) {
		t.Error(err)
	}
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}
