package adminapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

var limitOptions = map[string]any{
	"rate_per_second": 10, "window": "60s", "window_zone": "Europe/Berlin", "window_start_day": 2,
	"refill_interval": "10s", "max_hold": "10m", "notify_at": []int{80, 100},
}

func wrongOptions(action, algorithm string, given map[string]any) []string {
	wrong := map[string]bool{}
	isWindow := action == "limit" && strings.Contains(algorithm, "window")
	isCalendar := given["window"] == "month"
	_, hasZone := given["window_zone"]
	_, hasDay := given["window_start_day"]
	must := func(field string, has bool) {
		if _, is := given[field]; is != has {
			wrong[field] = true
		}
	}
	must("rate_per_second", action == "limit" && strings.HasSuffix(algorithm, "_bucket"))
	must("window", isWindow)
	must("max_hold", action == "limit" && algorithm == "concurrency")
	if isCalendar && algorithm != "fixed_window" {
		wrong["window"] = true
	}
	if hasZone && !(isWindow && isCalendar) {
		wrong["window_zone"] = true
	}
	if hasDay && !(isWindow && isCalendar) {
		wrong["window_start_day"] = true
	}
	if action != "limit" || algorithm != "token_bucket" {
		must("refill_interval", false)
	}
	if action != "limit" || algorithm != "fixed_window" {
		must("notify_at", false)
	}
	var pointers []string
	for field := range wrong {
		pointers = append(pointers, "/"+field)
	}
	slices.Sort(pointers)
	return pointers
}

func TestEveryCombinationOfAlgorithmAndOptionsThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range limitOptions {
			if !yield(name) {
				return
			}
		}
	})
	saved := map[string]int{}
	for _, algorithm := range append(slices.Clone(rules.Algorithms), "block", "bypass") {
		action, name := "limit", string(algorithm)
		if algorithm == "block" || algorithm == "bypass" {
			action, name = string(algorithm), "fixed_window"
		}
		for bits := range 1 << len(names) {
			for _, window := range []string{"60s", "month"} {
				given := map[string]any{}
				for i, option := range names {
					if bits>>i&1 == 1 {
						given[option] = limitOptions[option]
					}
				}
				if _, ok := given["window"]; ok {
					given["window"] = window
				} else if window == "month" {
					continue
				}
				body := map[string]any{"key_pattern": fmt.Sprintf("user:u%d", bits), "name": action + " " + name + " " +
					window, "algorithm": name, "action": action}
				for option, value := range given {
					body[option] = value
				}
				if action == "limit" {
					body["burst_capacity"] = 50
				}
				got := w.send(by, "POST", "/api/v1/tenants/acme/rules", body)
				wrong := wrongOptions(action, name, given)
				if len(wrong) == 0 {
					saved[string(algorithm)]++
					if got.status != http.StatusCreated {
						t.Errorf("%v is answered %d: %s", body, got.status, got.body)
					}
					continue
				}
				pointers := pointersOf(t, got)
				slices.Sort(pointers)
				if got.status != http.StatusBadRequest || !slices.Equal(pointers, wrong) {
					t.Errorf("%v is answered %d about %v, want %v", body, got.status, pointers, wrong)
				}
			}
		}
	}
	want := map[string]int{
		"token_bucket": 2, "leaky_bucket": 1, "fixed_window": 2 + 8, "sliding_window": 1, "sliding_window_log": 1,
		"concurrency": 1, "block": 1, "bypass": 1,
	}
	if fmt.Sprint(saved) != fmt.Sprint(want) {
		t.Errorf("saved %v, want %v", saved, want)
	}
}

