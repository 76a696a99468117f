package adminapi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/notify/webhook"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func (w *world) alert(rule rules.Rule) violations.Alert {
	w.t.Helper()
	secret := "whs_of_" + w.name("alert") + "_0123456789abcdef"
	w.secrets = append(w.secrets, secret)
	return must(w.store.CreateAlert(w.ctx(), rules.Actor{Kind: rules.ActorSystem}, violations.Alert{
		Tenant: rule.TenantID, Name: w.name("alert"), Kind: violations.AlertDenials, Rule: rule.ID, Threshold: 10,
		Window: time.Minute,
		Format: violations.FormatWebhook, URL: "https://example.com/hook", Secret: secret, Active: true,
	}))(w.t)
}

const alerts = "/api/v1/tenants/acme/alerts"

type alertAnswer struct {
	Alert struct {
		AlertID int64 `json:"alert_id,string"`
		Version int64 `json:"version"`
	} `json:"alert"`
	Secret string `json:"secret"`
}

func TestTheSecretOfAnAlertIsShownOnceAndRotates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
	made := w.want(w.send(by, "POST", alerts, map[string]any{
		"name": "loud", "rule_id": fmt.Sprint(rule.ID), "per": "subject", "threshold": 5, "window_minutes": 10,
		"url": "https://example.com/hook",
	}), http.StatusCreated)
	first := read[alertAnswer](t, made)
	path := fmt.Sprintf("%s/%d", alerts, first.Alert.AlertID)
	if location := made.header.Get("Location"); location != path {
		t.Errorf("it is said to be at %s, want %s", location, path)
	}
	got := w.send(by, "POST", path+"/rotate", nil, "If-Match", made.header.Get("ETag"))
	second := read[alertAnswer](t, w.want(got, http.StatusOK))
	if first.Secret == second.Secret || len(first.Secret) < 30 || second.Alert.Version != 2 {
		t.Errorf("the secret %q became %q", first.Secret, second.Secret)
	}
	if stored := must(w.store.Alert(t.Context(), w.acme.ID, first.Alert.AlertID))(t); stored.Secret != second.Secret ||
		!stored.PerSubject {
		t.Errorf("the alert is stored as %+v", stored)
	}
	for _, path := range []string{
		path, alerts, path + "/deliveries", "/api/v1/tenants/acme/audit",
		"/api/v1/tenants/acme/audit/export",
	} {
		if got := w.get(by, path); strings.Contains(got.body, "whs_") {
			t.Errorf("%s shows a secret: %s", path, got.body)
		}
	}
	log := read[struct {
		Items []struct {
			Action string `json:"action"`
			Actor  struct {
				Name string `json:"name"`
				Act  string `json:"act"`
			} `json:"actor"`
		} `json:"items"`
	}](t, w.send(by, "GET", "/api/v1/tenants/acme/audit?object_kind=alert", nil)).Items
	if len(log) != 2 || log[0].Actor.Act != "rotate secret" || log[1].Action != "create" ||
		log[1].Actor.Name != by.account.Email {
		t.Errorf("the audit log has %+v", log)
	}
}

func TestAnAlertIsChangedAsItWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
	path := fmt.Sprintf("%s/%d", alerts, w.alert(rule).ID)
	got := w.want(w.send(by, "PATCH", path, map[string]any{"threshold": 99, "per": "subject", "window_minutes": 60},
		"If-Match", `"1"`), http.StatusOK)
	if !strings.Contains(got.body, `"threshold":99`) || !strings.Contains(got.body, `"window_minutes":60`) ||
		got.header.Get("ETag") != `"2"` {
		t.Errorf("it is changed to %s", got.body)
	}
	for _, lost := range []answer{
		w.send(by, "PATCH", path, map[string]any{"threshold": 1}, "If-Match", `"1"`),
		w.send(by, "POST", path+"/rotate", nil, "If-Match", `"1"`),
		w.send(by, "DELETE", path, nil, "If-Match", `"1"`),
	} {
		if lost.status != http.StatusPreconditionFailed || lost.header.Get("ETag") != `"2"` {
			t.Errorf("%s of an old version is answered %d with the ETag %s", lost.operation, lost.status,
				lost.header.Get("ETag"))
		}
	}
	for field, value := range map[string]any{
		"name": "", "rule_id": fmt.Sprint(w.rule(w.other).ID), "threshold": 0, "window_minutes": 61,
		"url": "ftp://example.com",
	} {
		got := w.want(w.send(by, "PATCH", path, map[string]any{field: value}, "If-Match", "*"), http.StatusBadRequest)
		if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/" + field}) {
			t.Errorf("a wrong %s points at %v", field, pointers)
		}
	}
	if err := w.system().RemoveRule(t.Context(), w.acme.ID, rule.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	got = w.get(by, path)
	if !strings.Contains(got.body, `"is_active":false`) || !strings.Contains(got.body, `"rule_removed":true`) {
		t.Errorf("after its rule was removed the alert is %s", got.body)
	}
	w.want(w.send(by, "PATCH", path, map[string]any{"name": "renamed"}, "If-Match", "*"), http.StatusOK)
	got = w.want(w.send(by, "PATCH", path, map[string]any{"is_active": true}, "If-Match", "*"), http.StatusBadRequest)
	if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/rule_id"}) {
		t.Errorf("turning it on without a rule points at %v", pointers)
	}
	w.want(w.send(by, "DELETE", path, nil, "If-Match", "*"), http.StatusNoContent)
	w.want(w.send(by, "GET", path, nil), http.StatusNotFound)
}

