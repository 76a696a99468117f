package adminapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/notify/mailer/smtptest"
	"github.com/sluicegate/sluice/internal/oidc"
	"github.com/sluicegate/sluice/internal/oidc/oidctest"
)

// linked is a member of the tenant strict, which requires a second factor, who can sign in by password and at the
// provider as grace.
func (w *world) linked() caller {
	w.t.Helper()
	by := w.person(w.strict, auth.Owner)
	p := w.profile(by)
	w.provider.SignedIn(oidctest.Person("grace", "grace@example.com"))
	if next := p.back(w.provider.Visit(p.begin("/api/v1/account/identities",
		`{"provider":"idp"}`))); next != "/profile?linked=idp" {
		w.t.Fatalf("linking leads to %s", next)
	}
	return by
}

// Mallory uses a leaked link, and makes the account hers in every way that an account has. An owner removes her and
// invites the invitee again, who then holds the account alone.
func TestWhoTakesAnUnverifiedAccountOverHoldsItAlone(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	mallory := sessionFrom(w.want(w.acceptAs(*w.inviteSystem(w.acme, victim)), http.StatusOK))
	p, person := w.profile(mallory), oidctest.Person("mallory", "mallory@example.com")
	w.provider.SignedIn(person)
	if next := p.back(w.provider.Visit(p.begin("/api/v1/account/identities",
		`{"provider":"idp"}`))); next != "/profile?linked=idp" {
		t.Fatalf("linking leads to %s", next)
	}
	begun := w.want(w.send(mallory, "POST", "/api/v1/account/second-factor", nil), http.StatusOK)
	codes := read[struct {
		RecoveryCodes []string `json:"recovery_codes"`
	}](t, w.want(w.send(mallory, "POST", "/api/v1/account/second-factor/confirm",
		map[string]any{"code": w.code(read[struct{ Secret string }](t, begun).Secret)}), http.StatusOK)).RecoveryCodes
	w.want(w.signIn(victim, "acme"), http.StatusAccepted)
	waiting, _, _ := strings.Cut(w.signIn(victim, "acme").header.Get("Set-Cookie"), ";")
	held := `SELECT (SELECT count(*) FROM account_identity) + (SELECT count(*) FROM second_factor) +
		(SELECT count(*) FROM recovery_code) + (SELECT count(*) FROM pending_sign_in) + (SELECT count(*) FROM account
			WHERE second_factor_at IS NOT NULL OR recovery_codes_at IS NOT NULL)`
	if n := w.count(held); n < 1+1+len(codes)+2+1 {
		t.Fatalf("Mallory holds the account by %d things", n)
	}

	account, _ := p.who()
	w.want(w.send(w.person(w.acme, auth.Owner), "DELETE", fmt.Sprintf("/api/v1/tenants/acme/members/%d", account.ID),
		nil, "If-Match", "*"), http.StatusNoContent)
	accept := map[string]string{"token": *w.inviteSystem(w.acme, victim), "name": "Grace", "password": nextPassword}
	accepted := w.want(w.send(caller{}, "POST", "/api/v1/invitations/accept", accept), http.StatusOK)
	if !strings.Contains(accepted.body, `"name":"Grace"`) {
		t.Errorf("the session of the invitee is %s", accepted.body)
	}
	w.get(sessionFrom(accepted), "/api/v1/tenants/acme/rules")
	if n := w.count(held); n != 0 {
		t.Errorf("Mallory still holds the account by %d things", n)
	}
	signIn := map[string]string{"email": victim, "password": nextPassword, "tenant": "acme"}
	w.want(w.send(caller{}, "POST", "/api/v1/session", signIn), http.StatusOK)

	w.want(w.send(mallory, "GET", "/api/v1/session", nil), http.StatusUnauthorized)
	w.want(w.signIn(victim, "acme"), http.StatusUnauthorized)
	w.want(w.send(caller{}, "POST", "/api/v1/session/second-factor", map[string]any{"code": codes[0]}, "Cookie",
		waiting), http.StatusUnauthorized)
	again := w.profile(caller{})
	again.signIn(person, "")
	if account, _ = again.who(); account.Email != "mallory@example.com" {
		t.Errorf("Mallory is signed in as %+v", account)
	}
}

// Accepting without a session makes a new account or asks the person to sign in, so it never meets a second factor.
func TestAcceptingWithoutASessionNeverWaitsForASecondFactor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	w.turnFactorOn(by)
	w.want(w.acceptAs(*w.inviteSystem(w.strict, by.account.Email)), http.StatusOK)
	server := smtptest.New(t, smtptest.Options{})
	w.invite(w.person(w.other, auth.Owner), "other", by.account.Email)
	w.deliver(w.postOffice(server))
	token := ""
	for _, message := range server.Messages() { // one tells of the factor, and has none
		token += message.Token()
	}
	w.wantKind(w.acceptAs(token), http.StatusConflict, "conflict")
	w.want(w.send(by, "POST", "/api/v1/invitations/accept", map[string]string{"token": token}), http.StatusOK)
}

