package adminapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/oidc"
	"github.com/sluicegate/sluice/internal/oidc/oidctest"
	"github.com/sluicegate/sluice/internal/rules"
)

func (w *world) identity(account auth.Account) int64 {
	w.t.Helper()
	by := rules.Actor{Kind: rules.ActorSystem, Name: "test"}
	linked := auth.LinkedIdentity{Issuer: w.provider.URL, Subject: w.name("subject"), Email: account.Email}
	if err := w.store.Link(w.ctx(), by, account.ID, linked); err != nil {
		w.t.Fatal(err)
	}
	identities := must(w.store.Identities(w.ctx(), account.ID))(w.t)
	return identities[len(identities)-1].ID
}

func (w *world) providers(change func(*oidc.Settings)) func(*adminapi.Config) {
	return func(c *adminapi.Config) {
		settings := w.provider.Settings("idp")
		settings.EmailDomains, settings.CreateAccounts = []string{"example.com"}, true
		if change != nil {
			change(&settings)
		}
		c.Providers = must(oidc.New([]oidc.Settings{settings}, oidc.Options{URL: func() string { return loopback }}))(
			w.t)
	}
}

func newWorldOf(t *testing.T, change func(*oidc.Settings), more ...func(*adminapi.Config)) *world {
	t.Helper()
	provider := oidctest.Start(t)
	w := &world{t: t, provider: provider}
	made := newWorld(t, append([]func(*adminapi.Config){w.providers(change)}, more...)...)
	made.provider = provider
	return made
}

type profile struct {
	w       *world
	cookies map[string]string
}

func (w *world) profile(by caller) *profile {
	p := &profile{w: w, cookies: map[string]string{}}
	if by.session != "" {
		p.cookies["sluice_session"] = by.session
	}
	return p
}