func TestAWebhookInsideTheNetworkIsRefusedWhenItIsSaved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) { c.CheckTarget = webhook.New(webhook.Options{}).CheckTarget })
	by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
	path := fmt.Sprintf("%s/%d", alerts, w.alert(rule).ID)
	for _, url := range []string{
		"http://10.0.0.1/", "https://127.0.0.1:8443/x", "http://[::1]/",
		"http://169.254.169.254/latest", "http://localhost/",
	} {
		created := w.send(by, "POST", alerts, map[string]any{
			"name": "loud", "rule_id": fmt.Sprint(rule.ID), "per": "rule", "threshold": 5, "window_minutes": 10,
			"url": url,
		})
		changed := w.send(by, "PATCH", path, map[string]any{"url": url}, "If-Match", "*")
		for _, got := range []answer{created, changed} {
			if pointers := pointersOf(t, w.want(got, http.StatusBadRequest)); !slices.Equal(pointers,
				[]string{"/url"}) {
				t.Errorf("%s of %s points at %v", got.operation, url, pointers)
			}
		}
	}
	w.exec("UPDATE alert SET url = 'http://10.0.0.1/'")
	w.want(w.send(by, "PATCH", path, map[string]any{"is_active": false}, "If-Match", "*"), http.StatusOK)
}

type deadReceiver struct{}

func (deadReceiver) Send(context.Context, *violations.Notice) (int, error) {
	return 0, errors.New("the receiver did not answer in time")
}

type happyReceiver struct{}

func (happyReceiver) Send(context.Context, *violations.Notice) (int, error) {
	return http.StatusNoContent, nil
}

func TestWhatWaitsForItsRetryIsRetriedAtOnceAndKeepsNoTestFromBeingSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
	path := fmt.Sprintf("%s/%d", alerts, w.alert(rule).ID)
	attempt := func() { w.work(violations.AlertKinds(w.store, deadReceiver{}, slog.New(slog.DiscardHandler))[1:]...) }
	type delivery struct {
		DeliveryID int64  `json:"delivery_id,string"`
		State      string `json:"state"`
		Attempts   int    `json:"attempts"`
		NextAt     string `json:"next_attempt_at"`
	}
	latest := func() delivery {
		t.Helper()
		return read[struct {
			Items []delivery `json:"items"`
		}](t, w.send(by, "GET", path+"/deliveries?limit=1", nil)).Items[0]
	}
	w.want(w.send(by, "POST", path+"/test", nil), http.StatusCreated)
	attempt()
	if d := latest(); d.State != "failed" || d.Attempts != 1 {
		t.Errorf("a test that was not answered is %+v", d)
	}
	w.want(w.send(by, "POST", path+"/test", nil), http.StatusCreated)
	attempt()
	w.exec("UPDATE delivery SET is_test = false, state = 'pending'")
	w.exec(`INSERT INTO job (tenant_id, kind, about, next_run_at)
		SELECT tenant_id, 'alert delivery', delivery_id, now() FROM delivery`)
	attempt()
	waits := latest()
	w.want(w.send(by, "POST", path+"/test", nil), http.StatusCreated)
	retry := fmt.Sprintf("%s/deliveries/%d/retry", path, waits.DeliveryID)
	got := read[delivery](t, w.want(w.send(by, "POST", retry, nil), http.StatusOK))
	if got.State != "pending" || got.NextAt >= waits.NextAt || got.NextAt == "" {
		t.Errorf("what waited until %s is due at %s (%s)", waits.NextAt, got.NextAt, got.State)
	}
	w.exec("UPDATE job SET lease_ends_at = now() + interval '1 minute'")
	w.want(w.send(by, "POST", retry, nil), http.StatusConflict) // it is being sent
	w.exec("UPDATE delivery SET state = 'delivered'")
	w.want(w.send(by, "POST", retry, nil), http.StatusConflict)
	w.want(w.send(by, "POST", path+"/deliveries/999999/retry", nil), http.StatusNotFound)
}

