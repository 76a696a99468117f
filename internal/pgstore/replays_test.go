package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

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
	if len(got) != 4 || got[0] != "raised" || got[1] != "overridden" || got[2] != "no longer overridden" || got[3] != "removed" {
		t.Errorf("the changes are %v", got)
	}
}

func TestAReplayWaitsRunsAndEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	w.recordFor(t, 7)
	now := time.Now().UTC()
	var block traffic.Block
	var times []uint32
	for i := range uint32(50) {
		times = append(times, i)
	}
	block.Tenant, block.Writer, block.Number, block.First, block.Last = ours, "w", 1, now.Add(-time.Minute), now.Add(-time.Minute+time.Second)
	block.SetRuns([]traffic.Run{{UserID: "77", Plan: "free", Endpoint: "/a", Cost: 1_000_000, Times: times}})
	if err := w.WriteTraffic(ctx, []traffic.Block{block}); err != nil {
		t.Fatal(err)
	}
	request := must(json.Marshal(replay.Request{
		Title: "tight", Since: now.Add(-time.Hour), Until: now, File: "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1/day, burst_capacity: 2}\n",
	}))(t)
	job := must(w.RequestReplay(ctx, ours, request))(t)
	canceled := must(w.RequestReplay(ctx, ours, request))(t)
	if err := w.CancelReplay(ctx, ours, canceled.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.CancelReplay(ctx, w.theirs.ID, job.ID); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("another tenant cancels ours: %v", err)
	}
	runner := replay.NewRunner(w.Store, func(context.Context, rules.TenantID) ([]string, error) { return []string{"free"}, nil }, nil)
	if !runner.Once(ctx) || runner.Once(ctx) {
		t.Error("not one replay waited")
	}
	job = must(w.Replay(ctx, ours, job.ID))(t)
	var result replay.Result
	if job.State != replay.Done || json.Unmarshal(job.Result, &result) != nil || result.DeniedNow.Value != 48 || result.Users[0].UserID != "77" {
		t.Errorf("the replay is %s %s, with %+v", job.State, job.Failure, result)
	}
	if all := must(w.Replays(ctx, ours, 0, 10))(t); len(all) != 2 || all[0].State != replay.Canceled || all[1].ID != job.ID {
		t.Errorf("the replays are %+v", all)
	}
	for range replay.MaxOpen {
		must(w.RequestReplay(ctx, ours, request))(t)
	}
	if _, err := w.RequestReplay(ctx, ours, request); !errors.Is(err, replay.ErrTooMany) {
		t.Errorf("one more than may wait: %v", err)
	}
	must(w.EraseUser(ctx, ours, "77"))(t)
	if _, err := w.Replay(ctx, ours, job.ID); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("the replay that names an erased user is there: %v", err)
	}
}
