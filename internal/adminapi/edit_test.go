package adminapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

type shownRule struct {
	RuleID  int64 `json:"rule_id,string"`
	Burst   int64 `json:"burst_capacity"`
	Version int64 `json:"version"`
}

func TestOfTwoEditorsTheSecondIsToldAndLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.person(w.acme, auth.Editor), w.person(w.acme, auth.Editor)
	rule := w.rule(w.acme)
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d", rule.ID)
	read := w.get(first, path).header.Get("ETag")
	saved := w.want(w.send(first, "PATCH", path, map[string]any{"burst_capacity": 20}, "If-Match", read), http.StatusOK)
	refused := w.want(w.send(second, "PATCH", path, map[string]any{"burst_capacity": 30}, "If-Match", read),
		http.StatusPreconditionFailed)
	if got, want := refused.header.Get("ETag"), saved.header.Get("ETag"); got != want || got == read {
		t.Errorf("the second is told the ETag %s, want %s", got, want)
	}
	if got := shownOf(t, w.send(second, "GET", path, nil)); got.Burst != 20 {
		t.Errorf("the first editor's burst became %d", got.Burst)
	}
	w.want(w.send(second, "PATCH", path, map[string]any{"burst_capacity": 30}, "If-Match", refused.header.Get("ETag")),
		http.StatusOK)
	w.want(w.send(first, "DELETE", path, nil, "If-Match", read), http.StatusPreconditionFailed)
	w.want(w.send(first, "DELETE", path, nil), http.StatusPreconditionRequired)
	w.want(w.send(first, "DELETE", path, nil, "If-Match", "*"), http.StatusNoContent)
	w.want(w.send(first, "DELETE", path, nil, "If-Match", "*"), http.StatusNotFound)
}

func shownOf(t *testing.T, got answer) shownRule { return read[shownRule](t, got) }

func TestOfManyEditorsAtOnceOneWins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d", w.rule(w.acme).ID)
	statuses := make([]int, 20)
	var group sync.WaitGroup
	for i := range statuses {
		group.Go(func() {
			statuses[i] = w.send(by, "PATCH", path, map[string]any{"burst_capacity": 100 + i}, "If-Match", `"1"`).status
		})
	}
	group.Wait()
	slices.Sort(statuses)
	if statuses[0] != http.StatusOK || statuses[1] != http.StatusPreconditionFailed {
		t.Errorf("they were answered %v, want one 200 and else 412", statuses)
	}
}