func (p *profile) send(method, path, body string, header ...string) *httptest.ResponseRecorder {
	p.w.t.Helper()
	r := httptest.NewRequestWithContext(p.w.ctx(), method, loopback+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	for name, value := range p.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	recorder := httptest.NewRecorder()
	p.w.handler.ServeHTTP(recorder, r)
	for _, cookie := range recorder.Result().Cookies() {
		p.cookies[cookie.Name] = cookie.Value
		if cookie.MaxAge < 0 {
			delete(p.cookies, cookie.Name)
		}
		if !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode {
			p.w.t.Errorf("the cookie %s is %+v", cookie.Name, cookie)
		}
	}
	return recorder
}

func (p *profile) begin(path, body string) string {
	p.w.t.Helper()
	got := p.send(http.MethodPost, path, body)
	if got.Code != http.StatusOK {
		p.w.t.Fatalf("%s answered %d: %s", path, got.Code, got.Body)
	}
	return read[struct{ URL string }](p.w.t, answer{body: got.Body.String()}).URL
}

func (p *profile) back(query url.Values) string {
	p.w.t.Helper()
	got := p.send(http.MethodGet, "/api/v1/auth/idp/callback?"+query.Encode(), "")
	if got.Code != http.StatusSeeOther {
		p.w.t.Fatalf("the callback answered %d: %s", got.Code, got.Body)
	}
	return got.Header().Get("Location")
}

const start = "/api/v1/auth/idp/start"

func (p *profile) signIn(person oidctest.Claims, next string) string {
	p.w.t.Helper()
	p.w.provider.SignedIn(person)
	return p.back(p.w.provider.Visit(p.begin(start, fmt.Sprintf(`{"next":%q}`, next))))
}

func (p *profile) who() (account struct {
	ID            int64 `json:"account_id,string"`
	Email         string
	PlatformAdmin bool `json:"platform_admin"`
	Proven        bool
}, memberships []string,
) {
	p.w.t.Helper()
	got := p.send(http.MethodGet, "/api/v1/session", "")
	if got.Code != http.StatusOK {
		return account, nil
	}
	session := read[struct {
		Account     any
		Memberships []struct {
			Tenant struct{ Slug string }
			Role   string
		}
	}](p.w.t, answer{body: got.Body.String()})
	for _, m := range session.Memberships {
		memberships = append(memberships, m.Tenant.Slug+" "+m.Role)
	}
	whole := read[struct {
		Account struct {
			ID            int64 `json:"account_id,string"`
			Email         string
			PlatformAdmin bool `json:"platform_admin"`
			Proven        bool
		}
	}](p.w.t, answer{body: got.Body.String()})
	return whole.Account, memberships
}

func wantFailed(t *testing.T, location string, reason auth.ProviderReason) {
	t.Helper()
	got := must(url.Parse(location))(t)
	if got.Path != "/sign-in" && got.Path != "/profile" && got.Path != "/confirmed" ||
		got.Query().Get("failed") != string(reason) || got.Host != "" {
		t.Errorf("the browser is led to %s, want failed=%s", location, reason)
	}
}

func TestTheFirstSignInMakesAnAccountAndTheNextFindsIt(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	first := w.profile(caller{})
	if next := first.signIn(oidctest.Person("42", "Ada@Example.com"),
		"/t/acme/overview?a=b#c"); next != "/t/acme/overview?a=b#c" {
		t.Errorf("the browser is led to %s", next)
	}
	account, _ := first.who()
	if account.Email != "Ada@Example.com" || !account.Proven || account.PlatformAdmin {
		t.Errorf("the account is %+v", account)
	}
	if first.cookies["sluice_flow"] != "" || first.cookies["sluice_device"] == "" {
		t.Errorf("the cookies are %v", first.cookies)
	}
	// Accounts are known by subject: an address that changes is no other person, and an address that is the same is.
	again := w.profile(caller{})
	again.signIn(oidctest.Person("42", "new@example.com"), "")
	if same, _ := again.who(); same.ID != account.ID || same.Email != "Ada@Example.com" {
		t.Errorf("the account is %+v, want %d", same, account.ID)
	}
	wantFailed(t, w.profile(caller{}).signIn(oidctest.Person("43", "ada@example.com"), ""), auth.ProviderAccountExists)
	if got := w.signIn("ada@example.com", ""); got.status != http.StatusUnauthorized {
		t.Errorf("a password signs in: %d", got.status)
	}
	w.access.Flush(w.ctx())
	if log := w.log.String(); !strings.Contains(log, `event=signed_in`) ||
		!strings.Contains(log, `detail="provider idp"`) || strings.Contains(log, "code=") {
		t.Error("the log lacks the sign-in, or has a code")
	}
}

func TestWhoMayNotComeInFromAProvider(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, func(s *oidc.Settings) { s.RequiredClaim = "employee=true" })
	local := w.account(false)
	disabled := w.profile(caller{})
	with := func(person oidctest.Claims) oidctest.Claims { person["employee"] = true; return person }
	disabled.signIn(with(oidctest.Person("gone", "gone@example.com")), "")
	gone, _ := disabled.who()
	w.exec("UPDATE account SET disabled_at = now() WHERE account_id = $1", gone.ID)
	for name, test := range map[string]struct {
		person oidctest.Claims
		reason auth.ProviderReason
	}{
		"another domain": {with(oidctest.Person("1", "eve@evil.com")), auth.ProviderEmailDomain},
		"a domain below": {with(oidctest.Person("1", "eve@sub.example.com")), auth.ProviderEmailDomain},
		"an address with two ats": {
			with(oidctest.Person("1", `"a@example.com"@evil.com`)),
			auth.ProviderEmailDomain,
		},
		"an unverified address": {oidctest.Claims{
			"sub": "1", "email": "eve@example.com",
			"email_verified": false, "employee": true,
		}, auth.ProviderEmailUnverified},
		"nothing about verification": {
			oidctest.Claims{"sub": "1", "email": "eve@example.com", "employee": true},
			auth.ProviderEmailUnverified,
		},
		"no claim":                   {oidctest.Person("1", "eve@example.com"), auth.ProviderClaim},
		"an address with an account": {with(oidctest.Person("1", local.Email)), auth.ProviderAccountExists},
		"that address in other letters": {
			with(oidctest.Person("1", strings.ToUpper(local.Email[:1])+local.Email[1:])),
			auth.ProviderAccountExists,
		},
		"a disabled account": {
			with(oidctest.Person("gone", "gone@example.com")),
			auth.ProviderAccountDisabled,
		},
	} {
		p := w.profile(caller{})
		wantFailed(t, p.signIn(test.person, ""), test.reason)
		if p.cookies["sluice_session"] != "" {
			t.Errorf("%s signs in", name)
		}
	}
	if got := w.send(w.platformAdmin(), "GET", "/api/v1/identity-providers", nil); !strings.Contains(got.body,
		"lacks the claim employee=true") {
		t.Errorf("platform admins see %s", got.body)
	}
}

