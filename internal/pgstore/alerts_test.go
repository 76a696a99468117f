package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// alertOn is an alert of 10 denials in 5 minutes.
func alertOn(rule rules.Rule, perSubject bool) violations.Alert {
	return violations.Alert{
		Tenant: rule.TenantID, Name: "too many", Rule: rule.ID, PerSubject: perSubject, Threshold: 10, Window: 5 * time.Minute,
		URL: "https://example.com/hook", Secret: "hush", Active: true,
	}
}

// deny counts denials of a rule's subject in a minute.
func (w *world) deny(t *testing.T, rule rules.Rule, subject string, at time.Time, denied int64) {
	t.Helper()
	err := w.WriteViolations(t.Context(), &violations.Batch{
		Writer: fmt.Sprint(rule.ID, subject, denied), Number: at.UnixNano(),
		Tallies: []violations.Tally{{
			Tenant: rule.TenantID, Rule: rule.ID, Minute: at.Truncate(time.Minute), Subject: subject, Denied: denied, DetailDropped: denied,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnAlertIsKeptByItsTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	created := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, true)))(t)
	theirs := w.theirs.alert
	if got := must(w.Alerts(ctx, w.ours.ID))(t); !slices.Equal(got, []violations.Alert{created}) || created.Version != 1 {
		t.Errorf("our alerts are %+v, want %+v", got, created)
	}
	edited := created
	edited.Name, edited.Threshold, edited.Secret = "far too many", 20, "another"
	updated := must(w.UpdateAlert(ctx, tester, edited))(t)
	edited.Version, edited.Secret = 2, "hush"
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
				processes.Go(func() { _, _ = w.RaiseAlerts(t.Context(), now) })
			}
			processes.Wait()
			must(w.RaiseAlerts(t.Context(), now.Add(10*time.Second)))(t)
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

// receiver is a Sender that answers as it is told to.
type receiver struct {
	mu     sync.Mutex
	posts  []int64
	answer func() (int, error)
}

func (r *receiver) Send(_ context.Context, notice *violations.Notice) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posts = append(r.posts, notice.ID)
	return r.answer()
}

func TestADeliveryIsTriedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	target := &receiver{answer: func() (int, error) { return 0, errors.New("connection \x00\xff refused") }}
	deliver := func(at time.Time) violations.Delivery {
		t.Helper()
		var processes sync.WaitGroup
		for range 3 {
			processes.Go(func() {
				if err := violations.DeliverAlerts(ctx, w, target, at); err != nil {
					t.Error(err)
				}
			})
		}
		processes.Wait()
		listed := must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 10))(t)
		if len(listed) != 1 {
			t.Fatalf("there are %d deliveries, want 1", len(listed))
		}
		return listed[0]
	}
	// Raising and claiming at once, a process may claim before another one has raised.
	d := deliver(now)
	for len(target.posts) == 0 {
		d = deliver(now)
	}
	if d.State != violations.DeliveryPending || d.Attempts != 1 || !strings.Contains(d.Error, "refused") ||
		!d.NextAttemptAt.Equal(now.Add(30*time.Second)) || d.Denied != 12 {
		t.Errorf("after an attempt it is %+v", d)
	}
	if d = deliver(now.Add(29 * time.Second)); d.Attempts != 1 {
		t.Error("it was tried again before its time")
	}
	target.answer = func() (int, error) { return 503, nil }
	if d = deliver(now.Add(30 * time.Second)); d.Attempts != 2 || d.Status != 503 || !d.NextAttemptAt.Equal(now.Add(90*time.Second)) {
		t.Errorf("after the second attempt it is %+v", d)
	}
	target.answer = func() (int, error) { return 204, nil }
	if d = deliver(now.Add(90 * time.Second)); d.State != violations.DeliveryDelivered || d.Status != 204 || d.Error != "" {
		t.Errorf("after an answer it is %+v", d)
	}
	deliver(now.Add(4 * time.Minute))
	if len(target.posts) != 3 {
		t.Errorf("it was posted %d times, want 3", len(target.posts))
	}
}

func TestADeliveryIsGivenUpAtLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, at := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", at, 12)
	target := &receiver{answer: func() (int, error) { return 302, nil }}
	var d violations.Delivery
	for range 15 {
		if err := violations.DeliverAlerts(ctx, w, target, at); err != nil {
			t.Fatal(err)
		}
		d = must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 1))(t)[0]
		at = d.NextAttemptAt
	}
	if d.State != violations.DeliveryFailed || d.Attempts != 12 || len(target.posts) != 12 {
		t.Errorf("after %d posts it is %+v, want 12 and failed", len(target.posts), d)
	}
}

func TestAWorkerThatDiedIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	must(w.RaiseAlerts(ctx, now))(t)
	lease := now.Add(time.Minute)
	dead := must(w.ClaimDeliveries(ctx, now, lease, 10))(t)
	if len(dead) != 1 || dead[0].TenantSlug != "ours" || dead[0].Of.Secret != "hush" {
		t.Fatalf("claimed %+v", dead)
	}
	if early := must(w.ClaimDeliveries(ctx, now.Add(59*time.Second), lease, 10))(t); len(early) != 0 {
		t.Error("it was claimed twice within the lease")
	}
	second := must(w.ClaimDeliveries(ctx, lease, lease.Add(time.Minute), 10))(t)
	if len(second) != 1 || second[0].Attempts != 2 {
		t.Fatalf("after the lease %+v was claimed", second)
	}
	late := dead[0].Delivery
	late.State, late.AttemptedAt = violations.DeliveryDelivered, now
	if err := w.FinishDelivery(ctx, late); err != nil {
		t.Error(err)
	}
	if d := must(w.AlertDeliveries(ctx, w.ours.ID, 0, 0, 1))(t)[0]; d.State != violations.DeliveryPending {
		t.Error("the one that was thought dead finished another's attempt")
	}
}