func TestAMatrixWithOneBadCellChangesNothingAndNamesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	a, b := w.rule(w.acme), w.rule(w.acme)
	good := map[string]any{"rule_id": fmt.Sprint(a.ID), "version": 1, "burst_capacity": 99}
	for range rules.MaxRulesPerPattern {
		w.rule(w.acme, func(r *rules.Rule) { r.Pattern = must(rules.ParsePattern("global"))(t) })
	}
	tests := map[string]struct {
		cell    map[string]any
		status  int
		pointer string
	}{
		"a burst of 0": {
			map[string]any{"rule_id": fmt.Sprint(b.ID), "version": 1, "burst_capacity": 0},
			400,
			"/cells/1/burst_capacity",
		},
		"a rule that is not there": {map[string]any{"rule_id": "999999", "version": 1}, 412, "/cells/1"},
		"a rule that is named twice": {
			map[string]any{"rule_id": fmt.Sprint(a.ID), "version": 1, "burst_capacity": 98},
			400,
			"/cells/1/rule_id",
		},
		"one too many of its pattern": {map[string]any{
			"key_pattern": "global", "name": "64", "rate_per_second": 1,
			"burst_capacity": 1,
		}, 400, "/cells/1/key_pattern"},
		"a rule without its version": {map[string]any{"rule_id": fmt.Sprint(b.ID)}, 400, "/cells/1/version"},
		"a version that is old":      {map[string]any{"rule_id": fmt.Sprint(b.ID), "version": 7}, 412, "/cells/1"},
		"a new one without a pattern": {
			map[string]any{"rate_per_second": 1, "burst_capacity": 1},
			400,
			"/cells/1/key_pattern",
		},
		"a new one of a plan not there": {map[string]any{
			"key_pattern": "global", "plan": "nope", "rate_per_second": 1,
			"burst_capacity": 1,
		}, 400, "/cells/1/plan"},
		"a new one where a rule stands": {map[string]any{
			"key_pattern": "user:{user_id}", "name": b.Name,
			"rate_per_second": 1, "burst_capacity": 1,
		}, 409, "/cells/1"},
		"a removal that names no rule": {map[string]any{"remove": true}, 400, "/cells/1/rule_id"},
		"an unknown field": {
			map[string]any{"rule_id": fmt.Sprint(b.ID), "version": 1, "burst": 3},
			400,
			"/cells/1/burst",
		},
		"a wrong type": {
			map[string]any{"rule_id": fmt.Sprint(b.ID), "version": 1, "burst_capacity": "3"},
			400,
			"/cells/1/burst_capacity",
		},
		"a pattern for a rule that is": {
			map[string]any{"rule_id": fmt.Sprint(b.ID), "version": 1, "key_pattern": "global"},
			400,
			"/cells/1",
		},
		"a shadow bypass among the good": {
			map[string]any{"rule_id": fmt.Sprint(b.ID), "version": 1, "action": "bypass"},
			400,
			"/cells/1/mode",
		},
	}
	for name, test := range tests {
		for _, dryRun := range []bool{true, false} {
			body := map[string]any{"dry_run": dryRun, "cells": []any{good, test.cell}}
			got := w.send(by, "POST", "/api/v1/tenants/acme/matrix", body)
			if pointers := pointersOf(t, got); got.status != test.status || !slices.Contains(pointers, test.pointer) {
				t.Errorf("%s (dry run: %v) is answered %d at %v, want %d at %s", name, dryRun, got.status, pointers,
					test.status, test.pointer)
			}
		}
	}
	if got := shownOf(t, w.send(by, "GET", fmt.Sprintf("/api/v1/tenants/acme/rules/%d", a.ID),
		nil)); got.Burst != a.Burst || got.Version != 1 {
		t.Errorf("the good cell was saved: %+v", got)
	}
}

func TestAMatrixIsSavedAtOnceAndSaysWhatChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	a, b, same := w.rule(w.acme), w.rule(w.acme), w.rule(w.acme)
	cells := []any{
		map[string]any{"rule_id": fmt.Sprint(a.ID), "version": 1, "burst_capacity": 99},
		map[string]any{"rule_id": fmt.Sprint(b.ID), "version": 1, "remove": true},
		map[string]any{
			"key_pattern": "user:{user_id}", "name": a.Name, "plan": "free", "rate_per_second": 5,
			"burst_capacity": 6,
		},
		map[string]any{"rule_id": fmt.Sprint(same.ID), "version": 1, "burst_capacity": same.Burst},
		map[string]any{"key_pattern": "user:{user_id}", "name": b.Name, "rate_per_second": 7, "burst_capacity": 8},
	}
	type diff struct {
		Changes []struct {
			Change string `json:"change"`
		} `json:"changes"`
		Text string `json:"text"`
	}
	planned := w.want(w.send(by, "POST", "/api/v1/tenants/acme/matrix",
		map[string]any{"dry_run": true, "cells": cells}), http.StatusOK)
	saved := w.want(w.send(by, "POST", "/api/v1/tenants/acme/matrix", map[string]any{"cells": cells}), http.StatusOK)
	for name, got := range map[string]answer{"planned": planned, "saved": saved} {
		var kinds []string
		for _, change := range read[diff](t, got).Changes {
			kinds = append(kinds, change.Change)
		}
		if !slices.Equal(kinds, []string{"update", "remove", "create", "create"}) {
			t.Errorf("%s: %v: %s", name, kinds, got.body)
		}
	}
	p, s := read[diff](t, planned).Text, read[diff](t, saved).Text
	if p != s || !strings.Contains(p, "burst 10 → 99") {
		t.Errorf("planned\n%s\nsaved\n%s", p, s)
	}
	entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{ActorID: fmt.Sprint(by.account.ID)},
		auth.LogCursor{}, 10)
	if err != nil || len(entries) != 4 || entries[0].Change != entries[3].Change || entries[0].Actor.Act != "matrix" {
		t.Errorf("the audit log has %+v, %v", entries, err)
	}
}

func TestAMatrixThatIsKnownIsNotReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	const path = "/api/v1/tenants/acme/matrix"
	rule := w.rule(w.acme)
	tagOf := func(a answer) string { return a.header.Get("ETag") }
	known := tagOf(w.get(by, path))
	for _, known := range []string{known, "W/" + known} {
		same := w.want(w.send(by, "GET", path, nil, "If-None-Match", known), http.StatusNotModified)
		if same.body != "" {
			t.Errorf("a matrix that is known is read again: %s", same.body)
		}
	}
	cells := []any{map[string]any{"rule_id": fmt.Sprint(rule.ID), "version": 1, "burst_capacity": 99}}
	planned := w.want(w.send(by, "POST", path, map[string]any{"dry_run": true, "cells": cells}), http.StatusOK)
	if tag := tagOf(planned); tag != "" {
		t.Errorf("a dry run names the state %s", tag)
	}
	saved := tagOf(w.want(w.send(by, "POST", path, map[string]any{"cells": cells}), http.StatusOK))
	changed := tagOf(w.want(w.send(by, "GET", path, nil, "If-None-Match", known), http.StatusOK))
	if saved != changed || saved == known {
		t.Errorf("ETags are %s, and after a save %s, which said %s", known, changed, saved)
	}
	w.rule(w.acme)
	w.want(w.send(by, "GET", path, nil, "If-None-Match", saved), http.StatusOK)
	cells = []any{map[string]any{"rule_id": fmt.Sprint(rule.ID), "version": 2, "burst_capacity": 99}}
	if tag := tagOf(w.want(w.send(by, "POST", path, map[string]any{"cells": cells}), http.StatusOK)); tag != "" {
		t.Errorf("a save without effect names the state %s", tag)
	}
	cells = []any{
		map[string]any{"rule_id": fmt.Sprint(rule.ID), "version": 2, "remove": true},
		map[string]any{
			"key_pattern": "user:{user_id}", "name": rule.Name, "plan": "free", "rate_per_second": 5,
			"burst_capacity": 6,
		},
	}
	if tag := tagOf(w.want(w.send(by, "POST", path, map[string]any{"cells": cells}), http.StatusOK)); tag != "" {
		t.Errorf("a save that removes a rule, and perhaps its candidates, names the state %s", tag)
	}
}

func TestASplitSaysWhatBecomesOfOverrides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	split, removed := w.rule(w.acme), w.rule(w.acme)
	for _, path := range []string{
		fmt.Sprintf("%d/overrides/42", split.ID),
		fmt.Sprintf("%d/overrides/43", removed.ID),
	} {
		body := map[string]any{"rate_per_second": 1, "burst_capacity": 1, "reason": "x"}
		w.want(w.send(by, "PUT", "/api/v1/tenants/acme/rules/"+path, body, "If-None-Match", "*"), http.StatusCreated)
	}
	cells := []any{
		map[string]any{"rule_id": fmt.Sprint(split.ID), "version": 1, "remove": true},
		map[string]any{"rule_id": fmt.Sprint(removed.ID), "version": 1, "remove": true},
		map[string]any{
			"key_pattern": "user:{user_id}", "name": split.Name, "plan": "free", "rate_per_second": 5,
			"burst_capacity": 6,
		},
	}
	got := w.want(w.send(by, "POST", "/api/v1/tenants/acme/matrix", map[string]any{"dry_run": true, "cells": cells}),
		http.StatusOK)
	type overrides struct {
		Moved, Removed int64
		RemovedUsers   []string `json:"removed_users"`
	}
	type diff struct {
		Changes []struct{ Overrides *overrides }
	}
	changes := read[diff](t, got).Changes
	if o := changes[0].Overrides; o == nil || o.Moved != 1 || o.Removed != 0 {
		t.Errorf("the split is answered %s", got.body)
	}
	if o := changes[1].Overrides; o == nil || o.Moved != 0 || o.Removed != 1 ||
		!slices.Equal(o.RemovedUsers, []string{"43"}) {
		t.Errorf("the removal is answered %s", got.body)
	}
	if changes[2].Overrides != nil {
		t.Errorf("the creation is answered %s", got.body)
	}
}