func TestASignInIsFinishedOnceAndInItsBrowserOnly(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	w.provider.SignedIn(oidctest.Person("42", "ada@example.com"))
	p := w.profile(caller{})
	query := w.provider.Visit(p.begin(start, `{}`))
	wantFailed(t, w.profile(caller{}).back(query), auth.ProviderFlowEnded)
	if next := p.back(query); next != "/" {
		t.Errorf("the browser is led to %s", next)
	}
	wantFailed(t, p.back(query), auth.ProviderFlowEnded)
	flow := auth.DigestSecret(query.Get("state"))
	if err := w.store.UseFlow(w.ctx(), flow, time.Now().Add(time.Hour)); err == nil {
		t.Error("the flow can be used again")
	}
}

func TestBrowsersAreLedToLocalPathsOnly(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	for _, next := range []string{
		"//evil.example.com", "https://evil.example.com", `/\\evil.example.com`, "/\t/evil.example.com",
		"javascript:alert(1)", "profile", "/%zz", "/ x", "/\r\nSet-Cookie: a=b",
	} {
		if got := w.do(caller{}, w.json("POST", start,
			map[string]string{"next": next})); got.status != http.StatusBadRequest {
			t.Errorf("%q is answered %d", next, got.status)
		}
	}
	if got := w.do(caller{}, w.json("POST", "/api/v1/auth/none/start",
		map[string]string{})); got.status != http.StatusNotFound {
		t.Errorf("an unknown provider is answered %d", got.status)
	}
	w.provider.GoDown(true)
	if got := w.do(caller{}, w.json("POST", start, map[string]string{})); got.status != http.StatusServiceUnavailable ||
		!strings.Contains(got.body, "The idp does not answer") {
		t.Errorf("a provider that is down is answered %d %s", got.status, got.body)
	}
	w.want(w.do(caller{}, w.json("GET", "/api/v1/sign-in", nil)), http.StatusOK)
}

func TestLinkingNeedsBothProofs(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	by := w.person(w.acme, auth.Viewer)
	p := w.profile(by)
	w.provider.SignedIn(oidctest.Person("42", "ada@example.com"))
	const identities = "/api/v1/account/identities"
	w.exec("UPDATE session SET created_at = now() - interval '1 hour' WHERE session_id = $1", by.sessionID)
	if got := p.send(http.MethodPost, identities, `{"provider":"idp"}`); got.Code != http.StatusForbidden {
		t.Errorf("an old session is answered %d: %s", got.Code, got.Body)
	}
	if got := p.send(http.MethodPost, "/api/v1/session/confirm",
		fmt.Sprintf(`{"password":%q}`, password)); got.Code != http.StatusNoContent {
		t.Fatalf("signing in again is answered %d: %s", got.Code, got.Body)
	}
	address := p.begin(identities, `{"provider":"idp"}`)
	if !strings.Contains(address, "prompt=login") || !strings.Contains(address, "max_age=0") {
		t.Errorf("the provider is not told to ask again: %s", address)
	}
	// Somebody else may be signed in at the provider in this browser; using it does not prove to be that person.
	w.provider.Spoil(func(claims oidctest.Claims) { claims["auth_time"] = time.Now().Add(-time.Hour).Unix() })
	wantFailed(t, p.back(w.provider.Visit(address)), auth.ProviderNotAsked)
	w.provider.Spoil(nil)
	address = p.begin(identities, `{"provider":"idp"}`)
	query := w.provider.Visit(address)
	mallory := w.profile(w.person(w.other, auth.Owner))
	mallory.cookies["sluice_flow"] = p.cookies["sluice_flow"]
	wantFailed(t, mallory.back(query), auth.ProviderSessionChanged)
	if next := p.back(w.provider.Visit(p.begin(identities, `{"provider":"idp"}`))); next != "/profile?linked=idp" {
		t.Errorf("the browser is led to %s", next)
	}
	other := w.profile(caller{})
	other.signIn(oidctest.Person("42", "ada@example.com"), "")
	if account, memberships := other.who(); account.ID != int64(by.account.ID) ||
		!slices.Equal(memberships, []string{"acme viewer"}) {
		t.Errorf("the identity signs in to %+v, %v", account, memberships)
	}
	taken := w.profile(w.person(w.other, auth.Owner))
	wantFailed(t, taken.back(w.provider.Visit(taken.begin(identities, `{"provider":"idp"}`))),
		auth.ProviderIdentityTaken)
	linked := must(w.store.Identities(w.ctx(), by.account.ID))(t)
	if got := other.send(http.MethodPost, fmt.Sprintf("%s/%d/unlink", identities, linked[0].ID),
		""); got.Code != http.StatusNoContent {
		t.Errorf("unlinking is answered %d: %s", got.Code, got.Body)
	}
	if left := must(w.store.Identities(w.ctx(), by.account.ID))(t); len(left) != 0 {
		t.Errorf("left are %+v", left)
	}
}

