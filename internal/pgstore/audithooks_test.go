package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/notify/webhook"
	"github.com/sluicegate/sluice/internal/rules"
)

// siem drops entries that it has, as receivers should.
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
	return must(w.CreateAuditWebhook(t.Context(), tester,
		auth.AuditWebhook{Tenant: tenant, URL: url, Secret: "hush", Active: true}))(t)
}

func (w *world) work(t *testing.T, kinds ...jobs.Kind) {
	t.Helper()
	var processes sync.WaitGroup
	for range 3 {
		processes.Go(func() {
			r := runner(w, slog.New(slog.DiscardHandler), kinds...)
			if err := r.Round(t.Context()); err != nil {
				t.Error(err)
			}
			r.Wait()
		})
	}
	processes.Wait()
}

func (w *world) due(t *testing.T) {
	t.Helper()
	exec(t, w.url, "UPDATE job SET next_run_at = now() WHERE state = 'waiting' AND lease_ends_at IS NULL")
}

func (w *world) die(t *testing.T) {
	t.Helper()
	exec(t, w.url, "UPDATE job SET next_run_at = now(), lease_ends_at = now() WHERE lease_ends_at IS NOT NULL")
}

func (w *world) carry(t *testing.T, sender auth.AuditSender) {
	t.Helper()
	for range 5 {
		w.work(t, auth.AuditKinds(w, sender)...)
	}
}

func wantPause(t *testing.T, at time.Time, pause time.Duration) {
	t.Helper()
	if left := time.Until(at); left > pause+time.Second || left < pause-pause/3-time.Second {
		t.Errorf("the next attempt is in %s, want %s", left, pause)
	}
}

func (w *world) auditIDs(t *testing.T, after auth.AuditID) (ids []string) {
	t.Helper()
	return lines(t, connect(t, w.url),
		"SELECT e.audit_id::text FROM audit_event AS e WHERE e.tenant_id = $1 AND e.audit_id > $2 ORDER BY e.audit_id",
		w.ours.ID, int64(after))
}

func (w *world) progress(t *testing.T) auth.AuditProgress {
	t.Helper()
	_, progress, err := w.AuditWebhook(t.Context(), w.ours.ID)
	return must(progress, err)(t)
}

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
	// An entry must not become visible behind the cursor.
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
		w.carry(t, localSender())
	}
	w.due(t)
	w.carry(t, localSender())
	want := w.auditIDs(t, start)
	if !slices.Equal(target.received, want) || target.unsigned > 0 {
		t.Errorf("%d entries were received, want %d in order; %d posts were not signed", len(target.received),
			len(want), target.unsigned)
	}
	if target.most > 100 {
		t.Errorf("one post had %d entries", target.most)
	}
	p := w.progress(t)
	if p.Waiting != 0 || p.SucceededAt.IsZero() || p.Status != 200 || fmt.Sprint(p.SentTo) != want[len(want)-1] {
		t.Errorf("afterwards the state is %+v", p)
	}
}

type stopping struct {
	auth.AuditSender
	stop context.CancelFunc
}

func (s stopping) SendAudit(ctx context.Context, batch *auth.AuditBatch) (int, error) {
	defer s.stop()
	return s.AuditSender.SendAudit(ctx, batch)
}

func TestWhatWasReceivedIsStoredThoughTheProcessStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hook(t, w.ours.ID, newSIEM(t).URL)
	ctx, stop := context.WithCancel(t.Context())
	stopped := runner(w, slog.New(slog.DiscardHandler), auth.AuditKinds(w, stopping{localSender(), stop})...)
	if err := stopped.Round(ctx); err != nil {
		t.Fatal(err)
	}
	stopped.Wait()
	if p := w.progress(t); p.Waiting != 0 || p.Status != 200 {
		t.Errorf("after the receiver has it, the state is %+v", p)
	}
}

type forgetful struct{ auth.AuditOutbox }

func (forgetful) FinishAuditBatch(context.Context, *jobs.Job, auth.AuditID, int, string) error {
	return errors.New("the database is away")
}

