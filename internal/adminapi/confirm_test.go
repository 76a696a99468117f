package adminapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/oidc"
	"github.com/sluicegate/sluice/internal/oidc/oidctest"
)

const confirmAt = "/api/v1/session/confirm/provider"

func (p *profile) turnStale() {
	p.w.t.Helper()
	account, _ := p.who()
	p.w.exec("UPDATE session SET created_at = now() - interval '1 hour', confirmed_at = now() - interval '1 hour' "+
		"WHERE account_id = $1", account.ID)
}

func (p *profile) isFresh() bool {
	p.w.t.Helper()
	got := p.send(http.MethodPost, "/api/v1/account/identities/0/unlink", "")
	switch got.Code {
	case http.StatusNotFound: // there is no such identity
		return true
	case http.StatusForbidden:
		return false
	}
	p.w.t.Fatalf("unlinking is answered %d: %s", got.Code, got.Body)
	return false
}

// staleSignIn is the browser of an account without a password that signed in at the provider an hour ago.
func (w *world) staleSignIn(subject string) *profile {
	w.t.Helper()
	p := w.profile(caller{})
	p.signIn(oidctest.Person(subject, subject+"@example.com"), "")
	p.turnStale()
	if p.isFresh() {
		w.t.Fatal("a session of an hour is fresh")
	}
	return p
}

func TestAnAccountWithoutAPasswordConfirmsItsSessionAtTheProvider(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	p := w.staleSignIn("ada")
	if got := p.send(http.MethodPost, "/api/v1/session/confirm", `{"password":""}`); got.Code == http.StatusNoContent {
		t.Fatal("an account without a password is confirmed by none")
	}
	address := p.begin(confirmAt, `{"provider":"idp","next":"/t/acme/settings/keys?q=a&r=b#c"}`)
	asked := must(url.Parse(address))(t).Query()
	if asked.Get("prompt") != "login" || asked.Get("max_age") != "0" {
		t.Errorf("the provider is not told to ask again: %s", address)
	}
	if p.isFresh() {
		t.Error("going to the provider is enough")
	}
	session := p.cookies["sluice_session"]
	next := must(url.Parse(p.back(w.provider.Visit(address))))(t)
	if next.Path != "/confirmed" || next.Query().Get("provider") != "idp" ||
		next.Query().Get("next") != "/t/acme/settings/keys?q=a&r=b#c" || next.Query().Has("failed") {
		t.Errorf("the browser is led to %s", next)
	}
	if !p.isFresh() || p.cookies["sluice_session"] != session {
		t.Error("the session is not fresh, or another one")
	}
	w.access.Flush(w.ctx())
	if log := w.log.String(); !strings.Contains(log, "event=identity_confirmed") {
		t.Error("the log lacks it")
	}
}

func TestNobodyElseConfirmsASession(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	w.provider.SignedIn(oidctest.Person("mallory", "mallory@example.com"))
	mallory := w.profile(caller{})
	mallory.signIn(oidctest.Person("mallory", "mallory@example.com"), "")
	ada := w.staleSignIn("ada")
	begin := func() string { return ada.begin(confirmAt, `{"provider":"idp","next":"/profile"}`) }
	as := func(person oidctest.Claims) { w.provider.SignedIn(person) }

	as(oidctest.Person("mallory", "mallory@example.com")) // who has an account
	wantFailed(t, ada.back(w.provider.Visit(begin())), auth.ProviderOtherAccount)
	as(oidctest.Person("trudy", "trudy@example.com")) // who would get one by signing in
	wantFailed(t, ada.back(w.provider.Visit(begin())), auth.ProviderOtherAccount)
	as(oidctest.Person("trudy", "ada@example.com")) // an address is no identity
	wantFailed(t, ada.back(w.provider.Visit(begin())), auth.ProviderOtherAccount)
	if n := w.count("SELECT count(*) FROM account WHERE lower(email) = 'trudy@example.com'"); n != 0 {
		t.Error("confirming makes accounts")
	}
	as(oidctest.Person("ada", "ada@elsewhere.example")) // whom the provider's rule does not let in any more
	wantFailed(t, ada.back(w.provider.Visit(begin())), auth.ProviderEmailDomain)

	as(oidctest.Person("ada", "ada@example.com"))
	query := w.provider.Visit(begin())
	mallory.cookies["sluice_flow"] = ada.cookies["sluice_flow"]
	mallory.turnStale()
	wantFailed(t, mallory.back(query), auth.ProviderSessionChanged)
	query = w.provider.Visit(begin())
	stranger := w.profile(caller{})
	stranger.cookies["sluice_flow"] = ada.cookies["sluice_flow"]
	wantFailed(t, stranger.back(query), auth.ProviderSessionChanged)
	if stranger.cookies["sluice_session"] != "" {
		t.Error("confirming signs in")
	}
	if ada.isFresh() || mallory.isFresh() {
		t.Error("a session is fresh")
	}
}

func TestAConfirmationIsUsedOnceAndForNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	ada := w.staleSignIn("ada")
	flow := func() string { return ada.cookies["sluice_flow"] }
	query := w.provider.Visit(ada.begin(confirmAt, `{"provider":"idp"}`))
	kept := flow()
	if next := ada.back(query); strings.Contains(next, "failed") {
		t.Fatalf("the browser is led to %s", next)
	}
	ada.turnStale()
	wantFailed(t, ada.back(query), auth.ProviderFlowEnded) // the cookie is gone
	ada.cookies["sluice_flow"] = kept
	wantFailed(t, ada.back(query), auth.ProviderWrong) // the code was used
	signIn := w.provider.Visit(ada.begin(start, `{}`))
	ada.begin(confirmAt, `{"provider":"idp"}`)
	wantFailed(t, ada.back(signIn), auth.ProviderFlowEnded)
	query = w.provider.Visit(ada.begin(confirmAt, `{"provider":"idp"}`))
	if err := w.store.UseFlow(w.ctx(), auth.DigestSecret(query.Get("state")), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	wantFailed(t, ada.back(query), auth.ProviderFlowEnded)
	w.provider.Spoil(func(claims oidctest.Claims) { claims["nonce"] = "of another sign-in" })
	wantFailed(t, ada.back(w.provider.Visit(ada.begin(confirmAt, `{"provider":"idp"}`))), auth.ProviderWrong)
	if ada.isFresh() {
		t.Error("the session is fresh")
	}
}

func TestAnEarlierSignInAtTheProviderConfirmsNothing(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	ada := w.staleSignIn("ada")
	for _, test := range []struct {
		name     string
		authTime any
		reason   auth.ProviderReason // "": confirmed
	}{
		{"of an hour ago", time.Now().Add(-time.Hour).Unix(), auth.ProviderNotAsked},
		{"of two minutes ago", time.Now().Add(-2 * time.Minute).Unix(), auth.ProviderNotAsked},
		{"of long ago", 0, auth.ProviderNotAsked},
		{"in milliseconds", time.Now().UnixMilli(), auth.ProviderWrong},
		{"in the future", time.Now().Add(time.Hour).Unix(), auth.ProviderWrong},
		{"as text", "now", auth.ProviderWrong},
		{"below zero", -1, auth.ProviderWrong},
		{"of now", time.Now().Add(30 * time.Second).Unix(), ""},
		{"that is missing", nil, auth.ProviderTellsNoTime},
	} {
		ada.turnStale()
		w.provider.Spoil(func(claims oidctest.Claims) {
			delete(claims, "auth_time")
			if test.authTime != nil {
				claims["auth_time"] = test.authTime
			}
		})
		next := ada.back(w.provider.Visit(ada.begin(confirmAt, `{"provider":"idp"}`)))
		if test.reason != "" {
			wantFailed(t, next, test.reason)
		}
		if ada.isFresh() != (test.reason == "") {
			t.Errorf("with an auth_time %s, fresh: %v", test.name, ada.isFresh())
		}
	}
}

func TestAProviderWithoutAuthTimeConfirmsIfItsSettingsSaySo(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, func(s *oidc.Settings) { s.TrustWithoutAuthTime = true })
	ada := w.staleSignIn("ada")
	ada.turnStale()
	w.provider.Spoil(func(claims oidctest.Claims) { claims["auth_time"] = time.Now().Add(-time.Hour).Unix() })
	wantFailed(t, ada.back(w.provider.Visit(ada.begin(confirmAt, `{"provider":"idp"}`))), auth.ProviderNotAsked)
	w.provider.Spoil(func(claims oidctest.Claims) { delete(claims, "auth_time") })
	if ada.back(w.provider.Visit(ada.begin(confirmAt, `{"provider":"idp"}`))); !ada.isFresh() {
		t.Error("the session is not fresh")
	}
}

