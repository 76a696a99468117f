package adminapi_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func (w *world) candidate(live rules.Rule, burst int64) rules.Rule {
	w.t.Helper()
	live.CandidateFor, live.Burst = live.ID, burst
	return must(w.system().CreateCandidate(w.ctx(), live))(w.t)
}

func TestALimitIsTriedAsShadowComparedAndPromoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	live := w.rule(w.acme, func(r *rules.Rule) { r.Mode = rules.ModeEnforce })
	path := func(id int64, rest string) string { return fmt.Sprintf("/api/v1/tenants/acme/rules/%d%s", id, rest) }
	try := path(int64(live.ID), "/candidate")
	type tried struct {
		shownRule
		Mode         string `json:"mode"`
		CandidateFor int64  `json:"candidate_for,string"`
	}

	for name, body := range map[string]map[string]any{
		"a bypass":        {"action": "bypass"},
		"a burst of zero": {"burst_capacity": 0},
		"another meter":   {"meter": "tokens"},
	} {
		if got := w.send(by, "POST", try, body); got.status != http.StatusBadRequest {
			t.Errorf("%s is answered %d: %s", name, got.status, got.body)
		}
	}
	made := w.want(w.send(by, "POST", try, map[string]any{"burst_capacity": 5, "mode": "enforce", "is_active": false}),
		http.StatusCreated)
	candidate := read[tried](t, made)
	if candidate.Mode != "shadow" || candidate.Burst != 5 || candidate.CandidateFor != int64(live.ID) {
		t.Errorf("the candidate is %s", made.body)
	}
	w.want(w.send(by, "POST", try, map[string]any{}), http.StatusConflict)
	w.want(w.send(by, "POST", path(candidate.RuleID, "/candidate"), map[string]any{}), http.StatusConflict)
	w.want(w.send(by, "GET", path(int64(live.ID), "/comparison"), nil), http.StatusConflict)

	w.violate(denied(w.acme, time.Now(), func(v *violations.Violation) {
		v.Rule, v.Subject, v.Mode = rules.RuleID(candidate.RuleID), "77", rules.ModeShadow
	}))
	type comparison struct {
		Live     shownRule `json:"live"`
		Since    time.Time `json:"since"`
		Until    time.Time `json:"until"`
		Points   []any     `json:"points"`
		Subjects int64     `json:"subjects"`
		Items    []struct {
			Subject         string `json:"subject"`
			LiveDenied      int64  `json:"live_denied"`
			CandidateDenied int64  `json:"candidate_denied"`
		} `json:"items"`
	}
	compare := func() comparison {
		return read[comparison](t, w.get(by, path(candidate.RuleID, "/comparison")))
	}
	if got := compare(); got.Live.RuleID != int64(live.ID) || !got.Since.After(got.Until) || len(got.Points) != 0 ||
		got.Subjects != 0 {
		t.Errorf("the comparison with a new candidate is %+v", got)
	}
	earlier := time.Now().Add(-10 * time.Minute)
	w.exec("UPDATE rate_limit_rule SET in_force_since = $1", earlier)
	if got := compare(); !got.Since.After(earlier) || len(got.Points) == 0 || got.Subjects != 1 ||
		got.Items[0].Subject != "77" || got.Items[0].LiveDenied != 0 || got.Items[0].CandidateDenied != 1 {
		t.Errorf("the comparison is %+v", got)
	}

	w.want(w.send(by, "PATCH", path(int64(live.ID), ""), map[string]any{"burst_capacity": 11}, "If-Match", "*"),
		http.StatusOK)
	promote := func(version int) answer {
		return w.send(by, "POST", path(candidate.RuleID, "/promote"),
			map[string]any{"into_rule_id": fmt.Sprint(live.ID), "into_version": version}, "If-Match", `"1"`)
	}
	w.want(promote(1), http.StatusPreconditionFailed)
	if got := shownOf(t, w.want(promote(2), http.StatusOK)); got.RuleID != int64(live.ID) || got.Burst != 5 {
		t.Errorf("the promoted rule is %+v", got)
	}
}