func (p *profile) reaches() bool {
	p.w.t.Helper()
	session := p.send(http.MethodGet, "/api/v1/session", "")
	if session.Code != http.StatusOK {
		return false
	}
	says := strings.Contains(session.Body.String(), `"two_factors":true`)
	got := p.send(http.MethodGet, "/api/v1/tenants/strict/rules", "")
	if got.Code != http.StatusOK && !strings.Contains(got.Body.String(), "second-factor-required") {
		p.w.t.Errorf("the rules are answered %d: %s", got.Code, got.Body)
	}
	if says != (got.Code == http.StatusOK) {
		p.w.t.Errorf("the session says two_factors: %v, and the rules are answered %d", says, got.Code)
	}
	return got.Code == http.StatusOK
}

func TestAProviderCountsAsTwoFactorsOnlyAsConfigured(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		factor, claim string
		claims        oidctest.Claims
		hidden        bool // the claims are in the user information only
		want          bool
	}{
		"always":         {factor: "provider", want: true},
		"not configured": {claims: oidctest.Claims{"amr": []string{"pwd", "mfa"}}},
		"a method among others": {
			factor: "provider", claim: "amr=mfa",
			claims: oidctest.Claims{"amr": []string{"pwd", "mfa"}}, want: true,
		},
		"another method": {
			factor: "provider", claim: "amr=mfa",
			claims: oidctest.Claims{"amr": []string{"pwd"}},
		},
		"a method that contains it": {
			factor: "provider", claim: "amr=mfa",
			claims: oidctest.Claims{"amr": []string{"nomfa", "mfa2"}},
		},
		"no method": {factor: "provider", claim: "amr=mfa"},
		"a method of the person alone": {
			factor: "provider", claim: "amr=mfa",
			claims: oidctest.Claims{"amr": []string{"mfa"}}, hidden: true,
		},
		"the class": {
			factor: "provider", claim: "acr=urn:mace:incommon:iap:silver",
			claims: oidctest.Claims{"acr": "urn:mace:incommon:iap:silver"}, want: true,
		},
		"a lower class": {factor: "provider", claim: "acr=2", claims: oidctest.Claims{"acr": "1"}},
		"a claim of the provider's": {
			factor: "provider", claim: "realm.strong=true",
			claims: oidctest.Claims{"realm": map[string]any{"strong": true}}, want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldOf(t, func(s *oidc.Settings) {
				s.SecondFactor, s.SecondFactorClaim = test.factor, test.claim
				s.GroupsClaim, s.Groups = "groups", []oidc.Group{{Group: "ops", Tenant: "acme", Role: auth.Viewer}}
			})
			by := w.linked()
			person := oidctest.Person("grace", "grace@example.com")
			for claim, value := range test.claims {
				person[claim] = value
				if test.hidden {
					w.provider.Hide(claim)
				}
			}
			p := w.profile(caller{})
			p.signIn(person, "")
			if got := p.reaches(); got != test.want {
				t.Errorf("the tenant is open: %v, want %v", got, test.want)
			}
			secret := w.turnFactorOn(by)
			w.exec("UPDATE second_factor SET last_step = 0") // the code may be that which turned it on
			p = w.profile(caller{})
			next := p.signIn(person, "/t/strict/rules")
			if test.want {
				if next != "/t/strict/rules" || !p.reaches() {
					t.Errorf("the browser is led to %s", next)
				}
				return
			}
			if next != "/sign-in?next=%2Ft%2Fstrict%2Frules&step=code" || p.cookies["sluice_session"] != "" {
				t.Errorf("the browser is led to %s, with the cookies %v", next, p.cookies)
			}
			if got := p.send(http.MethodPost, "/api/v1/session/second-factor",
				fmt.Sprintf(`{"code":%q}`, w.code(secret))); got.Code != http.StatusOK || !p.reaches() {
				t.Errorf("the code is answered %d: %s", got.Code, got.Body)
			}
		})
	}
}

func TestAPasswordIsOneFactorWhateverTheProviderCountsAs(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, func(s *oidc.Settings) { s.SecondFactor = "provider" })
	by := w.linked()
	atProvider := w.profile(caller{})
	atProvider.signIn(oidctest.Person("grace", "grace@example.com"), "")
	if !atProvider.reaches() {
		t.Fatal("the sign-in at the provider does not count")
	}
	byPassword := w.profile(caller{})
	signIn := fmt.Sprintf(`{"email":%q,"password":%q}`, by.account.Email, password)
	if got := byPassword.send(http.MethodPost, "/api/v1/session", signIn); got.Code != http.StatusOK {
		t.Fatalf("the password is answered %d: %s", got.Code, got.Body)
	}
	if byPassword.reaches() {
		t.Error("a password opens a tenant that requires a second factor, because of another session")
	}
	w.member(w.acme, by.account, auth.Owner)
	const require = `{"settings":{"require_second_factor":true}}`
	if got := byPassword.send(http.MethodPatch, "/api/v1/tenants/acme", require, "If-Match",
		"*"); got.Code != http.StatusConflict {
		t.Errorf("requiring it after a password is answered %d: %s", got.Code, got.Body)
	}
	if got := atProvider.send(http.MethodPatch, "/api/v1/tenants/acme", require, "If-Match",
		"*"); got.Code != http.StatusOK {
		t.Errorf("requiring it after the provider is answered %d: %s", got.Code, got.Body)
	}
	w.turnFactorOn(by)
	again := w.profile(caller{})
	if got := again.send(http.MethodPost, "/api/v1/session", signIn); got.Code != http.StatusAccepted ||
		again.cookies["sluice_session"] != "" {
		t.Errorf("the password is answered %d with the cookies %v", got.Code, again.cookies)
	}
}
