package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func alertOn(rule rules.Rule, perSubject bool) violations.Alert {
	return violations.Alert{
		Tenant: rule.TenantID, Name: "too many", Kind: violations.AlertDenials, Rule: rule.ID, PerSubject: perSubject,
		Threshold: 10, Window: 5 * time.Minute,
		Format: violations.FormatWebhook, URL: "https://example.com/hook", Secret: "hush", Active: true,
	}
}

func (w *world) deny(t *testing.T, rule rules.Rule, subject string, at time.Time, denied int64) {
	t.Helper()
	err := w.WriteViolations(t.Context(), &violations.Batch{
		Writer: fmt.Sprint(rule.ID, subject, denied), Number: at.UnixNano(),
		Tallies: []violations.Tally{{
			Tenant: rule.TenantID, Rule: rule.ID, Minute: at.Truncate(time.Minute), Subject: subject, Denied: denied,
			DetailDropped: denied,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wantFields(t *testing.T, err error, want ...string) {
	t.Helper()
	var fields rules.FieldErrors
	if errors.As(err, &fields); !slices.EqualFunc(fields, want,
		func(f rules.FieldError, name string) bool { return f.Field == name }) {
		t.Errorf("the error is %v, want one about %q", err, want)
	}
}

func TestAnAlertIsTurnedOffWithItsRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	onUser := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, true)))(t)
	onDaily := must(w.CreateAlert(ctx, tester, alertOn(w.ours.daily, true)))(t)
	now := time.Now()
	w.deny(t, w.ours.user, "42", now, 12)
	w.deny(t, w.ours.daily, "42", now, 12)
	must(w.raise(ctx, w.ours.ID, now))(t)
	if err := w.RemoveRule(ctx, w.ours.ID, w.ours.user.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	off := must(w.Alert(ctx, w.ours.ID, onUser.ID))(t)
	for _, d := range must(w.AlertDeliveries(ctx, w.ours.ID, 0, 0, 10))(t) {
		if d.Silenced != (d.Alert == onUser.ID) {
			t.Errorf("after a rule was removed the delivery %+v waits", d)
		}
	}
	if off.Active || !off.RuleRemoved || off.Version != 2 {
		t.Errorf("after its rule was removed the alert is %+v", off)
	}
	other := must(w.Alert(ctx, w.ours.ID, onDaily.ID))(t)
	if onDaily.RaisedAt = other.RaisedAt; other != onDaily || other.RaisedAt.IsZero() {
		t.Errorf("another rule's alert is %+v, want %+v", other, onDaily)
	}
	log, _, err := w.Audit(ctx, w.ours.ID, auth.AuditFilter{ObjectKind: "alert", ObjectID: fmt.Sprint(onUser.ID)},
		auth.LogCursor{}, 10)
	if err != nil || len(log) != 2 || log[0].Actor.Name != tester.Name ||
		!strings.Contains(string(log[0].After), `"is_active": false`) {
		t.Errorf("the audit log has %+v, %v", log, err)
	}
	on := off
	on.Active = true
	_, err = w.UpdateAlert(ctx, tester, on)
	wantFields(t, err, "rule_id")
	_, err = w.CreateAlert(ctx, tester, alertOn(w.ours.user, true))
	wantFields(t, err, "rule_id")
	on.Rule = w.ours.daily.ID
	if on = must(w.UpdateAlert(ctx, tester, on))(t); !on.Active || on.RuleRemoved {
		t.Errorf("on another rule the alert is %+v", on)
	}
}

func TestAnAlertIsKeptByItsTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	created := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, true)))(t)
	theirs := w.theirs.alert
	if got := must(w.Alerts(ctx, w.ours.ID))(t); !slices.Equal(got, []violations.Alert{created}) ||
		created.Version != 1 {
		t.Errorf("our alerts are %+v, want %+v", got, created)
	}
	edited := created
	edited.Name, edited.Threshold, edited.Secret = "far too many", 20, "another"
	updated := must(w.UpdateAlert(ctx, tester, edited))(t)
	edited.Version = 2
	if updated != edited {
		t.Errorf("the alert is %+v, want %+v", updated, edited)
	}
	_, err := w.UpdateAlert(ctx, tester, created)
	wantError(t, err, rules.ErrChanged)

	stolen := theirs
	stolen.Tenant = w.ours.ID
	_, err = w.UpdateAlert(ctx, tester, stolen)
	wantError(t, err, rules.ErrNotFound)
	_, err = w.Alert(ctx, w.ours.ID, theirs.ID)
	wantError(t, err, rules.ErrNotFound)
	wantError(t, w.RemoveAlert(ctx, tester, w.ours.ID, theirs.ID, rules.AnyVersion), rules.ErrNotFound)
	stolen.Rule = w.theirs.user.ID
	var wrong rules.FieldErrors
	if _, err = w.CreateAlert(ctx, tester, stolen); !asFieldErrors(err, &wrong) {
		t.Errorf("an alert on the other tenant's rule: %v", err)
	}
	if err := w.RemoveAlert(ctx, tester, w.ours.ID, created.ID, rules.AnyVersion); err != nil {
		t.Error(err)
	}
}

