package adminapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

func (w *world) replay(tenant rules.Tenant) replay.Job {
	w.t.Helper()
	request := `{"title": "t", "kind": "file", "since": "2026-11-20T00:00:00Z", "until": "2026-11-21T00:00:00Z",
		"file": "rules: []"}`
	return must(w.system().RequestReplay(w.ctx(), tenant.ID, []byte(request)))(w.t)
}

func (w *world) record(tenant rules.Tenant, checks int) {
	w.t.Helper()
	tenant = must(w.store.Tenant(w.ctx(), tenant.ID))(w.t)
	tenant.Settings.RecordDays = 7
	must(w.system().UpdateTenant(w.ctx(), tenant))(w.t)
	block := traffic.Block{
		Tenant: tenant.ID, Writer: "w", Number: 1, First: time.Now().Add(-time.Minute),
		Last: time.Now().Add(-time.Minute),
	}
	block.Seen = int64(checks)
	run := traffic.Run{UserID: "42", Plan: "free", Endpoint: "/a", Cost: 1_000_000}
	for i := range checks {
		run.Times = append(run.Times, uint32(i))
	}
	block.SetRuns([]traffic.Run{run})
	if err := w.store.WriteTraffic(w.ctx(), []traffic.Block{block}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) runReplays() {
	w.t.Helper()
	plans := func(context.Context, rules.TenantID) ([]string, error) { return []string{"free"}, nil }
	w.work(replay.Jobs(w.store, plans, slog.New(slog.DiscardHandler)))
}

type shownReplay struct {
	ReplayID int64 `json:"replay_id,string"`
	Kind     string
	State    string
	Progress float64
	File     *string
	Result   *struct {
		RecordedSince *time.Time `json:"recorded_since"`
		Notes         []string
		DeniedThen    struct{ Value float64 } `json:"denied_then"`
		NewlyDenied   struct{ Value float64 } `json:"newly_denied"`
		Rules         []struct {
			Rule      string
			IsChanged bool `json:"is_changed"`
		}
		Users []struct {
			UserID string `json:"user_id"`
		}
	}
}

func TestAReplayIsStartedReadAndCanceled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	editor, viewer := w.person(w.acme, auth.Editor), w.person(w.acme, auth.Viewer)
	w.record(w.acme, 5)
	const replays = "/api/v1/tenants/acme/replays"
	live := w.rule(w.acme, func(r *rules.Rule) {
		r.Burst, r.RatePerSecond, r.Mode, r.Plan = 2, 0.001, rules.ModeEnforce,
			"free"
	})
	ask := func(more map[string]any) map[string]any {
		body := map[string]any{"since": time.Now().Add(-time.Hour).UTC(), "until": time.Now().UTC(), "title": "tight"}
		for name, value := range more {
			body[name] = value
		}
		return body
	}
	tight := map[string]any{
		"key_pattern": "user:{user_id}", "name": "tight", "plan": "free", "rate_per_second": 0.001,
		"burst_capacity": 1,
	}
	for kind, asked := range map[string]map[string]any{
		"rules": {"rules": []any{tight}, "remove": []any{fmt.Sprint(live.ID)}},
		"plan":  {"rules": []any{tight}, "plan": "free"},
		"file": {"file": "rules:\n  - {key_pattern: \"user:{user_id}\", name: tight, plan: free, rate_per_second: " +
			"0.001, burst_capacity: 1}\n", "prune": true},
	} {
		started := w.want(w.send(editor, "POST", replays, ask(asked)), http.StatusCreated)
		made := read[shownReplay](t, started)
		if made.State != "waiting" || made.Kind != kind ||
			started.header.Get("Location") != fmt.Sprintf("%s/%d", replays, made.ReplayID) {
			t.Errorf("%s: it is started as %+v at %s", kind, made, started.header.Get("Location"))
		}
		w.runReplays()
		done := read[shownReplay](t, w.get(viewer, fmt.Sprintf("%s/%d", replays, made.ReplayID)))
		if done.State != "done" || done.Progress != 1 || done.Result == nil || done.Result.NewlyDenied.Value != 4 ||
			done.File == nil ||
			done.Result.Rules[0].Rule != "user:{user_id} [free] tight" {
			t.Errorf("%s: it ends as %+v, with %+v", kind, done, done.Result)
		}
		if at := done.Result.RecordedSince; at == nil || time.Since(*at) > 30*time.Minute ||
			strings.Contains(strings.Join(done.Result.Notes, ""), "recorded since") {
			t.Errorf("%s: checks are recorded since %v, with the notes %q", kind, at, done.Result.Notes)
		}
	}
	waiting := read[shownReplay](t,
		w.want(w.send(editor, "POST", replays, ask(map[string]any{"remove": []any{fmt.Sprint(live.ID)}})),
			http.StatusCreated))
	canceled := read[shownReplay](t,
		w.want(w.send(editor, "POST", fmt.Sprintf("%s/%d/cancel", replays, waiting.ReplayID), nil), http.StatusOK))
	if canceled.State != "canceled" {
		t.Errorf("it is canceled as %+v", canceled)
	}
	list := w.get(viewer, replays+"?limit=3")
	page := read[struct {
		Items []shownReplay
		Next  *string `json:"next_cursor"`
	}](t, list)
	if len(page.Items) != 3 || page.Items[0].ReplayID != waiting.ReplayID || page.Next == nil ||
		page.Items[1].Result != nil || page.Items[1].File != nil {
		t.Errorf("the list is %s", list.body)
	}
	for range replay.MaxOpen {
		w.replay(w.acme)
	}
	w.want(w.send(editor, "POST", replays, ask(map[string]any{"rules": []any{tight}})), http.StatusConflict)
}

func TestAReplayThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	const replays = "/api/v1/tenants/acme/replays"
	const day = `"since": "2026-11-20T00:00:00Z", "until": "2026-11-21T00:00:00Z"`
	const rule = `{"key_pattern": "global", "rate_per_second": 1, "burst_capacity": 5}`
	for name, test := range map[string]struct{ body, pointer string }{
		"no candidate":         {`{` + day + `}`, "/rules"},
		"two candidates":       {`{` + day + `, "rules": [` + rule + `], "file": "rules: []"}`, "/rules"},
		"prune without a file": {`{` + day + `, "rules": [` + rule + `], "prune": true}`, "/prune"},
		"an end before its start": {`{"since": "2026-11-21T00:00:00Z", "until": "2026-11-20T00:00:00Z", "rules": [` +
			rule + `]}`, "/since"},
		"too long a time": {`{"since": "2026-09-21T00:00:00Z", "until": "2026-11-20T00:00:00Z", "rules": [` +
			rule + `]}`, "/since"},
		"a limit that is none": {
			`{` + day +
				`, "rules": [{"key_pattern": "global", "rate_per_second": 1, "burst_capacity": 0}]}`,
			"/rules/0/burst_capacity",
		},
		"a rule twice":             {`{` + day + `, "rules": [` + rule + `, ` + rule + `]}`, "/rules/1"},
		"a plan that is not there": {`{` + day + `, "plan": "gold"}`, "/plan"},
		"a rule of another plan":   {`{` + day + `, "plan": "free", "rules": [` + rule + `]}`, "/rules/0/plan"},
		"another tenant's rule":    {fmt.Sprintf(`{%s, "remove": ["%d"]}`, day, w.rule(w.other).ID), "/remove/0"},
		"a bad file": {
			`{` + day + `, "file": "rules:\n  - {key_pattern: \"global\"}\n"}`,
			"/file/lines/2",
		},
	} {
		got := w.do(by, request{"POST", replays, test.body, nil})
		found := strings.Join(pointersOf(t, got), " ")
		if got.status != http.StatusBadRequest || !strings.Contains(found, test.pointer) {
			t.Errorf("%s is answered %d at %s, want 400 at %s: %s", name, got.status, found, test.pointer, got.body)
		}
	}
	if left := must(w.store.Replays(w.ctx(), w.acme.ID, 0, 10))(t); len(left) > 0 {
		t.Errorf("%d replays wait", len(left))
	}
}

func TestWhatIsRecordedIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	type recording struct {
		RecordDays  int        `json:"record_days"`
		Bytes       int64      `json:"bytes"`
		BudgetBytes int64      `json:"budget_bytes"`
		Checks      int64      `json:"checks"`
		Share       float64    `json:"share"`
		Oldest      *time.Time `json:"oldest"`
	}
	const path = "/api/v1/tenants/acme/recording"
	if got := read[recording](t, w.get(by, path)); got != (recording{BudgetBytes: 1 << 20, Share: 1}) {
		t.Errorf("nothing is recorded, and it is %+v", got)
	}
	w.record(w.acme, 5)
	if got := read[recording](t, w.get(by, path)); got.RecordDays != 7 ||
		got.Checks != 5 || got.Bytes == 0 || got.Oldest == nil {
		t.Errorf("5 checks are recorded, and it is %+v", got)
	}
}
