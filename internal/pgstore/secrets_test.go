package pgstore_test

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/violations"
)

func secretKey() string {
	key := make([]byte, auth.SecretKeyBytes)
	_, _ = rand.Read(key)
	return base64.StdEncoding.EncodeToString(key)
}

func (w *world) storedSecrets(t *testing.T) map[int64]string {
	t.Helper()
	rows := must(connect(t, w.url).Query(t.Context(),
		"SELECT alert_id, secret FROM alert WHERE tenant_id = $1 UNION ALL SELECT 0, secret FROM audit_webhook WHERE "+
			"tenant_id = $1", w.ours.ID))(t)
	defer rows.Close()
	stored := map[int64]string{}
	for rows.Next() {
		var id int64
		var secret string
		if err := rows.Scan(&id, &secret); err != nil {
			t.Fatal(err)
		}
		stored[id] = secret
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return stored
}

func TestSecretsOfAlertsAreStoredSealed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.SealWith(must(auth.NewVault(secretKey()))(t))
	ctx := t.Context()
	of := alertOn(w.ours.user, true)
	of.Secret = "whs_first"
	alert := must(w.CreateAlert(ctx, tester, of))(t)
	w.hook(t, w.ours.ID, "https://example.com/audit")
	stored := w.storedSecrets(t)
	for id, secret := range stored {
		if !strings.HasPrefix(secret, "sealed:") || strings.Contains(secret, "whs_first") ||
			strings.Contains(secret, "hush") {
			t.Errorf("the secret of alert %d is stored as %q", id, secret)
		}
	}
	if got := must(w.Alert(ctx, w.ours.ID, alert.ID))(t); got.Secret != "whs_first" || got.SecretIsClosed {
		t.Errorf("the alert is %+v", got)
	}
	if hook, _, err := w.AuditWebhook(ctx, w.ours.ID); err != nil || hook.Secret != "hush" {
		t.Errorf("the audit webhook is %+v, %v", hook, err)
	}
	test := must(w.TestAlert(ctx, w.ours.ID, alert.ID))(t)
	if due := must(w.Notice(ctx, w.ours.ID, test.ID))(t); due.Of.Secret != "whs_first" {
		t.Errorf("what is to be delivered is %+v", due)
	}

	alert.Name = "another name"
	alert = must(w.UpdateAlert(ctx, tester, alert))(t)
	if again := w.storedSecrets(t)[alert.ID]; again != stored[alert.ID] {
		t.Error("a change of the name alone has sealed the secret again")
	}
	alert.Secret = "whs_second"
	alert = must(w.UpdateAlert(ctx, tester, alert))(t)
	if again := w.storedSecrets(t)[alert.ID]; again == stored[alert.ID] || !strings.HasPrefix(again, "sealed:") ||
		alert.Secret != "whs_second" {
		t.Errorf("another secret is stored as %q, and read as %q", again, alert.Secret)
	}
	alert = must(w.RotateAlertSecret(ctx, tester, w.ours.ID, alert.ID, 3, "whs_third"))(t)
	hook := must(w.RotateAuditSecret(ctx, tester, w.ours.ID, 1, "whs_fourth"))(t)
	for id, secret := range w.storedSecrets(t) {
		if !strings.HasPrefix(secret, "sealed:") {
			t.Errorf("the secret of alert %d is stored as %q after it was rotated", id, secret)
		}
	}
	if alert.Secret != "whs_third" || hook.Secret != "whs_fourth" {
		t.Errorf("the rotated secrets are %q and %q", alert.Secret, hook.Secret)
	}
}