func TestATestIsDeliveredBesideWhatWasRaised(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
	path := fmt.Sprintf("%s/%d", alerts, w.alert(rule).ID)
	w.alert(w.rule(w.other))
	w.want(w.send(by, "POST", path+"/test", nil), http.StatusCreated)
	w.want(w.send(by, "POST", path+"/test", nil), http.StatusConflict) // it is on its way
	w.work(violations.AlertKinds(w.store, happyReceiver{}, slog.New(slog.DiscardHandler))[1:]...)
	w.want(w.send(by, "POST", path+"/test", nil), http.StatusCreated)
	type delivery struct {
		IsTest     bool   `json:"is_test"`
		State      string `json:"state"`
		LastStatus *int   `json:"last_status"`
	}
	type list struct {
		Items      []delivery `json:"items"`
		NextCursor *string    `json:"next_cursor"`
	}
	got := read[list](t, w.get(by, path+"/deliveries?limit=1"))
	if len(got.Items) != 1 || got.NextCursor == nil || got.Items[0].State != "pending" {
		t.Fatalf("the latest delivery is %+v", got)
	}
	got = read[list](t, w.get(by, path+"/deliveries?limit=1&cursor="+*got.NextCursor))
	if len(got.Items) != 1 || got.NextCursor != nil || got.Items[0].State != "delivered" ||
		*got.Items[0].LastStatus != 204 || !got.Items[0].IsTest {
		t.Errorf("the delivery before is %+v", got)
	}
}

func TestAlertsAreListedInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Viewer), w.rule(w.acme)
	w.alert(w.rule(w.other))
	var want, got []int64
	for range 3 {
		want = append(want, w.alert(rule).ID)
	}
	for cursor := ""; ; {
		page := read[struct {
			Items []struct {
				AlertID int64 `json:"alert_id,string"`
			} `json:"items"`
			NextCursor *string `json:"next_cursor"`
		}](t, w.get(by, alerts+"?limit=2"+cursor))
		for _, item := range page.Items {
			got = append(got, item.AlertID)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if !slices.Equal(got, want) {
		t.Errorf("alerts %v are listed, want %v", got, want)
	}
}

func TestWhatPeopleGiveToSendAnAlertIsNeverShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
	const slackURL, key = "https://hooks.slack.com/services/T00/B00/verysecretpath", "0123456789abcdef0123456789ABCDEF"
	w.secrets = append(w.secrets, "verysecretpath", key)
	alert := func(change map[string]any) map[string]any {
		body := map[string]any{
			"name": "loud", "rule_id": fmt.Sprint(rule.ID), "per": "rule", "threshold": 5, "window_minutes": 10,
		}
		for field, value := range change {
			body[field] = value
		}
		return body
	}
	for format, fields := range map[string]map[string]any{
		"slack": {"format": "slack", "url": slackURL}, "pagerduty": {"format": "pagerduty", "routing_key": key},
	} {
		made := w.want(w.send(by, "POST", alerts, alert(fields)), http.StatusCreated)
		path := fmt.Sprintf("%s/%d", alerts, read[alertAnswer](t, made).Alert.AlertID)
		if !strings.Contains(made.body, `"secret":null`) || strings.Contains(made.body, "verysecret") ||
			strings.Contains(made.body, key) {
			t.Errorf("%s is answered with %s", format, made.body)
		}
		w.want(w.send(by, "POST", path+"/rotate", nil, "If-Match", "*"), http.StatusConflict)
		shown := read[struct{ URL string }](t, w.send(by, "GET", path, nil)).URL
		w.want(w.send(by, "PATCH", path, map[string]any{"url": shown, "threshold": 6}, "If-Match", "*"), http.StatusOK)
		stored := must(w.store.Alert(t.Context(), w.acme.ID, read[alertAnswer](t, made).Alert.AlertID))(t)
		if stored.Threshold != 6 || stored.Secret != slackURL && stored.Secret != key {
			t.Errorf("%s is stored as %+v", format, stored)
		}
	}
	w.wantNoSecrets()
	for field, fields := range map[string]map[string]any{
		"url":         {"format": "email", "email": by.account.Email, "url": "https://example.com/"},
		"routing_key": {"format": "slack", "url": slackURL, "routing_key": key},
		"email":       {"url": "https://example.com/", "email": by.account.Email},
	} {
		got := w.want(w.send(by, "POST", alerts, alert(fields)), http.StatusBadRequest)
		if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/" + field}) {
			t.Errorf("a field of another format points at %v, want %s", pointers, field)
		}
	}
}

