package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

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

func (w *world) deliver(t *testing.T, sender violations.Sender) {
	t.Helper()
	w.work(t, violations.AlertKinds(w, sender, slog.New(slog.DiscardHandler))[1:]...)
}

func (w *world) raiseAll(t *testing.T, now time.Time) error {
	t.Helper()
	return violations.RaiseAll(t.Context(), w, now, slog.New(slog.DiscardHandler))
}

func TestADeliveryIsTriedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	target := &receiver{answer: func() (int, error) { return 0, errors.New("connection \x00\xff refused") }}
	if err := w.raiseAll(t, now); err != nil {
		t.Fatal(err)
	}
	deliver := func() violations.Delivery {
		t.Helper()
		w.deliver(t, target)
		listed := must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 10))(t)
		if len(listed) != 1 {
			t.Fatalf("there are %d deliveries, want 1", len(listed))
		}
		return listed[0]
	}
	d := deliver()
	if d.State != violations.DeliveryPending || d.Attempts != 1 || !strings.Contains(d.Error, "refused") ||
		d.Denied != 12 {
		t.Errorf("after an attempt it is %+v", d)
	}
	wantPause(t, d.NextAttemptAt, 30*time.Second)
	if d = deliver(); d.Attempts != 1 {
		t.Error("it was tried again before its time")
	}
	target.answer = func() (int, error) { return 503, nil }
	w.due(t)
	if d = deliver(); d.Attempts != 2 || d.Status != 503 || d.Error != "" {
		t.Errorf("after the second attempt it is %+v", d)
	}
	wantPause(t, d.NextAttemptAt, time.Minute)
	target.answer = func() (int, error) { return 204, nil }
	w.due(t)
	if d = deliver(); d.State != violations.DeliveryDelivered || d.Status != 204 || d.Error != "" {
		t.Errorf("after an answer it is %+v", d)
	}
	w.due(t)
	deliver()
	if len(target.posts) != 3 || w.jobsLike(t, "true") != 0 {
		t.Errorf("it was posted %d times, want 3, and %d jobs are left", len(target.posts), w.jobsLike(t, "true"))
	}
}

func TestADeliveryIsGivenUpAtLastAndRetriedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, at := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", at, 12)
	must(w.raise(ctx, w.ours.ID, at))(t)
	target := &receiver{answer: func() (int, error) { return 302, nil }}
	latest := func() violations.Delivery { return must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 1))(t)[0] }
	for range 15 {
		w.deliver(t, target)
		w.due(t)
	}
	d := latest()
	if d.State != violations.DeliveryFailed || d.Attempts != 12 || len(target.posts) != 12 || d.Status != 302 ||
		d.Error != "" {
		t.Errorf("after %d posts it is %+v, want 12 and failed", len(target.posts), d)
	}
	if w.jobsLike(t, "true") != 0 {
		t.Error("a receiver's refusals are parked")
	}
	for range 2 {
		if d = must(w.RetryDelivery(ctx, w.ours.ID, alert.ID, d.ID))(t); d.State != violations.DeliveryPending {
			t.Errorf("after it was retried by hand it is %+v", d)
		}
		w.deliver(t, target)
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
	ctx, now := t.Context(), time.Now()
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	must(w.raise(ctx, w.ours.ID, now))(t)
	late := w.claim(t, violations.DeliveryKind)
	target := &receiver{answer: func() (int, error) { return 200, nil }}
	w.deliver(t, target)
	d := must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 1))(t)[0]
	if len(target.posts) > 0 || !d.UnderWay {
		t.Errorf("it was attempted twice within the lease, and is %+v", d)
	}
	_, err := w.RetryDelivery(ctx, w.ours.ID, alert.ID, d.ID)
	wantError(t, err, rules.ErrInUse)
	w.die(t)
	w.deliver(t, target)
	if d = must(w.AlertDeliveries(ctx, w.ours.ID, 0, 0, 1))(t)[0]; d.State != violations.DeliveryDelivered {
		t.Errorf("after the lease it is %+v", d)
	}
	if err := w.FinishDelivery(ctx, &late, d.ID, 500, "late", false); err != nil {
		t.Error(err)
	}
	if err := w.GiveUpDelivery(ctx, &late, d.ID, "late"); err != nil {
		t.Error(err)
	}
	if again := must(w.AlertDeliveries(ctx, w.ours.ID, 0, 0, 1))(t)[0]; again != d {
		t.Errorf("the one that was thought dead left %+v, want %+v", again, d)
	}
}

func TestAProcessThatFrozeDoesNotReviveWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now()
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	must(w.raise(ctx, w.ours.ID, now))(t)
	w.deliver(t, &receiver{answer: func() (int, error) {
		exec(t, w.url, "DELETE FROM job")
		exec(t, w.url, "UPDATE delivery SET state = 'failed', error = 'refused'")
		return 500, nil
	}})
	if d := must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 1))(t)[0]; d.State != violations.DeliveryFailed ||
		d.Error != "refused" {
		t.Errorf("the process that froze left %+v", d)
	}
}

