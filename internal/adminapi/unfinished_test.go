package adminapi_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

type noNotices struct{ auth.Store }

func (s noNotices) QueueMail(ctx context.Context, mail auth.Mail, limits auth.MailLimits) (auth.Mail, error) {
	if mail.Kind == auth.MailNotice {
		return auth.Mail{}, errors.New("the queue is away")
	}
	return s.Store.QueueMail(ctx, mail, limits)
}

func (noNotices) ForgetAttempts(context.Context, auth.Subject) error {
	return errors.New("the attempts are away")
}

func TestAChangeIsAnsweredThoughItsNoticeIsNotQueued(t *testing.T) {
	t.Parallel()
	var unfinished atomic.Int64
	w := newWorld(t, func(c *adminapi.Config) {
		c.Gate = auth.NewGate(noNotices{c.People}, auth.Options{
			Mail: true, Vault: must(auth.NewVault("c2l4dGVlbiBieXRlcyBhbmQgc2l4dGVlbiBtb3JlISE="))(t),
			Unfinished: func(context.Context, error) { unfinished.Add(1) },
		})
	})
	by := w.person(w.acme, auth.Owner)
	ask := func(by caller, method, path string, body any, status int, header ...string) answer {
		t.Helper()
		before := unfinished.Load()
		got := w.want(w.send(by, method, path, body, header...), status)
		if unfinished.Load() == before {
			t.Errorf("%s %s leaves nothing unfinished", method, path)
		}
		return got
	}
	codesOf := func(got answer) []string {
		t.Helper()
		codes := read[struct {
			RecoveryCodes []string `json:"recovery_codes"`
		}](t, got).RecoveryCodes
		if len(codes) != auth.RecoveryCodes {
			t.Fatalf("there are %d recovery codes in %s", len(codes), got.body)
		}
		return codes
	}
	signIn := map[string]any{"email": by.account.Email, "password": password}
	ask(caller{}, "POST", "/api/v1/session", signIn, http.StatusOK)
	ask(by, "POST", "/api/v1/session/confirm", map[string]any{"password": password}, http.StatusNoContent)

	secret := read[struct{ Secret string }](t,
		w.want(w.send(by, "POST", "/api/v1/account/second-factor", nil), http.StatusOK)).Secret
	codesOf(ask(by, "POST", "/api/v1/account/second-factor/confirm", map[string]any{"code": w.code(secret)},
		http.StatusOK))
	codes := codesOf(ask(by, "POST", "/api/v1/account/second-factor/recovery-codes", nil, http.StatusOK))
	first := ask(caller{}, "POST", "/api/v1/session", signIn, http.StatusAccepted)
	cookie, _, _ := strings.Cut(first.header.Get("Set-Cookie"), ";")
	ask(caller{}, "POST", "/api/v1/session/second-factor", map[string]any{"code": codes[0]}, http.StatusOK, "Cookie",
		cookie)
	ask(by, "DELETE", "/api/v1/account/second-factor", nil, http.StatusNoContent)

	path := fmt.Sprintf("/api/v1/account/identities/%d/unlink", w.identity(by.account))
	ask(by, "POST", path, nil, http.StatusNoContent)

	ask(by, "PUT", "/api/v1/account/password",
		map[string]any{"current_password": password, "new_password": nextPassword}, http.StatusNoContent)
	token := strings.Repeat("t", len(by.session))
	if err := w.store.CreateMailedLink(w.ctx(), by.account.ID, auth.MailReset, sha256.Sum256([]byte(token)),
		time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	ask(caller{}, "POST", "/api/v1/password-reset/finish",
		map[string]any{"token": token, "password": nextPassword + "!"}, http.StatusNoContent)
}

type hangUp struct {
	auth.Store
	now context.CancelFunc
}

func (s hangUp) TurnSecondFactorOff(ctx context.Context, by rules.Actor, account auth.AccountID,
	endSessions bool,
) (auth.Account, error) {
	defer s.now()
	return s.Store.TurnSecondFactorOff(ctx, by, account, endSessions)
}

func (s hangUp) ChangePassword(ctx context.Context, by rules.Actor, account auth.AccountID, from, to string) error {
	defer s.now()
	return s.Store.ChangePassword(ctx, by, account, from, to)
}

func TestACallerWhoHangsUpDoesNotStopTheNotice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	w.turnFactorOn(by)
	for name, change := range map[string]func(context.Context, *auth.Gate){
		"second factor": func(ctx context.Context, gate *auth.Gate) {
			if err := gate.TurnSecondFactorOff(ctx, by.account.Actor(), by.account, auth.Browser{}); err != nil {
				t.Error(err)
			}
		},
		"password": func(ctx context.Context, gate *auth.Gate) {
			session := auth.Session{ID: by.sessionID, Account: by.account}
			if _, err := gate.ChangePassword(ctx, session, password, nextPassword, auth.Browser{}); !errors.Is(err,
				context.Canceled) {
				t.Errorf("a session of a caller who hung up: %v", err)
			}
		},
	} {
		before := w.count("SELECT count(*) FROM mail")
		ctx, cancel := context.WithCancel(w.ctx())
		change(ctx, auth.NewGate(hangUp{w.store, cancel}, auth.Options{Mail: true}))
		if ctx.Err() == nil || w.count("SELECT count(*) FROM mail") != before+1 {
			t.Errorf("%s: the notice is not queued", name)
		}
	}
}