func TestAnotherURLNeedsTheRoutingKeyAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
	const first, second = "0123456789abcdef0123456789ABCDEF", "abcdef0123456789ABCDEF0123456789"
	made := w.want(w.send(by, "POST", alerts, map[string]any{
		"name": "loud", "rule_id": fmt.Sprint(rule.ID), "per": "rule", "threshold": 5, "window_minutes": 10,
		"format": "pagerduty", "routing_key": first,
	}), http.StatusCreated)
	path := fmt.Sprintf("%s/%d", alerts, read[alertAnswer](t, made).Alert.AlertID)
	elsewhere := map[string]any{"url": "https://example.com/enqueue"}
	got := w.want(w.send(by, "PATCH", path, elsewhere, "If-Match", "*"), http.StatusBadRequest)
	if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/routing_key"}) ||
		!strings.Contains(got.body, "given again with another url") {
		t.Errorf("another URL without the key is answered %s", got.body)
	}
	elsewhere["routing_key"] = second
	w.want(w.send(by, "PATCH", path, elsewhere, "If-Match", "*"), http.StatusOK)
	stored := must(w.store.Alert(t.Context(), w.acme.ID, read[alertAnswer](t, made).Alert.AlertID))(t)
	if stored.URL != elsewhere["url"] || stored.Secret != second {
		t.Errorf("it is stored as %+v", stored)
	}
}

func TestAnAlertChangesItsFormat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
	id := w.alert(rule).ID
	path := fmt.Sprintf("%s/%d", alerts, id)
	got := w.want(w.send(by, "PATCH", path, map[string]any{"format": "slack"}, "If-Match", "*"), http.StatusBadRequest)
	if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/url"}) {
		t.Errorf("Slack without a URL points at %v", pointers)
	}
	w.want(w.send(by, "PATCH", path, map[string]any{"format": "slack", "url": "https://hooks.slack.com/services/x"},
		"If-Match", "*"), http.StatusOK)
	got = w.want(w.send(by, "PATCH", path, map[string]any{"format": "webhook", "url": "https://example.com/"},
		"If-Match", "*"), http.StatusOK)
	if stored := must(w.store.Alert(t.Context(), w.acme.ID, id))(t); !strings.HasPrefix(stored.Secret, "whs_") ||
		stored.URL != "https://example.com/" {
		t.Errorf("after it became a webhook again it is stored as %+v", stored)
	}
	if strings.Contains(got.body, "slack") {
		t.Errorf("the former URL is shown: %s", got.body)
	}
}

func TestMailOfAlertsNeedsAMailServerAndAMember(t *testing.T) {
	t.Parallel()
	for _, sendsMail := range []bool{false, true} {
		t.Run(fmt.Sprintf("mail server: %v", sendsMail), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *adminapi.Config) {
				if !sendsMail {
					withoutMail(c)
				}
			})
			by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
			want := map[string]string{by.account.Email: "", w.person(w.other, auth.Owner).account.Email: "/email"}
			for email, field := range want {
				if !sendsMail {
					field = "/format"
				}
				got := w.send(by, "POST", alerts, map[string]any{
					"name": "loud", "rule_id": fmt.Sprint(rule.ID), "per": "rule", "threshold": 5, "window_minutes": 10,
					"format": "email", "email": email,
				})
				if field == "" {
					w.want(got, http.StatusCreated)
				} else if pointers := pointersOf(t, w.want(got, http.StatusBadRequest)); !slices.Equal(pointers,
					[]string{field}) {
					t.Errorf("mail to %s points at %v, want %s", email, pointers, field)
				}
			}
		})
	}
}

