package adminapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/notify/mailer/smtptest"
)

const nextPassword = "another password nobody guesses"

func (w *world) askReset(email string) answer {
	w.t.Helper()
	return w.send(caller{}, "POST", "/api/v1/password-reset", map[string]string{"email": email})
}

func (w *world) finishReset(token, password string) answer {
	w.t.Helper()
	return w.send(caller{}, "POST", "/api/v1/password-reset/finish",
		map[string]string{"token": token, "password": password})
}

func TestAPasswordIsResetByMail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := smtptest.New(t, smtptest.Options{})
	office := w.postOffice(server)
	by := w.person(w.acme, auth.Editor)
	email := by.account.Email
	w.want(w.askReset(strings.ToUpper(email)), http.StatusNoContent)
	w.deliver(office)
	w.want(w.askReset(email), http.StatusNoContent)
	w.deliver(office)
	sent := server.Messages()
	if len(sent) != 2 || sent[0].To != email {
		t.Fatalf("the server has %+v", sent)
	}
	token := sent[1].Token()
	w.secrets = append(w.secrets, token, nextPassword)
	w.want(w.finishReset(sent[0].Token(), nextPassword), http.StatusNotFound) // a later link replaces it
	w.want(w.finishReset(token, "short"), http.StatusBadRequest)
	w.want(w.finishReset(token, nextPassword), http.StatusNoContent)
	w.want(w.finishReset(token, nextPassword), http.StatusNotFound) // single use
	w.want(w.send(by, "GET", "/api/v1/session", nil), http.StatusUnauthorized)
	w.want(w.signIn(email, ""), http.StatusUnauthorized)
	w.want(w.send(caller{}, "POST", "/api/v1/session", map[string]string{"email": email, "password": nextPassword}),
		http.StatusOK)

	w.deliver(office)
	subjects := ""
	for _, message := range server.Messages() {
		subjects += message.Subject + "\n"
		if strings.Contains(message.Plain, nextPassword) {
			t.Error("a message has the password")
		}
	}
	if !strings.Contains(subjects, "Your password was changed") || !strings.Contains(subjects, "New sign-in") {
		t.Errorf("the account was told\n%s", subjects)
	}
	w.wantNoSecrets()
}

// Every address causes the same work while somebody waits: one attempt is counted and one message is queued. Only the
// PostOffice finds out that there is no account.
func TestAnUnknownAddressCannotBeToldFromAKnownOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := smtptest.New(t, smtptest.Options{})
	office := w.postOffice(server)
	known := w.account(false).Email
	first, second := w.askReset(known), w.askReset("nobody@example.com")
	if first.status != second.status || first.body != second.body {
		t.Errorf("the answers are %+v and %+v", first, second)
	}
	queued := must(w.store.Mails(w.ctx(), 0, 10))(t)
	if len(queued) != 2 || queued[0].Account != 0 || queued[1].Account != 0 || queued[0].Kind != auth.MailReset {
		t.Errorf("queued are %+v", queued)
	}
	w.deliver(office)
	if sent := server.Messages(); len(sent) != 1 || sent[0].To != known {
		t.Errorf("the server has %+v", sent)
	}
	if left := must(w.store.Mails(w.ctx(), 0, 10))(t); len(left) != 1 {
		t.Errorf("left are %+v", left)
	}
	for _, email := range []string{known, "nobody@example.com"} {
		for range 2 {
			w.want(w.askReset(email), http.StatusNoContent)
		}
		if got := w.askReset(email); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
			t.Errorf("the fourth request for %s is answered %d", email, got.status)
		}
	}
}

func TestAnAddressIsProvenByMailInTheAccountsOwnSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := smtptest.New(t, smtptest.Options{})
	office := w.postOffice(server)
	token := *w.inviteSystem(w.acme, victim) // a link that was passed on
	by := sessionFrom(w.want(w.acceptAs(token), http.StatusOK))
	stranger := w.person(w.other, auth.Owner)
	w.want(w.send(by, "POST", "/api/v1/account/proof", nil), http.StatusNoContent)
	w.deliver(office)
	sent := server.Messages()
	if len(sent) != 1 || sent[0].To != victim {
		t.Fatalf("the server has %+v", sent)
	}
	body := map[string]string{"token": sent[0].Token()}
	w.want(w.send(caller{}, "POST", "/api/v1/account/proof/finish", body), http.StatusUnauthorized)
	w.want(w.send(stranger, "POST", "/api/v1/account/proof/finish", body), http.StatusConflict)
	if got := w.want(w.send(by, "POST", "/api/v1/account/proof/finish", body),
		http.StatusOK); !strings.Contains(got.body, `"proven":true`) {
		t.Errorf("the account is %s", got.body)
	}
	w.want(w.signIn(victim, ""), http.StatusOK)
}
