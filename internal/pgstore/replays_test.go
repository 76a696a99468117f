package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestAHistoryHasWhatStoodAndWhatChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	before := must(w.History(ctx, ours, time.Now().Add(-time.Hour)))(t)
	if len(before.Start.Rules) != 0 || len(before.Changes) == 0 {
		t.Errorf("an hour ago there were %d rules, and %d changes since", len(before.Start.Rules), len(before.Changes))
	}
	began := must(w.ArrivedAt(ctx, ours, violations.ID{}))(t) // the database's clock
	rule := w.ours.user
	rule.Burst += 7
	rule = must(w.UpdateRule(ctx, rule))(t)
	must(w.PutOverride(ctx, overrideOf(rule, "43"), rules.AnyVersion))(t)
	if err := w.RemoveOverride(ctx, ours, rule.ID, "43", rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if err := w.RemoveRule(ctx, ours, w.ours.daily.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	h := must(w.History(ctx, ours, began))(t)
	stood := map[rules.RuleID]int64{}
	for _, r := range h.Start.Rules {
		stood[r.ID] = r.Burst
		if r.Pattern.String() == "" || r.InForceSince.IsZero() {
			t.Errorf("a rule is %+v", r)
		}
	}
	if len(stood) != 2 || stood[rule.ID] != rule.Burst-7 {
		t.Errorf("the rules had bursts of %v", stood)
	}
	if len(h.Start.Overrides) != 1 || h.Start.Overrides[0].UserID != "42" {
		t.Errorf("the overrides were %+v", h.Start.Overrides)
	}
	var got []string
	for _, c := range h.Changes {
		for _, r := range c.Rules {
			if r.Removed {
				got = append(got, "removed")
			} else if r.Burst == rule.Burst {
				got = append(got, "raised")
			}
		}
		for _, o := range c.Overrides {
			if o.RemovedAt.IsZero() {
				got = append(got, "overridden")
			} else {
				got = append(got, "no longer overridden")
			}
		}
	}
	if len(got) != 4 || got[0] != "raised" || got[1] != "overridden" || got[2] != "no longer overridden" ||
		got[3] != "removed" {
		t.Errorf("the changes are %v", got)
	}
}

func (w *world) recordRun(t *testing.T, tenant rules.TenantID, user string, checks uint32) {
	t.Helper()
	stored := must(w.Tenant(t.Context(), tenant))(t)
	stored.Settings.RecordDays = 7
	must(w.UpdateTenant(t.Context(), stored))(t)
	block := traffic.Block{
		Tenant: tenant, Writer: "w", Number: 1, First: time.Now().Add(-time.Minute),
		Last: time.Now().Add(-time.Minute + time.Second),
	}
	var times []uint32
	for i := range checks {
		times = append(times, i)
	}
	block.SetRuns([]traffic.Run{{UserID: user, Plan: "free", Endpoint: "/a", Cost: 1_000_000, Times: times}})
	if err := w.WriteTraffic(t.Context(), []traffic.Block{block}); err != nil {
		t.Fatal(err)
	}
}

func lastHour(t *testing.T) []byte {
	t.Helper()
	return must(json.Marshal(replay.Request{
		Title: "tight", Kind: replay.KindFile, Since: time.Now().Add(-time.Hour).UTC(), Until: time.Now().UTC(),
		File: "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1/day, burst_capacity: 2}\n",
	}))(t)
}

func runnerOf(w *world, store replay.Store) *jobs.Runner {
	plans := func(context.Context, rules.TenantID) ([]string, error) { return []string{"free"}, nil }
	log := slog.New(slog.DiscardHandler)
	return runner(w, log, replay.Jobs(store, plans, log))
}

func (w *world) claimReplay(t *testing.T) jobs.Job {
	t.Helper()
	claimed, _, err := w.ClaimJobs(t.Context(), []jobs.Claim{{Kind: replay.JobKind, Room: 1, PerTenant: 1}})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("%+v is claimed: %v", claimed, err)
	}
	return claimed[0]
}

func TestAReplayWaitsRunsAndEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	w.recordRun(t, ours, "77", 50)
	request := lastHour(t)
	job := must(w.RequestReplay(ctx, ours, request))(t)
	canceled := must(w.RequestReplay(ctx, ours, request))(t)
	if ended := must(w.CancelReplay(ctx, ours, canceled.ID))(t); ended.State != replay.Canceled ||
		ended.FinishedAt.IsZero() {
		t.Errorf("what waited is canceled, and is %+v", ended)
	}
	if _, err := w.CancelReplay(ctx, w.theirs.ID, job.ID); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("another tenant cancels ours: %v", err)
	}
	round(t, runnerOf(w, w))
	job = must(w.Replay(ctx, ours, job.ID))(t)
	var result replay.Result
	if job.State != replay.Done || json.Unmarshal(job.Result, &result) != nil || result.DeniedNow.Value != 48 ||
		result.Users[0].UserID != "77" {
		t.Errorf("the replay is %s %s, with %+v", job.State, job.Failure, result)
	}
	if done := must(w.CancelReplay(ctx, ours, job.ID))(t); done.State != replay.Done {
		t.Errorf("a replay that was done is %s after its cancellation", done.State)
	}
	if all := must(w.Replays(ctx, ours, 0, 10))(t); len(all) != 2 || all[0].State != replay.Canceled ||
		all[1].ID != job.ID || len(all[1].Result) > 0 {
		t.Errorf("the replays are %+v", all)
	}
	for range replay.MaxOpen {
		must(w.RequestReplay(ctx, ours, request))(t)
	}
	if _, err := w.RequestReplay(ctx, ours, request); !errors.Is(err, replay.ErrTooMany) {
		t.Errorf("one more than may wait: %v", err)
	}
	log := lines(t, connect(t, w.url), `SELECT action || ' ' || object_id FROM audit_event
		WHERE tenant_id = $1 AND object_kind = 'replay' AND object_id::bigint <= $2 ORDER BY audit_id`, ours,
		canceled.ID)
	want := []string{
		fmt.Sprint("create ", job.ID), fmt.Sprint("create ", canceled.ID),
		fmt.Sprint("update ", canceled.ID),
	}
	if !slices.Equal(log, want) {
		t.Errorf("the audit log has %q, want %q", log, want)
	}
	// A running replay may have read the user's checks, so it begins again.
	round(t, runnerOf(w, w)) // the job of the one that was canceled has nothing to do
	claimed := w.claimReplay(t)
	running := must(w.BeginReplay(ctx, ours, must(strconv.ParseInt(claimed.About, 10, 64))(t), claimed.Claim))(t)
	w.erase(t, ours, "77")
	running.State, running.Result = replay.Done, []byte(`{"users": [{"user_id": "77"}]}`)
	if stored := must(w.FinishReplay(ctx, &running))(t); stored {
		t.Error("what one that ran meanwhile found is stored")
	}
	if again := must(w.Replay(ctx, ours, running.ID))(t); again.State != replay.Waiting || again.Result != nil {
		t.Errorf("one that ran meanwhile is %s, with %s", again.State, again.Result)
	}
	if _, err := w.Replay(ctx, ours, job.ID); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("the replay that names an erased user is there: %v", err)
	}
}

func TestOldReplaysMakeRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	first := must(w.RequestReplay(ctx, ours, lastHour(t)))(t)
	for range replay.MaxKept + 1 {
		job := must(w.RequestReplay(ctx, ours, lastHour(t)))(t)
		must(w.CancelReplay(ctx, ours, job.ID))(t)
	}
	must(w.RequestReplay(ctx, ours, lastHour(t)))(t)
	all := must(w.Replays(ctx, ours, 0, 100))(t)
	if len(all) != replay.MaxKept+2 || all[len(all)-1].ID != first.ID {
		t.Errorf("%d replays are left; the one that waits first is %v", len(all), all[len(all)-1].ID == first.ID)
	}
}

type heldStore struct {
	*pgstore.Store
	tenant  rules.TenantID
	reached chan struct{}
	held    chan struct{}
}

func hold(store *pgstore.Store, tenant rules.TenantID) *heldStore {
	return &heldStore{Store: store, tenant: tenant, reached: make(chan struct{}, 10), held: make(chan struct{})}
}

func (s *heldStore) Blocks(ctx context.Context, tenant rules.TenantID, of traffic.Range) iter.Seq2[traffic.Block,
	error] {
	if tenant != s.tenant {
		return s.Store.Blocks(ctx, tenant, of)
	}
	return func(yield func(traffic.Block, error) bool) {
		s.reached <- struct{}{}
		select {
		case <-s.held:
		case <-ctx.Done():
			yield(traffic.Block{}, ctx.Err())
			return
		}
		s.Store.Blocks(ctx, tenant, of)(yield)
	}
}

func (w *world) state(t *testing.T, tenant rules.TenantID, id int64, want replay.State) replay.Job {
	t.Helper()
	tick, late := time.NewTicker(20*time.Millisecond), time.After(5*time.Minute)
	defer tick.Stop()
	for {
		job := must(w.Replay(t.Context(), tenant, id))(t)
		if job.State == want {
			return job
		}
		select {
		case <-late:
			t.Fatalf("the replay is %s, want %s", job.State, want)
		case <-tick.C:
		}
	}
}

