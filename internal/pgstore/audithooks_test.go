package pgstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/webhook"
)

// siem is a receiver of audit logs. It drops entries that it has, as receivers should.
type siem struct {
	*httptest.Server

	mu       sync.Mutex
	answer   int
	posts    int
	most     int      // entries in one post
	received []string // audit_ids, by arrival
	unsigned int
}

func newSIEM(t *testing.T) *siem {
	t.Helper()
	s := &siem{answer: http.StatusOK}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var message struct {
			Tenant string
			Events []struct {
				AuditID string `json:"audit_id"`
			}
		}
		err := json.NewDecoder(r.Body).Decode(&message)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.posts++
		s.most = max(s.most, len(message.Events))
		if err != nil || !strings.HasPrefix(r.Header.Get("Sluice-Signature"), "t=") {
			s.unsigned++
		}
		if s.answer < 300 {
			for _, e := range message.Events {
				if !slices.Contains(s.received, e.AuditID) {
					s.received = append(s.received, e.AuditID)
				}
			}
		}
		w.WriteHeader(s.answer)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *siem) set(answer int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func localSender() *webhook.Sender {
	return webhook.New(webhook.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
}

func (w *world) hook(t *testing.T, tenant rules.TenantID, url string) auth.AuditWebhook {
	t.Helper()
	return must(w.CreateAuditWebhook(t.Context(), tester, auth.AuditWebhook{Tenant: tenant, URL: url, Secret: "hush", Active: true}))(t)
}

func (w *world) courier(sender auth.AuditSender) *auth.AuditCourier {
	return auth.NewAuditCourier(w, sender, slog.New(slog.DiscardHandler))
}

// carry lets three processes send what is due until nothing is.
func (w *world) carry(t *testing.T, sender auth.AuditSender, at time.Time) {
	t.Helper()
	for range 10 {
		var processes sync.WaitGroup
		for range 3 {
			processes.Go(func() {
				courier := w.courier(sender)
				if err := courier.Deliver(t.Context(), at); err != nil {
					t.Error(err)
				}
				courier.Wait()
			})
		}
		processes.Wait()
	}
}

func (w *world) auditIDs(t *testing.T, after auth.AuditID) (ids []string) {
	t.Helper()
	return lines(t, connect(t, w.url), "SELECT e.audit_id::text FROM audit_event AS e WHERE e.tenant_id = $1 AND e.audit_id > $2 ORDER BY e.audit_id", w.ours.ID, int64(after))
}

func (w *world) progress(t *testing.T) auth.AuditProgress {
	t.Helper()
	_, progress, err := w.AuditWebhook(t.Context(), w.ours.ID)
	return must(progress, err)(t)
}

// change writes a number of entries.
func (w *world) change(t *testing.T, n int) {
	t.Helper()
	for range n {
		rule := must(w.Rule(t.Context(), w.ours.ID, w.ours.user.ID))(t)
		rule.Burst++
		must(w.UpdateRule(t.Context(), rule))(t)
	}
}

func TestAnAuditLogIsSentInOrderAndWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newSIEM(t)
	w.hook(t, w.ours.ID, target.URL)
	start := w.progress(t).SentTo
	if got := w.auditIDs(t, start); len(got) != 1 {
		t.Errorf("%d entries wait at first, want that of the creation", len(got))
	}
	// Writers and couriers at once: an entry must not become visible behind the cursor.
	var users []string
	for n := range 250 {
		users = append(users, fmt.Sprint("user-", n))
	}
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			for range 5 {
				must(w.CreatePlan(t.Context(), rules.Plan{TenantID: w.ours.ID, Name: fmt.Sprint("p", n)}))(t)
				if err := w.RemovePlan(t.Context(), w.ours.ID, fmt.Sprint("p", n), rules.AnyVersion); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Go(func() { w.assign(t, w.ours.ID, "pro", users...) })
	written := make(chan struct{})
	go func() { writers.Wait(); close(written) }()
	for isOver := false; !isOver; {
		select {
		case <-written:
			isOver = true
		default:
		}
		w.carry(t, localSender(), time.Now())
	}
	want := w.auditIDs(t, start)
	if !slices.Equal(target.received, want) || target.unsigned > 0 {
		t.Errorf("%d entries were received, want %d in order; %d posts were not signed", len(target.received), len(want), target.unsigned)
	}
	if target.most > 100 {
		t.Errorf("one post had %d entries", target.most)
	}
	p := w.progress(t)
	if p.Waiting != 0 || p.SucceededAt.IsZero() || p.Status != 200 || fmt.Sprint(p.SentTo) != want[len(want)-1] {
		t.Errorf("afterwards the state is %+v", p)
	}
}

// dying is a process that is killed when its post was answered.
type dying struct {
	auth.AuditSender
	kill context.CancelFunc
}

func (d dying) SendAudit(ctx context.Context, batch *auth.AuditBatch) (int, error) {
	defer d.kill()
	return d.AuditSender.SendAudit(ctx, batch)
}

func TestNothingIsLostWhenAProcessDiesBetweenSendingAndStoring(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newSIEM(t)
	w.hook(t, w.ours.ID, target.URL)
	start := w.progress(t).SentTo
	w.change(t, 3)
	now := time.Now().UTC().Truncate(time.Microsecond)
	ctx, kill := context.WithCancel(t.Context())
	killed := w.courier(dying{localSender(), kill})
	if err := killed.Deliver(ctx, now); err != nil {
		t.Fatal(err)
	}
	killed.Wait()
	if p := w.progress(t); target.posts != 1 || p.SentTo != start || p.Waiting != 4 {
		t.Fatalf("after %d posts the cursor is at %d with %d entries behind, want 1, %d and 4", target.posts, p.SentTo, p.Waiting, start)
	}
	w.change(t, 2)
	w.carry(t, localSender(), now.Add(59*time.Second)) // within the dead one's lease
	if target.posts != 1 {
		t.Error("two processes sent at once")
	}
	w.carry(t, localSender(), now.Add(time.Minute))
	if want := w.auditIDs(t, start); target.posts != 2 || !slices.Equal(target.received, want) {
		t.Errorf("after %d posts %v were received, want %v", target.posts, target.received, want)
	}
}

func TestALateProcessDoesNotMoveTheCursorOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hook(t, w.ours.ID, "https://example.com")
	now := time.Now()
	late := must(w.ClaimAuditErrands(t.Context(), now, now.Add(time.Minute), 10))(t)
	must(w.ClaimAuditErrands(t.Context(), now.Add(time.Minute), now.Add(2*time.Minute), 10))(t)
	if len(late) != 1 || late[0].TenantSlug != "ours" || late[0].Secret != "hush" {
		t.Fatalf("claimed are %+v", late)
	}
	late[0].SentTo, late[0].SucceededAt = 1<<40, now
	if err := w.FinishAuditErrand(t.Context(), late[0]); err != nil {
		t.Fatal(err)
	}
	if p := w.progress(t); p.SentTo == 1<<40 {
		t.Error("the one that was thought dead moved the cursor")
	}
}

func TestAReceiverThatIsAwayIsTriedAgainAndShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, target := t.Context(), newSIEM(t)
	w.hook(t, w.ours.ID, target.URL)
	now := time.Now().UTC().Truncate(time.Microsecond)
	w.carry(t, localSender(), now)
	delivered := w.progress(t)
	target.set(http.StatusServiceUnavailable)
	w.change(t, 1)
	at := now
	for n, pause := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute} {
		w.carry(t, localSender(), at)
		p := w.progress(t)
		if p.Failures != n+1 || p.Status != 503 || !p.NextAttemptAt.Equal(at.Add(pause)) || p.Waiting != 1 || !p.SucceededAt.Equal(delivered.SucceededAt) {
			t.Errorf("after attempt %d the state is %+v", n+1, p)
		}
		at = at.Add(pause)
	}
	closed := target.URL
	target.Close()
	w.carry(t, localSender(), at)
	if p := w.progress(t); p.Failures != 4 || p.Status != 0 || !strings.Contains(p.Error, "connection refused") || strings.Contains(p.Error, "127.0.0.1") {
		t.Errorf("without a receiver the state of %s is %+v", closed, p)
	}
	// It is never given up, and a change of the address is tried at once.
	exec(t, w.url, "UPDATE audit_webhook_progress SET failures = 1000")
	w.carry(t, localSender(), at.Add(time.Hour))
	if p := w.progress(t); p.Failures != 1001 || !p.NextAttemptAt.Equal(at.Add(5*time.Hour)) {
		t.Errorf("after many attempts the state is %+v", p)
	}
	revived := newSIEM(t)
	hook, _, err := w.AuditWebhook(ctx, w.ours.ID)
	if err != nil {
		t.Fatal(err)
	}
	hook.URL = revived.URL
	must(w.UpdateAuditWebhook(ctx, tester, hook))(t)
	w.carry(t, localSender(), time.Now().Add(time.Second))
	if p := w.progress(t); p.Failures != 0 || p.Waiting != 0 || p.Error != "" || len(revived.received) != 2 {
		t.Errorf("at another address %v were received, and the state is %+v", revived.received, p)
	}
	// While it is off, entries wait.
	hook, _, _ = w.AuditWebhook(ctx, w.ours.ID)
	hook.Active = false
	must(w.UpdateAuditWebhook(ctx, tester, hook))(t)
	w.carry(t, localSender(), time.Now().Add(time.Hour))
	if p := w.progress(t); p.Waiting != 1 || len(revived.received) != 2 {
		t.Errorf("while it is off %v were received, and the state is %+v", revived.received, p)
	}
	if err := w.TestAuditWebhook(ctx, w.ours.ID); err != nil {
		t.Fatal(err)
	}
	wantError(t, w.TestAuditWebhook(ctx, w.ours.ID), rules.ErrInUse)
	w.carry(t, localSender(), time.Now().Add(time.Second))
	if p := w.progress(t); p.Test.Waits || p.Test.Status != 200 || p.Waiting != 1 {
		t.Errorf("after a test the state is %+v", p)
	}
}

