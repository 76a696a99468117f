package adminapi_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/notify/mailer/smtptest"
	"github.com/sluicegate/sluice/internal/oidc/oidctest"
	"github.com/sluicegate/sluice/web"
)

// TestAStateIsUsedOnceThoughTheProviderGivesAnotherCode plays a thief who copied a browser's cookies and the address at
// the provider that it was sent to. The provider gives the thief another code for the same state.
func TestAStateIsUsedOnceThoughTheProviderGivesAnotherCode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path, body string
		by         func(*world) *profile
	}{
		"signing in": {start, `{}`, func(w *world) *profile { return w.profile(caller{}) }},
		"linking": {"/api/v1/account/identities", `{"provider":"idp"}`, func(w *world) *profile {
			return w.profile(w.person(w.acme, auth.Viewer))
		}},
		"signing in again": {confirmAt, `{"provider":"idp"}`, func(w *world) *profile { return w.staleSignIn("ada") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldOf(t, nil)
			p := test.by(w)
			w.provider.SignedIn(oidctest.Person("ada", "ada@example.com"))
			address := p.begin(test.path, test.body)
			thief := w.profile(caller{})
			for cookie, value := range p.cookies {
				thief.cookies[cookie] = value
			}
			if next := p.back(w.provider.Visit(address)); strings.Contains(next, "failed") {
				t.Fatalf("the browser is led to %s", next)
			}
			before := w.auditEntries()
			wantFailed(t, thief.back(w.provider.Visit(address)), auth.ProviderFlowEnded)
			if after := w.auditEntries(); after != before {
				t.Error("the second answer changed something")
			}
		})
	}
}

func TestProvidersAnswersLeadToThisSiteOnly(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, nil)
	const evil = "https://evil.example.com"
	for _, path := range []string{
		"/api/v1/auth/idp/callback?next=" + evil, "/api/v1/auth/idp/callback?code=a&state=b&iss=" + evil +
			"&redirect_uri=" + evil,
		"/api/v1/auth/idp/callback?error=access_denied&error_uri=" + evil,
		"/api/v1/auth/" + url.PathEscape("/evil.example.com/") + "/callback",
		"/api/v1/auth/idp/sign-out", "/api/v1/auth/" + url.PathEscape("/evil.example.com") + "/sign-out",
	} {
		got := w.profile(caller{}).send(http.MethodGet, path, "")
		next := got.Header().Get("Location")
		if got.Code != http.StatusSeeOther || !strings.HasPrefix(next, "/sign-in") || strings.Contains(next, "evil") {
			t.Errorf("%s is answered %d and leads to %q", path, got.Code, next)
		}
		if policy := got.Header().Get("Referrer-Policy"); policy != "no-referrer" {
			t.Errorf("%s: the page after it is told the code: its Referrer-Policy is %q", path, policy)
		}
	}
	got := w.profile(caller{}).send(http.MethodGet, "/api/v1/auth/idp/sign-out?post_logout_redirect_uri="+evil, "")
	if got.Code != http.StatusBadRequest || got.Header().Get("Location") != "" {
		t.Errorf("a parameter of the provider's is answered %d and leads to %q", got.Code, got.Header().Get("Location"))
	}
}

// TestLinksTellTheirTokenToNobody follows mailed links: the token is in the fragment, which no request or Referer has,
// and the pages send no Referer to other sites.
func TestLinksTellTheirTokenToNobody(t *testing.T) {
	t.Parallel()
	var pages bytes.Buffer
	ui, err := web.Handler(slog.New(slog.NewTextHandler(&pages, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *adminapi.Config) { c.UI = ui })
	server := smtptest.New(t, smtptest.Options{})
	office := w.postOffice(server)
	w.want(w.askReset(w.account(false).Email), http.StatusNoContent)
	w.invite(w.person(w.acme, auth.Owner), "acme", "new-"+victim)
	token := *w.inviteSystem(w.acme, victim)
	by := sessionFrom(w.want(w.acceptAs(token), http.StatusOK))
	w.want(w.send(by, "POST", "/api/v1/account/proof", nil), http.StatusNoContent)
	w.deliver(office)
	sent := server.Messages()
	if len(sent) != 3 {
		t.Fatalf("the server has %+v", sent)
	}
	for _, message := range sent {
		links := 0
		for word := range strings.FieldsSeq(message.Plain) {
			if !strings.HasPrefix(word, loopback) {
				continue
			}
			links++
			link := must(url.Parse(word))(t)
			if link.Fragment != message.Token() || len(link.Fragment) < 43 ||
				strings.Contains(link.RequestURI(), message.Token()) {
				t.Errorf("%q has the link %s", message.Subject, word)
			}
			page := w.profile(caller{}).send(http.MethodGet, link.RequestURI(), "")
			if policy := page.Header().Get("Referrer-Policy"); policy != "same-origin" && policy != "no-referrer" {
				t.Errorf("%s: Referrer-Policy is %q", link.Path, policy)
			}
			if refresh := page.Header().Get("Refresh") + page.Header().Get("Location"); refresh != "" {
				t.Errorf("%s leads on to %s", link.Path, refresh)
			}
		}
		if links != 1 {
			t.Errorf("%q has %d links:\n%s", message.Subject, links, message.Plain)
		}
		w.secrets = append(w.secrets, message.Token())
	}
	if got := w.finishReset("x", nextPassword); got.header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the API's Referrer-Policy is %q", got.header.Get("Referrer-Policy"))
	}
	w.wantNoSecrets()
}
