package envoy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func withHits(hits uint64, text ...string) *common.RateLimitDescriptor {
	d := descriptor(text...)
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

// streamed replays Envoy AI Gateway: a request asks with 0 hits and, if it passes, reports the hits of its stream.
func (w *world) streamed(t *testing.T, domain string, used uint64, requests int, text ...string) (passed int) {
	t.Helper()
	for range requests {
		if w.ask(t, domain, 0, withHits(0, text...)).GetOverallCode() == rls.RateLimitResponse_OK {
			w.ask(t, domain, 0, withHits(used, text...))
			passed++
		}
	}
	return passed
}

func tokens(t *testing.T) rules.Rule {
	rule := window(t, 1, "attr.descriptor:team:attr.team:{attr.team}", 10, time.Hour)
	rule.Meter, rule.Name, rule.ChargedAfter = "total_tokens", "total_tokens", true
	return rule
}

const recording = `{"domains":{"ai":{"templates":[["team"],["user_id"]],"hits":{"team":{"meter":"total_tokens",` +
	`"record":true}}}}}`

func TestAskingWith0HitsAndReportingLaterEnforcesABudget(t *testing.T) {
	t.Parallel()
	for name, document := range map[string]string{
		"a template that records":  recording,
		"a meter of a template":    `{"domains":{"ai":{"hits":{"team":{"meter":"total_tokens"}}}}}`,
		"a meter of the domain":    `{"domains":{"ai":{"meter":"total_tokens"}}}`,
		"records count the domain": `{"domains":{"ai":{"meter":"total_tokens","hits":{"team":{"record":true}}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, document, tokens(t))
			if passed := w.streamed(t, "ai", 8, 100, "team", "a"); passed != 2 {
				t.Errorf("%d of 100 requests of 8 tokens passed, want 2 of a budget of 10", passed)
			}
			expect(t, w.ask(t, "ai", 0, withHits(0, "team", "b")), "OK | OK 10/HOUR 10 3600s")
		})
	}
}

func TestImportedLimitsEnforceABudgetThatIsReportedLater(t *testing.T) {
	t.Parallel()
	const text = "domain: ai\ndescriptors:\n- key: route\n  value: chat\n  descriptors:" +
		"\n  - {key: team, rate_limit: {unit: hour, requests_per_unit: 10}}"
	for name, o := range map[string]ruleset.EnvoyOptions{
		"without a flag": {}, "with --record": {Record: []string{"team"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, _, err := decodeEnvoy(text, nil, o)
			if err != nil {
				t.Fatal(err)
			}
			w := importedConfig(t, config)
			if passed := w.streamed(t, "ai", 8, 100, "route", "chat", "team", "a"); passed != 2 {
				t.Errorf("%d of 100 requests of 8 passed, want 2 of a budget of 10", passed)
			}
		})
	}
	if _, _, err := decodeEnvoy(text, nil, ruleset.EnvoyOptions{Record: []string{"taem"}}); err == nil ||
		!strings.Contains(err.Error(), `must have a descriptor with the key "taem" of --record`) {
		t.Errorf("a key that no descriptor has: %v", err)
	}
}

func TestAnImportKeepsTheMeterOfHits(t *testing.T) {
	t.Parallel()
	before := []rules.Gateway{{Kind: rules.GatewayDescriptors, Document: recording}}
	config, _, err := decodeEnvoy("domain: ai\ndescriptors:"+limitOf("team", "hour", "10"), before,
		ruleset.EnvoyOptions{Lost: ruleset.ReplaceLost})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"domains":{"ai":{"templates":[["team"]],"hits":{"team":{"meter":"total_tokens","record":true}}}}}`
	if got := config.Gateways[0].Document; got != want {
		t.Errorf("the mapping is %s, want %s", got, want)
	}
	if rule := config.Rules[0]; rule.Meter != "total_tokens" || rule.Name != "total_tokens" {
		t.Errorf("the rule %q counts %q", rule.Name, rule.Meter)
	}
	if passed := importedConfig(t, config).streamed(t, "ai", 8, 100, "team", "a"); passed != 2 {
		t.Errorf("%d of 100 requests of 8 passed, want 2 of a budget of 10", passed)
	}
}

func TestHitsOfATemplateThatRecordsAreChargedWhateverIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, recording, tokens(t), window(t, 2, "attr.descriptor:user_id:user:{user_id}", 1, time.Minute))
	team, user := descriptor("team", "a"), descriptor("user_id", "42")
	expect(t, w.ask(t, "ai", 0, team, user), "OK | OK 10/HOUR 9 3600s | OK 1/MINUTE 0 60s")
	expect(t, w.ask(t, "ai", 0, withHits(5, "team", "a"), user),
		"OVER_LIMIT | OK 10/HOUR 4 3600s | OVER_LIMIT 1/MINUTE 0 60s")
	expect(t, w.ask(t, "ai", 0, withHits(5, "team", "a"), withHits(2, "team", "b")),
		"OK | OK 10/HOUR 0 3600s | OK 10/HOUR 8 3600s")
	expect(t, w.ask(t, "ai", 7, team), "OK | OK 10/HOUR 0 3600s")
	expect(t, w.ask(t, "ai", 0, withHits(0, "team", "a"), descriptor("user_id", "7")),
		"OVER_LIMIT | OVER_LIMIT 10/HOUR 0 3600s | OK 1/MINUTE 1 60s")
	if _, err := w.askAs(t.Context(), "Bearer slk_check_"+secret, "ai", 2,
		team); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "permission report") {
		t.Errorf("a key without report: %v", err)
	}
}

// Beside a denial an error would let the request pass.
func TestHitsThatTheStoreDidNotRecordAreAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, recording, tokens(t), window(t, 2, "attr.descriptor:user_id:user:{user_id}", 1, time.Minute))
	w.away = errors.New("away")
	if _, err := w.askAs(t.Context(), token, "ai", 2, descriptor("team", "a"),
		descriptor("team", "b")); status.Code(err) != codes.Unavailable {
		t.Errorf("the error is %v, want UNAVAILABLE", err)
	}
	expect(t, w.ask(t, "ai", 2, descriptor("team", "a"), descriptor("user_id", "42")),
		"OVER_LIMIT | OK | OVER_LIMIT")
	w.away = nil
	expect(t, w.ask(t, "ai", 0, withHits(0, "team", "a")), "OK | OK 10/HOUR 10 3600s")
}
