package envoy_test

import (
	"fmt"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/sluicegate/sluice/internal/checks/envoy"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

const ownLimits = `{"domains":{"edge":{"own_limits":true},"plain":{}}}`

func bringing(requests uint32, unit typev3.RateLimitUnit, text ...string) *common.RateLimitDescriptor {
	d := descriptor(text...)
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	return d
}

func TestADescriptorsLimitReplacesThoseOfItsRulesWhereTheMappingAllows(t *testing.T) {
	t.Parallel()
	shadow := window(t, 3, "attr.descriptor:user_id", 1, time.Minute)
	shadow.Mode = rules.ModeShadow
	w := newWorld(t, ownLimits, window(t, 1, "attr.descriptor:user_id:user:{user_id}", 2, time.Minute),
		window(t, 2, "user:{user_id}", 100, 24*time.Hour), shadow)
	minute := bringing(1, typev3.RateLimitUnit_MINUTE, "user_id", "42")
	hour := bringing(3, typev3.RateLimitUnit_HOUR, "user_id", "42")
	expect(t, w.ask(t, "plain", 1, minute), "OK | OK 2/MINUTE 1 60s")
	expect(t, w.ask(t, "acme", 1, hour), "OK | OK 2/MINUTE 0 60s")
	expect(t, w.ask(t, "edge", 1, minute), "OK | OK 1/MINUTE 0 60s")
	expect(t, w.ask(t, "edge", 1, hour), "OK | OK 3/HOUR 2 3600s")
	expect(t, w.ask(t, "edge", 1, minute), "OVER_LIMIT | OVER_LIMIT 1/MINUTE 0 60s")
	expect(t, w.ask(t, "edge", 1, minute, hour), "OVER_LIMIT | OVER_LIMIT 1/MINUTE 0 60s | OK 3/HOUR 2 3600s")
	expect(t, w.ask(t, "edge", 1, hour), "OK | OK 3/HOUR 1 3600s")
	back := bringing(3, typev3.RateLimitUnit_HOUR, "user_id", "42")
	back.IsNegativeHits = true
	expect(t, w.ask(t, "edge", 1, back), "OK | OK 3/HOUR 2 3600s")
	expect(t, w.ask(t, "edge", 1, descriptor("user_id", "42")), "OVER_LIMIT | OVER_LIMIT 2/MINUTE 0 60s")
	expect(t, w.ask(t, "edge", 1, bringing(9, typev3.RateLimitUnit_UNKNOWN, "user_id", "42")),
		"OVER_LIMIT | OVER_LIMIT 2/MINUTE 0 60s")
	w.advance(time.Minute)
	expect(t, w.ask(t, "edge", 1, minute), "OK | OK 1/MINUTE 0 60s")
	expect(t, w.ask(t, "edge", 95, bringing(1<<31, typev3.RateLimitUnit_YEAR, "user_id", "42")),
		"OK | OK 100/DAY 0 43140s")
	expect(t, w.ask(t, "edge", 1, bringing(0, typev3.RateLimitUnit_DAY, "user_id", "7")),
		"OVER_LIMIT | OVER_LIMIT 0/DAY 0 43140s")
	expect(t, w.ask(t, "edge", 1, bringing(1, typev3.RateLimitUnit_DAY, "x", "7")), "OK | OK") // no rule
}

func TestAnImportLetsADomainTakeLimits(t *testing.T) {
	t.Parallel()
	before := []rules.Gateway{{
		Kind: rules.GatewayDescriptors, Document: `{"domains":{"edge":{"own_limits":true}}}`,
	}}
	config, _, err := decodeEnvoy("domain: edge\ndescriptors:"+limitOf("key1", "second", "50"), before,
		ruleset.EnvoyOptions{})
	const want = `{"domains":{"edge":{"templates":[["key1"]],"own_limits":true}}}`
	if err != nil || config.Gateways[0].Document != want {
		t.Errorf("%v, %v, want %s", config.Gateways, err, want)
	}
	config, _, err = decodeEnvoy("domain: edge\ndescriptors:"+limitOf("key1", "second", "50"), nil,
		ruleset.EnvoyOptions{OwnLimits: true})
	if err != nil || config.Gateways[0].Document != want {
		t.Errorf("with --own-limits: %v, %v, want %s", config.Gateways, err, want)
	}
}

func TestAGreedyCallerOfManyLimitsFillsNoMemory(t *testing.T) {
	t.Parallel()
	const most = 1000
	var memory *membucket.Store
	w := newWorldWith(t, func(c *envoy.Config) {
		memory = membucket.New(membucket.Options{Clock: start.UnixMicro, MaxBuckets: most})
		c.Limiter = enforce.NewLimiter(memory, memory, silent{}, func() time.Time { return start })
	}, ownLimits, window(t, 1, "attr.descriptor:user_id:user:{user_id}", 2, time.Minute))
	for i := range uint32(100) {
		many := make([]*common.RateLimitDescriptor, 100)
		for j := range many {
			many[j] = bringing(100*i+uint32(j)+1, typev3.RateLimitUnit_MINUTE, "user_id", "42")
		}
		if answer := w.ask(t, "edge", 1, many...); answer.GetStatuses()[99].GetCurrentLimit().GetRequestsPerUnit() !=
			100*i+100 {
			t.Fatal(brief(answer))
		}
	}
	if got := memory.Len(); got > most {
		t.Errorf("%d buckets, want at most %d", got, most)
	}
	for i := range 2 {
		expect(t, w.ask(t, "edge", 1, descriptor("user_id", "7")), fmt.Sprintf("OK | OK 2/MINUTE %d 60s", 1-i))
	}
}