func TestAPatchOfWhateverIsThereLosesToNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	for path, field := range map[string]string{
		"/api/v1/tenants/acme": "name",
		fmt.Sprintf("/api/v1/tenants/acme/rules/%d", w.rule(w.acme).ID): "description",
		"/api/v1/tenants/acme/plans/" + w.plan(w.acme):                  "description",
	} {
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() {
				if got := w.send(by, "PATCH", path, map[string]any{field: fmt.Sprint("number ", i)}, "If-Match",
					"*"); got.status != http.StatusOK {
					t.Errorf("%s: answered %d: %s", path, got.status, got.body)
				}
			})
		}
		group.Wait()
	}
}

func TestAnOverrideIsReplacedOnlyWhereThereIsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d/overrides/42", w.rule(w.acme).ID)
	limit := func(burst int) map[string]any {
		return map[string]any{"rate_per_second": 1, "burst_capacity": burst, "reason": "x"}
	}
	for _, ifMatch := range []string{"*", `"0"`, `"7"`} {
		w.want(w.send(by, "PUT", path, limit(1), "If-Match", ifMatch), http.StatusPreconditionFailed)
	}
	w.want(w.send(by, "GET", path, nil), http.StatusNotFound)
	w.want(w.send(by, "PUT", path, limit(1), "If-None-Match", "*"), http.StatusCreated)
	w.want(w.send(by, "PUT", path, limit(2), "If-Match", "*"), http.StatusOK)
	w.want(w.send(by, "PUT", path, limit(3), "If-Match", `"0"`), http.StatusPreconditionFailed)
}

func TestAPromotionOverAChangedLiveRuleNamesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	candidate := w.rule(w.acme)
	live := w.rule(w.acme, func(r *rules.Rule) { r.Mode, r.Active = rules.ModeEnforce, false })
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d/promote", candidate.ID)
	promote := func(version int64, ifMatch string) answer {
		return w.send(by, "POST", path, map[string]any{"into_rule_id": fmt.Sprint(live.ID), "into_version": version},
			"If-Match",
			ifMatch)
	}
	for _, ifMatch := range []string{`"1"`, "*"} {
		got := w.want(promote(7, ifMatch), http.StatusPreconditionFailed)
		if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/into_version"}) ||
			got.header.Get("ETag") != "" {
			t.Errorf("it points at %v and tells the ETag %q", pointers, got.header.Get("ETag"))
		}
	}
	if got := w.want(promote(1, `"7"`), http.StatusPreconditionFailed); got.header.Get("ETag") != `"1"` {
		t.Errorf("the candidate's ETag is told as %q", got.header.Get("ETag"))
	}
	if got := w.want(promote(1, `"1"`), http.StatusOK); !strings.Contains(got.body, `"is_active":true`) {
		t.Errorf("the rule in force is not active: %s", got.body)
	}
}

func TestABucketIsLookedIntoAndChangedAndThatIsAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	rule := w.rule(w.acme)
	w.refresh()
	const user = "a/b%2F"
	path := "/api/v1/tenants/acme/users/a%2Fb%252F/buckets"
	key := fmt.Sprintf("%d:%s", rule.ID, user)
	credited := w.want(w.send(by, "POST", path+"/credit", map[string]any{"bucket_key": key, "tokens": -2.5}),
		http.StatusOK)
	if !strings.Contains(credited.body, `"tokens_before":10`) ||
		!strings.Contains(credited.body, `"tokens_after":7.5`) {
		t.Errorf("credited: %s", credited.body)
	}
	looked := w.get(by, path)
	if !strings.Contains(looked.body, `"bucket_key":"`+key+`"`) || strings.Contains(looked.body, `"tokens":10,`) {
		t.Errorf("looked into: %s", looked.body)
	}
	w.want(w.send(by, "POST", path+"/reset", map[string]any{"bucket_key": key}), http.StatusOK)
	if looked := w.send(by, "GET", path, nil); !strings.Contains(looked.body, `"tokens":10`) {
		t.Errorf("reset, and looked into: %s", looked.body)
	}
	for name, body := range map[string]map[string]any{
		"seven decimals": {"bucket_key": key, "tokens": 0.0000001},
		"no such bucket": {"bucket_key": "999999:x", "tokens": 1},
		"no key at all":  {"bucket_key": "x", "tokens": 1},
	} {
		if got := w.send(by, "POST", path+"/credit", body); got.status != http.StatusBadRequest {
			t.Errorf("%s: answered %d: %s", name, got.status, got.body)
		}
	}
	entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{ObjectKind: "bucket", ObjectID: key},
		auth.LogCursor{}, 10)
	if err != nil || len(entries) != 2 || entries[0].Action != auth.AuditReset ||
		entries[1].Action != auth.AuditCredit {
		t.Errorf("the audit log has %+v, %v", entries, err)
	}
}

func TestASessionEndsEverywhereAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	elsewhere := w.signedIn(by.account)
	w.get(elsewhere, "/api/v1/session")
	gone := w.want(w.send(by, "DELETE", "/api/v1/sessions", nil), http.StatusNoContent)
	if cookie := gone.header.Get("Set-Cookie"); !strings.Contains(cookie, "Max-Age=0") {
		t.Errorf("the cookie stays: %s", cookie)
	}
	w.want(w.send(by, "GET", "/api/v1/session", nil), http.StatusUnauthorized)
	w.want(w.send(elsewhere, "GET", "/api/v1/session", nil), http.StatusUnauthorized)
}

func TestAPlatformAdminSignsAnAccountOutEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, lost, bystander := w.platformAdmin(), w.person(w.acme, auth.Owner), w.person(w.acme, auth.Owner)
	second := w.signedIn(lost.account)
	path := fmt.Sprintf("/api/v1/accounts/%d/sessions", lost.account.ID)
	w.want(w.send(bystander, "DELETE", path, nil), http.StatusForbidden)
	w.want(w.send(admin, "DELETE", path, nil), http.StatusNoContent)
	for _, by := range []caller{lost, second} {
		w.want(w.send(by, "GET", "/api/v1/session", nil), http.StatusUnauthorized)
	}
	for _, by := range []caller{admin, bystander} {
		w.get(by, "/api/v1/session")
	}
	w.want(w.send(admin, "DELETE", "/api/v1/accounts/4711/sessions", nil), http.StatusNotFound)
	w.signedIn(lost.account)
	w.want(w.send(w.serviceKey(auth.PermissionAccounts), "DELETE", path, nil), http.StatusNoContent)
	w.access.Flush(w.ctx())
	log := read[struct {
		Items []struct {
			Kind, Who, Detail string
			IP                *string
			Agent             string `json:"user_agent"`
			Key               string `json:"key_id"`
		}
	}](t, w.get(w.signedIn(lost.account), "/api/v1/account/security-log?limit=2"))
	for i, by := range []string{"by a service key", "by a platform admin"} {
		if got := log.Items[i]; got.Kind != "sessions_ended" || got.Who != lost.account.Email || got.Detail != by ||
			got.IP != nil || got.Agent+got.Key != "" {
			t.Errorf("the account's security log has %+v, want sessions ended %s", got, by)
		}
	}
	audit := read[struct {
		Items []struct {
			Action        string
			Actor         struct{ Kind, Name string }
			Object        struct{ Kind, ID string }
			Before, After struct{ Sessions int }
		}
	}](t, w.get(admin, "/api/v1/audit?limit=100"))
	var ended []string
	for _, entry := range audit.Items {
		if entry.Object.ID == formatID(lost.account.ID) && entry.Action == "update" {
			ended = append(ended, fmt.Sprint(entry.Actor.Kind, " ended ", entry.Before.Sessions-entry.After.Sessions))
		}
	}
	if want := []string{"api_key ended 1", "account ended 2"}; !slices.Equal(ended, want) {
		t.Errorf("the platform's audit log has %q, want %q", ended, want)
	}
}

func TestARoleHoldsFromTheNextRequestOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, by := w.person(w.acme, auth.Owner), w.person(w.acme, auth.Editor)
	plan := map[string]any{"name": "one"}
	w.want(w.send(by, "POST", "/api/v1/tenants/acme/plans", plan), http.StatusCreated)
	member := fmt.Sprintf("/api/v1/tenants/acme/members/%d", by.account.ID)
	w.want(w.send(owner, "PATCH", member, map[string]any{"role": "viewer"}, "If-Match", "*"), http.StatusOK)
	w.want(w.send(by, "POST", "/api/v1/tenants/acme/plans", map[string]any{"name": "two"}), http.StatusForbidden)
	w.want(w.send(owner, "DELETE", member, nil, "If-Match", "*"), http.StatusNoContent)
	w.want(w.send(by, "GET", "/api/v1/tenants/acme/plans", nil), http.StatusNotFound)
	self := fmt.Sprintf("/api/v1/tenants/acme/members/%d", owner.account.ID)
	w.want(w.send(owner, "DELETE", self, nil, "If-Match", "*"), http.StatusConflict)
}

