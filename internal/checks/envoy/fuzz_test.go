package envoy_test

import (
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicegate/sluice/internal/rules"
)

// Envoy lets a request pass on UNAVAILABLE, and a panic is answered so; therefore no message may have that answer.
func FuzzRateLimitRequest(f *testing.F) {
	refund := func(text ...string) *common.RateLimitDescriptor {
		d := descriptor(text...)
		d.IsNegativeHits = true
		return d
	}
	cost := func(hits uint64, text ...string) *common.RateLimitDescriptor {
		d := descriptor(text...)
		d.HitsAddend = wrapperspb.UInt64(hits)
		return d
	}
	limited := descriptor("user_id", "42")
	limited.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_DAY}
	for _, seed := range []*rls.RateLimitRequest{
		{},
		{Domain: "acme"},
		{Domain: "acme", Descriptors: []*common.RateLimitDescriptor{{}}},
		{Domain: "acme", Descriptors: []*common.RateLimitDescriptor{descriptor("", "")}},
		{Domain: "nowhere", Descriptors: []*common.RateLimitDescriptor{descriptor("user_id", "42")}},
		{Domain: "acme", Descriptors: []*common.RateLimitDescriptor{limited}},
		{Domain: "acme", HitsAddend: 1 << 31, Descriptors: []*common.RateLimitDescriptor{descriptor("user_id", "42")}},
		{Domain: "acme", Descriptors: []*common.RateLimitDescriptor{cost(1<<63, "user_id", "42")}},
		{Domain: "acme", Descriptors: []*common.RateLimitDescriptor{
			cost(0, "user_id", "42"),
			cost(5, "user_id", "42"),
		}},
		{Domain: "acme", Descriptors: []*common.RateLimitDescriptor{descriptor("blocked", "1"), refund("x", "1")}},
		{
			Domain: "acme", HitsAddend: 9,
			Descriptors: []*common.RateLimitDescriptor{descriptor("user_id", "42"), refund("user_id", "42")},
		},
		{Domain: "acme", Descriptors: []*common.RateLimitDescriptor{refund("free", "1"), refund("blocked", "1")}},
		{Domain: "acme", Descriptors: []*common.RateLimitDescriptor{
			descriptor("ip", "::1%eth0"),
			descriptor("path", "/api/a"), descriptor("place", "1"),
		}},
	} {
		message, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(message)
	}
	rule := func(id rules.RuleID, pattern string, change func(*rules.Rule)) rules.Rule {
		r := window(f, id, pattern, 3, time.Minute)
		change(&r)
		return r
	}
	bucket := func(r *rules.Rule) {
		r.Algorithm, r.Window, r.RatePerSecond, r.RateUnit = rules.TokenBucket, rules.Window{}, 1, rules.PerSecond
	}
	w := newWorld(f, `{"domains":{"acme":{"own_limits":true}}}`,
		rule(1, "user:{user_id}", func(*rules.Rule) {}),
		rule(2, "user:{user_id}", func(r *rules.Rule) { bucket(r); r.Name = "bucket" }),
		rule(3, "attr.blocked:{attr.blocked}", func(r *rules.Rule) { r.Action = rules.ActionBlock }),
		rule(4, "attr.free:{attr.free}", func(r *rules.Rule) { r.Action = rules.ActionBypass }),
		rule(5, "ip:{ip}", func(r *rules.Rule) { bucket(r); r.Mode = rules.ModeShadow }),
		rule(6, "endpoint:/api/*", func(r *rules.Rule) { bucket(r); r.Algorithm = rules.LeakyBucket }),
		rule(8, "attr.descriptor:user_id", func(*rules.Rule) {}),
		rule(7, "attr.place:{attr.place}", func(r *rules.Rule) {
			r.Algorithm, r.Window, r.MaxHold = rules.Concurrency, rules.Window{}, time.Minute
		}),
	)
	f.Fuzz(func(t *testing.T, message []byte) {
		switch _, err := w.askRaw(t, message); status.Code(err) {
		case codes.OK, codes.InvalidArgument:
		case codes.Internal: // gRPC says so of bytes that are no message
			if proto.Unmarshal(message, new(rls.RateLimitRequest)) == nil {
				t.Error(err)
			}
		default:
			t.Error(err)
		}
	})
}