// hole is a sender to which one tenant's receiver never answers.
type hole struct {
	auth.AuditSender
	tenant  rules.TenantID
	reached chan struct{}
	open    chan struct{}
}

func (h hole) SendAudit(ctx context.Context, batch *auth.AuditBatch) (int, error) {
	if batch.Errand.Tenant != h.tenant {
		return h.AuditSender.SendAudit(ctx, batch)
	}
	h.reached <- struct{}{}
	select {
	case <-h.open:
		return http.StatusOK, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func TestATenantWithALongLogAndADeadReceiverHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	const entries = 100_000
	target := newSIEM(t)
	w.hook(t, w.ours.ID, "https://example.com")
	w.hook(t, w.theirs.ID, target.URL)
	exec(t, w.url, `INSERT INTO audit_event (tenant_id, at, actor_kind, actor_id, actor_name, act, request_id, action, object_kind, object_id, change_id)
		SELECT $1, now(), 'system', '', '', '', '', 'update', 'rule', n::text, n FROM generate_series(1, $2::integer) AS n`, w.ours.ID, entries)
	if p := w.progress(t); p.Waiting != auth.MaxAuditWaiting || p.OldestWaiting.IsZero() {
		t.Errorf("behind %d entries the state is %+v", entries, p)
	}
	sender := hole{localSender(), w.ours.ID, make(chan struct{}, entries), make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var processes sync.WaitGroup
	defer processes.Wait()
	defer stop()
	for range 2 {
		processes.Go(func() { w.courier(sender).Run(ctx) })
	}
	<-sender.reached
	must(w.CreatePlan(t.Context(), rules.Plan{TenantID: w.theirs.ID, Name: "prompt"}))(t)
	received := func() int {
		target.mu.Lock()
		defer target.mu.Unlock()
		return len(target.received)
	}
	for deadline := time.After(30 * time.Second); received() < 2; {
		select {
		case <-deadline:
			t.Fatal("a tenant waits for another one's receiver")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if len(sender.reached) > 0 {
		t.Error("a tenant has two attempts in flight, which could arrive out of order")
	}
	// When the receiver answers again, the log follows batch by batch, and others still take turns.
	close(sender.open)
	for range 20 {
		<-sender.reached
	}
	must(w.CreatePlan(t.Context(), rules.Plan{TenantID: w.theirs.ID, Name: "prompt too"}))(t)
	for deadline := time.After(30 * time.Second); received() < 3; {
		select {
		case <-deadline:
			t.Fatal("a tenant waits for another one's long log")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestEntriesThatRetentionDeletesAreCountedAsSkipped(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	target := newSIEM(t)
	w.hook(t, w.ours.ID, target.URL)
	w.change(t, 4)
	exec(t, w.url, `SET session_replication_role = replica; UPDATE audit_event SET at = at - interval '400 days'`)
	w.change(t, 2)
	kept := keep
	kept.Audit = 60 * day
	must(w.KeepViolations(t.Context(), time.Now(), kept))(t)
	if p := w.progress(t); p.Skipped != 5 || p.Waiting != 2 {
		t.Errorf("after the retention the state is %+v, want 5 skipped and 2 waiting", p)
	}
	w.carry(t, localSender(), time.Now())
	w.change(t, 1)
	must(w.KeepViolations(t.Context(), time.Now(), kept))(t)
	w.carry(t, localSender(), time.Now())
	if p := w.progress(t); p.Skipped != 5 || len(target.received) != 3 {
		t.Errorf("%d were received, and the state is %+v", len(target.received), p)
	}
}

func TestATenantHasOneAuditWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	_, _, err := w.AuditWebhook(ctx, ours)
	wantError(t, err, rules.ErrNotFound)
	wantError(t, w.TestAuditWebhook(ctx, ours), rules.ErrNotFound)
	hook := w.hook(t, ours, "https://example.com")
	_, err = w.CreateAuditWebhook(ctx, tester, hook)
	wantError(t, err, rules.ErrExists)
	rotated := must(w.RotateAuditSecret(ctx, tester, ours, rules.Expected(hook.Version), "new"))(t)
	_, err = w.UpdateAuditWebhook(ctx, tester, hook)
	wantError(t, err, rules.ErrChanged)
	wantError(t, w.RemoveAuditWebhook(ctx, tester, ours, rules.Expected(hook.Version)), rules.ErrChanged)
	if err := w.RemoveAuditWebhook(ctx, tester, ours, rules.Expected(rotated.Version)); err != nil {
		t.Fatal(err)
	}
	log := lines(t, connect(t, w.url), `SELECT concat_ws(' ', action, object_id, nullif(act, ''), before, after) FROM audit_event
		WHERE object_kind = 'audit_webhook' ORDER BY audit_id`)
	if len(log) != 3 || !strings.HasPrefix(log[0], "create audit_webhook {") || !strings.Contains(log[1], "rotate secret") ||
		!strings.HasPrefix(log[2], "remove") || strings.Contains(strings.Join(log, ""), "hush") {
		t.Errorf("the log has %q", log)
	}
}

// emptied is an outbox whose entries are deleted once they are claimed.
type emptied struct {
	auth.AuditOutbox
	clear func()
}

func (e emptied) ClaimAuditErrands(ctx context.Context, now, leaseEnds time.Time, limit int) ([]auth.AuditErrand, error) {
	claimed, err := e.AuditOutbox.ClaimAuditErrands(ctx, now, leaseEnds, limit)
	e.clear()
	return claimed, err
}

// TestNothingIsNoSuccess has the retention delete what a process has claimed: nothing is posted, so that the state stays as it was.
func TestNothingIsNoSuccess(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	target := newSIEM(t)
	target.set(http.StatusTeapot)
	w.hook(t, w.ours.ID, target.URL)
	now := time.Now()
	w.carry(t, localSender(), now)
	before := w.progress(t)
	if before.Failures != 1 || before.Status != http.StatusTeapot {
		t.Fatalf("after a failure the state is %+v", before)
	}
	courier := auth.NewAuditCourier(emptied{w, func() {
		exec(t, w.url, `SET session_replication_role = replica; DELETE FROM audit_event`)
	}}, localSender(), slog.New(slog.DiscardHandler))
	if err := courier.Deliver(t.Context(), before.NextAttemptAt); err != nil {
		t.Fatal(err)
	}
	courier.Wait()
	after := w.progress(t)
	if after.NextAttemptAt, after.Waiting, after.OldestWaiting = before.NextAttemptAt, before.Waiting, before.OldestWaiting; after != before {
		t.Errorf("the state is %+v, want %+v", after, before)
	}
}
