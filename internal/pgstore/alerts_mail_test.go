package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/notify/mailer"
	"github.com/sluicegate/sluice/internal/notify/mailer/smtptest"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func mailedTo(rule rules.Rule, email string) violations.Alert {
	alert := alertOn(rule, true)
	alert.SetFormat(violations.FormatEmail)
	alert.Email = email
	return alert
}

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
	stranger := must(w.CreateAccount(t.Context(), rules.Actor{}, auth.Account{Email: "stranger@example.com"},
		"hash"))(t)
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
	must(w.raise(ctx, w.ours.ID, now))(t)
	exec(t, w.url, "UPDATE delivery SET raised_at = '2026-11-01 10:20:30Z' WHERE tenant_id = $1", w.ours.ID)
	latest := func() violations.Delivery { return must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 1))(t)[0] }
	never := &receiver{answer: func() (int, error) { t.Error("mail was posted"); return 500, nil }}
	w.deliver(t, never)
	if d := latest(); d.State != violations.DeliveryPending || !d.InMail {
		t.Errorf("before the mail server has it, the delivery is %+v", d)
	}
	server := smtptest.New(t, smtptest.Options{})
	post := auth.NewPostOffice(w, must(mailer.New(mailer.Options{
		Addr: server.Addr, TLS: mailer.StartTLS, From: "sluice@example.com", URL: "https://sluice.example.com",
		Trust: server.Trust,
	}))(t), slog.New(slog.DiscardHandler))
	w.work(t, post.Jobs())
	sent := server.Messages()
	if len(sent) != 1 || sent[0].To != "ada@example.com" || sent[0].Subject != "Alert of ours: too many" {
		t.Fatalf("the server has %+v", sent)
	}
	for _, want := range []string{
		"The rule “Each user · all plans” denied 1,200 checks of one subject within 5 minutes.",
		"https://sluice.example.com/t/ours/settings/alerts?entry=", "When: 1 November 2026, 10:20 UTC.",
	} {
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
	_, err := w.RetryDelivery(ctx, w.ours.ID, alert.ID, latest().ID)
	wantError(t, err, rules.ErrFinal)
	exec(t, w.url, "UPDATE mail SET state = 'failed' WHERE tenant_id = $1", w.ours.ID)
	if d := latest(); d.State != violations.DeliveryFailed {
		t.Errorf("after its mail failed, the delivery is %+v", d)
	}
	must(w.RetryDelivery(ctx, w.ours.ID, alert.ID, latest().ID))(t)
	w.deliver(t, never)
	w.work(t, post.Jobs())
	if d := latest(); d.State != violations.DeliveryDelivered || len(server.Messages()) != 2 {
		t.Errorf("after a retry there are %d messages, and the delivery is %+v", len(server.Messages()), d)
	}
}

func TestAMemberWhoLeftGetsNoMailOfAlerts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	ada := w.join(t, "ada@example.com")
	alert := must(w.CreateAlert(ctx, tester, mailedTo(w.ours.user, ada.Email)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	must(w.raise(ctx, w.ours.ID, now))(t)
	exec(t, w.url, "DELETE FROM member WHERE account_id = $1", ada.ID)
	w.deliver(t, nil)
	d := must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 1))(t)[0]
	if d.State != violations.DeliveryPending || d.InMail || !strings.Contains(d.Error, "member") {
		t.Errorf("the delivery is %+v", d)
	}
	wantPause(t, d.NextAttemptAt, 30*time.Second)
	if mails := must(w.Mails(ctx, 0, 10))(t); len(mails) > 0 {
		t.Errorf("mail is queued: %+v", mails)
	}
}

