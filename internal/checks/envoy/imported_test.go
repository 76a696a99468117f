package envoy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func importedWorld(t *testing.T, configurations ...string) *world {
	t.Helper()
	var gateways []rules.Gateway
	var limits []rules.Rule
	for _, text := range configurations {
		config, _ := mustDecodeEnvoy(t, text, gateways, ruleset.EnvoyOptions{})
		gateways = config.Gateways
		limits = append(limits, config.Rules...)
	}
	return importedConfig(t, ruleset.Config{Gateways: gateways, Rules: limits})
}

func importedConfig(t *testing.T, config ruleset.Config) *world {
	t.Helper()
	limits := config.Rules
	for i := range limits {
		limits[i].ID, limits[i].TenantID, limits[i].Revision = rules.RuleID(i+1), tenantID, 1
		limits[i].InForceSince = start.Add(-time.Hour)
	}
	return newWorld(t, config.Gateways[0].Document, limits...)
}

func decodeEnvoy(
	text string, before []rules.Gateway, o ruleset.EnvoyOptions,
) (ruleset.Config, ruleset.Errors, error) {
	return ruleset.DecodeEnvoy([]ruleset.File{{Name: "config.yaml", Data: []byte(text)}}, before, o)
}

func mustDecodeEnvoy(
	t *testing.T, text string, before []rules.Gateway, o ruleset.EnvoyOptions,
) (ruleset.Config, ruleset.Errors) {
	t.Helper()
	config, notes, err := decodeEnvoy(text, before, o)
	if err != nil {
		t.Fatal(err)
	}
	return config, notes
}

func limitOf(key, unit, requests string) string {
	return "\n  - key: " + key + "\n    rate_limit: {unit: " + unit + ", requests_per_unit: " + requests + "}"
}

// The cases of testBasicBaseConfig of envoyproxy/ratelimit, without those of its counters.
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
	expect(t, w.ask(t, "another", 1, descriptor("key4", "z")), "OK | OK 20/DAY 19 43200s")
	w.advance(2 * time.Second)
	expect(t, w.ask(t, "another", 1, descriptor("key4", "z")), "OK | OK 20/DAY 18 43198s")
	expect(t, w.ask(t, "another", 1, descriptor("key1", "foo")), "OK | OK") // of the other domain
}

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
	expect(t, w.ask(t, "nested", 1, descriptor("user", "partner", "path", "/slow")),
		"OVER_LIMIT | OVER_LIMIT 0/MINUTE 0 60s")
	for range 2 {
		expect(t, w.ask(t, "nested", 1, descriptor("user", "partner", "path", "/a")), "OK | OK 1/MINUTE 0 60s")
	}
	expect(t, w.ask(t, "nested", 1, descriptor("user", "1", "path", "/a")), "OK | OK") // deeper than the configuration
	expect(t, w.ask(t, "nested", 1, descriptor("ghost", "known")), "OK | OK")
	expect(t, w.ask(t, "nested", 1, descriptor("ghost", "other")), "OK | OK 1/MINUTE 0 60s")
}

// Example 7 of the README of envoyproxy/ratelimit.
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
	expect(t, w.ask(t, "replacing", 1, basic), "OK | OK 1/MINUTE 0 60s")
	expect(t, w.ask(t, "replacing", 1, basic), "OVER_LIMIT | OVER_LIMIT 1/MINUTE 0 60s")
}