func TestNothingIsLostWhenAProcessDiesBetweenSendingAndStoring(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newSIEM(t)
	w.hook(t, w.ours.ID, target.URL)
	start := w.progress(t).SentTo
	w.change(t, 3)
	round(t, runner(w, slog.New(slog.DiscardHandler), auth.AuditKinds(forgetful{w}, localSender())...))
	if p := w.progress(t); target.posts != 1 || p.SentTo != start || p.Waiting != 4 {
		t.Fatalf("after %d posts the cursor is at %d with %d entries behind, want 1, %d and 4", target.posts, p.SentTo,
			p.Waiting, start)
	}
	w.due(t)
	w.claim(t, auth.AuditWebhookKind)
	w.change(t, 2)
	w.carry(t, localSender())
	if p := w.progress(t); target.posts != 1 || !p.UnderWay {
		t.Errorf("two processes sent at once: %+v", p)
	}
	w.die(t)
	w.carry(t, localSender())
	if want := w.auditIDs(t, start); target.posts != 2 || !slices.Equal(target.received, want) {
		t.Errorf("after %d posts %v were received, want %v", target.posts, target.received, want)
	}
	if w.jobsLike(t, "true") != 0 {
		t.Error("a job is left though all was sent")
	}
}

func TestALateProcessDoesNotMoveTheCursorBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hook(t, w.ours.ID, newSIEM(t).URL)
	w.change(t, 2)
	w.carry(t, localSender())
	before := w.progress(t)
	w.change(t, 1)
	late := w.claim(t, auth.AuditWebhookKind)
	if err := w.FinishAuditBatch(t.Context(), &late, before.SentTo-1, 200, ""); err != nil {
		t.Fatal(err)
	}
	if p := w.progress(t); p.SentTo != before.SentTo {
		t.Errorf("the cursor is at %d, want %d", p.SentTo, before.SentTo)
	}
}

type between struct {
	auth.AuditOutbox
	do func()
}

func (b between) RestAuditWebhook(ctx context.Context, job *jobs.Job) (time.Time, error) {
	b.do()
	return b.AuditOutbox.RestAuditWebhook(ctx, job)
}

func TestAnEntryThatIsWrittenWhileTheJobEndsIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newSIEM(t)
	w.hook(t, w.ours.ID, target.URL)
	w.carry(t, localSender())
	start := w.progress(t).SentTo
	tests := map[string]func() (commit func()){
		"committed": func() func() { w.change(t, 1); return func() {} },
		"uncommitted": func() func() {
			tx := must(connect(t, w.url).Begin(t.Context()))(t)
			must(tx.Exec(t.Context(), "SELECT FROM tenant WHERE tenant_id = $1 FOR NO KEY UPDATE", w.ours.ID))(t)
			must(tx.Exec(t.Context(), "SELECT write_audit($1, 'update', 'rule', '1', NULL, NULL)", w.ours.ID))(t)
			return func() {
				if err := tx.Commit(t.Context()); err != nil {
					t.Error(err)
				}
			}
		},
	}
	for name, write := range tests {
		exec(t, w.url, "INSERT INTO job (tenant_id, kind, next_run_at) VALUES ($1, 'audit webhook', now())", w.ours.ID)
		commit := func() {}
		var once sync.Once
		r := runner(w, slog.New(slog.DiscardHandler),
			auth.AuditKinds(between{w, func() { once.Do(func() { commit = write() }) }}, localSender())...)
		round(t, r)
		commit()
		w.due(t)
		w.carry(t, localSender())
		if want := w.auditIDs(t, start); !slices.Equal(target.received[1:], want) {
			t.Errorf("%s: %v were received, want %v", name, target.received[1:], want)
		}
		if w.jobsLike(t, "true") != 0 {
			t.Errorf("%s: a job is left though all was sent", name)
		}
	}
}