func TestALongReplayDelaysNoOtherTenants(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	ctx, ours, theirs := t.Context(), w.ours.ID, w.theirs.ID
	w.recordRun(t, ours, "77", 50)
	w.recordRun(t, theirs, "78", 50)
	var greedy []replay.Job
	for range replay.MaxOpen {
		greedy = append(greedy, must(w.RequestReplay(ctx, ours, lastHour(t)))(t))
	}
	store := hold(w.Store, ours)
	runner := runnerOf(w, store)
	if err := runner.Round(ctx); err != nil {
		t.Fatal(err)
	}
	<-store.reached
	small := must(w.RequestReplay(ctx, theirs, lastHour(t)))(t)
	if err := runner.Round(ctx); err != nil {
		t.Fatal(err)
	}
	w.state(t, theirs, small.ID, replay.Done)
	if job := must(w.Replay(ctx, ours, greedy[0].ID))(t); job.State != replay.Running {
		t.Errorf("the long replay is %s", job.State)
	}
	for _, job := range greedy[1:] {
		if job := must(w.Replay(ctx, ours, job.ID))(t); job.State != replay.Waiting {
			t.Errorf("another replay of its tenant is %s meanwhile", job.State)
		}
	}
	must(w.CancelReplay(ctx, ours, greedy[0].ID))(t)
	w.state(t, ours, greedy[0].ID, replay.Canceled)
	close(store.held)
	runner.Wait() // a tenant's next job is claimed once the one before has ended
	round(t, runner)
	w.state(t, ours, greedy[1].ID, replay.Done)
}

func TestAReplayOfAProcessThatEndedIsTakenUpOrEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	w.recordRun(t, ours, "77", 50)
	job := must(w.RequestReplay(ctx, ours, lastHour(t)))(t)
	store := hold(w.Store, ours)
	stopping, stop := context.WithCancel(ctx)
	runner := runnerOf(w, store)
	if err := runner.Round(stopping); err != nil {
		t.Fatal(err)
	}
	<-store.reached
	stop()
	runner.Wait()
	if left := must(w.Replay(ctx, ours, job.ID))(t); left.State != replay.Running ||
		w.jobsLike(t, "attempts = 0 AND lease_ends_at IS NULL") != 1 {
		t.Errorf("after its process stopped the replay is %s, and its job does not wait for another one", left.State)
	}
	round(t, runnerOf(w, w))
	w.state(t, ours, job.ID, replay.Done)

	doomed := must(w.RequestReplay(ctx, ours, lastHour(t)))(t)
	for range 3 { // processes that are killed
		claimed := w.claimReplay(t)
		must(w.BeginReplay(ctx, ours, doomed.ID, claimed.Claim))(t)
		w.die(t)
	}
	round(t, runnerOf(w, w))
	if ended := w.state(t, ours, doomed.ID, replay.Failed); !strings.Contains(ended.Failure,
		"ended before it 3 times") {
		t.Errorf("it failed because: %s", ended.Failure)
	}
	if w.jobsLike(t, "true") != 0 {
		t.Error("a job is left that does nothing when it is retried")
	}
}

func TestAReplayThatIsRestartedBeginsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	w.recordRun(t, ours, "77", 50)
	job := must(w.RequestReplay(ctx, ours, lastHour(t)))(t)
	store := hold(w.Store, ours)
	r := runnerOf(w, store)
	if err := r.Round(ctx); err != nil {
		t.Fatal(err)
	}
	<-store.reached
	w.erase(t, ours, "78")
	close(store.held)
	r.Wait()
	if left := must(w.Replay(ctx, ours, job.ID))(t); left.State != replay.Waiting {
		t.Fatalf("the replay is %s with %s, want one that waits", left.State, left.Result)
	}
	round(t, r)
	w.state(t, ours, job.ID, replay.Done)
	if w.jobsLike(t, "true") != 0 {
		t.Error("a job is left of a replay that is done")
	}
}

func TestAReplayThatIsCanceledWhileNoProcessRunsItEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	job := must(w.RequestReplay(ctx, ours, lastHour(t)))(t)
	must(w.BeginReplay(ctx, ours, job.ID, w.claimReplay(t).Claim))(t)
	must(w.CancelReplay(ctx, ours, job.ID))(t)
	w.die(t)
	round(t, runnerOf(w, w))
	w.state(t, ours, job.ID, replay.Canceled)
}

func TestAReplayWhoseRuleNamesAnErasedUserIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url,
		`INSERT INTO replay (tenant_id, requested_by_kind, requested_by_id, requested_by_name, request, state, result)
			VALUES
		($1, '', '', '', '{"file": "rules: []"}', 'done', '{"rules": [{"rule": "user:mallory"}], "users": []}'),
		($1, '', '', '', '{"file": "rules: []"}', 'done',
			'{"left_out": [{"rule": "user:mallory [free]", "why": "it reserves"}]}'),
		($1, '', '', '', '{"file": "rules: [{key_pattern: \"user:mallory\"}]"}', 'waiting', null),
		($1, '', '', '', '{"file": "rules: []"}', 'done',
			'{"rules": [{"rule": "user:{user_id}"}], "users": [{"user_id": "mallory@example.com"}]}')`, w.ours.ID)
	w.erase(t, w.ours.ID, "mallory")
	left := lines(t, connect(t, w.url), "SELECT result::text FROM replay")
	if len(left) != 1 || !strings.Contains(left[0], "mallory@example.com") {
		t.Errorf("left are %q, want the one of another user alone", left)
	}
}
