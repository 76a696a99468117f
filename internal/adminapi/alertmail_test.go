package adminapi_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/notify/mailer/smtptest"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestDeniedChecksBecomeMail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, owner := t.Context(), w.person(w.acme, auth.Owner)
	rule := w.rule(w.acme, func(r *rules.Rule) { r.Mode = rules.ModeEnforce })
	made := read[alertAnswer](t, w.want(w.send(owner, "POST", alerts, map[string]any{
		"name": "too many", "rule_id": fmt.Sprint(rule.ID), "per": "subject", "threshold": 100, "window_minutes": 5,
		"format": "email", "email": owner.account.Email,
	}), http.StatusCreated))
	type delivery struct {
		State     string  `json:"state"`
		Attempts  int     `json:"attempts"`
		Subject   *string `json:"subject"`
		Denied    int64   `json:"denied"`
		LastError string  `json:"last_error"`
		UnderWay  bool    `json:"is_under_way"`
		NextAt    *string `json:"next_attempt_at"`
	}
	deliveries := func() []delivery {
		t.Helper()
		path := fmt.Sprintf("%s/%d/deliveries", alerts, made.Alert.AlertID)
		return read[struct {
			Items []delivery `json:"items"`
		}](t, w.get(owner, path)).Items
	}
	log := slog.New(slog.DiscardHandler)
	raise := func(now time.Time) {
		t.Helper()
		if err := violations.RaiseAll(ctx, w.store, now, log); err != nil {
			t.Fatal(err)
		}
		w.work(violations.AlertKinds(w.store, deadReceiver{}, log)[1:]...) // mail needs no receiver
	}
	now := time.Now()
	deny := func(user string, checks int) {
		t.Helper()
		recorder := violations.NewRecorder(w.store, violations.Options{Logger: slog.New(slog.DiscardHandler)})
		for range checks {
			recorder.Record(now, &violations.Check{
				Tenant: w.acme.ID, Request: &rules.Request{UserID: user}, Cost: violations.Token,
				Tiers: []violations.Tier{{
					Rule: &rule, Mode: rules.ModeEnforce, Subject: user, Reason: "limit_exceeded",
					BucketRead: true,
				}},
			})
		}
		if err := recorder.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	deny("customer-42", 99)
	if raise(now); len(deliveries()) != 0 {
		t.Fatalf("99 denials raised %+v", deliveries())
	}
	deny("customer-42", 1101)
	raise(now)
	waiting := deliveries()
	if len(waiting) != 1 || waiting[0].State != "pending" || !waiting[0].UnderWay || waiting[0].LastError != "" ||
		waiting[0].Denied != 1200 || waiting[0].Subject == nil || *waiting[0].Subject != "customer-42" {
		t.Fatalf("with the mail queued the deliveries are %+v", waiting)
	}

	server := smtptest.New(t, smtptest.Options{})
	var refused atomic.Int64
	server.Refuse(func(string) error {
		refused.Add(1)
		return &smtp.SMTPError{Code: 451, Message: "come back later"}
	})
	office := w.postOffice(server)
	w.round(office.Jobs())
	failing := deliveries()
	if len(failing) != 1 || failing[0].State != "pending" || !failing[0].UnderWay ||
		!strings.Contains(failing[0].LastError, "come back later") {
		t.Errorf("after a refusal for now the deliveries are %+v", failing)
	}
	if w.round(office.Jobs()); refused.Load() != 1 {
		t.Errorf("the server was asked %d times before the pause was over", refused.Load())
	}
	server.Refuse(nil)
	w.work(office.Jobs())
	sent := server.Messages()
	if len(sent) != 1 || sent[0].To != owner.account.Email || sent[0].Subject != "Alert of acme: too many" ||
		!sent[0].Encrypted {
		t.Fatalf("the server has %+v", sent)
	}
	for _, part := range []string{sent[0].Plain, sent[0].HTML} {
		for _, want := range []string{
			"denied 1,200 checks of one subject within 5 minutes.",
			fmt.Sprintf("/t/acme/settings/alerts?entry=%d", made.Alert.AlertID),
			"Owners of the tenant can change it.",
		} {
			if !strings.Contains(part, want) {
				t.Errorf("%q is not in\n%s", want, part)
			}
		}
		if strings.Contains(part, "customer-42") {
			t.Errorf("the message names a user, and it cannot be erased:\n%s", part)
		}
	}
	delivered := deliveries()
	if len(delivered) != 1 || delivered[0].State != "delivered" || delivered[0].UnderWay ||
		delivered[0].LastError != "" || delivered[0].NextAt != nil {
		t.Errorf("once the server has the message the deliveries are %+v", delivered)
	}
	raise(now.Add(2 * time.Second)) // the denials were told already
	if w.work(office.Jobs()); len(server.Messages()) != 1 {
		t.Errorf("one alert became %d messages", len(server.Messages()))
	}
}
