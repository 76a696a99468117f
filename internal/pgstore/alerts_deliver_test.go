package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

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

func (w *world) watch(sender violations.Sender) *violations.AlertWatch {
	return violations.NewAlertWatch(w, sender, slog.New(slog.DiscardHandler))
}

// deliver lets three processes attempt what is due.
func (w *world) deliver(t *testing.T, sender violations.Sender, at time.Time) {
	t.Helper()
	var processes sync.WaitGroup
	for range 3 {
		processes.Go(func() {
			watch := w.watch(sender)
			if err := watch.Deliver(t.Context(), at); err != nil {
				t.Error(err)
			}
			watch.Wait()
		})
	}
	processes.Wait()
}

func TestADeliveryIsTriedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	target := &receiver{answer: func() (int, error) { return 0, errors.New("connection \x00\xff refused") }}
	if err := w.watch(target).Raise(ctx, now); err != nil {
		t.Fatal(err)
	}
	deliver := func(at time.Time) violations.Delivery {
		t.Helper()
		w.deliver(t, target, at)
		listed := must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 10))(t)
		if len(listed) != 1 {
			t.Fatalf("there are %d deliveries, want 1", len(listed))
		}
		return listed[0]
	}
	d := deliver(now)
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

func TestADeliveryIsGivenUpAtLastAndRetriedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, at := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", at, 12)
	must(w.RaiseAlerts(ctx, w.ours.ID, at))(t)
	target := &receiver{answer: func() (int, error) { return 302, nil }}
	latest := func() violations.Delivery { return must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 1))(t)[0] }
	for range 15 {
		w.deliver(t, target, at)
		at = latest().NextAttemptAt
	}
	d := latest()
	if d.State != violations.DeliveryFailed || d.Attempts != 12 || len(target.posts) != 12 {
		t.Errorf("after %d posts it is %+v, want 12 and failed", len(target.posts), d)
	}
	for range 2 {
		if d = must(w.RetryDelivery(ctx, w.ours.ID, alert.ID, d.ID))(t); d.State != violations.DeliveryPending {
			t.Errorf("after it was retried by hand it is %+v", d)
		}
		w.deliver(t, target, time.Now().Add(time.Second))
		target.answer = func() (int, error) { return 200, nil }
	}
	if d = latest(); d.State != violations.DeliveryDelivered || d.Attempts != 14 {
		t.Errorf("after two retries by hand it is %+v", d)
	}
	_, err := w.RetryDelivery(ctx, w.ours.ID, alert.ID, d.ID)
	wantError(t, err, rules.ErrFinal)
	_, err = w.RetryDelivery(ctx, w.theirs.ID, alert.ID, d.ID)
	wantError(t, err, rules.ErrNotFound)
}

func TestAWorkerThatDiedIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	must(w.RaiseAlerts(ctx, w.ours.ID, now))(t)
	lease := now.Add(time.Minute)
	dead := must(w.ClaimDeliveries(ctx, now, lease, 4, 10))(t)
	if len(dead) != 1 || dead[0].TenantSlug != "ours" || dead[0].Of.Secret != "hush" {
		t.Fatalf("claimed %+v", dead)
	}
	if early := must(w.ClaimDeliveries(ctx, now.Add(59*time.Second), lease, 4, 10))(t); len(early) != 0 {
		t.Error("it was claimed twice within the lease")
	}
	_, err := w.RetryDelivery(ctx, w.ours.ID, alert.ID, dead[0].ID)
	wantError(t, err, rules.ErrInUse)
	second := must(w.ClaimDeliveries(ctx, lease, lease.Add(time.Minute), 4, 10))(t)
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

// blackHole is a receiver of one tenant that does not answer until it is opened; others answer at once.
type blackHole struct {
	tenant   rules.TenantID
	open     chan struct{}
	reached  chan struct{}
	answered chan violations.Notice

	mu       sync.Mutex
	inside   int
	most     int
	attempts map[int64]int
}