func TestFilesRefuseTheSameCombinations(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(limitOptions))
	saved := map[string]int{}
	for _, algorithm := range append(slices.Clone(rules.Algorithms), "block", "bypass") {
		action, name := "limit", string(algorithm)
		if algorithm == "block" || algorithm == "bypass" {
			action, name = string(algorithm), "fixed_window"
		}
		for bits := range 1 << len(names) {
			for _, window := range []string{"60s", "month"} {
				given := map[string]any{}
				rule := map[string]any{"key_pattern": "user:{user_id}", "algorithm": name, "action": action}
				for i, option := range names {
					if bits>>i&1 == 1 {
						given[option] = limitOptions[option]
					}
				}
				if _, ok := given["window"]; ok {
					given["window"] = window
				} else if window == "month" {
					continue
				}
				maps.Copy(rule, given)
				if action == "limit" {
					rule["burst_capacity"] = 50
				}
				file := string(must(json.Marshal(map[string]any{"rules": []any{rule}}))(t)) // JSON is YAML
				_, err := ruleset.Decode(strings.NewReader(file), "rules.yaml", nil)
				var pointers []string
				var mistakes ruleset.Errors
				if errors.As(err, &mistakes) {
					for _, mistake := range mistakes {
						field, found := strings.CutPrefix(mistake.Field, "rules[0].")
						if field == "rate" { // a missing one is named as most files write it
							field = "rate_per_second"
						}
						if !found || mistake.Line != 1 {
							t.Errorf("%s: the mistake %+v names no field and line", file, mistake)
						}
						pointers = append(pointers, "/"+field)
					}
				} else if err != nil {
					t.Fatal(err)
				}
				slices.Sort(pointers)
				wrong := wrongOptions(action, name, given)
				if !slices.Equal(pointers, wrong) {
					t.Errorf("%s is refused for %v, want %v", file, pointers, wrong)
				}
				if err == nil {
					saved[string(algorithm)]++
				}
			}
		}
	}
	want := map[string]int{
		"token_bucket": 2, "leaky_bucket": 1, "fixed_window": 2 + 8, "sliding_window": 1, "sliding_window_log": 1,
		"concurrency": 1, "block": 1, "bypass": 1,
	}
	if !maps.Equal(saved, want) {
		t.Errorf("read %v, want %v", saved, want)
	}
}

func TestValuesOfLimitsThatCannotBeReadAreNamedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	for name, test := range map[string]struct {
		body     map[string]any
		pointers []string
	}{
		"a window": {
			map[string]any{"algorithm": "fixed_window", "burst_capacity": 1, "window": "fortnight"},
			[]string{"/window"},
		},
		"an empty window": {
			map[string]any{"algorithm": "fixed_window", "burst_capacity": 1, "window": ""},
			[]string{"/window"},
		},
		"a zone": {map[string]any{
			"algorithm": "fixed_window", "burst_capacity": 1, "window": "day",
			"window_zone": "Berlin",
		}, []string{"/window_zone"}},
		"a day": {map[string]any{
			"algorithm": "fixed_window", "burst_capacity": 1, "window": "week",
			"window_start_day": 8,
		}, []string{"/window_start_day"}},
		"a step": {
			map[string]any{"rate_per_second": 1, "burst_capacity": 1, "refill_interval": "0s"},
			[]string{"/refill_interval"},
		},
		"a hold": {
			map[string]any{"algorithm": "concurrency", "burst_capacity": 1, "max_hold": "25h"},
			[]string{"/max_hold"},
		},
		"a share": {map[string]any{
			"algorithm": "fixed_window", "burst_capacity": 1, "window": "day",
			"notify_at": []int{100, 80},
		}, []string{"/notify_at"}},
		"too long a log": {
			map[string]any{"algorithm": "sliding_window_log", "burst_capacity": 1001, "window": "1m"},
			[]string{"/burst_capacity"},
		},
		"several": {map[string]any{
			"algorithm": "concurrency", "burst_capacity": 0, "window": "x",
			"max_hold": "y",
		}, []string{"/burst_capacity", "/max_hold", "/window"}},
	} {
		test.body["key_pattern"] = "global"
		got := w.send(by, "POST", "/api/v1/tenants/acme/rules", test.body)
		pointers := pointersOf(t, got)
		slices.Sort(pointers)
		if got.status != http.StatusBadRequest || !slices.Equal(pointers, test.pointers) {
			t.Errorf("%s: answered %d about %v, want %v: %s", name, got.status, pointers, test.pointers, got.body)
		}
	}
}

type limitAnswer struct {
	RuleID         int64   `json:"rule_id,string"`
	Version        int64   `json:"version"`
	LimitText      string  `json:"limit_text"`
	Window         *string `json:"window"`
	WindowZone     *string `json:"window_zone"`
	WindowStartDay *int    `json:"window_start_day"`
	NotifyAt       []int   `json:"notify_at"`
}

