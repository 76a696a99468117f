package adminapi_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/notify/mailer"
	"github.com/sluicegate/sluice/internal/notify/mailer/smtptest"
	"github.com/sluicegate/sluice/internal/rules"
)

const victim = "grace@example.com"

type createdInvitation struct {
	Token      *string `json:"token"`
	Invitation struct {
		ID   int64 `json:"invitation_id,string"`
		Mail *struct {
			State string `json:"state"`
			Error string `json:"error"`
		} `json:"mail"`
	} `json:"invitation"`
}

func withoutMail(c *adminapi.Config) { c.Gate = auth.NewGate(c.People, auth.Options{}) }

func (w *world) postOffice(server *smtptest.Server) *auth.PostOffice {
	w.t.Helper()
	sender := must(mailer.New(mailer.Options{
		Addr: server.Addr, TLS: mailer.StartTLS, From: "sluice@example.com", URL: loopback, Trust: server.Trust,
		Timeout: time.Minute,
	}))(w.t)
	return auth.NewPostOffice(w.store, sender, slog.New(slog.NewTextHandler(&w.log, nil)))
}

func (w *world) deliver(office *auth.PostOffice) {
	w.t.Helper()
	for range 5 {
		w.round(office.Jobs())
	}
}

func (w *world) invite(by caller, slug, email string) createdInvitation {
	w.t.Helper()
	got := w.want(w.send(by, "POST", "/api/v1/tenants/"+slug+"/invitations",
		map[string]string{"email": email, "role": "editor"}), http.StatusCreated)
	return read[createdInvitation](w.t, got)
}

func (w *world) acceptAs(token string) answer {
	w.t.Helper()
	return w.send(caller{}, "POST", "/api/v1/invitations/accept",
		map[string]string{"token": token, "name": "G", "password": password})
}

func (w *world) signIn(email, tenant string) answer {
	w.t.Helper()
	body := map[string]string{"email": email, "password": password}
	if tenant != "" {
		body["tenant"] = tenant
	}
	return w.send(caller{}, "POST", "/api/v1/session", body)
}

// An owner invites an address that is not the owner's, and uses the link instead of passing it on.
func TestAnInviterCannotTakeTheInviteesIdentity(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutMail)
	mallory, honest := w.person(w.acme, auth.Owner), w.person(w.other, auth.Owner)
	taken := w.invite(mallory, "acme", victim)
	if taken.Token == nil {
		t.Fatal("without mail the inviter has no link to pass on")
	}
	by := sessionFrom(w.want(w.acceptAs(*taken.Token), http.StatusOK))

	w.want(w.acceptAs(*w.invite(honest, "other", victim).Token), http.StatusOK)

	proven := must(w.gate.CreateAdmin(w.ctx(), rules.Actor{}, victim, password))(t)
	if found, _, err := w.store.PasswordOf(w.ctx(), victim, ""); err != nil || found.ID != proven.ID {
		t.Errorf("the address is that of %+v, %v", found, err)
	}
	impostor, _, err := w.store.PasswordOf(w.ctx(), victim, "acme")
	if err != nil || impostor.Proven() || impostor.UnprovenIn != w.acme.ID {
		t.Errorf("the account in acme is %+v, %v", impostor, err)
	}
	token := *w.inviteSystem(w.tenant("third"), victim)
	got := w.send(by, "POST", "/api/v1/invitations/accept", map[string]string{"token": token})
	if got.status != http.StatusConflict || !strings.Contains(got.body, "until its address is verified") {
		t.Errorf("an impostor who accepts an invitation of another tenant is answered %d: %s", got.status, got.body)
	}
	if _, err := w.store.AddMember(w.ctx(), rules.Actor{}, w.other.ID, impostor.ID, auth.Owner); err == nil {
		t.Error("an unproven account became a member of another tenant")
	}
	members := w.get(mallory, "/api/v1/tenants/acme/members")
	if !strings.Contains(members.body, `"proven":false`) {
		t.Errorf("the members are %s", members.body)
	}
	if name := impostor.Actor(); !strings.Contains(name.Name, "(not verified)") {
		t.Errorf("the audit log calls it %q", name.Name)
	}
	admin := w.platformAdmin()
	account := "/api/v1/accounts/" + idOf(impostor.ID)
	w.want(w.send(admin, "PATCH", account, map[string]bool{"platform_admin": true}, "If-Match", "*"),
		http.StatusConflict)
	w.want(w.send(admin, "PATCH", account, map[string]bool{"proven": true}, "If-Match", "*"), http.StatusConflict)
}

func idOf(id auth.AccountID) string { return fmt.Sprint(int64(id)) }

func sessionFrom(got answer) caller {
	for _, cookie := range (&http.Response{Header: got.header}).Cookies() {
		if cookie.Name == "sluice_session" {
			return caller{session: cookie.Value}
		}
	}
	return caller{}
}

func (w *world) inviteSystem(tenant rules.Tenant, email string) *string {
	w.t.Helper()
	_, token, err := auth.NewGate(w.store, auth.Options{}).Invite(w.ctx(),
		rules.Actor{Kind: rules.ActorSystem, Name: "test"},
		auth.Invitation{TenantID: tenant.ID, Email: email, Role: auth.Viewer})
	if err != nil {
		w.t.Fatal(err)
	}
	return &token
}

func TestUnprovenAccountsSignInAtTheirTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutMail)
	owner := w.person(w.acme, auth.Owner)
	w.want(w.acceptAs(*w.invite(owner, "acme", victim).Token), http.StatusOK)
	w.want(w.signIn(victim, ""), http.StatusUnauthorized)
	w.want(w.signIn(victim, "other"), http.StatusUnauthorized)
	w.want(w.signIn(victim, "acme"), http.StatusOK)

	account, _, err := w.store.PasswordOf(w.ctx(), victim, "acme")
	if err != nil {
		t.Fatal(err)
	}
	admin := w.platformAdmin()
	got := w.want(w.send(admin, "PATCH", "/api/v1/accounts/"+idOf(account.ID), map[string]bool{"proven": true},
		"If-Match", "*"), http.StatusOK)
	if !strings.Contains(got.body, `"proven":true`) {
		t.Errorf("the account is %s", got.body)
	}
	w.want(w.signIn(victim, ""), http.StatusOK)
	w.want(w.signIn(victim, "acme"), http.StatusOK) // a bookmark goes on working
}

func TestEveryRefusalSaysWherePeopleWhoJoinedByALinkSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutMail)
	owner := w.person(w.acme, auth.Owner)
	w.want(w.acceptAs(*w.invite(owner, "acme", victim).Token), http.StatusOK)
	disabled := w.person(w.acme, auth.Viewer)
	w.exec("UPDATE account SET disabled_at = now() WHERE account_id = $1", disabled.account.ID)

	details := func(email, tenant string) (status int, detail string) {
		got := w.send(caller{}, "POST", "/api/v1/session",
			map[string]string{"email": email, "password": "not theirs", "tenant": tenant})
		return got.status, read[struct {
			Detail string `json:"detail"`
		}](t, got).Detail
	}
	said := map[string][]string{}
	for _, email := range []string{victim, owner.account.Email, disabled.account.Email, "nobody@example.com"} {
		for _, tenant := range []string{"", "acme", "nowhere"} {
			status, detail := details(email, tenant)
			if status != http.StatusUnauthorized {
				t.Fatalf("%s at %q is answered %d: %s", email, tenant, status, detail)
			}
			said[detail] = append(said[detail], email+" at "+tenant)
			if hint := "People who joined by a link sign in at their tenant's address"; strings.Contains(detail,
				hint) != (tenant == "") {
				t.Errorf("%s at %q is told %q", email, tenant, detail)
			}
		}
	}
	if len(said) != 2 {
		t.Errorf("the refusals differ by who asks: %q", said)
	}
	for _, email := range []string{victim, owner.account.Email, "nobody@example.com"} {
		// A machine that is busy for the second of the first wait gets past it, but not past all.
		status, detail := details(email, "")
		for tries := 0; status == http.StatusUnauthorized && tries < 50; tries++ {
			status, detail = details(email, "")
		}
		if status != http.StatusTooManyRequests || !strings.Contains(detail, "at their tenant's address") {
			t.Errorf("%s is told to wait in the words %q", email, detail)
		}
	}
}

func TestWithMailAnInvitationGoesToTheInviteeAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := smtptest.New(t, smtptest.Options{})
	office := w.postOffice(server)
	owner := w.person(w.acme, auth.Owner)
	invited := w.invite(owner, "acme", victim)
	if invited.Token != nil || invited.Invitation.Mail == nil || invited.Invitation.Mail.State != "queued" {
		t.Fatalf("the inviter is answered %+v", invited)
	}
	w.deliver(office)
	sent := server.Messages()
	if len(sent) != 1 || sent[0].To != victim || sent[0].Token() == "" {
		t.Fatalf("the server has %+v", sent)
	}
	w.secrets = append(w.secrets, sent[0].Token())
	listed := w.get(owner, "/api/v1/tenants/acme/invitations")
	if !strings.Contains(listed.body, `"state":"sent"`) {
		t.Errorf("the invitations are %s", listed.body)
	}
	w.want(w.acceptAs(sent[0].Token()), http.StatusOK)
	w.want(w.signIn(victim, ""), http.StatusOK)
	w.want(w.acceptAs(sent[0].Token()), http.StatusNotFound)
	w.wantNoSecrets()
}

func TestMailThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := smtptest.New(t, smtptest.Options{})
	server.Refuse(func(to string) error {
		if to == victim {
			return &smtp.SMTPError{Code: 550, Message: "no such mailbox"}
		}
		return nil
	})
	office := w.postOffice(server)
	owner := w.person(w.acme, auth.Owner)
	w.invite(owner, "acme", victim)
	w.invite(owner, "acme", "other-"+victim)
	w.deliver(office)
	if sent, failed := office.Attempts(); sent != 1 || failed != 1 {
		t.Errorf("the attempts are counted as %d and %d, want 1 and 1", sent, failed)
	}
	listed := w.get(owner, "/api/v1/tenants/acme/invitations")
	if !strings.Contains(listed.body, `"state":"failed"`) || !strings.Contains(listed.body, "no such mailbox") ||
		!strings.Contains(listed.body, `"state":"sent"`) {
		t.Errorf("the invitations are %s", listed.body)
	}
	admin := w.platformAdmin()
	if all := w.get(admin, "/api/v1/mail"); !strings.Contains(all.body,
		"no such mailbox") {
		t.Errorf("the mail is %s", all.body)
	}
}