func (b *blackHole) Send(ctx context.Context, notice *violations.Notice) (int, error) {
	if notice.Tenant != b.tenant {
		b.answered <- *notice
		return 200, nil
	}
	b.mu.Lock()
	b.inside++
	b.most = max(b.most, b.inside)
	b.attempts[notice.ID]++
	b.mu.Unlock()
	b.reached <- struct{}{}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.inside--
	}()
	select {
	case <-b.open:
		return 200, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func TestATenantWhoseReceiverIsDeadHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const deliveries = 96
	now := time.Now()
	must(w.CreateAlert(t.Context(), tester, alertOn(w.ours.user, true)))(t)
	for n := range deliveries {
		w.deny(t, w.ours.user, fmt.Sprint("user-", n), now, 12)
	}
	must(w.RaiseAlerts(t.Context(), w.ours.ID, now))(t)
	hole := &blackHole{
		tenant: w.ours.ID, open: make(chan struct{}), reached: make(chan struct{}, deliveries),
		answered: make(chan violations.Notice, 1), attempts: map[int64]int{},
	}
	ctx, stop := context.WithCancel(t.Context())
	var processes sync.WaitGroup
	defer processes.Wait()
	defer stop()
	processes.Go(func() { violations.WatchAlerts(ctx, w, hole, slog.New(slog.DiscardHandler)) })
	<-hole.reached
	test := must(w.TestAlert(t.Context(), w.theirs.ID, w.theirs.alert.ID))(t)
	select {
	case notice := <-hole.answered:
		if notice.ID != test.ID {
			t.Errorf("delivery %d was attempted, want %d", notice.ID, test.ID)
		}
	case <-time.After(time.Minute):
		t.Fatal("a tenant waits for another one's receiver")
	}
	for range 3 {
		<-hole.reached
	}
	if more := must(w.ClaimDeliveries(t.Context(), time.Now(), time.Now().Add(time.Minute), 4, 64))(t); len(more) > 0 {
		t.Errorf("another process begins %d more attempts for a tenant that has four under way", len(more))
	}
	close(hole.open)
	for range deliveries - 4 {
		select {
		case <-hole.reached:
		case <-time.After(time.Minute):
			t.Fatal("what waited is not delivered when the receiver answers again")
		}
	}
	stop()
	processes.Wait()
	if len(hole.attempts) != deliveries || hole.most != 4 {
		t.Errorf("%d deliveries were attempted, %d at once; want %d and 4", len(hole.attempts), hole.most, deliveries)
	}
}

// TestATenantWithAHundredAlertsThatFireHoldsNobodyBack: one round raises a neighbour's only alert beside them.
func TestATenantWithAHundredAlertsThatFireHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now, greedy := time.Now(), w.found(t, "greedy")
	for range 100 {
		must(w.CreateAlert(t.Context(), tester, alertOn(greedy.user, true)))(t)
	}
	exec(t, w.url, `INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
		SELECT $1, date_trunc('minute', $3::timestamptz), $2, n::text, false, 100, 0 FROM generate_series(1, 20000) AS n`,
		greedy.ID, greedy.user.ID, now)
	must(w.CreateAlert(t.Context(), tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	_ = w.watch(nil).Raise(t.Context(), now) // what a greedy tenant's alerts end with is its own concern
	if raised := must(w.AlertDeliveries(t.Context(), w.ours.ID, 0, 0, 10))(t); len(raised) != 1 {
		t.Errorf("%d alerts were raised, want 1", len(raised))
	}
}

func TestAlertsThatTakeLongAreRaisedByThemselves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now, third := time.Now(), w.found(t, "third")
	slow := must(w.CreateAlert(t.Context(), tester, alertOn(w.ours.user, false)))(t)
	must(w.CreateAlert(t.Context(), tester, alertOn(third.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	w.deny(t, third.user, "42", now, 12)
	// Whoever holds the alert's row makes its deliveries wait.
	held := must(connect(t, w.url).Begin(t.Context()))(t)
	defer func() { _ = held.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := held.Exec(t.Context(), "SELECT FROM alert WHERE alert_id = $1 FOR UPDATE", slow.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.watch(nil).Raise(t.Context(), now); err == nil {
		t.Error("nobody hears that a tenant's alerts were not raised")
	}
	if raised := must(w.AlertDeliveries(t.Context(), third.ID, 0, 0, 10))(t); len(raised) != 1 {
		t.Errorf("%d alerts of another tenant were raised, want 1", len(raised))
	}
}

func TestAnAlertWhoseReceiverIsAwayHasABoundedQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	must(w.CreateAlert(t.Context(), tester, alertOn(w.ours.user, true)))(t)
	for n := range violations.MaxPendingDeliveries + 5 {
		w.deny(t, w.ours.user, fmt.Sprint("user-", n), now, 12)
	}
	for _, want := range []int64{violations.MaxPendingDeliveries, 0} {
		if raised := must(w.RaiseAlerts(t.Context(), w.ours.ID, now))(t); raised != want {
			t.Errorf("%d deliveries were made, want %d", raised, want)
		}
	}
	claimed := must(w.ClaimDeliveries(t.Context(), now, now.Add(time.Minute), 3, 10))(t)
	for i := range claimed {
		claimed[i].State, claimed[i].AttemptedAt = violations.DeliveryDelivered, now
		if err := w.FinishDelivery(t.Context(), claimed[i].Delivery); err != nil {
			t.Fatal(err)
		}
	}
	if raised := must(w.RaiseAlerts(t.Context(), w.ours.ID, now))(t); len(claimed) != 3 || raised != 3 {
		t.Errorf("after %d were delivered %d were made, want 3 and 3", len(claimed), raised)
	}
}