func TestALimitIsPatchedToOtherAlgorithmsAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	rule := w.rule(w.acme)
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d", rule.ID)
	for _, step := range []struct {
		patch map[string]any
		want  string
	}{
		{
			map[string]any{
				"algorithm": "fixed_window", "burst_capacity": 10000, "window": "month",
				"window_zone": "Europe/Berlin", "window_start_day": 15, "notify_at": []int{80}, "rate": nil,
			},
			"10,000 per month from the 15th, Europe/Berlin",
		},
		{map[string]any{"window_start_day": nil}, "10,000 per month, Europe/Berlin"},
		{map[string]any{"window_start_day": 3, "window": "week"}, "10,000 per week from Wednesday, Europe/Berlin"},
		{map[string]any{"window": "day", "window_start_day": nil}, "10,000 per day, Europe/Berlin"},
		{map[string]any{"window": "1m", "window_zone": nil}, "10,000 per minute"},
		{map[string]any{"algorithm": "sliding_window", "notify_at": []int{}}, "about 10,000 in any minute"},
		{
			map[string]any{"algorithm": "concurrency", "burst_capacity": 20, "max_hold": "10m", "window": nil},
			"20 at once, held at most 10 min",
		},
		{
			map[string]any{"algorithm": "leaky_bucket", "rate": "10/second", "max_hold": nil},
			"10 per second through a queue of 20",
		},
		{
			map[string]any{"algorithm": "token_bucket", "rate_per_second": 0.5, "refill_interval": "10s"},
			"5 every 10 s, bursts to 20",
		},
		{map[string]any{"refill_interval": nil}, "0.5 per second, bursts to 20"},
		{map[string]any{"action": "block", "rate": nil, "burst_capacity": 0}, ""},
	} {
		got := read[limitAnswer](t, w.want(w.send(by, "PATCH", path, step.patch, "If-Match", "*"), http.StatusOK))
		if got.LimitText != step.want {
			t.Errorf("after %v the limit is %q, want %q", step.patch, got.LimitText, step.want)
		}
	}
}

func TestAnOverrideOfAWindowHasABurstOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	quota := read[limitAnswer](t, w.want(w.send(by, "POST", "/api/v1/tenants/acme/rules", map[string]any{
		"key_pattern": "user:{user_id}", "name": "quota", "algorithm": "fixed_window", "window": "month",
		"burst_capacity": 100,
	}), http.StatusCreated))
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d/overrides/42", quota.RuleID)
	w.want(w.send(by, "PUT", path, map[string]any{"burst_capacity": 500, "reason": "contract"}, "If-None-Match", "*"),
		http.StatusCreated)
	got := w.send(by, "PUT", path, map[string]any{"burst_capacity": 500, "rate_per_second": 1, "reason": "contract"},
		"If-Match", "*")
	if pointers := pointersOf(t, got); got.status != http.StatusBadRequest ||
		!slices.Equal(pointers, []string{"/rate_per_second"}) {
		t.Errorf("a rate is answered %d: %s", got.status, got.body)
	}
	path = fmt.Sprintf("/api/v1/tenants/acme/rules/%d/overrides/42",
		w.rule(w.acme, func(r *rules.Rule) { r.Name = "rate" }).ID)
	got = w.send(by, "PUT", path, map[string]any{"burst_capacity": 500, "reason": "contract"}, "If-None-Match", "*")
	if pointers := pointersOf(t, got); got.status != http.StatusBadRequest ||
		!slices.Equal(pointers, []string{"/rate_per_second"}) {
		t.Errorf("no rate of a token bucket is answered %d: %s", got.status, got.body)
	}
}

