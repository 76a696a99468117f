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

func (w *world) schedule(rule rules.Rule) rules.ScheduledChange {
	w.t.Helper()
	change := rules.ScheduledChange{
		TenantID: rule.TenantID, Rules: []rules.ScheduledRule{{
			RuleID: rule.ID,
			Patch:  []byte(`{"burst_capacity": 20}`),
		}},
		StartsAt: time.Now().Add(time.Hour), EndsAt: time.Now().Add(2 * time.Hour),
	}
	rule.Burst = 20
	return must(w.system().Schedule(w.ctx(), change, []rules.Rule{rule}))(w.t)
}

func scheduleBody(starts, ends string, all ...map[string]any) map[string]any {
	made := map[string]any{"rules": all}
	if starts != "" {
		made["starts_at"] = starts
	}
	if ends != "" {
		made["ends_at"] = ends
	}
	return made
}

func TestAChangeTakesThePlaceOfOneThatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	rule := w.rule(w.acme)
	waiting := w.schedule(rule)
	const path = "/api/v1/tenants/acme/scheduled-changes"
	starts := time.Now().Add(90 * time.Minute).UTC().Format(time.RFC3339)
	body := scheduleBody(starts, "",
		map[string]any{"rule_id": fmt.Sprint(rule.ID), "version": 1, "change": map[string]any{"burst_capacity": 30}})
	w.want(w.send(by, "POST", path, body), http.StatusConflict)
	body["replaces"] = fmt.Sprint(waiting.ID)
	w.want(w.send(by, "POST", path, body), http.StatusCreated)
	w.want(w.send(by, "POST", path, body), http.StatusPreconditionFailed)
}

