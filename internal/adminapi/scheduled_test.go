package adminapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// schedule lets a burst of 20 wait for an hour and be in force for another.
func (w *world) schedule(rule rules.Rule) rules.ScheduledChange {
	w.t.Helper()
	change := rules.ScheduledChange{
		TenantID: rule.TenantID, RuleID: rule.ID, Patch: []byte(`{"burst_capacity": 20}`),
		StartsAt: time.Now().Add(time.Hour), EndsAt: time.Now().Add(2 * time.Hour),
	}
	rule.Burst = 20
	return must(w.system().Schedule(w.ctx(), change, rule))(w.t)
}

func TestAChangeIsScheduledListedAndCanceled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	rule, theirs := w.rule(w.acme), w.rule(w.other)
	const path = "/api/v1/tenants/acme/scheduled-changes"
	hour := func(n int) string { return time.Now().Add(time.Duration(n) * time.Hour).UTC().Format(time.RFC3339) }
	body := func(id rules.RuleID, version int, change map[string]any, starts, ends string) map[string]any {
		made := map[string]any{"rule_id": id, "version": version, "change": change, "starts_at": starts}
		if ends != "" {
			made["ends_at"] = ends
		}
		return made
	}
	burst := map[string]any{"burst_capacity": 20}
	for name, test := range map[string]struct {
		body    map[string]any
		pointer string
	}{
		"a rule of another tenant":  {body(theirs.ID, 1, burst, hour(1), ""), "/rule_id"},
		"a time that has passed":    {body(rule.ID, 1, burst, hour(-1), ""), "/starts_at"},
		"an end before its start":   {body(rule.ID, 1, burst, hour(2), hour(1)), "/ends_at"},
		"a burst that no rule has":  {body(rule.ID, 1, map[string]any{"burst_capacity": 0}, hour(1), ""), "/change/burst_capacity"},
		"a change of nothing":       {body(rule.ID, 1, map[string]any{"burst_capacity": 10}, hour(1), ""), "/change"},
		"a time beyond all reasons": {body(rule.ID, 1, burst, hour(24*500), ""), "/starts_at"},
	} {
		got := w.want(w.send(by, "POST", path, test.body), http.StatusBadRequest)
		if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{test.pointer}) {
			t.Errorf("%s: it points at %v, want %s", name, pointers, test.pointer)
		}
	}
	w.want(w.send(by, "POST", path, body(rule.ID, 7, burst, hour(1), "")), http.StatusPreconditionFailed)

	type shown struct {
		ChangeID int64          `json:"change_id"`
		State    string         `json:"state"`
		Change   map[string]any `json:"change"`
	}
	made := w.want(w.send(by, "POST", path, body(rule.ID, 1, burst, hour(1), hour(3))), http.StatusCreated)
	first := read[shown](t, made)
	if first.State != "waiting" || first.Change["burst_capacity"] != 20.0 || !strings.HasSuffix(made.header.Get("Location"), fmt.Sprint("/scheduled-changes/", first.ChangeID)) {
		t.Errorf("the change is %s at %s", made.body, made.header.Get("Location"))
	}
	w.want(w.send(by, "POST", path, body(rule.ID, 1, burst, hour(2), hour(4))), http.StatusConflict)
	w.want(w.send(by, "POST", path, body(rule.ID, 1, burst, hour(4), "")), http.StatusCreated)

	list := func(query string) []shown {
		return read[struct {
			Items []shown `json:"items"`
		}](t, w.want(w.send(by, "GET", path+query, nil), http.StatusOK)).Items
	}
	cancel := fmt.Sprintf("%s/%d/cancel", path, first.ChangeID)
	if got := read[shown](t, w.want(w.send(by, "POST", cancel, nil), http.StatusOK)); got.State != "canceled" {
		t.Errorf("after its cancellation it is %s", got.State)
	}
	w.want(w.send(by, "POST", cancel, nil), http.StatusOK)
	if all, open := list(fmt.Sprint("?rule_id=", rule.ID)), list("?open=true"); len(all) != 2 || all[1].State != "canceled" || len(open) != 1 || open[0].ChangeID == first.ChangeID {
		t.Errorf("listed are %+v, and open are %+v", all, open)
	}
	if other := list(fmt.Sprint("?rule_id=", w.rule(w.acme).ID)); len(other) != 0 {
		t.Errorf("another rule has %+v", other)
	}
}