func TestTheLastWayInCannotBeUnlinked(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	p := w.profile(caller{})
	p.signIn(oidctest.Person("42", "ada@example.com"), "")
	account, _ := p.who()
	id := must(w.store.Identities(w.ctx(), auth.AccountID(account.ID)))(t)[0].ID
	path := fmt.Sprintf("/api/v1/account/identities/%d/unlink", id)
	if got := p.send(http.MethodPost, path, ""); got.Code != http.StatusConflict {
		t.Errorf("unlinking the last one is answered %d: %s", got.Code, got.Body)
	}
	w.exec("INSERT INTO account_identity (account_id, issuer, subject) VALUES ($1, 'https://gone.example.com', '1')",
		account.ID)
	if got := p.send(http.MethodPost, path, ""); got.Code != http.StatusConflict {
		t.Errorf("with a useless one it is answered %d: %s", got.Code, got.Body)
	}
	w.exec("INSERT INTO account_identity (account_id, issuer, subject) VALUES ($1, $2, 'another')", account.ID,
		w.provider.URL)
	if got := p.send(http.MethodPost, path, ""); got.Code != http.StatusNoContent {
		t.Errorf("with another one it is answered %d: %s", got.Code, got.Body)
	}
	if got := p.send(http.MethodPost, path, ""); got.Code != http.StatusNotFound {
		t.Errorf("unlinking it again is answered %d: %s", got.Code, got.Body)
	}
}

// Mallory has an identity whose provider says somebody else's address, verified or not, and wants the invitation to it.
func TestAnInvitationIsNotTakenOverByAnIdentity(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, func(s *oidc.Settings) { s.EmailDomains, s.CreateAccounts = nil, false }, withoutMail)
	owner := w.person(w.acme, auth.Owner)
	invited := w.invite(owner, "acme", victim)
	mallory := w.person(w.other, auth.Owner)
	p := w.profile(mallory)
	w.provider.SignedIn(oidctest.Person("mallory", victim))
	p.back(w.provider.Visit(p.begin("/api/v1/account/identities", `{"provider":"idp"}`)))
	fresh := w.profile(caller{})
	fresh.signIn(oidctest.Person("mallory", victim), "")
	got := fresh.send(http.MethodPost, "/api/v1/invitations/accept", fmt.Sprintf(`{"token":%q}`, *invited.Token))
	if got.Code != http.StatusConflict {
		t.Errorf("the invitation is answered %d: %s", got.Code, got.Body)
	}
	wantFailed(t, w.profile(caller{}).signIn(oidctest.Claims{"sub": "x", "email": victim}, ""), auth.ProviderNoAccount)
}