func TestAChangeIsScheduledListedAndCanceled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	rule, theirs := w.rule(w.acme), w.rule(w.other)
	const path = "/api/v1/tenants/acme/scheduled-changes"
	hour := func(n int) string { return time.Now().Add(time.Duration(n) * time.Hour).UTC().Format(time.RFC3339) }
	body := func(id rules.RuleID, version int, change map[string]any, starts, ends string) map[string]any {
		return scheduleBody(starts, ends,
			map[string]any{"rule_id": fmt.Sprint(id), "version": version, "change": change})
	}
	burst := map[string]any{"burst_capacity": 20}
	lasting := func(seconds int, change map[string]any, starts, ends string) map[string]any {
		made := body(rule.ID, 1, change, starts, ends)
		made["ends_in_seconds"] = seconds
		return made
	}
	for name, test := range map[string]struct {
		body    map[string]any
		pointer string
	}{
		"a rule of another tenant": {body(theirs.ID, 1, burst, hour(1), ""), "/rules/0/rule_id"},
		"a time that has passed":   {body(rule.ID, 1, burst, hour(-1), ""), "/starts_at"},
		"an end before its start":  {body(rule.ID, 1, burst, hour(2), hour(1)), "/ends_at"},
		"a burst that no rule has": {
			body(rule.ID, 1, map[string]any{"burst_capacity": 0}, hour(1), ""),
			"/rules/0/change/burst_capacity",
		},
		"another meter": {
			body(rule.ID, 1, map[string]any{"meter": "tokens"}, hour(1), ""),
			"/rules/0/change/meter",
		},
		"a change of nothing": {
			body(rule.ID, 1, map[string]any{"burst_capacity": 10}, hour(1), ""),
			"/rules/0/change",
		},
		"neither a start nor an end": {body(rule.ID, 1, burst, "", ""), "/ends_at"},
		"an end that has passed":     {body(rule.ID, 1, burst, "", hour(-1)), "/ends_at"},
		"a time beyond all reasons":  {body(rule.ID, 1, burst, hour(24*500), ""), "/starts_at"},
		"a length and an end":        {lasting(60, burst, "", hour(1)), "/ends_in_seconds"},
		"no length":                  {lasting(0, burst, hour(1), ""), "/ends_in_seconds"},
		"a length beyond 400 days":   {lasting(34560000, burst, hour(1), ""), "/ends_in_seconds"},
		"a rule that ends by then": {
			body(rule.ID, 1, map[string]any{"expires_in_seconds": 60}, hour(1), ""),
			"/rules/0/change/expires_in_seconds",
		},
	} {
		got := w.want(w.send(by, "POST", path, test.body), http.StatusBadRequest)
		if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{test.pointer}) {
			t.Errorf("%s: it points at %v, want %s", name, pointers, test.pointer)
		}
	}
	w.want(w.send(by, "POST", path, body(rule.ID, 7, burst, hour(1), "")), http.StatusPreconditionFailed)

	type shown struct {
		ChangeID int64  `json:"change_id,string"`
		State    string `json:"state"`
		Rules    []struct {
			Change map[string]any `json:"change"`
		} `json:"rules"`
	}
	made := w.want(w.send(by, "POST", path, body(rule.ID, 1, burst, hour(1), hour(3))), http.StatusCreated)
	first := read[shown](t, made)
	if first.State != "waiting" || first.Rules[0].Change["burst_capacity"] != 20.0 ||
		!strings.HasSuffix(made.header.Get("Location"), fmt.Sprint("/scheduled-changes/", first.ChangeID)) {
		t.Errorf("the change is %s at %s", made.body, made.header.Get("Location"))
	}
	w.want(w.send(by, "POST", path, body(rule.ID, 1, burst, hour(2), hour(4))), http.StatusConflict)
	w.want(w.send(by, "POST", path, body(rule.ID, 1, burst, hour(4), "")), http.StatusCreated)

	list := func(query string) []shown {
		return read[struct {
			Items []shown `json:"items"`
		}](t, w.get(by, path+query)).Items
	}
	cancel := fmt.Sprintf("%s/%d/cancel", path, first.ChangeID)
	if got := read[shown](t, w.want(w.send(by, "POST", cancel, nil), http.StatusOK)); got.State != "canceled" {
		t.Errorf("after its cancellation it is %s", got.State)
	}
	w.want(w.send(by, "POST", cancel, nil), http.StatusOK)
	if all, open := list(fmt.Sprint("?rule_id=", rule.ID)), list("?open=true"); len(all) != 2 ||
		all[1].State != "canceled" || len(open) != 1 || open[0].ChangeID == first.ChangeID {
		t.Errorf("listed are %+v, and open are %+v", all, open)
	}
	if other := list(fmt.Sprint("?rule_id=", w.rule(w.acme).ID)); len(other) != 0 {
		t.Errorf("another rule has %+v", other)
	}

	last, before := w.rule(w.acme), time.Now()
	short := lasting(3600, burst, "", "")
	short["rules"].([]map[string]any)[0]["rule_id"] = fmt.Sprint(last.ID) //nolint:forcetypeassert // made above
	type times struct {
		State    string    `json:"state"`
		StartsAt time.Time `json:"starts_at"`
		EndsAt   time.Time `json:"ends_at"`
	}
	temporary := read[times](t, w.want(w.send(by, "POST", path, short), http.StatusCreated))
	if begins := temporary.EndsAt.Add(-time.Hour); temporary.State != "in_force" || !begins.Equal(temporary.StartsAt) ||
		begins.Before(before.Truncate(time.Microsecond)) || begins.After(time.Now()) {
		t.Errorf("a change for an hour from %s on is %+v", before, temporary)
	}
	later := lasting(3600, burst, hour(5), "")
	another := fmt.Sprint(w.rule(w.acme).ID)
	later["rules"].([]map[string]any)[0]["rule_id"] = another //nolint:forcetypeassert // made above
	if got := read[times](t, w.want(w.send(by, "POST", path, later), http.StatusCreated)); !got.EndsAt.Equal(
		got.StartsAt.Add(time.Hour)) {
		t.Errorf("a change for an hour is %+v", got)
	}
}