func TestWhatCannotBeImportedIsNamed(t *testing.T) {
	t.Parallel()
	_, _, err := decodeEnvoy(`domain: d
descriptors:
  - key: a
    rate_limit: {unit: year, unit_multiplier: 2, requests_per_unit: 1}
  - key: b
    share_threshold: true
    rate_limit: {unit: day, requests_per_unit: 1, name: x, replaces: [{name: x}, {}]}
  - {key: "c=", rate_limit: {unit: fortnight, requests_per_unit: -1}}
  - {key: a}
  - {key: d, unknown: 1}
  - {key: e, rate_limit: {unit: day, unit_multiplier: 07, requests_per_unit: 010}}
`, nil, ruleset.EnvoyOptions{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"config.yaml:4: descriptors[0].rate_limit: cannot be expressed: as a rule, window must be",
		"config.yaml:6: descriptors[1].share_threshold: is for",
		"config.yaml:7: descriptors[1].rate_limit.replaces[0].name: must not be",
		"config.yaml:7: descriptors[1].rate_limit.replaces[1].name: is missing",
		"config.yaml:8: descriptors[2].key: cannot",
		"config.yaml:8: descriptors[2].rate_limit.unit: must",
		"config.yaml:8: descriptors[2].rate_limit.requests_per_unit: must",
		"config.yaml:9: descriptors[3].key: stands here", "config.yaml:10:",
		"config.yaml:11: descriptors[5].rate_limit.unit_multiplier: must have no leading zero",
		"config.yaml:11: descriptors[5].rate_limit.requests_per_unit: must have no leading zero",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

func TestASecondImportEndsNoLimitUnasked(t *testing.T) {
	t.Parallel()
	const first = "domain: d\ndescriptors:\n" +
		"- {key: a, rate_limit: {unit: minute, requests_per_unit: 1, name: one, replaces: [{name: two}]}}\n" +
		"- {key: b, rate_limit: {unit: minute, requests_per_unit: 1, name: two}}\n"
	const second = "domain: d\ndescriptors: [{key: c, rate_limit: {unit: minute, requests_per_unit: 1}}]\n"
	decode := func(text string, before []rules.Gateway, lost ruleset.LostTemplates) (ruleset.Config, error) {
		config, _, err := decodeEnvoy(text, before, ruleset.EnvoyOptions{Lost: lost})
		return config, err
	}
	one := must(decode(first, nil, ruleset.RefuseLost))(t)
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

// A month and a year are 30 and 365 days from the epoch, as there.
func TestUnitsOfEveryLengthAreImported(t *testing.T) {
	t.Parallel()
	w := importedWorld(t, `domain: long
descriptors:
  - {key: yearly, rate_limit: {unit: YEAR, requests_per_unit: 2}}
  - {key: minutes, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 2}}
  - {key: weeks, rate_limit: {unit: day, unit_multiplier: 7, requests_per_unit: 2}}
  - {key: never, rate_limit: {unit: hour, requests_per_unit: 0}}
`)
	expect(t, w.ask(t, "long", 1, descriptor("never", "a")), "OVER_LIMIT | OVER_LIMIT 0/HOUR 0 3600s")
	for _, want := range []string{"OK | OK 2/YEAR 1", "OK | OK 2/YEAR 0", "OVER_LIMIT | OVER_LIMIT 2/YEAR 0"} {
		if got := brief(w.ask(t, "long", 1, descriptor("yearly", "a"))); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	w.advance(365 * 24 * time.Hour)
	if got := brief(w.ask(t, "long", 1, descriptor("yearly", "a"))); !strings.HasPrefix(got, "OK | OK 2/YEAR 1") {
		t.Errorf("a year later: %s", got)
	}
	expect(t, w.ask(t, "long", 1, descriptor("minutes", "a")), "OK | OK 2/UNKNOWN 1 300s")
	if got := brief(w.ask(t, "long", 1, descriptor("weeks", "a"))); !strings.HasPrefix(got, "OK | OK 2/WEEK 1") {
		t.Errorf("seven days: %s", got)
	}
}

func TestAnImportNotesNearLimits(t *testing.T) {
	t.Parallel()
	config, _ := mustDecodeEnvoy(t, "domain: d\ndescriptors:"+limitOf("a", "minute", "10")+limitOf("b", "hour", "10")+
		limitOf("c", "day", "0"), nil, ruleset.EnvoyOptions{})
	for i, want := range [][]int{nil, {80}, nil} {
		if got := config.Rules[i].NotifyAt; !slices.Equal(got, want) {
			t.Errorf("%s is noted at %v, want %v", config.Rules[i].Pattern, got, want)
		}
	}
}

// As Envoy Gateway writes them, and in several files and documents.
func TestFilesDocumentsAndConfigMapsAreOneConfiguration(t *testing.T) {
	t.Parallel()
	const generated = `name: listener
domain: listener
descriptors:
  - key: route
    value: route
    rate_limit: null
    descriptors:
      - key: rule-0
        value: ""
        rate_limit: &three {requests_per_unit: 3, unit: MINUTE, unlimited: false, name: "", replaces: []}
        descriptors: []
        shadow_mode: false
        quota_mode: false
        share_threshold: false
        metadata: {any: {thing: [1, null]}}
      - key: rule-0
        value: 7
        rate_limit: {<<: *three, requests_per_unit: 5}
      - {key: rule-1, rate_limit: *three}
---
---
domain: other
descriptors: [{key: a, rate_limit: {unlimited: true, unit: UNKNOWN}}]
`
	const inCluster = `apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: ConfigMap
    data:
      limits.yaml: |
        domain: other
        descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 4}}]
      README: no configuration
    binaryData: {more.yaml: ""}
  - {apiVersion: apps/v1, kind: Deployment, spec: {}}
`
	config, notes, err := ruleset.DecodeEnvoy([]ruleset.File{
		{Name: "generated.yaml", Data: []byte(generated)}, {Name: "cluster.yaml", Data: []byte(inCluster)},
	}, nil, ruleset.EnvoyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const noted = "cluster.yaml:11: binaryData: is not read: a configuration must be text in data\n" +
		"cluster.yaml:10: data.README: is not read: it is no file whose name ends in .yaml or .yml\n" +
		"cluster.yaml:12: kind: is not read: only a ConfigMap has a configuration"
	if notes.Error() != noted {
		t.Errorf("the notes are\n%s\nwant\n%s", notes, noted)
	}
	const mapping = `{"domains":{"listener":{"templates":[["route=route","rule-0"],["route=route","rule-0=7"],` +
		`["route=route","rule-1"]]},"other":{"templates":[["a"],["b"]]}}}`
	if got := config.Gateways[0].Document; got != mapping {
		t.Errorf("the mapping is %s, want %s", got, mapping)
	}
	var bursts []int64
	for _, rule := range config.Rules {
		bursts = append(bursts, rule.Burst)
	}
	if !slices.Equal(bursts, []int64{3, 5, 3, 4}) {
		t.Errorf("the limits are %v", bursts)
	}
}

func TestADescriptorStandsOnceInAllFiles(t *testing.T) {
	t.Parallel()
	file := func(name string) ruleset.File {
		return ruleset.File{Name: name, Data: []byte("domain: d" + "\ndescriptors: [{key: a}]")}
	}
	_, _, err := ruleset.DecodeEnvoy([]ruleset.File{file("one.yaml"), file("two.yaml")}, nil, ruleset.EnvoyOptions{})
	if err == nil || !strings.Contains(err.Error(), "two.yaml:2: descriptors[0].key: stands here a second time") {
		t.Errorf("the error is %v", err)
	}
}

func TestAliasesExpandToABoundedNumberOfValues(t *testing.T) {
	t.Parallel()
	text := "domain: d\ndescriptors:\n- &a0 {key: x}\n"
	for i := range 30 {
		text += fmt.Sprintf("- &a%d {key: k%d, descriptors: [*a%d, *a%d]}\n", i+1, i, i, i)
	}
	nulls := "domain: d\ndescriptors:\n- &a0 {metadata: [" + strings.Repeat("~,", 1000) + "]}\n" +
		strings.Repeat("- *a0\n", 1000)
	long := "domain: d\ndescriptors:\n- key: &a " + strings.Repeat("a", 1_000_000) + "\n" +
		strings.Repeat("- {key: *a}\n", 100)
	inCluster := "apiVersion: v1\nkind: List\nitems:\n" +
		"- &map {apiVersion: v1, kind: ConfigMap, data: {a.yaml: \"" + strings.Repeat(`\n`, 100_000) + "\"}}\n" +
		strings.Repeat("- *map\n", 20)
	for name, bomb := range map[string]string{
		"doubled": text, "nulls": nulls, "a long text": long, "the text of a ConfigMap": inCluster,
	} {
		if _, _, err := decodeEnvoy(bomb, nil, ruleset.EnvoyOptions{}); err == nil ||
			!strings.Contains(err.Error(), "must have at most 1000000 values together") {
			t.Errorf("%s: the error is %.500v", name, err)
		}
	}
	for name, deep := range map[string]string{
		"an alias of itself": "domain: d\ndescriptors: &a [*a]",
		"brackets":           "domain: d\ndescriptors: " + strings.Repeat("[", 200) + strings.Repeat("]", 200),
	} {
		if _, _, err := decodeEnvoy(deep, nil, ruleset.EnvoyOptions{}); err == nil ||
			err.Error() != "config.yaml:2: values must be nested at most 100 deep" {
			t.Errorf("%s: the error is %.500v", name, err)
		}
	}
}

func TestWhatCannotBeExpressedIsLeftOutIfAsked(t *testing.T) {
	t.Parallel()
	const text = `domain: d
descriptors:
  - {key: "c=", rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: many, rate_limit: {unit: day, requests_per_unit: 4000000000}}
  - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: kept, rate_limit: {unit: day, requests_per_unit: 1}}
`
	if _, _, err := decodeEnvoy(text, nil, ruleset.EnvoyOptions{}); err == nil ||
		!strings.Contains(err.Error(), "config.yaml:3: descriptors[0].key: cannot be expressed: it must have no =; "+
			"--skip-unsupported") {
		t.Errorf("unasked: %v", err)
	}
	config, notes := mustDecodeEnvoy(t, text, nil, ruleset.EnvoyOptions{SkipUnsupported: true})
	lines := strings.Split(notes.Error(), "\n")
	if len(config.Rules) != 3 || config.Rules[0].Burst != rules.MaxBurst || len(lines) != 3 ||
		lines[0] != "config.yaml:3: descriptors[0].key: is left out: it must have no =" ||
		!strings.HasPrefix(lines[1], "config.yaml:4: descriptors[1].rate_limit.requests_per_unit: counts as ") ||
		!strings.HasPrefix(lines[2], "config.yaml:5: descriptors[2].quota_mode: has no meaning here") {
		t.Errorf("%d rules, and the notes are\n%s", len(config.Rules), notes)
	}
}

func TestALimitThatIsLeftOutReplacesNothing(t *testing.T) {
	t.Parallel()
	config, _ := mustDecodeEnvoy(t, `domain: d
descriptors:
  - {key: base, rate_limit: {name: base, unit: day, requests_per_unit: 1}}
  - {key: long, rate_limit: {unit: year, unit_multiplier: 2, requests_per_unit: 1, replaces: [{name: base}]}}
  - {key: free, rate_limit: {unlimited: true, replaces: [{name: base}]}}
`, nil, ruleset.EnvoyOptions{SkipUnsupported: true})
	const want = `{"domains":{"d":{"templates":[["base"],["long"],["free"]],"replaces":{"free":["base"]}}}}`
	if got := config.Gateways[0].Document; got != want {
		t.Errorf("the mapping is %s, want %s", got, want)
	}
}

// YAML says so: a mapping's own key wins over a merged one, and the first merged mapping over the next.
func TestANullOverridesAMergedValue(t *testing.T) {
	t.Parallel()
	config, _ := mustDecodeEnvoy(t, `domain: d
descriptors:
  - &base {key: base, rate_limit: {unit: day, requests_per_unit: 1}}
  - {<<: *base, key: own, rate_limit: ~}
  - &none {key: none, rate_limit: }
  - {<<: [*none, *base], key: listed}
  - {<<: *none, key: again}
  - {<<: [~, *base], key: kept}
  - {<<: ~, key: empty}
`, nil, ruleset.EnvoyOptions{})
	var limited []string
	for _, rule := range config.Rules {
		limited = append(limited, rule.Pattern.String())
	}
	if len(limited) != 2 || !strings.Contains(limited[0], "base") || !strings.Contains(limited[1], "kept") {
		t.Errorf("the limits are %q, want those of base and kept", limited)
	}
}