func TestAReceiverThatIsAwayIsTriedAgainAndShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, target := t.Context(), newSIEM(t)
	w.hook(t, w.ours.ID, target.URL)
	w.carry(t, localSender())
	delivered := w.progress(t)
	target.set(http.StatusServiceUnavailable)
	w.change(t, 1)
	for n, pause := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute} {
		w.due(t)
		w.carry(t, localSender())
		p := w.progress(t)
		if p.Failures != n+1 || p.Status != 503 || p.Waiting != 1 || !p.SucceededAt.Equal(delivered.SucceededAt) {
			t.Errorf("after attempt %d the state is %+v", n+1, p)
		}
		wantPause(t, p.NextAttemptAt, pause)
	}
	closed := target.URL
	target.Close()
	w.due(t)
	w.carry(t, localSender())
	if p := w.progress(t); p.Failures != 4 || p.Status != 0 || !strings.Contains(p.Error, "connection refused") ||
		strings.Contains(p.Error, "127.0.0.1") {
		t.Errorf("without a receiver the state of %s is %+v", closed, p)
	}
	exec(t, w.url, "UPDATE job SET attempts = 1000")
	w.due(t)
	w.carry(t, localSender())
	wantPause(t, w.progress(t).NextAttemptAt, 4*time.Hour)
	revived := newSIEM(t)
	hook, _, err := w.AuditWebhook(ctx, w.ours.ID)
	if err != nil {
		t.Fatal(err)
	}
	hook.URL = revived.URL
	must(w.UpdateAuditWebhook(ctx, tester, hook))(t)
	w.carry(t, localSender())
	if p := w.progress(t); p.Failures != 0 || p.Waiting != 0 || p.Error != "" || len(revived.received) != 2 {
		t.Errorf("at another address %v were received, and the state is %+v", revived.received, p)
	}
	hook, _, _ = w.AuditWebhook(ctx, w.ours.ID)
	hook.Active = false
	must(w.UpdateAuditWebhook(ctx, tester, hook))(t)
	w.carry(t, localSender())
	if p := w.progress(t); p.Waiting != 1 || len(revived.received) != 2 {
		t.Errorf("while it is off %v were received, and the state is %+v", revived.received, p)
	}
	if err := w.TestAuditWebhook(ctx, w.ours.ID); err != nil {
		t.Fatal(err)
	}
	wantError(t, w.TestAuditWebhook(ctx, w.ours.ID), rules.ErrInUse)
	w.carry(t, localSender())
	if p := w.progress(t); p.Test.Waits || p.Test.Status != 200 || p.Waiting != 1 {
		t.Errorf("after a test the state is %+v", p)
	}
	hook, _, _ = w.AuditWebhook(ctx, w.ours.ID)
	hook.Active = true
	must(w.UpdateAuditWebhook(ctx, tester, hook))(t)
	w.carry(t, localSender())
	if p := w.progress(t); p.Waiting != 0 || len(revived.received) != 4 {
		t.Errorf("once it is on %v were received, and the state is %+v", revived.received, p)
	}
}

func TestATestWhoseProcessesDieEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hook(t, w.ours.ID, "https://example.com")
	if err := w.TestAuditWebhook(t.Context(), w.ours.ID); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.claim(t, auth.AuditTestKind)
		w.die(t)
	}
	w.work(t, auth.AuditKinds(w, localSender())[1])
	if p := w.progress(t); p.Test.Waits || !strings.Contains(p.Test.Error, "process ended") {
		t.Errorf("the test is %+v", p.Test)
	}
	if err := w.TestAuditWebhook(t.Context(), w.ours.ID); err != nil {
		t.Errorf("the next test: %v", err)
	}
}

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
	exec(t, w.url,
		`INSERT INTO audit_event (tenant_id, at, actor_kind, actor_id, actor_name, act, request_id, action,
			object_kind, object_id, change_id)
		SELECT $1, now(), 'system', '', '', '', '', 'update', 'rule', n::text,
			n FROM generate_series(1, $2::integer) AS n`, w.ours.ID, entries)
	if p := w.progress(t); p.Waiting != auth.MaxAuditWaiting || p.OldestWaiting.IsZero() {
		t.Errorf("behind %d entries the state is %+v", entries, p)
	}
	sender := hole{localSender(), w.ours.ID, make(chan struct{}, entries), make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var processes sync.WaitGroup
	defer processes.Wait()
	defer stop()
	for range 2 {
		processes.Go(func() {
			runner(w, slog.New(slog.DiscardHandler), auth.AuditKinds(w, sender)...).Run(ctx)
		})
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
	w.carry(t, localSender())
	w.change(t, 1)
	must(w.KeepViolations(t.Context(), time.Now(), kept))(t)
	w.carry(t, localSender())
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
	log := lines(t, connect(t, w.url),
		`SELECT concat_ws(' ', action, object_id, nullif(act, ''), before, after) FROM audit_event
		WHERE object_kind = 'audit_webhook' ORDER BY audit_id`)
	if len(log) != 3 || !strings.HasPrefix(log[0], "create audit_webhook {") ||
		!strings.Contains(log[1], "rotate secret") ||
		!strings.HasPrefix(log[2], "remove") || strings.Contains(strings.Join(log, ""), "hush") {
		t.Errorf("the log has %q", log)
	}
}

type emptied struct {
	auth.AuditOutbox
	clear func()
}

func (e emptied) AuditErrand(ctx context.Context, tenant rules.TenantID) (auth.AuditErrand, error) {
	errand, err := e.AuditOutbox.AuditErrand(ctx, tenant)
	e.clear()
	return errand, err
}

func TestNothingIsNoSuccess(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	target := newSIEM(t)
	target.set(http.StatusTeapot)
	w.hook(t, w.ours.ID, target.URL)
	w.carry(t, localSender())
	before := w.progress(t)
	if before.Failures != 1 || before.Status != http.StatusTeapot {
		t.Fatalf("after a failure the state is %+v", before)
	}
	w.due(t)
	round(t, runner(w, slog.New(slog.DiscardHandler), auth.AuditKinds(emptied{w, func() {
		exec(t, w.url, `SET session_replication_role = replica; DELETE FROM audit_event`)
	}}, localSender())...))
	after := w.progress(t)
	after.NextAttemptAt, after.Waiting, after.OldestWaiting = before.NextAttemptAt, before.Waiting,
		before.OldestWaiting
	if after != before || target.posts != 1 {
		t.Errorf("after nothing was sent in %d posts the state is %+v, want %+v", target.posts, after, before)
	}
}

func (w *world) backOff(t *testing.T, target *siem) {
	t.Helper()
	target.set(http.StatusServiceUnavailable)
	w.carry(t, localSender())
	exec(t, w.url, "UPDATE job SET attempts = 1000 WHERE kind = 'audit webhook'")
	w.due(t)
	w.carry(t, localSender())
	wantPause(t, w.progress(t).NextAttemptAt, 4*time.Hour)
	target.set(http.StatusOK)
}

func TestAnAuditWebhookThatIsMadeAnewIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newSIEM(t)
	w.hook(t, w.ours.ID, target.URL)
	w.backOff(t, target)
	if err := w.TestAuditWebhook(t.Context(), w.ours.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.RemoveAuditWebhook(t.Context(), tester, w.ours.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if left := w.jobsLike(t, "true"); left != 0 {
		t.Errorf("the webhook that was removed left %d jobs", left)
	}
	w.hook(t, w.ours.ID, target.URL)
	w.carry(t, localSender())
	if p := w.progress(t); p.Waiting != 0 || p.Failures != 0 || len(target.received) != 1 {
		t.Errorf("the new webhook has received %v, and its state is %+v", target.received, p)
	}
}

func TestAnAttemptAtTheFormerURLDoesNotDelayTheNewOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newSIEM(t)
	hook := w.hook(t, w.ours.ID, "https://example.com")
	former := w.claim(t, auth.AuditWebhookKind)
	hook.URL = target.URL
	must(w.UpdateAuditWebhook(t.Context(), tester, hook))(t)
	if err := w.FinishAuditBatch(t.Context(), &former, 0, 503, "late"); err != nil {
		t.Fatal(err)
	}
	if err := w.FinishJob(t.Context(), &former, jobs.Result{Error: "503", Pause: time.Hour}); err != nil {
		t.Fatal(err)
	}
	w.carry(t, localSender())
	if p := w.progress(t); p.Waiting != 0 || p.Failures != 0 || p.Error != "" || len(target.received) != 2 {
		t.Errorf("the new URL has received %v, and the state is %+v", target.received, p)
	}
}

func TestATestThatIsReceivedEndsTheBackOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newSIEM(t)
	w.hook(t, w.ours.ID, target.URL)
	w.backOff(t, target)
	test := func(answer int) auth.AuditProgress {
		target.set(answer)
		if err := w.TestAuditWebhook(t.Context(), w.ours.ID); err != nil {
			t.Fatal(err)
		}
		w.carry(t, localSender())
		return w.progress(t)
	}
	if p := test(http.StatusTeapot); p.Test.Status != http.StatusTeapot || p.Failures != 2 || p.Waiting != 1 {
		t.Errorf("after a test that was refused the state is %+v", p)
	}
	wantPause(t, w.progress(t).NextAttemptAt, 4*time.Hour)
	if p := test(http.StatusOK); p.Test.Status != 200 || p.Failures != 0 || p.Waiting != 0 ||
		len(target.received) != 1 {
		t.Errorf("after a test that was received %v were received, and the state is %+v", target.received, p)
	}
}