func TestAVerifiedAddressProvesAnAccount(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil, withoutMail)
	invited := w.invite(w.person(w.acme, auth.Owner), "acme", victim)
	w.want(w.acceptAs(*invited.Token), http.StatusOK)
	p := w.profile(caller{})
	if got := p.send(http.MethodPost, "/api/v1/session",
		fmt.Sprintf(`{"email":%q,"password":%q,"tenant":"acme"}`, victim, password)); got.Code != http.StatusOK {
		t.Fatalf("%d: %s", got.Code, got.Body)
	}
	w.provider.SignedIn(oidctest.Person("other", "other@example.com"))
	p.back(w.provider.Visit(p.begin("/api/v1/account/identities", `{"provider":"idp"}`)))
	if account, _ := p.who(); account.Proven {
		t.Error("another address proves the account's")
	}
	w.provider.SignedIn(oidctest.Person("grace", victim))
	p.back(w.provider.Visit(p.begin("/api/v1/account/identities", `{"provider":"idp"}`)))
	if account, _ := p.who(); !account.Proven {
		t.Error("the verified address does not prove the account's")
	}
}

func TestPasswordsCanBeOffWithAWayBackIn(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil, func(c *adminapi.Config) {
		c.Gate = auth.NewGate(c.People,
			auth.Options{NoPasswords: true, Mail: true})
	})
	by := w.person(w.acme, auth.Owner)
	token := must(auth.NewGate(w.store, auth.Options{}).SignInLink(w.ctx(), by.account.Email))(t)
	for name, q := range map[string]request{
		"signing in": w.json("POST", "/api/v1/session",
			map[string]string{"email": by.account.Email, "password": password}),
		"a reset": w.json("POST", "/api/v1/password-reset", map[string]string{"email": by.account.Email}),
		"a change": w.json("PUT", "/api/v1/account/password",
			map[string]string{"current_password": password, "new_password": "eight old grey cats"}),
		"the end of a reset": w.json("POST", "/api/v1/password-reset/finish",
			map[string]string{"token": token, "password": "eight old grey cats"}),
	} {
		if got := w.do(by, q); got.status != http.StatusForbidden {
			t.Errorf("%s is answered %d: %s", name, got.status, got.body)
		}
	}
	options := w.do(caller{}, w.json("GET", "/api/v1/sign-in", nil))
	if !strings.Contains(options.body, `"passwords":false`) || !strings.Contains(options.body, `"slug":"idp"`) {
		t.Errorf("the options are %s", options.body)
	}
	link := func(token string) answer {
		return w.do(caller{}, w.json("POST", "/api/v1/session/link", map[string]string{"token": token}))
	}
	w.want(link(token), http.StatusOK)
	w.want(link(token), http.StatusNotFound)
	w.want(link("x"), http.StatusNotFound)
}

func TestSigningOutLeadsToTheProvider(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, func(s *oidc.Settings) { s.SignOut = true })
	p := w.profile(caller{})
	p.signIn(oidctest.Person("42", "ada@example.com"), "")
	const out = "/api/v1/auth/idp/sign-out"
	if got := p.send(http.MethodGet, "/api/v1/session", ""); !strings.Contains(got.Body.String(),
		`"sign_out_url":"`+out) {
		t.Errorf("the session is %s", got.Body)
	}
	if got := p.send(http.MethodGet, out, "").Header().Get("Location"); !strings.HasPrefix(got,
		w.provider.URL+"/end?") {
		t.Errorf("the browser is led to %s", got)
	}
	if got := w.profile(caller{}).send(http.MethodGet, "/api/v1/auth/none/sign-out",
		"").Header().Get("Location"); got != "/sign-in" {
		t.Errorf("the browser is led to %s", got)
	}
}

func withGroups(s *oidc.Settings) {
	s.GroupsClaim = "groups"
	s.Groups = []oidc.Group{
		{Group: "ops", Tenant: "acme", Role: auth.Editor},
		{Group: "leads", Tenant: "acme", Role: auth.Owner},
		{Group: "ops", Tenant: "other", Role: auth.Viewer},
		{Group: "ops", Tenant: "no-such-tenant", Role: auth.Viewer},
		{Group: "admins", PlatformAdmin: true},
	}
}

func inGroups(subject string, groups ...string) oidctest.Claims {
	person := oidctest.Person(subject, subject+"@example.com")
	person["groups"] = groups
	return person
}

