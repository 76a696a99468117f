package replay_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/traffic"
)

// Not parallel, because it measures memory.
func TestALongHistoryIsNoLargeOne(t *testing.T) { //nolint:paralleltest // it measures memory
	const imported = 3000
	s := newStreet(t, rule(t, 1, "user:{user_id}", "", 0.001, 2))
	for i := range 6 {
		s.check(noon.Add(time.Duration(i)*10*time.Second), &rules.Request{UserID: "42", Endpoint: "/2999"}, "")
	}
	in := s.input(nil, noon.Add(time.Minute))
	for i := range imported {
		added := rule(t, rules.RuleID(i+2), fmt.Sprint("endpoint:/", i), "", 1000, 1000)
		in.History.Changes = append(in.History.Changes, replay.Change{
			At:   noon.Add(25*time.Second + time.Duration(i)*time.Microsecond),
			Rows: snapshot.Rows{Rules: []rules.Rule{added}},
		})
	}
	in.Candidate = candidateOf(rule(t, 0, "endpoint:/2999", "", 0.001, 1))
	result := s.replayWithin(in, 200)
	if result.Read != 6 || result.DeniedThen.Value != 4 || result.DeniedNow.Value != 5 {
		t.Errorf("the result is %+v", result.Counts)
	}
}

// Not parallel, because it measures memory.
func TestTheMemoryOfAReplayDoesNotGrowWithItsUsers(t *testing.T) { //nolint:paralleltest // it measures memory
	const blocks, users, checks = 100, 2_000, 5
	s, names := newShelves(rule(t, 1, "user:{user_id}", "", 0.001, 1)), sampledUsers(1, blocks*users)
	for i := range blocks {
		var runs []traffic.Run
		for _, name := range names[i*users:][:users] {
			runs = append(runs, traffic.Run{UserID: name, Cost: token, Times: times(checks, 50)})
		}
		s.record(noon.Add(time.Duration(i)*500*time.Millisecond), 1, 1, runs...)
	}
	inUse := func() uint64 {
		runtime.GC()
		var of runtime.MemStats
		runtime.ReadMemStats(&of)
		return of.HeapAlloc
	}
	before, most := inUse(), uint64(0)
	result, err := replay.Run(t.Context(), &replay.Input{
		Tenant: 1, Since: noon, Until: noon.Add(time.Minute), History: &replay.History{Start: s.rows},
		Blocks: replay.Slice(s.blocks), Level: 1,
	}, replay.Options{MaxBuckets: 10_000, Progress: func(float64) { most = max(most, inUse()) }})
	if err != nil {
		t.Fatal(err)
	}
	if mb := (most - before) >> 20; mb > 120 {
		t.Errorf("the replay of %d users keeps %d MB", len(names), mb)
	}
	// Each user counts as much, so the error is that of their number.
	want := 1.96 * math.Sqrt(0.75*blocks*users*checks*checks) / 0.25
	if of := result.Checks; of.Value != 4*blocks*users*checks || math.Abs(of.Error-want) > want/4 {
		t.Errorf("there are %g ± %g checks, want ± %g", of.Value, of.Error, want)
	}
	if result.MoreUsers < 90_000 || len(result.Notes) < 2 {
		t.Errorf("there are %d more users, and the notes are %q", result.MoreUsers, result.Notes)
	}
}

func TestALargeCandidateIsFoundQuickly(t *testing.T) {
	t.Parallel()
	const held, given = 80_000, 10_000
	limit := rule(t, 1, "user:{user_id}", "", 0.001, 1)
	s := newStreet(t, limit)
	s.check(noon, &rules.Request{UserID: "0"}, "")
	s.check(noon.Add(time.Second), &rules.Request{UserID: "0"}, "")
	candidate := &replay.Candidate{}
	for i := range held {
		override := rules.Override{
			TenantID: 1, RuleID: 1, UserID: fmt.Sprint(i), RatePerSecond: 0.001,
			RateUnit: rules.PerSecond, Burst: 1,
		}
		s.rows.Overrides = append(s.rows.Overrides, override)
		if override.Burst = 2; i < given {
			candidate.Config.Overrides = append(candidate.Config.Overrides,
				ruleset.ConfigOverride{Rule: limit.Identity(), Override: override})
		}
	}
	in, watch := s.input(candidate, noon.Add(time.Minute)), awake.Start()
	defer watch.Stop()
	if result := s.replay(in); result.DeniedThen.Value != 1 || result.NoLongerDenied.Value != 1 {
		t.Errorf("the result is %+v", result.Counts)
	}
	if took := watch.Now(); took > 10*time.Second {
		t.Errorf("two checks take %v", took)
	}
}

func (s *street) replayWithin(in *replay.Input, most uint64) *replay.Result {
	s.t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	result := s.replay(in)
	runtime.ReadMemStats(&after)
	if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > most {
		s.t.Errorf("the replay allocates %d MB", mb)
	}
	return result
}