func TestAnAnsweredDeliveryIsStoredThoughTheProcessStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now()
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	must(w.raise(ctx, w.ours.ID, now))(t)
	working, stop := context.WithCancel(ctx)
	target := &receiver{answer: func() (int, error) { stop(); return 200, nil }}
	r := runner(w, slog.New(slog.DiscardHandler),
		violations.AlertKinds(w, target, slog.New(slog.DiscardHandler))[1:]...)
	if err := r.Round(working); err != nil {
		t.Fatal(err)
	}
	r.Wait()
	if d := must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 1))(t)[0]; d.State != violations.DeliveryDelivered ||
		w.jobsLike(t, "true") != 0 {
		t.Errorf("after it was answered it is %+v, and %d jobs are left", d, w.jobsLike(t, "true"))
	}
}

func TestADeliveryWhoseProcessesDieIsParkedAndFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now()
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	must(w.raise(ctx, w.ours.ID, now))(t)
	target := &receiver{answer: func() (int, error) { panic("poison") }}
	latest := func() violations.Delivery { return must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 1))(t)[0] }
	exec(t, w.url, "UPDATE job SET attempts = 11")
	w.deliver(t, target)
	if d := latest(); d.State != violations.DeliveryFailed || !strings.Contains(d.Error, "poison") {
		t.Errorf("after the last panic it is %+v", d)
	}
	parked := must(w.ParkedJobs(ctx, 0, 10))(t)
	if len(parked) != 1 || parked[0].Kind != violations.DeliveryKind || parked[0].Tenant != w.ours.Slug {
		t.Fatalf("the parked jobs are %+v", parked)
	}
	target.answer = func() (int, error) { return 200, nil }
	if err := w.As(tester).RetryJob(ctx, parked[0].ID); err != nil {
		t.Fatal(err)
	}
	w.deliver(t, target)
	if d := latest(); d.State != violations.DeliveryDelivered || w.jobsLike(t, "true") != 0 {
		t.Errorf("after it was retried it is %+v, and %d jobs are left", d, w.jobsLike(t, "true"))
	}
}

func TestASilencedOrRemovedAlertsDeliveriesAreNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now()
	silenced := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	removed := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	must(w.raise(ctx, w.ours.ID, now))(t)
	must(w.SilenceAlert(ctx, tester, w.ours.ID, silenced.ID, rules.AnyVersion,
		violations.Silence{Until: now.Add(time.Hour), By: "test"}))(t)
	if err := w.RemoveAlert(ctx, tester, w.ours.ID, removed.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	target := &receiver{answer: func() (int, error) { return 200, nil }}
	w.deliver(t, target)
	if len(target.posts) != 0 || w.jobsLike(t, "true") != 0 {
		t.Errorf("%d were sent, and %d jobs are left", len(target.posts), w.jobsLike(t, "true"))
	}
}

