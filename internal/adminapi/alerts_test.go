package adminapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// alert makes one on a rule.
func (w *world) alert(rule rules.Rule) violations.Alert {
	w.t.Helper()
	secret := "whs_of_" + w.name("alert") + "_0123456789abcdef"
	w.secrets = append(w.secrets, secret)
	return must(w.store.CreateAlert(w.ctx(), rules.Actor{Kind: rules.ActorSystem}, violations.Alert{
		Tenant: rule.TenantID, Name: w.name("alert"), Rule: rule.ID, Threshold: 10, Window: time.Minute,
		URL: "https://example.com/hook", Secret: secret, Active: true,
	}))(w.t)
}

const alerts = "/api/v1/tenants/acme/alerts"

type alertAnswer struct {
	Alert struct {
		AlertID int64 `json:"alert_id"`
		Version int64 `json:"version"`
	} `json:"alert"`
	Secret string `json:"secret"`
}

func TestTheSecretOfAnAlertIsShownOnceAndRotates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
	made := w.want(w.send(by, "POST", alerts, map[string]any{
		"name": "loud", "rule_id": rule.ID, "per": "subject", "threshold": 5, "window_minutes": 10, "url": "https://example.com/hook",
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
	if stored := must(w.store.Alert(t.Context(), w.acme.ID, first.Alert.AlertID))(t); stored.Secret != second.Secret || !stored.PerSubject {
		t.Errorf("the alert is stored as %+v", stored)
	}
	for _, path := range []string{path, alerts, path + "/deliveries", "/api/v1/tenants/acme/audit", "/api/v1/tenants/acme/audit/export"} {
		if got := w.want(w.send(by, "GET", path, nil), http.StatusOK); strings.Contains(got.body, "whs_") {
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
	if len(log) != 2 || log[0].Actor.Act != "rotate secret" || log[1].Action != "create" || log[1].Actor.Name != by.account.Email {
		t.Errorf("the audit log has %+v", log)
	}
}

func TestAnAlertIsChangedAsItWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
	path := fmt.Sprintf("%s/%d", alerts, w.alert(rule).ID)
	got := w.want(w.send(by, "PATCH", path, map[string]any{"threshold": 99, "per": "subject", "window_minutes": 60}, "If-Match", `"1"`), http.StatusOK)
	if !strings.Contains(got.body, `"threshold":99`) || !strings.Contains(got.body, `"window_minutes":60`) || got.header.Get("ETag") != `"2"` {
		t.Errorf("it is changed to %s", got.body)
	}
	for _, lost := range []answer{
		w.send(by, "PATCH", path, map[string]any{"threshold": 1}, "If-Match", `"1"`),
		w.send(by, "POST", path+"/rotate", nil, "If-Match", `"1"`),
		w.send(by, "DELETE", path, nil, "If-Match", `"1"`),
	} {
		if lost.status != http.StatusPreconditionFailed || lost.header.Get("ETag") != `"2"` {
			t.Errorf("%s of an old version is answered %d with the ETag %s", lost.operation, lost.status, lost.header.Get("ETag"))
		}
	}
	for field, value := range map[string]any{
		"name": "", "rule_id": w.rule(w.other).ID, "threshold": 0, "window_minutes": 61, "url": "ftp://example.com",
	} {
		got := w.want(w.send(by, "PATCH", path, map[string]any{field: value}, "If-Match", "*"), http.StatusBadRequest)
		if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/" + field}) {
			t.Errorf("a wrong %s points at %v", field, pointers)
		}
	}
	if err := w.system().RemoveRule(t.Context(), w.acme.ID, rule.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	w.want(w.send(by, "PATCH", path, map[string]any{"is_active": false}, "If-Match", "*"), http.StatusOK)
	w.want(w.send(by, "DELETE", path, nil, "If-Match", "*"), http.StatusNoContent)
	w.want(w.send(by, "GET", path, nil), http.StatusNotFound)
}

func TestATestIsDeliveredBesideWhatWasRaised(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, rule := w.person(w.acme, auth.Owner), w.rule(w.acme)
	path := fmt.Sprintf("%s/%d", alerts, w.alert(rule).ID)
	w.alert(w.rule(w.other))
	w.want(w.send(by, "POST", path+"/test", nil), http.StatusCreated)
	w.want(w.send(by, "POST", path+"/test", nil), http.StatusConflict) // it is on its way
	notices := must(w.store.ClaimDeliveries(t.Context(), time.Now().Add(time.Minute), time.Now().Add(time.Hour), 4, 10))(t)
	if len(notices) != 1 || !notices[0].Test {
		t.Fatalf("%+v are to be delivered, want the test", notices)
	}
	done := notices[0].Delivery
	done.State, done.Status, done.AttemptedAt = violations.DeliveryDelivered, 204, time.Now()
	if err := w.store.FinishDelivery(t.Context(), done); err != nil {
		t.Fatal(err)
	}
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
	got := read[list](t, w.want(w.send(by, "GET", path+"/deliveries?limit=1", nil), http.StatusOK))
	if len(got.Items) != 1 || got.NextCursor == nil || got.Items[0].State != "pending" {
		t.Fatalf("the latest delivery is %+v", got)
	}
	got = read[list](t, w.want(w.send(by, "GET", path+"/deliveries?limit=1&cursor="+*got.NextCursor, nil), http.StatusOK))
	if len(got.Items) != 1 || got.NextCursor != nil || got.Items[0].State != "delivered" || *got.Items[0].LastStatus != 204 || !got.Items[0].IsTest {
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
				AlertID int64 `json:"alert_id"`
			} `json:"items"`
			NextCursor *string `json:"next_cursor"`
		}](t, w.want(w.send(by, "GET", alerts+"?limit=2"+cursor, nil), http.StatusOK))
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
