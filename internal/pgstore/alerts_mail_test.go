package pgstore_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/mailer"
	"github.com/sluicegate/sluice/internal/mailer/smtptest"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// mailedTo is an alert of 10 denials in 5 minutes that mails a member.
func mailedTo(rule rules.Rule, email string) violations.Alert {
	alert := alertOn(rule, true)
	alert.SetFormat(violations.FormatEmail)
	alert.Email = email
	return alert
}

// join makes a member of our tenant.
func (w *world) join(t *testing.T, email string) auth.Account {
	t.Helper()
	account := must(w.CreateAccount(t.Context(), rules.Actor{}, auth.Account{Email: email}, "hash"))(t)
	exec(t, w.url, "INSERT INTO member (tenant_id, account_id, role) VALUES ($1, $2, 'viewer')", w.ours.ID, account.ID)
	return account
}

func TestAnAlertIsMailedToProvenMembersOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.join(t, "Ada@example.com")
	stranger := must(w.CreateAccount(t.Context(), rules.Actor{}, auth.Account{Email: "stranger@example.com"}, "hash"))(t)
	for _, email := range []string{stranger.Email, "nobody@example.com"} {
		_, err := w.CreateAlert(t.Context(), tester, mailedTo(w.ours.user, email))
		wantFields(t, err, "email")
	}
	alert := must(w.CreateAlert(t.Context(), tester, mailedTo(w.ours.user, "ada@example.com")))(t)
	for _, sql := range []string{
		"UPDATE account SET unproven_in = $1 WHERE account_id = $2",
		"UPDATE account SET unproven_in = NULL, disabled_at = now() WHERE $1 > 0 AND account_id = $2",
	} {
		exec(t, w.url, sql, w.ours.ID, ada.ID)
		_, err := w.UpdateAlert(t.Context(), tester, alert)
		wantFields(t, err, "email")
	}
	off := alert
	off.Active = false
	must(w.UpdateAlert(t.Context(), tester, off))(t)
}

func TestAMailedAlertHasTheStateOfItsMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	ada := w.join(t, "ada@example.com")
	alert := must(w.CreateAlert(ctx, tester, mailedTo(w.ours.user, ada.Email)))(t)
	w.deny(t, w.ours.user, "customer-42", now, 1200)
	must(w.RaiseAlerts(ctx, w.ours.ID, now))(t)
	latest := func() violations.Delivery { return must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 1))(t)[0] }
	never := &receiver{answer: func() (int, error) { t.Error("mail was posted"); return 500, nil }}
	w.deliver(t, never, now)
	if d := latest(); d.State != violations.DeliveryPending || !d.InMail {
		t.Errorf("before the mail server has it, the delivery is %+v", d)
	}
	server := smtptest.New(t, smtptest.Options{})
	post := auth.NewPostOffice(w, must(mailer.New(mailer.Options{
		Addr: server.Addr, TLS: mailer.StartTLS, From: "sluice@example.com", URL: "https://sluice.example.com", Trust: server.Trust,
	}))(t), slog.New(slog.DiscardHandler))
	if err := post.Deliver(ctx, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	post.Wait()
	sent := server.Messages()
	if len(sent) != 1 || sent[0].To != "ada@example.com" || sent[0].Subject != "Alert of ours: too many" {
		t.Fatalf("the server has %+v", sent)
	}
	for _, want := range []string{"user:{user_id} (all plans) denied 1,200 checks of one subject within 5 minutes.", "https://sluice.example.com/t/ours/settings/alerts?entry="} {
		if !strings.Contains(sent[0].Plain, want) {
			t.Errorf("%q is not in\n%s", want, sent[0].Plain)
		}
	}
	if strings.Contains(sent[0].Plain+sent[0].HTML, "customer-42") {
		t.Error("the message names a user, and it cannot be erased")
	}
	if d := latest(); d.State != violations.DeliveryDelivered {
		t.Errorf("after the mail server has it, the delivery is %+v", d)
	}
}

func TestAMemberWhoLeftGetsNoMailOfAlerts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	ada := w.join(t, "ada@example.com")
	alert := must(w.CreateAlert(ctx, tester, mailedTo(w.ours.user, ada.Email)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	must(w.RaiseAlerts(ctx, w.ours.ID, now))(t)
	exec(t, w.url, "DELETE FROM member WHERE account_id = $1", ada.ID)
	w.deliver(t, nil, now)
	d := must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 1))(t)[0]
	if d.State != violations.DeliveryPending || d.InMail || !strings.Contains(d.Error, "member") || !d.NextAttemptAt.Equal(now.Add(30*time.Second)) {
		t.Errorf("the delivery is %+v", d)
	}
	if mails := must(w.Mails(ctx, 0, 10))(t); len(mails) > 0 {
		t.Errorf("mail is queued: %+v", mails)
	}
}

func TestAlertsKeepNobodyFromBeingInvited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, kind := range []auth.MailKind{auth.MailAlert, auth.MailInvitation} {
		for n := range 3 {
			_, err := w.QueueMail(t.Context(), auth.Mail{Tenant: w.ours.ID, Kind: kind, To: "ada@example.com", GiveUpAt: time.Now().Add(time.Hour)},
				auth.MailLimits{Queued: 2, Day: 2})
			if n < 2 && err != nil {
				t.Fatal(err)
			}
			if n == 2 {
				wantError(t, err, auth.ErrTooMuchMail)
			}
		}
	}
}