func TestConfirmingAtAProviderTakesTheSecondFactorToo(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, func(s *oidc.Settings) { s.SecondFactor = "provider" })
	by := w.person(w.acme, auth.Owner)
	p := w.profile(by)
	w.provider.SignedIn(oidctest.Person("grace", "grace@example.com"))
	if got := p.send(http.MethodPost, confirmAt, `{"provider":"idp"}`); got.Code != http.StatusBadRequest ||
		!strings.Contains(got.Body.String(), "/provider") {
		t.Errorf("a provider that is not linked is answered %d: %s", got.Code, got.Body)
	}
	p.back(w.provider.Visit(p.begin("/api/v1/account/identities", `{"provider":"idp"}`)))
	without := w.provider.Visit(p.begin(confirmAt, `{"provider":"idp"}`))
	flow := p.cookies["sluice_flow"]
	secret := w.turnFactorOn(by)
	w.exec("UPDATE second_factor SET last_step = 0") // the code may be that which turned it on
	p.turnStale()
	p.cookies["sluice_flow"] = flow
	wantFailed(t, p.back(without), auth.ProviderFlowEnded)
	for body, pointer := range map[string]string{
		`{"provider":"idp"}`:                 "is missing",
		`{"provider":"idp","code":"000000"}`: "is wrong",
	} {
		got := p.send(http.MethodPost, confirmAt, body)
		if got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), pointer) {
			t.Errorf("%s is answered %d: %s", body, got.Code, got.Body)
		}
	}
	if p.isFresh() {
		t.Fatal("the session is fresh")
	}
	code := w.code(secret)
	next := p.back(w.provider.Visit(p.begin(confirmAt, fmt.Sprintf(`{"provider":"idp","code":%q}`, code))))
	if strings.Contains(next, "failed") || !p.isFresh() {
		t.Errorf("with a code the browser is led to %s", next)
	}
	if got := p.send(http.MethodPost, confirmAt,
		fmt.Sprintf(`{"provider":"idp","code":%q}`, code)); got.Code != http.StatusBadRequest {
		t.Errorf("the same code is answered %d: %s", got.Code, got.Body)
	}
}

func TestConfirmingAtAProviderFollowsItsGroups(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, withGroups)
	w.person(w.acme, auth.Owner)
	w.platformAdmin()
	p := w.profile(caller{})
	p.signIn(inGroups("ada", "leads", "admins"), "")
	p.turnStale()
	w.provider.SignedIn(inGroups("ada", "ops"))
	p.back(w.provider.Visit(p.begin(confirmAt, `{"provider":"idp"}`)))
	if account, memberships := p.who(); account.PlatformAdmin || len(memberships) != 2 ||
		memberships[0] != "acme editor" {
		t.Errorf("left are %+v, %v", account, memberships)
	}
}

func TestSigningInAgainLeadsToLocalPathsOnly(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	p := w.staleSignIn("ada")
	for _, next := range []string{
		"//evil.example.com", "https://evil.example.com", `/\\evil.example.com`,
		"javascript:alert(1)",
	} {
		if got := p.send(http.MethodPost, confirmAt,
			fmt.Sprintf(`{"provider":"idp","next":%q}`, next)); got.Code != http.StatusBadRequest {
			t.Errorf("%q is answered %d", next, got.Code)
		}
	}
	if got := p.send(http.MethodPost, confirmAt, `{"provider":"none"}`); got.Code != http.StatusNotFound {
		t.Errorf("an unknown provider is answered %d", got.Code)
	}
	w.provider.Refuse("login_required")
	next := p.back(w.provider.Visit(p.begin(confirmAt, `{"provider":"idp","next":"/profile"}`)))
	wantFailed(t, next, auth.ProviderDenied)
	if !strings.Contains(next, "next=%2Fprofile") {
		t.Errorf("the browser is led to %s", next)
	}
	w.provider.GoDown(true)
	if got := p.send(http.MethodPost, confirmAt, `{"provider":"idp"}`); got.Code != http.StatusServiceUnavailable &&
		got.Code != http.StatusOK {
		t.Errorf("a provider that is down is answered %d: %s", got.Code, got.Body) // its addresses may still be known
	}
}
