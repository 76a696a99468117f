package envoy_test

import (
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

// importedWorld serves configurations of envoyproxy/ratelimit, imported one after the other.
func importedWorld(t *testing.T, configurations ...string) *world {
	t.Helper()
	var gateways []rules.Gateway
	var limits []rules.Rule
	for _, text := range configurations {
		config, err := ruleset.DecodeEnvoy(strings.NewReader(text), "config.yaml", gateways, ruleset.RefuseLost)
		if err != nil {
			t.Fatal(err)
		}
		gateways = config.Gateways
		limits = append(limits, config.Rules...)
	}
	for i := range limits {
		limits[i].ID, limits[i].TenantID, limits[i].Revision = rules.RuleID(i+1), tenantID, 1
		limits[i].InForceSince = start.Add(-time.Hour)
	}
	return newWorld(t, gateways[0].Document, limits...)
}

func limitOf(key, unit, requests string) string {
	return "\n  - key: " + key + "\n    rate_limit: {unit: " + unit + ", requests_per_unit: " + requests + "}"
}

// The cases of testBasicBaseConfig of envoyproxy/ratelimit, without those of its counters. In the last, a denied
// request charges neither key, as there with StopCacheKeyIncrementWhenOverlimit.
func TestTheBasicCasesOfTheReference(t *testing.T) {
	t.Parallel()
	w := importedWorld(t,
		"domain: basic\ndescriptors:"+limitOf("key1", "second", "50")+limitOf("one_per_minute", "minute", "1"),
		"domain: another\ndescriptors:"+limitOf("key2", "minute", "20")+limitOf("key3", "hour", "10")+limitOf("key4",
			"day", "20"))
	expect(t, w.ask(t, "foo", 1, descriptor("hello", "world")), "OK | OK")
	starred := importedWorld(t, "domain: starred\ndescriptors:"+limitOf(`"a*"`, "minute", "1"))
	expect(t, starred.ask(t, "starred", 1, descriptor("a*", "x")), "OK | OK 1/MINUTE 0 60s")
	expect(t, starred.ask(t, "starred", 1, descriptor("a*", "y")), "OK | OK 1/MINUTE 0 60s")
	expect(t, starred.ask(t, "starred", 1, descriptor("ab", "x")), "OK | OK")
	expect(t, w.ask(t, "basic", 1, descriptor("key1", "foo")), "OK | OK 50/SECOND 49 1s")
	for i := range 25 {
		answer := w.ask(t, "another", 1, descriptor("key2", "x"))
		left, code := uint32(max(0, 19-i)), rls.RateLimitResponse_OK
		if i >= 20 {
			code = rls.RateLimitResponse_OVER_LIMIT
		}
		s := answer.GetStatuses()[0]
		if answer.GetOverallCode() != code || s.GetCode() != code || s.GetLimitRemaining() != left ||
			s.GetCurrentLimit().GetRequestsPerUnit() != 20 {
			t.Errorf("request %d: %s", i, brief(answer))
		}
	}
	for i := range 15 {
		answer := w.ask(t, "another", 1, descriptor("key2", "y"), descriptor("key3", "y"))
		left2, left3, code := uint32(max(10, 19-i)), uint32(max(0, 9-i)), rls.RateLimitResponse_OK
		if i >= 10 {
			code = rls.RateLimitResponse_OVER_LIMIT
		}
		one, other := answer.GetStatuses()[0], answer.GetStatuses()[1]
		if answer.GetOverallCode() != code || one.GetCode() != rls.RateLimitResponse_OK || other.GetCode() != code ||
			one.GetLimitRemaining() != left2 || other.GetLimitRemaining() != left3 {
			t.Errorf("request %d: %s", i, brief(answer))
		}
	}
	// duration_until_reset falls from hit to hit.
	expect(t, w.ask(t, "another", 1, descriptor("key4", "z")), "OK | OK 20/DAY 19 43200s")
	w.advance(2 * time.Second)
	expect(t, w.ask(t, "another", 1, descriptor("key4", "z")), "OK | OK 20/DAY 18 43198s")
	expect(t, w.ask(t, "another", 1, descriptor("key1", "foo")), "OK | OK") // of the other domain
}

// The cases of testShareThreshold.
func TestTheSharedThresholdsOfTheReference(t *testing.T) {
	t.Parallel()
	w := importedWorld(t, `domain: share
descriptors:
  - {key: files, value: files/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: files_no_share, value: files_no_share/*, rate_limit: {unit: hour, requests_per_unit: 10}}
  - key: route
    value: draw_*
    share_threshold: true
    descriptors: [{key: method, rate_limit: {unit: minute, requests_per_unit: 2}}]
`)
	for i := range 10 {
		path := []string{"files/a.pdf", "files/b.csv"}[i%2]
		if answer := w.ask(t, "share", 1,
			descriptor("files", path)); answer.GetStatuses()[0].GetLimitRemaining() != uint32(9-i) {
			t.Errorf("request %d: %s", i, brief(answer))
		}
	}
	expect(t, w.ask(t, "share", 1, descriptor("files", "files/new.txt")), "OVER_LIMIT | OVER_LIMIT 10/HOUR 0 3600s")
	expect(t, w.ask(t, "share", 1, descriptor("files_no_share", "files_no_share/a")), "OK | OK 10/HOUR 9 3600s")
	expect(t, w.ask(t, "share", 1, descriptor("files_no_share", "files_no_share/b")), "OK | OK 10/HOUR 9 3600s")
	expect(t, w.ask(t, "share", 1, descriptor("files", "elsewhere")), "OK | OK")
	expect(t, w.ask(t, "share", 1, descriptor("route", "draw_a", "method", "GET")), "OK | OK 2/MINUTE 1 60s")
	expect(t, w.ask(t, "share", 1, descriptor("route", "draw_b", "method", "GET")), "OK | OK 2/MINUTE 0 60s")
	expect(t, w.ask(t, "share", 1, descriptor("route", "draw_b", "method", "POST")), "OK | OK 2/MINUTE 1 60s")
}

func TestImportedDescriptorsExcludeEachOther(t *testing.T) {
	t.Parallel()
	w := importedWorld(t, `domain: nested
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: user
    value: vip
    rate_limit: {unlimited: true}
  - key: user
    value: partner
    rate_limit: {unit: minute, requests_per_unit: 3}
    descriptors:
      - {key: path, value: /slow, rate_limit: {unit: minute, requests_per_unit: 0}}
      - {key: path, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: ghost, value: known}
  - {key: ghost, rate_limit: {unit: minute, requests_per_unit: 1}}
`)
	expect(t, w.ask(t, "nested", 1, descriptor("user", "1")), "OK | OK 1/MINUTE 0 60s")
	expect(t, w.ask(t, "nested", 1, descriptor("user", "1")), "OVER_LIMIT | OVER_LIMIT 1/MINUTE 0 60s")
	expect(t, w.ask(t, "nested", 1, descriptor("user", "2")), "OK | OK 1/MINUTE 0 60s")
	expect(t, w.ask(t, "nested", 1, descriptor("user", "vip")), "OK | OK")
	expect(t, w.ask(t, "nested", 1, descriptor("user", "partner")), "OK | OK 3/MINUTE 2 60s")
	expect(t, w.ask(t, "nested", 1, descriptor("user", "partner", "path", "/slow")), "OVER_LIMIT | OVER_LIMIT")
	for range 2 {
		expect(t, w.ask(t, "nested", 1, descriptor("user", "partner", "path", "/a")), "OK | OK")
	}
	expect(t, w.ask(t, "nested", 1, descriptor("user", "1", "path", "/a")), "OK | OK") // deeper than the configuration
	expect(t, w.ask(t, "nested", 1, descriptor("ghost", "known")), "OK | OK")
	expect(t, w.ask(t, "nested", 1, descriptor("ghost", "other")), "OK | OK 1/MINUTE 0 60s")
}

// Example 7 of the README of envoyproxy/ratelimit, and a limit whose replacement is unlimited.
func TestALimitReplacesAnotherOfTheSameRequest(t *testing.T) {
	t.Parallel()
	w := importedWorld(t, `domain: replacing
descriptors:
  - key: tier
    value: basic
    descriptors:
      - {key: user, rate_limit: {name: basic, unit: minute, requests_per_unit: 1}}
  - key: route
    value: read
    descriptors:
      - {key: user, rate_limit: {unit: minute, requests_per_unit: 3, replaces: [{name: basic}, {name: nowhere}]}}
  - {key: route, value: status, rate_limit: {unlimited: true, replaces: [{name: basic}]}}
`)
	basic, read := descriptor("tier", "basic", "user", "7"), descriptor("route", "read", "user", "7")
	for i, want := range []string{"2", "1", "0"} {
		expect(t, w.ask(t, "replacing", 1, basic, read), "OK | OK | OK 3/MINUTE "+want+" 60s")
		expect(t, w.ask(t, "replacing", 1, basic, descriptor("route", "status")), "OK | OK | OK")
		if t.Failed() {
			t.Fatalf("at request %d", i)
		}
	}
	expect(t, w.ask(t, "replacing", 1, read, basic), "OVER_LIMIT | OVER_LIMIT 3/MINUTE 0 60s | OK")
	// Replaced limits were not charged.
	expect(t, w.ask(t, "replacing", 1, basic), "OK | OK 1/MINUTE 0 60s")
	expect(t, w.ask(t, "replacing", 1, basic), "OVER_LIMIT | OVER_LIMIT 1/MINUTE 0 60s")
}

func TestWhatCannotBeImportedIsNamed(t *testing.T) {
	t.Parallel()
	_, err := ruleset.DecodeEnvoy(strings.NewReader(`domain: d
descriptors:
  - key: a
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: b
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 1, name: x, replaces: [{name: x}, {}]}
  - {key: "c=", rate_limit: {unit: fortnight, requests_per_unit: -1}}
  - {key: a}
  - {key: d, unknown: 1}
`), "config.yaml", nil, ruleset.RefuseLost)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"config.yaml:4: descriptors[0].rate_limit.unit: cannot be expressed",
		"config.yaml:6: descriptors[1].quota_mode: cannot",
		"config.yaml:7: descriptors[1].rate_limit.replaces[0].name: must not be",
		"config.yaml:7: descriptors[1].rate_limit.replaces[1].name: is missing",
		"config.yaml:8: descriptors[2].key: cannot",
		"config.yaml:8: descriptors[2].rate_limit.unit: must",
		"config.yaml:8: descriptors[2].rate_limit.requests_per_unit: must",
		"config.yaml:9: descriptors[3].key: stands here", "config.yaml:10:",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

// TestASecondImportEndsNoLimitUnasked: a rule without its template matches no descriptor.
func TestASecondImportEndsNoLimitUnasked(t *testing.T) {
	t.Parallel()
	const first = "domain: d\ndescriptors:\n" +
		"- {key: a, rate_limit: {unit: minute, requests_per_unit: 1, name: one, replaces: [{name: two}]}}\n" +
		"- {key: b, rate_limit: {unit: minute, requests_per_unit: 1, name: two}}\n"
	const second = "domain: d\ndescriptors: [{key: c, rate_limit: {unit: minute, requests_per_unit: 1}}]\n"
	decode := func(text string, before []rules.Gateway, lost ruleset.LostTemplates) (ruleset.Config, error) {
		return ruleset.DecodeEnvoy(strings.NewReader(text), "config.yaml", before, lost)
	}
	one, err := decode(first, nil, ruleset.RefuseLost)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(first, one.Gateways, ruleset.RefuseLost); err != nil {
		t.Errorf("the same file again: %v", err)
	}
	if _, err := decode(second, one.Gateways, ruleset.RefuseLost); err == nil ||
		!strings.Contains(err.Error(), "lacks 2 of the descriptors") || !strings.Contains(err.Error(), "--merge") {
		t.Errorf("another file: %v, want a refusal", err)
	}
	const merged = `{"domains":{"d":{"templates":[["c"],["a"],["b"]],"replaces":{"a":["b"]}}}}`
	if both, err := decode(second, one.Gateways, ruleset.MergeLost); err != nil || both.Gateways[0].Document != merged {
		t.Errorf("merged: %v, %v, want %s", both.Gateways, err, merged)
	}
	const replaced = `{"domains":{"d":{"templates":[["c"]]}}}`
	if other, err := decode(second, one.Gateways, ruleset.ReplaceLost); err != nil ||
		other.Gateways[0].Document != replaced {
		t.Errorf("replaced: %v, %v, want %s", other.Gateways, err, replaced)
	}
}