func TestSecretsOfBeforeAreSealedAndKeysCanBeChanged(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	ctx := t.Context()
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, true)))(t)
	w.hook(t, w.ours.ID, "https://example.com/audit")
	seal := func(wantSealed, wantClosed int) {
		t.Helper()
		sealed, closed, err := w.SealSecrets(ctx)
		if err != nil || sealed != wantSealed || closed != wantClosed {
			t.Errorf("%d secrets were sealed and %d are closed, want %d and %d; %v", sealed, closed, wantSealed,
				wantClosed, err)
		}
	}
	open := func() violations.Alert { return must(w.Alert(ctx, w.ours.ID, alert.ID))(t) }
	seal(0, 0) // there is no key
	former, next := secretKey(), secretKey()
	w.SealWith(must(auth.NewVault(former))(t))
	if got := open(); got.Secret != "hush" {
		t.Errorf("before it is sealed, the secret is %q", got.Secret)
	}
	must(w.UpdateAlert(ctx, tester, open()))(t)
	seal(3, 0) // the other tenant has one too
	seal(0, 0)
	if stored := w.storedSecrets(t); !strings.HasPrefix(stored[alert.ID], "sealed:") ||
		!strings.HasPrefix(stored[0], "sealed:") {
		t.Errorf("the secrets are stored as %v", stored)
	}
	if got := open(); got.Secret != "hush" || got.Version != 2 {
		t.Errorf("once it is sealed, the alert is %+v", got)
	}
	log := must(first2(w.Audit(ctx, w.ours.ID, auth.AuditFilter{ObjectKind: "alert"}, auth.LogCursor{}, 1)))(t)
	if len(log) != 1 || log[0].Actor.Name != "sluice" || log[0].Actor.Act != "seal the secret" ||
		strings.Contains(string(log[0].After), "secret") {
		t.Errorf("the log has %+v", log)
	}

	w.SealWith(must(auth.NewVault(next + "," + former))(t))
	seal(3, 0)
	w.SealWith(must(auth.NewVault(next))(t))
	if got := open(); got.Secret != "hush" {
		t.Errorf("under the next key the secret is %q", got.Secret)
	}
	seal(0, 0)
}

func TestAnAlertWhoseKeyIsGoneCanBeTurnedOffAndMended(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	ctx := t.Context()
	w.SealWith(must(auth.NewVault(secretKey()))(t))
	of := alertOn(w.ours.user, true)
	of.SetFormat(violations.FormatSlack)
	of.SetURL("https://hooks.example.com/verysecretpath")
	id := must(w.CreateAlert(ctx, tester, of))(t).ID
	before := w.storedSecrets(t)[id]
	w.SealWith(must(auth.NewVault(secretKey()))(t))

	sealed, closed, err := w.SealSecrets(ctx)
	if err != nil || sealed != 1 || closed != 1 { // the other tenant's is in plain text
		t.Errorf("%d secrets were sealed and %d are closed, want 1 and 1; %v", sealed, closed, err)
	}
	alert := must(w.Alert(ctx, w.ours.ID, id))(t)
	if !alert.SecretIsClosed || alert.Secret != "" {
		t.Errorf("the alert is %+v", alert)
	}
	must(w.TestAlert(ctx, w.ours.ID, id))(t)
	never := &receiver{answer: func() (int, error) { t.Error("it was posted"); return 500, nil }}
	w.deliver(t, never)
	if d := must(w.AlertDeliveries(ctx, w.ours.ID, id, 0, 1))(t)[0]; d.State != violations.DeliveryFailed ||
		!strings.Contains(d.Error, "sealed under a key") {
		t.Errorf("the delivery is %+v", d)
	}

	alert.Active = false
	if wrong := alert.Validate(); len(wrong) > 0 {
		t.Errorf("it cannot be turned off: %v", wrong)
	}
	alert = must(w.UpdateAlert(ctx, tester, alert))(t)
	if after := w.storedSecrets(t)[id]; after != before || alert.Active {
		t.Errorf("turned off, it is %+v with %q, and had %q", alert, after, before)
	}
	alert.SetURL("https://hooks.example.com/anotherpath")
	if wrong := alert.Validate(); len(wrong) > 0 {
		t.Errorf("it cannot be mended: %v", wrong)
	}
	if alert = must(w.UpdateAlert(ctx, tester, alert))(t); alert.SecretIsClosed ||
		alert.Target() != "https://hooks.example.com/anotherpath" {
		t.Errorf("mended, it is %+v", alert)
	}
}