func TestWhenAnAlertIsRaised(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Minute).Add(20 * time.Second)
	tests := map[string]struct {
		perSubject bool
		deny       func(t *testing.T, w *world)
		want       []string // subjects
	}{
		"a rule that denied often enough together": {
			deny: func(t *testing.T, w *world) {
				w.deny(t, w.ours.user, "1", now, 6)
				w.deny(t, w.ours.user, "2", now.Add(-4*time.Minute), 4)
			},
			want: []string{""},
		},
		"a rule that did not": {
			deny: func(t *testing.T, w *world) { w.deny(t, w.ours.user, "1", now, 9) },
		},
		"denials that are too long ago": {
			deny: func(t *testing.T, w *world) {
				w.deny(t, w.ours.user, "1", now, 9)
				w.deny(t, w.ours.user, "1", now.Add(-5*time.Minute), 9)
			},
		},
		"denials that were written after their minute": {
			deny: func(t *testing.T, w *world) {
				w.deny(t, w.ours.user, "1", now.Add(-time.Minute), 5)
				w.deny(t, w.ours.user, "1", now.Add(-5*time.Minute), 5)
			},
			want: []string{""},
		},
		"each subject that was denied often enough": {
			perSubject: true,
			deny: func(t *testing.T, w *world) {
				w.deny(t, w.ours.user, "1", now, 10)
				w.deny(t, w.ours.user, "2", now, 9)
				w.deny(t, w.ours.user, "3", now, 12)
			},
			want: []string{"1", "3"},
		},
		"another rule, and another tenant": {
			deny: func(t *testing.T, w *world) {
				w.deny(t, w.ours.daily, "1", now, 100)
				w.deny(t, w.theirs.user, "1", now, 100)
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			alert := must(w.CreateAlert(t.Context(), tester, alertOn(w.ours.user, test.perSubject)))(t)
			off := alertOn(w.ours.user, test.perSubject)
			off.Active = false
			must(w.CreateAlert(t.Context(), tester, off))(t)
			test.deny(t, w)
			var processes sync.WaitGroup
			for range 3 { // at once, and again
				processes.Go(func() { _, _ = w.raise(t.Context(), w.ours.ID, now) })
			}
			processes.Wait()
			must(w.raise(t.Context(), w.ours.ID, now.Add(10*time.Second)))(t)
			must(w.raise(t.Context(), w.theirs.ID, now))(t)
			var got []string
			for _, d := range must(w.AlertDeliveries(t.Context(), w.ours.ID, alert.ID, 0, 10))(t) {
				got = append(got, d.Subject)
			}
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("it was raised for %q, want %q", got, test.want)
			}
			if all := must(w.AlertDeliveries(t.Context(), w.ours.ID, 0, 0, 10))(t); len(all) != len(test.want) {
				t.Errorf("%d deliveries in all, want %d", len(all), len(test.want))
			}
			if others := must(w.AlertDeliveries(t.Context(), w.theirs.ID, 0, 0, 10))(t); len(others) > 0 {
				t.Errorf("the other tenant has deliveries %+v", others)
			}
		})
	}
}