func TestAnAlertOfEveryRuleIsPreviewed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Viewer), w.rule(w.acme)
	w.exec(`INSERT INTO violation_minute VALUES
			($1, date_trunc('minute', now() - interval '2 days'), $2, '42', false, 12, 12),
			($1, date_trunc('minute', now() - interval '1 day'), $2, '43', false, 9, 9),
			($1, date_trunc('minute', now() - interval '9 days'), $2, '42', false, 99, 99)`,
		w.acme.ID, rule.ID)
	w.exec(`INSERT INTO decision_minute
			(tenant_id, rule_id, minute, allowed, denied, bypassed, degraded, cost_taken, near_limit)
		SELECT $1, 0, date_trunc('minute', now()) - make_interval(days => n), 9, 1, 0, 0, 9,
			0 FROM unnest(ARRAY[9, 3, 2]) AS n`, w.acme.ID)
	condition := map[string]any{"rule_id": nil, "per": "subject", "threshold": 10, "window_minutes": 5}
	got := w.want(w.send(by, "POST", alerts+"/preview", condition), http.StatusOK)
	preview := read[struct {
		Fired        int
		CountedSince time.Time `json:"counted_since"`
		Firings      []struct {
			RuleID  int64 `json:"rule_id,string"`
			Subject string
			Count   int64
		}
	}](t, got)
	if preview.Fired != 1 || preview.Firings[0].RuleID != int64(rule.ID) || preview.Firings[0].Subject != "42" ||
		preview.Firings[0].Count != 12 {
		t.Errorf("the preview is %s", got.body)
	}
	if age := time.Since(preview.CountedSince).Round(time.Hour); age != 72*time.Hour {
		t.Errorf("counts begin %s ago, want three days: those of nine days ago are not looked at", age)
	}
	condition["rule_id"] = fmt.Sprint(rule.ID)
	got = w.want(w.send(by, "POST", alerts+"/preview", condition), http.StatusOK)
	if !strings.Contains(got.body, `"counted_since":null`) {
		t.Errorf("the preview of a rule that met no check is %s", got.body)
	}
	condition["kind"], condition["rule_id"] = "near_limit", nil
	got = w.want(w.send(by, "POST", alerts+"/preview", condition), http.StatusBadRequest)
	if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/per"}) {
		t.Errorf("subjects of checks near a limit point at %v", pointers)
	}
	condition["per"], condition["rule_id"] = "rule", fmt.Sprint(w.rule(w.other).ID)
	w.want(w.send(by, "POST", alerts+"/preview", condition), http.StatusNotFound)

	owner := w.person(w.acme, auth.Owner)
	made := w.want(w.send(owner, "POST", alerts, map[string]any{
		"name": "any", "kind": "degraded", "rule_id": nil, "per": "rule", "threshold": 5, "window_minutes": 10,
		"url": "https://example.com/",
	}), http.StatusCreated)
	if !strings.Contains(made.body, `"rule_id":null`) || !strings.Contains(made.body, `"kind":"degraded"`) {
		t.Errorf("the alert is %s", made.body)
	}
}

func TestASilenceIsShownAndEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	path := fmt.Sprintf("%s/%d", alerts, w.alert(w.rule(w.acme)).ID)
	for _, until := range []time.Time{time.Now().Add(-time.Minute), time.Now().Add(31 * 24 * time.Hour)} {
		got := w.want(w.send(by, "PUT", path+"/silence", map[string]any{"until": until}, "If-Match", "*"),
			http.StatusBadRequest)
		if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/until"}) {
			t.Errorf("a silence until %s points at %v", until, pointers)
		}
	}
	got := w.want(w.send(by, "PUT", path+"/silence",
		map[string]any{"until": time.Now().Add(time.Hour), "reason": "load test"}, "If-Match", `"1"`), http.StatusOK)
	if !strings.Contains(got.body, `"reason":"load test"`) || !strings.Contains(got.body, by.account.Email) ||
		got.header.Get("ETag") != `"2"` {
		t.Errorf("the silenced alert is %s", got.body)
	}
	got = w.want(w.send(by, "DELETE", path+"/silence", nil, "If-Match", `"2"`), http.StatusOK)
	if !strings.Contains(got.body, `"silence":null`) {
		t.Errorf("after the silence the alert is %s", got.body)
	}
	w.want(w.send(by, "PUT", path+"/silence", map[string]any{"until": time.Now().Add(time.Hour)}, "If-Match", `"2"`),
		http.StatusPreconditionFailed)
}