func TestAChangeIsRevertedFromItsEntryByWhoMayMakeIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	editor, owner := w.person(w.acme, auth.Editor), w.person(w.acme, auth.Owner)
	rule := w.rule(w.acme)
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d", rule.ID)
	w.want(w.send(editor, "PATCH", path, map[string]any{"burst_capacity": 77}, "If-Match", "*"), http.StatusOK)
	w.want(w.send(owner, "PATCH", "/api/v1/tenants/acme", map[string]any{"name": "Acme 2"}, "If-Match", "*"),
		http.StatusOK)
	revert := func(kind, id string) string {
		entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{ObjectKind: kind, ObjectID: id},
			auth.LogCursor{}, 1)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, err)
		}
		return fmt.Sprintf("/api/v1/tenants/acme/audit/%d/revert", entries[0].ID)
	}
	undoRule, undoName := revert("rule", fmt.Sprint(rule.ID)), revert("tenant", "acme")
	w.want(w.send(editor, "POST", undoName, nil), http.StatusForbidden)
	w.want(w.send(editor, "POST", undoRule, nil), http.StatusOK)
	if got := shownOf(t, w.send(editor, "GET", path, nil)); got.Burst != rule.Burst {
		t.Errorf("the burst is %d, want %d again", got.Burst, rule.Burst)
	}
	w.want(w.send(editor, "POST", undoRule, nil), http.StatusConflict) // it is not as that change left it
	w.want(w.send(owner, "POST", undoName, nil), http.StatusOK)
}

func TestASaveIsUndoneAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	editor := w.person(w.acme, auth.Editor)
	rule := w.rule(w.acme)
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d", rule.ID)
	save := func() (request string) {
		t.Helper()
		answer := w.send(editor, "DELETE", path, nil, "If-Match", "*")
		w.want(answer, http.StatusNoContent)
		return answer.header.Get("X-Request-Id")
	}
	type entry struct {
		AuditID  int64 `json:"audit_id,string"`
		ChangeID int64 `json:"change_id,string"`
	}
	entriesOf := func(request string) []entry {
		t.Helper()
		got := w.get(editor, "/api/v1/tenants/acme/audit?request_id="+request)
		return read[struct{ Items []entry }](t, got).Items
	}
	override := path + "/overrides/42"
	w.want(w.send(editor, "PUT", override, map[string]any{
		"rate_per_second": 5, "burst_capacity": 9, "reason": "a test",
	}, "If-None-Match", "*"), http.StatusCreated)

	saved := entriesOf(save())
	if len(saved) != 2 || saved[0].ChangeID != saved[1].ChangeID {
		t.Fatalf("the request made %+v, want the removal of a rule and of its override", saved)
	}
	undo := fmt.Sprintf("/api/v1/tenants/acme/audit/%d/revert?whole=true", saved[0].AuditID)
	w.want(w.send(editor, "POST", undo, nil), http.StatusOK)
	w.get(editor, override)

	clash := w.send(editor, "POST", undo, nil)
	w.want(clash, http.StatusConflict)
	for _, entry := range saved {
		if pointer := fmt.Sprintf("/audit/%d", entry.AuditID); !strings.Contains(clash.body, pointer) {
			t.Errorf("the refusal is %s, want %s in it", clash.body, pointer)
		}
	}
}