func TestAlertsKeepNobodyFromBeingInvited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, kind := range []auth.MailKind{auth.MailAlert, auth.MailInvitation} {
		for n := range 3 {
			_, err := w.QueueMail(t.Context(),
				auth.Mail{Tenant: w.ours.ID, Kind: kind, To: "ada@example.com", GiveUpAt: time.Now().Add(time.Hour)},
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

func (w *world) office(send func(letter *auth.Letter) error) jobs.Kind {
	return auth.NewPostOffice(w, sender(send), slog.New(slog.DiscardHandler)).Jobs()
}

type sender func(letter *auth.Letter) error

func (s sender) Send(_ context.Context, letter *auth.Letter) error { return s(letter) }

func TestMailThatIsNotSentIsRepeatedAndParkedAndShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	queue := func(giveUp time.Time) int64 {
		return must(w.QueueMail(t.Context(), auth.Mail{Kind: auth.MailTest, To: "ada@example.com", GiveUpAt: giveUp},
			auth.MailLimits{}))(t).ID
	}
	shown := func() auth.Mail { return must(w.Mails(t.Context(), 0, 1))(t)[0] }
	away := w.office(func(*auth.Letter) error { return errors.New("the mail server is away") })
	works := w.office(func(*auth.Letter) error { return nil })

	queue(time.Now().Add(7 * 24 * time.Hour))
	w.work(t, away)
	if m := shown(); m.State != auth.MailQueued || m.Attempts != 1 || !strings.Contains(m.Error, "away") {
		t.Errorf("after one attempt it is %+v", m)
	}
	wantPause(t, shown().NextAttemptAt, 30*time.Second)
	for range 14 {
		w.due(t)
		w.work(t, away)
	}
	if m := shown(); m.State != auth.MailFailed || m.Attempts != 12 {
		t.Errorf("after the last attempt it is %+v", m)
	}
	parked := must(w.ParkedJobs(t.Context(), 0, 10))(t)
	if len(parked) != 1 || parked[0].Kind != auth.MailJob || !strings.Contains(parked[0].Error, "away") {
		t.Fatalf("the parked jobs are %+v", parked)
	}
	if err := w.As(tester).RetryJob(t.Context(), parked[0].ID); err != nil {
		t.Fatal(err)
	}
	w.work(t, works)
	if m := shown(); m.State != auth.MailSent || m.Error != "" || w.jobsLike(t, "true") != 0 {
		t.Errorf("after it was retried it is %+v, and %d jobs are left", m, w.jobsLike(t, "true"))
	}

	queue(time.Now().Add(7 * 24 * time.Hour))
	w.work(t, w.office(func(*auth.Letter) error { return fmt.Errorf("no such mailbox: %w", auth.ErrMailRefused) }))
	refused := shown()
	queue(time.Now().Add(10 * time.Second))
	w.work(t, away)
	late := shown()
	if refused.State != auth.MailFailed || late.State != auth.MailFailed || w.jobsLike(t, "true") != 0 {
		t.Errorf("a refused one is %+v, and a late one %+v", refused, late)
	}
}

func TestAProcessThatDiesWhileItSendsLosesNoMail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(w.QueueMail(t.Context(), auth.Mail{
		Kind: auth.MailTest, To: "ada@example.com", GiveUpAt: time.Now().Add(time.Hour),
	}, auth.MailLimits{}))(t)
	late := w.claim(t, auth.MailJob)
	var sent atomic.Int64
	works := w.office(func(*auth.Letter) error { sent.Add(1); return nil })
	w.work(t, works)
	if sent.Load() != 0 {
		t.Error("it is sent twice within the lease")
	}
	w.die(t)
	w.work(t, works)
	m := must(w.Mails(t.Context(), 0, 1))(t)[0]
	if sent.Load() != 1 || m.State != auth.MailSent {
		t.Errorf("it was sent %d times, and is %+v", sent.Load(), m)
	}
	m.State, m.Error = auth.MailFailed, "late"
	if err := w.FinishMail(t.Context(), &late, &m); err != nil {
		t.Fatal(err)
	}
	if again := must(w.Mails(t.Context(), 0, 1))(t)[0]; again.State != auth.MailSent || again.Error != "" {
		t.Errorf("the process that was thought dead left %+v", again)
	}
}

func TestMailIsNotSentAfterItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(w.QueueMail(t.Context(), auth.Mail{
		Kind: auth.MailTest, To: "ada@example.com", GiveUpAt: time.Now().Add(-time.Second),
	}, auth.MailLimits{}))(t)
	w.work(t, w.office(func(*auth.Letter) error { t.Error("it is sent"); return nil }))
	if m := must(w.Mails(t.Context(), 0, 1))(t)[0]; m.State != auth.MailFailed || m.Error == "" ||
		w.jobsLike(t, "true") != 0 {
		t.Errorf("afterwards it is %+v, and %d jobs are left", m, w.jobsLike(t, "true"))
	}
}

func TestMailThatTheServerHasIsStoredThoughTheProcessStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(w.QueueMail(t.Context(), auth.Mail{
		Kind: auth.MailTest, To: "ada@example.com", GiveUpAt: time.Now().Add(time.Hour),
	}, auth.MailLimits{}))(t)
	ctx, stop := context.WithCancel(t.Context())
	r := runner(w, slog.New(slog.DiscardHandler), w.office(func(*auth.Letter) error { stop(); return nil }))
	if err := r.Round(ctx); err != nil {
		t.Fatal(err)
	}
	r.Wait()
	if m := must(w.Mails(t.Context(), 0, 1))(t)[0]; m.State != auth.MailSent || w.jobsLike(t, "true") != 0 {
		t.Errorf("afterwards it is %+v, and %d jobs are left", m, w.jobsLike(t, "true"))
	}
}

func TestAProcessThatFrozeDoesNotReviveMailThatWasGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(w.QueueMail(t.Context(), auth.Mail{
		Kind: auth.MailTest, To: "ada@example.com", GiveUpAt: time.Now().Add(time.Hour),
	}, auth.MailLimits{}))(t)
	w.work(t, w.office(func(*auth.Letter) error {
		exec(t, w.url, "DELETE FROM job")
		exec(t, w.url, "UPDATE mail SET state = 'failed', error = 'refused'")
		return errors.New("late")
	}))
	if m := must(w.Mails(t.Context(), 0, 1))(t)[0]; m.State != auth.MailFailed || m.Error != "refused" {
		t.Errorf("the process that froze left %+v", m)
	}
}