func TestGroupsGiveRolesAndTakeThemBack(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, withGroups)
	w.person(w.acme, auth.Owner) // so that nobody here is the last one
	w.platformAdmin()
	p := w.profile(caller{})
	for _, step := range []struct {
		groups  []string
		want    []string
		isAdmin bool
	}{
		{nil, nil, false},
		{[]string{"ops", "unknown"}, []string{"acme editor", "other viewer"}, false},
		{[]string{"ops", "leads"}, []string{"acme owner", "other viewer"}, false},
		{[]string{"leads", "admins"}, []string{"acme owner"}, true},
		{[]string{"ops"}, []string{"acme editor", "other viewer"}, false},
		{nil, nil, false},
	} {
		p.signIn(inGroups("ada", step.groups...), "")
		account, memberships := p.who()
		if !slices.Equal(memberships, step.want) || account.PlatformAdmin != step.isAdmin {
			t.Errorf("the groups %v give %v, platform admin: %v; want %v, %v", step.groups, memberships,
				account.PlatformAdmin, step.want, step.isAdmin)
		}
	}
	log := w.get(w.person(w.acme, auth.Viewer), "/api/v1/tenants/acme/audit?object_kind=member").body
	for _, want := range []string{
		`"follow the groups of The idp"`, `"sign-in at The idp"`,
		`"granted_by":"` + w.provider.URL + `"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log lacks %s", want)
		}
	}
}

func TestGroupsThatAreNotConfiguredAnyMoreGiveNothing(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, withGroups)
	w.person(w.acme, auth.Owner)
	w.platformAdmin()
	p := w.profile(caller{})
	p.signIn(inGroups("ada", "leads", "admins"), "")
	account, _ := p.who()
	without := auth.IdentityProvider{Slug: "idp", Name: "The idp", Issuer: w.provider.URL, CountsAsTwoFactors: true}
	identity := auth.Identity{
		Provider: &without, Subject: "ada", Email: "ada@example.com", EmailVerified: true,
		HasClaim: true,
	}
	must(w.gate.SignInWith(w.ctx(), "req", auth.Digest{1}, identity, auth.Browser{}))(t)
	left, memberships := p.who()
	if left.ID != account.ID || left.PlatformAdmin || len(memberships) > 0 {
		t.Errorf("left are %+v, %v", left, memberships)
	}
}

func TestRolesThatPeopleGaveStay(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, withGroups)
	owner := w.person(w.acme, auth.Owner)
	p := w.profile(caller{})
	p.signIn(inGroups("ada", "ops"), "")
	account, _ := p.who()
	member := fmt.Sprintf("/api/v1/tenants/acme/members/%d", account.ID)
	if got := w.get(owner, member); !strings.Contains(got.body,
		`"granted_by":"`+w.provider.URL+`"`) {
		t.Errorf("the member is %s", got.body)
	}
	if got := w.want(w.do(owner, w.json("PATCH", member, map[string]string{"role": "viewer"})),
		http.StatusOK); !strings.Contains(got.body, `"granted_by":null`) {
		t.Errorf("the member is %s", got.body)
	}
	p.signIn(inGroups("ada", "leads"), "")
	if _, memberships := p.who(); !slices.Equal(memberships, []string{"acme viewer"}) {
		t.Errorf("the memberships are %v", memberships)
	}
	p.signIn(inGroups("ada"), "")
	if _, memberships := p.who(); !slices.Equal(memberships, []string{"acme viewer"}) {
		t.Errorf("the memberships are %v", memberships)
	}
}

func TestTheLastOwnerAndTheLastAdminStay(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, withGroups)
	p := w.profile(caller{})
	p.signIn(inGroups("ada", "leads", "admins"), "")
	p.signIn(inGroups("ada"), "")
	if account, memberships := p.who(); !account.PlatformAdmin || !slices.Equal(memberships, []string{"acme owner"}) {
		t.Errorf("left are %+v, %v", account, memberships)
	}
	w.person(w.acme, auth.Owner)
	w.platformAdmin()
	p.signIn(inGroups("ada"), "")
	if account, memberships := p.who(); account.PlatformAdmin || len(memberships) > 0 {
		t.Errorf("left are %+v, %v", account, memberships)
	}
}