// blackHole does not answer one tenant until it is opened.
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
	must(w.raise(t.Context(), w.ours.ID, now))(t)
	hole := &blackHole{
		tenant: w.ours.ID, open: make(chan struct{}), reached: make(chan struct{}, deliveries),
		answered: make(chan violations.Notice, 1), attempts: map[int64]int{},
	}
	ctx, stop := context.WithCancel(t.Context())
	var processes sync.WaitGroup
	defer processes.Wait()
	defer stop()
	log := slog.New(slog.DiscardHandler)
	processes.Go(func() { runner(w, log, violations.AlertKinds(w, hole, log)...).Run(ctx) })
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
	more, _, err := w.ClaimJobs(ctx, []jobs.Claim{{Kind: violations.DeliveryKind, Room: 64, PerTenant: 4}})
	if err != nil || len(more) > 0 {
		t.Errorf("another process begins %d more attempts for a tenant that has four under way: %v",
			len(more), err)
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

func TestATenantWithAHundredAlertsThatFireHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now, greedy := time.Now(), w.found(t, "greedy")
	for range 100 {
		must(w.CreateAlert(t.Context(), tester, alertOn(greedy.user, true)))(t)
	}
	exec(t, w.url, `INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
		SELECT $1, date_trunc('minute', $3::timestamptz), $2, n::text, false, 100,
			0 FROM generate_series(1, 20000) AS n`,
		greedy.ID, greedy.user.ID, now)
	must(w.CreateAlert(t.Context(), tester, alertOn(w.ours.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	_ = w.raiseAll(t, now) // what a greedy tenant's alerts end with is its own concern
	if raised := must(w.AlertDeliveries(t.Context(), w.ours.ID, 0, 0, 10))(t); len(raised) != 1 {
		t.Errorf("%d alerts were raised, want 1", len(raised))
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
		if raised := must(w.raise(t.Context(), w.ours.ID, now))(t); raised != want {
			t.Errorf("%d deliveries were made, want %d", raised, want)
		}
	}
	target := &receiver{answer: func() (int, error) { return 200, nil }}
	round(t, runner(w, slog.New(slog.DiscardHandler),
		violations.AlertKinds(w, target, slog.New(slog.DiscardHandler))[1]))
	if raised := must(w.raise(t.Context(), w.ours.ID, now))(t); len(target.posts) != 4 || raised != 4 {
		t.Errorf("after %d were delivered %d were made, want 4 and 4", len(target.posts), raised)
	}
}

func TestANoticeSaysWhatItsRuleCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	for name, want := range map[string]string{"usd": "usd · all plans", "monthly": "usd · monthly · all plans"} {
		rule := w.ours.user
		rule.Meter, rule.Name, rule.Plan = "usd", name, ""
		rule = must(w.CreateRule(ctx, rule))(t)
		alert := must(w.CreateAlert(ctx, tester, alertOn(rule, false)))(t)
		test := must(w.TestAlert(ctx, w.ours.ID, alert.ID))(t)
		if notice := must(w.Notice(ctx, w.ours.ID, test.ID))(t); notice.Detail != want || notice.Meter != "usd" {
			t.Errorf("the rule %s is %q in a notice, want %q", name, notice.Detail, want)
		}
	}
}

func TestANoticeSaysWhetherItsRuleDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	for _, change := range []struct {
		sql  string
		want rules.Mode
	}{
		{"SELECT $1::bigint", rules.ModeEnforce},
		{"UPDATE rate_limit_rule SET mode = 'shadow' WHERE tenant_id = $1", rules.ModeShadow},
		{"UPDATE rate_limit_rule SET mode = 'enforce' WHERE tenant_id = $1", rules.ModeEnforce},
		{"UPDATE tenant SET enforcement = 'shadow' WHERE tenant_id = $1", rules.ModeShadow},
	} {
		exec(t, w.url, change.sql, w.ours.ID)
		alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
		test := must(w.TestAlert(ctx, w.ours.ID, alert.ID))(t)
		if notice := must(w.Notice(ctx, w.ours.ID, test.ID))(t); notice.Mode != change.want {
			t.Errorf("after %s the mode is %q, want %q", change.sql, notice.Mode, change.want)
		}
	}
}

func TestWhatWaitsSaysWithWhatItWasRaised(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now()
	changes := []func(*violations.Alert){
		func(a *violations.Alert) { a.Active = false }, // the only one that is not sent
		func(a *violations.Alert) { a.Kind = violations.AlertCrossings },
		func(a *violations.Alert) { a.Rule = w.ours.daily.ID },
		func(a *violations.Alert) { a.PerSubject = true },
		func(a *violations.Alert) { a.Window, a.Threshold = 7*time.Minute, 99 },
	}
	alerts := make([]violations.Alert, 0, len(changes))
	for range changes {
		alerts = append(alerts, must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t))
	}
	w.deny(t, w.ours.user, "42", now, 12)
	must(w.raise(ctx, w.ours.ID, now))(t)
	said := func(of violations.Alert) string {
		raised := must(w.AlertDeliveries(ctx, w.ours.ID, of.ID, 0, 10))(t)
		notice := must(w.Notice(ctx, w.ours.ID, raised[0].ID))(t)
		return fmt.Sprint(notice.Summary(), notice.Rule, notice.Of.Threshold, notice.Mode)
	}
	want := said(alerts[1])
	for i, change := range changes {
		change(&alerts[i])
		must(w.UpdateAlert(ctx, tester, alerts[i]))(t)
	}
	exec(t, w.url, "UPDATE rate_limit_rule SET mode = 'shadow' WHERE tenant_id = $1", w.ours.ID)
	for _, alert := range alerts[1:] {
		if got := said(alert); got != want {
			t.Errorf("after an edit a delivery says %s, and said %s", got, want)
		}
	}
	target := &receiver{answer: func() (int, error) { return 200, nil }}
	for range len(changes) { // a round takes as many as a tenant may have at once
		w.deliver(t, target)
	}
	off := must(w.AlertDeliveries(ctx, w.ours.ID, alerts[0].ID, 0, 10))(t)
	if len(target.posts) != len(changes)-1 || slices.Contains(target.posts, off[0].ID) || !off[0].Silenced ||
		w.jobsLike(t, "true") != 0 {
		t.Errorf("%+v were sent, %+v not, and %d jobs are left", target.posts, off, w.jobsLike(t, "true"))
	}

	for user := range alerts[1].Threshold {
		w.crossQuota(t, w.ours.user, fmt.Sprint(user), now)
	}
	must(w.raise(ctx, w.ours.ID, now.Add(time.Second)))(t)
	if raised := must(w.AlertDeliveries(ctx, w.ours.ID, alerts[1].ID, 0, 10))(t); len(raised) != 2 {
		t.Errorf("an alert that counts something else than before has %d deliveries, want 2", len(raised))
	}
}