func TestARuleThatALiveProcessDoesNotKnowIsNotSaved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	quota := map[string]any{
		"key_pattern": "global", "name": "quota", "algorithm": "fixed_window", "window": "month",
		"burst_capacity": 100, "mode": "shadow",
	}
	candidate := read[limitAnswer](t,
		w.want(w.send(by, "POST", "/api/v1/tenants/acme/rules", quota), http.StatusCreated))
	rule := fmt.Sprintf("/api/v1/tenants/acme/rules/%d", candidate.RuleID)

	w.exec(`INSERT INTO api_process (process_id, name, version, started_at, rules_loaded, rules, rules_age_ms, database,
			redis, checks, degraded, span_ms, algorithms)
		VALUES ('old', 'api-7', '1.4.0', now(), true, 1, 1, 'up', 'up', 0, 0, 5000, '{token_bucket}')`)
	quota["name"] = "another"
	yaml := map[string]string{"Content-Type": "application/yaml"}
	file := "rules: [{key_pattern: global, name: file, algorithm: concurrency, max_hold: 1m, burst_capacity: 2}]"
	for name, got := range map[string]answer{
		"a new rule": w.send(by, "POST", "/api/v1/tenants/acme/rules", quota),
		"an edit":    w.send(by, "PATCH", rule, map[string]any{"burst_capacity": 101}, "If-Match", "*"),
		"a promotion": w.send(by, "POST", rule+"/promote", map[string]any{"into_rule_id": nil},
			"If-Match", "*"),
		"a cell": w.send(by, "POST", "/api/v1/tenants/acme/matrix", map[string]any{"cells": []any{
			map[string]any{
				"rule_id": fmt.Sprint(candidate.RuleID), "version": candidate.Version,
				"burst_capacity": 101,
			},
		}}),
		"a file":            w.do(by, request{"POST", "/api/v1/tenants/acme/import", file, yaml}),
		"a file, tried out": w.do(by, request{"POST", "/api/v1/tenants/acme/import?dry_run=true", file, yaml}),
	} {
		told := read[problem](t, got)
		if got.status != http.StatusConflict ||
			!strings.Contains(told.Detail,
				"the process api-7 of version 1.4.0 is still running and does not know the algorithm ") ||
			!strings.Contains(told.Detail, "upgrade or stop it") {
			t.Errorf("%s is answered %d: %s", name, got.status, got.body)
		}
	}
	w.want(w.do(by, request{
		"POST", "/api/v1/tenants/acme/import?dry_run=true",
		strings.Replace(file, "{", "{is_active: false, ", 1), yaml,
	}), http.StatusOK)
	w.want(w.send(by, "PATCH", rule, map[string]any{"is_active": false}, "If-Match", "*"), http.StatusOK)
	w.want(w.send(by, "PATCH", rule, map[string]any{"is_active": true}, "If-Match", "*"), http.StatusConflict)
	w.want(w.send(by, "POST", "/api/v1/tenants/acme/rules",
		map[string]any{"key_pattern": "global", "name": "known", "rate_per_second": 1, "burst_capacity": 1}),
		http.StatusCreated)

	w.exec("UPDATE api_process SET reported_at = now() - interval '61 seconds'") // it was killed
	known := fleet.Report{Process: fleet.Process{
		ID: "new", Name: "api-8",
		Algorithms: []string{"token_bucket", "fixed_window", "concurrency"},
	}}
	if err := w.store.ReportProcess(t.Context(), &known); err != nil {
		t.Fatal(err)
	}
	w.want(w.send(by, "POST", "/api/v1/tenants/acme/rules", quota), http.StatusCreated)
	w.want(w.send(by, "DELETE", rule, nil, "If-Match", "*"), http.StatusNoContent)
}

func TestAFileThatGivesARuleAnotherMeterIsRefusedInADryRunToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	yaml := map[string]string{"Content-Type": "application/yaml"}
	file := "rules: [{key_pattern: global, name: file, meter: requests, rate: 1/second, burst_capacity: 2}]"
	w.want(w.do(by, request{"POST", "/api/v1/tenants/acme/import", file, yaml}), http.StatusOK)
	file = strings.Replace(file, "requests", "tokens", 1)
	var told []string
	for _, query := range []string{"?dry_run=true", ""} {
		got := w.want(w.do(by, request{"POST", "/api/v1/tenants/acme/import" + query, file, yaml}),
			http.StatusBadRequest)
		if !strings.Contains(got.body, "rule global file: meter: must stay requests") {
			t.Errorf("it is answered %s", got.body)
		}
		told = append(told, strings.Join(pointersOf(t, got), " "))
	}
	if told[0] != told[1] {
		t.Errorf("a dry run points at %s, and the import at %s", told[0], told[1])
	}
}