func TestUndoingTheRemovalOfAnOverrideThatHasEndedSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	editor := w.person(w.acme, auth.Editor)
	override := fmt.Sprintf("/api/v1/tenants/acme/rules/%d/overrides/42", w.rule(w.acme).ID)
	w.want(w.send(editor, "PUT", override, map[string]any{
		"rate_per_second": 5, "burst_capacity": 9, "reason": "a test",
		"expires_at": time.Now().Add(time.Hour).Truncate(time.Second),
	}, "If-None-Match", "*"), http.StatusCreated)
	w.exec(`UPDATE rate_limit_override SET in_force_since = now() - interval '2 hours',
		expires_at = now() - interval '1 hour' WHERE tenant_id = $1`, w.acme.ID)
	w.want(w.send(editor, "DELETE", override, nil, "If-Match", "*"), http.StatusNoContent)
	entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{}, auth.LogCursor{}, 1)
	removal := must(entries, err)(t)[0].ID
	for _, query := range []string{"", "?whole=true"} {
		got := w.want(w.send(editor, "POST", fmt.Sprintf("/api/v1/tenants/acme/audit/%d/revert%s", removal, query),
			nil), http.StatusConflict)
		if !strings.Contains(got.body, fmt.Sprintf("/audit/%d", removal)) ||
			!strings.Contains(got.body, "expires_at: must be in the future") {
			t.Errorf("undoing%s is answered %s", query, got.body)
		}
	}
}

func TestARuleIsPutByItsPatternPlanAndName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	put := func(status int, body map[string]any, headers ...string) answer {
		t.Helper()
		return w.want(w.send(by, "PUT", "/api/v1/tenants/acme/rules", body, headers...), status)
	}
	wanted := map[string]any{"key_pattern": "user:{user_id}", "name": "daily", "rate": "1000/day", "burst_capacity": 10}
	type rule struct {
		shownRule
		Rate      string
		PerSecond float64 `json:"rate_per_second"`
		Unit      string  `json:"rate_unit"`
		Mode      string
	}
	made := put(http.StatusCreated, wanted)
	first := read[rule](t, made)
	if first.Rate != "1000/day" || first.PerSecond != 1000.0/86400 || first.Unit != "day" || first.Version != 1 {
		t.Errorf("the rule is made as %+v", first)
	}
	if got := read[rule](t, put(http.StatusOK, wanted)); got != first {
		t.Errorf("the same again makes it %+v", got)
	}
	wanted["mode"] = "shadow"
	second := put(http.StatusOK, wanted, "If-Match", made.header.Get("ETag"))
	if got := read[rule](t, second); got.RuleID != first.RuleID || got.Mode != "shadow" || got.Version == 1 {
		t.Errorf("it is replaced by %+v", got)
	}
	refused := put(http.StatusPreconditionFailed, wanted, "If-Match", made.header.Get("ETag"))
	if refused.header.Get("ETag") != second.header.Get("ETag") {
		t.Error("a lost race does not tell the present ETag")
	}
	put(http.StatusPreconditionFailed, wanted, "If-None-Match", "*")
	delete(wanted, "mode")
	if got := read[rule](t, put(http.StatusOK, wanted, "If-Match", "*")); got.Mode != "enforce" {
		t.Errorf("a field that is left out keeps its value, want the default: %+v", got)
	}
	wanted["name"] = "other"
	if none := put(http.StatusPreconditionFailed, wanted, "If-Match", "*"); none.header.Get("ETag") != "" {
		t.Errorf("what is not there has the ETag %s", none.header.Get("ETag"))
	}
	put(http.StatusCreated, wanted, "If-None-Match", "*")
	listed := w.get(by, "/api/v1/tenants/acme/rules?pattern=user:%7Buser_id%7D&plan=&name=other")
	if found := read[struct{ Items []rule }](t, listed).Items; len(found) != 1 || found[0].RuleID == first.RuleID {
		t.Errorf("found by pattern, plan and name: %+v", found)
	}
}

func TestARateIsReadAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	stored := w.rule(w.acme)
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d", stored.ID)
	body := map[string]any{"rate": "0.5/minute"}
	patched := w.want(w.send(by, "PATCH", path, body, "If-Match", "*"), http.StatusOK)
	if !strings.Contains(patched.body, `"rate":"0.5/minute"`) {
		t.Errorf("the rule is %s", patched.body)
	}
	override := map[string]any{"rate": "1000/day", "burst_capacity": 7, "reason": "a trial"}
	put := w.want(w.send(by, "PUT", path+"/overrides/42", override, "If-None-Match", "*"), http.StatusCreated)
	if !strings.Contains(put.body, `"rate":"1000/day"`) {
		t.Errorf("the override is %s", put.body)
	}
	for name, c := range map[string]struct {
		body map[string]any
		want string
	}{
		"no unit":        {map[string]any{"rate": "1000"}, `"/rate"`},
		"twice":          {map[string]any{"rate": "10/second", "rate_per_second": 10}, `beside rate`},
		"two units":      {map[string]any{"rate": "10/second", "rate_unit": "day"}, `beside rate`},
		"unknown units":  {map[string]any{"rate": "10/week"}, `"/rate"`},
		"out of bounds":  {map[string]any{"rate": "0/second"}, `"/rate_per_second"`},
		"another type":   {map[string]any{"rate": 10}, `"/rate"`},
		"unknown fields": {map[string]any{"rates": "10/second"}, `"/rates"`},
	} {
		got := w.want(w.send(by, "PATCH", path, c.body, "If-Match", "*"), http.StatusBadRequest)
		if !strings.Contains(got.body, c.want) {
			t.Errorf("%s: a rule answers %s", name, got.body)
		}
		c.body["burst_capacity"], c.body["reason"] = 7, "a trial"
		got = w.want(w.send(by, "PUT", path+"/overrides/42", c.body, "If-Match", "*"), http.StatusBadRequest)
		if !strings.Contains(got.body, c.want) {
			t.Errorf("%s: an override answers %s", name, got.body)
		}
	}
}

func TestAPatchNamesWhatItCannotHave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.platformAdmin()
	patches := 0
	eachOperation(w.description, func(method, path string, o *openapi3.Operation) {
		if method != http.MethodPatch {
			return
		}
		patches++
		q := w.newFixture(w.acme, by, path).request(method, path, o)
		q.body = `{"surprise":1,` + strings.TrimPrefix(q.body, "{")
		got := w.want(w.do(by, q), http.StatusBadRequest)
		if !strings.Contains(got.body, `"pointer":"/surprise"`) {
			t.Errorf("%s answers %s", o.OperationID, got.body)
		}
	})
	if patches < 8 {
		t.Errorf("%d operations are patches", patches)
	}
}

func TestAPatchLosesNoFieldOfARule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	stored := w.rule(w.acme, func(r *rules.Rule) { r.RefillInterval = 10 * time.Second })
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d", stored.ID)
	body := map[string]any{"algorithm": "fixed_window", "window": "day"}
	before := w.get(by, path)
	got := w.want(w.send(by, "PATCH", path, body, "If-Match", "*"), http.StatusBadRequest)
	for _, want := range []string{
		`"pointer":"/rate_per_second"`, "send 0 too", `"pointer":"/refill_interval"`, "send null",
	} {
		if !strings.Contains(got.body, want) {
			t.Errorf("without %s the answer is %s", want, got.body)
		}
	}
	if after := w.get(by, path); after.body != before.body {
		t.Errorf("a refused change made\n%s of\n%s", after.body, before.body)
	}
	body["rate"], body["refill_interval"] = nil, nil
	w.want(w.send(by, "PATCH", path, body, "If-Match", "*"), http.StatusOK)
	w.want(w.send(by, "PATCH", path, map[string]any{"action": "block"}, "If-Match", "*"), http.StatusBadRequest)
	w.want(w.send(by, "PATCH", path, map[string]any{"action": "block", "burst_capacity": 0, "window": nil},
		"If-Match", "*"), http.StatusOK)
}

func TestAPlanIsRemovedWithAPlanForItsUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	gone, heir := w.plan(w.acme), w.plan(w.acme)
	w.rule(w.acme, func(r *rules.Rule) { r.Plan = gone })
	w.want(w.send(by, "PUT", "/api/v1/tenants/acme/users/42/plan", map[string]any{"plan": gone}, "If-Match", "*"),
		http.StatusOK)
	path := "/api/v1/tenants/acme/plans/" + gone
	w.want(w.send(by, "DELETE", path, nil, "If-Match", "*"), http.StatusConflict)
	got := w.want(w.send(by, "DELETE", path+"?users_to=none", nil, "If-Match", "*"), http.StatusBadRequest)
	if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/users_to"}) {
		t.Errorf("the errors point at %v", pointers)
	}
	w.want(w.send(by, "DELETE", path+"?users_to="+heir, nil, "If-Match", "*"), http.StatusNoContent)
	w.want(w.send(by, "GET", path, nil), http.StatusNotFound)
	if got := w.send(by, "GET", "/api/v1/tenants/acme/users/42", nil); !strings.Contains(got.body, heir) {
		t.Errorf("the user is answered %s", got.body)
	}
}
