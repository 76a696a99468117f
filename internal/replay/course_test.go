package replay_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// TestALongHistoryIsNoLargeOne replays a tenant that imported thousands of rules, each with an entry in the audit log.
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