func TestAColumnIsScheduledAsAWholeOrNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	const path = "/api/v1/tenants/acme/scheduled-changes"
	in := func(hours int) string {
		return time.Now().Add(time.Duration(hours) * time.Hour).UTC().Format(time.RFC3339)
	}
	first, second := w.rule(w.acme), w.rule(w.acme)
	part := func(rule rules.Rule, version int, burst int) map[string]any {
		return map[string]any{
			"rule_id": fmt.Sprint(rule.ID), "version": version, "change": map[string]any{"burst_capacity": burst},
		}
	}
	for name, test := range map[string]struct {
		second   map[string]any
		status   int
		pointers []string
	}{
		"a burst that no rule has": {
			part(second, 1, 0), http.StatusBadRequest,
			[]string{"/rules/1/change/burst_capacity"},
		},
		"the same rule twice": {part(first, 1, 20), http.StatusBadRequest, []string{"/rules/1/rule_id"}},
		"an edited rule":      {part(second, 3, 20), http.StatusPreconditionFailed, []string{"/rules/1/version"}},
	} {
		got := w.want(w.send(by, "POST", path, scheduleBody(in(1), "", part(first, 1, 20), test.second)), test.status)
		if pointers := pointersOf(t, got); !slices.Equal(pointers, test.pointers) {
			t.Errorf("%s: it points at %v, want %v", name, pointers, test.pointers)
		}
	}
	w.want(w.send(by, "POST", path, scheduleBody(in(1), "")), http.StatusBadRequest)
	made := w.want(w.send(by, "POST", path, scheduleBody("", in(3), part(first, 1, 20), part(second, 1, 20))),
		http.StatusCreated)
	type shown struct {
		ChangeID int64  `json:"change_id,string"`
		Title    string `json:"title"`
		State    string `json:"state"`
		Rules    []any  `json:"rules"`
	}
	change := read[shown](t, made)
	if change.State != "in_force" || len(change.Rules) != 2 || change.Title != "2 limits of all plans" {
		t.Errorf("the change is %s", made.body)
	}
	if rule := must(w.store.Rule(w.ctx(), w.acme.ID, second.ID))(t); rule.Burst != 20 {
		t.Errorf("the burst is %d, and was to be 20 at once", rule.Burst)
	}
	got := w.want(w.send(by, "POST", path, scheduleBody(in(1), "", part(second, 2, 30))), http.StatusConflict)
	if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/rules/0"}) {
		t.Errorf("another change at this time: it points at %v", pointers)
	}
	back := w.want(w.send(by, "POST", fmt.Sprintf("%s/%d/cancel", path, change.ChangeID), nil), http.StatusOK)
	if state := read[shown](t, back).State; state != "done" {
		t.Errorf("after its cancellation it is %s", state)
	}
}

func TestRemovingAMemberKeepsOrCancelsWhatTheyScheduled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.person(w.acme, auth.Owner)
	withRules := w.keyOf(w.acme, auth.PermissionMembers, auth.PermissionRules)
	membersOnly := w.keyOf(w.acme, auth.PermissionMembers)
	w.refresh()
	for query, want := range map[string]string{
		"": "waiting", "?scheduled_changes=keep": "waiting",
		"?scheduled_changes=cancel": "canceled",
	} {
		leaver, stays := w.person(w.acme, auth.Editor), w.person(w.acme, auth.Editor)
		schedule := func(by caller, starts string) string {
			rule := w.rule(w.acme, func(r *rules.Rule) {
				r.Pattern = must(rules.ParsePattern("user:{user_id}:endpoint:/" + w.name("e")))(t)
			})
			body := scheduleBody(starts, time.Now().Add(2*time.Hour).Format(time.RFC3339), map[string]any{
				"rule_id": fmt.Sprint(rule.ID), "version": rule.Version, "change": map[string]any{"burst_capacity": 7},
			})
			made := w.want(w.send(by, "POST", "/api/v1/tenants/acme/scheduled-changes", body), http.StatusCreated)
			if got := read[struct {
				ID int64 `json:"requester_account_id,string"`
			}](t, made).ID; got != int64(by.account.ID) {
				t.Errorf("the change says that account %d scheduled it, want %d", got, by.account.ID)
			}
			return made.header.Get("Location")
		}
		soon := time.Now().Add(time.Hour).Format(time.RFC3339)
		theirs, others, begun := schedule(leaver, soon), schedule(stays, soon), schedule(leaver, "")
		member := "/api/v1/tenants/acme/members/" + formatID(leaver.account.ID) + query
		by := owner
		if want == "canceled" {
			w.wantKind(w.send(membersOnly, "DELETE", member, nil, "If-Match", "*"), http.StatusForbidden, "forbidden")
			by = withRules
		}
		w.want(w.send(by, "DELETE", member, nil, "If-Match", "*"), http.StatusNoContent)
		for place, state := range map[string]string{theirs: want, others: "waiting", begun: "in_force"} {
			got := w.get(owner, place)
			if is := read[struct{ State string }](t, got).State; is != state {
				t.Errorf("with %q the change is %s, want %s", query, is, state)
			}
		}
	}
}
