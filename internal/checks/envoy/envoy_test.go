package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/door"
	"github.com/sluicegate/sluice/internal/checks/envoy"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

const (
	tenantID   = 7
	otherID    = 8
	secret     = "0123456789abcdef0123456789abcdef"
	token      = "Bearer slk_all_" + secret
	otherToken = "Bearer slk_other_" + secret
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 250_000_000, time.UTC)

type world struct {
	rls.RateLimitServiceClient
	addr   string
	conn   *grpc.ClientConn
	server *envoy.Server

	mu     sync.Mutex
	now    time.Time
	away   error
	ready  httpapi.Readiness
	seen   []int
	traces []string
}

func (w *world) time() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) Take(ctx context.Context, checks []enforce.BucketCheck, store enforce.Buckets) error {
	w.mu.Lock()
	err := w.away
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return store.Take(ctx, checks)
}

func (w *world) RequestAnswered(_ string, status int, _ time.Duration, traceID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, status)
	w.traces = append(w.traces, traceID)
}

type store struct {
	*membucket.Store
	world *world
}

func (s store) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	return s.world.Take(ctx, checks, s.Store)
}

type snapshots struct{ latest *snapshot.Snapshot }

func (s snapshots) Snapshot() *snapshot.Snapshot { return s.latest }

type silent struct{}

func (silent) Decided(*snapshot.Tenant, *enforce.Check, *enforce.Decision) {}
func (silent) StoreAnswered(time.Duration, error)                          {}

func newWorld(t testing.TB, document string, limits ...rules.Rule) *world {
	t.Helper()
	return newWorldWith(t, func(*envoy.Config) {}, document, limits...)
}

func newWorldWith(t testing.TB, change func(*envoy.Config), document string, limits ...rules.Rule) *world {
	t.Helper()
	rows := snapshot.Rows{
		Tenants: []rules.Tenant{
			{ID: tenantID, Slug: "acme", Settings: rules.DefaultSettings(), DefaultPlan: "free", Revision: 1},
			{ID: otherID, Slug: "other", Settings: rules.DefaultSettings(), Revision: 1},
		},
		Plans: []rules.Plan{{TenantID: tenantID, Name: "free", Revision: 1}},
		Keys: []auth.Key{
			{
				ID: "all", TenantID: tenantID, Digest: auth.DigestSecret(secret),
				Permissions: []auth.Permission{"check", "refund", "report"}, Revision: 1,
			},
			{
				ID: "check", TenantID: tenantID, Digest: auth.DigestSecret(secret),
				Permissions: []auth.Permission{"check"}, Revision: 1,
			},
			{
				ID: "explain", TenantID: tenantID, Digest: auth.DigestSecret(secret),
				Permissions: []auth.Permission{"explain"}, Revision: 1,
			},
			{
				ID: "away", TenantID: tenantID, Digest: auth.DigestSecret(secret),
				Permissions: []auth.Permission{"check"},
				Networks:    []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, Revision: 1,
			},
			{
				ID: "other", TenantID: otherID, Digest: auth.DigestSecret(secret),
				Permissions: []auth.Permission{"check"},
				Revision:    1,
			},
		},
		Rules: limits,
	}
	if document != "" {
		rows.Gateways = []rules.Gateway{{
			TenantID: tenantID, Kind: rules.GatewayDescriptors, Document: document,
			Revision: 1,
		}}
	}
	w := &world{now: start, ready: httpapi.Readiness{Open: true, RulesLoaded: true}}
	memory := membucket.New(membucket.Options{Clock: func() int64 { return w.time().UnixMicro() }})
	local := membucket.New(membucket.Options{Clock: func() int64 { return w.time().UnixMicro() }})
	config := envoy.Config{
		Config: door.Config{
			Snapshots: snapshots{snapshot.New(rows)},
			Log:       slog.New(slog.DiscardHandler), Observer: w, Tracer: tracer{}, Now: w.time,
			Readiness: func() httpapi.Readiness { w.mu.Lock(); defer w.mu.Unlock(); return w.ready },
		},
		Limiter:  enforce.NewLimiter(store{memory, w}, local, silent{}, w.time),
		Creditor: memory,
	}
	change(&config)
	w.server = envoy.NewServer(config)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	go func() { _ = w.server.Serve(l) }()
	t.Cleanup(func() { _ = w.server.Close() })
	w.addr = l.Addr().String()
	w.conn = w.connect(t)
	w.RateLimitServiceClient = rls.NewRateLimitServiceClient(w.conn)
	return w
}

func (w *world) connect(t testing.TB, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(w.addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func window(t testing.TB, id rules.RuleID, pattern string, burst int64, length time.Duration) rules.Rule {
	t.Helper()
	p := must(rules.ParsePattern(pattern))(t)
	return rules.Rule{
		ID: id, TenantID: tenantID, Pattern: p, Algorithm: rules.FixedWindow, Window: rules.Window{Length: length},
		Burst:  burst,
		Action: rules.ActionLimit, Mode: rules.ModeEnforce, FailureMode: rules.FailClosed, Active: true, Revision: 1,
		InForceSince: start.Add(-time.Hour),
	}
}

func descriptor(text ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(text); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: text[i], Value: text[i+1]})
	}
	return d
}

func (w *world) ask(t testing.TB, domain string, hits uint32,
	descriptors ...*common.RateLimitDescriptor,
) *rls.RateLimitResponse {
	t.Helper()
	answer := must(w.askAs(t.Context(), token, domain, hits, descriptors...))(t)
	return answer
}

func (w *world) askAs(
	ctx context.Context, token, domain string, hits uint32, descriptors ...*common.RateLimitDescriptor,
) (*rls.RateLimitResponse, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", token)
	return w.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: domain, Descriptors: descriptors, HitsAddend: hits})
}

// brief has the overall code, then of each status its code, limit, unit, remaining and seconds.
func brief(answer *rls.RateLimitResponse) string {
	text := answer.GetOverallCode().String()
	for _, s := range answer.GetStatuses() {
		text += " | " + s.GetCode().String()
		if l := s.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" %d/%s %d %ds", l.GetRequestsPerUnit(), l.GetUnit(), s.GetLimitRemaining(),
				s.GetDurationUntilReset().GetSeconds())
		}
	}
	return text
}

func expect(t *testing.T, answer *rls.RateLimitResponse, want string) {
	t.Helper()
	if got := brief(answer); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestDescriptorsAreTakenTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", window(t, 1, "user:{user_id}", 3, time.Minute), window(t, 2, "ip:{ip}", 2, time.Hour))
	both := []*common.RateLimitDescriptor{descriptor("user_id", "42"), descriptor("remote_address", "203.0.113.9")}
	expect(t, w.ask(t, "acme", 0, both...), "OK | OK 3/MINUTE 2 60s | OK 2/HOUR 1 3600s")
	w.advance(10 * time.Second)
	expect(t, w.ask(t, "acme", 1, both...), "OK | OK 3/MINUTE 1 50s | OK 2/HOUR 0 3590s")
	w.advance(10 * time.Second)
	answer := w.ask(t, "acme", 1, both...)
	expect(t, answer, "OVER_LIMIT | OK 3/MINUTE 1 40s | OVER_LIMIT 2/HOUR 0 3580s")
	headers := map[string]string{}
	for _, h := range answer.GetResponseHeadersToAdd() {
		headers[h.GetKey()] = h.GetValue()
	}
	if headers["Retry-After"] != "3580" || headers["RateLimit"] != `"ip-2";r=0;t=3580` ||
		headers["X-Sluice-Reason"] != "limit_exceeded" {
		t.Errorf("the headers are %v", headers)
	}
	expect(t, w.ask(t, "acme", 1, both[0]), "OK | OK 3/MINUTE 0 40s") // the denied request took nothing
	if want := "[200 200 429 200]"; fmt.Sprint(w.seen) != want {
		t.Errorf("the observer saw %v, want %s", w.seen, want)
	}
}

type tracer struct{}

func (tracer) Start(traceparent, route string, details httpapi.Details) httpapi.Span {
	if traceparent != "sampled" {
		return nil
	}
	return span(details.Method() + " " + route + " " + details.RequestHeader("Tracestate"))
}

type span string

func (s span) TraceID() string { return string(s) }
func (span) End(int)           {}

func TestSampledRequestsAreTraced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", window(t, 1, "user:{user_id}", 3, time.Minute))
	w.ask(t, "acme", 1, descriptor("user_id", "42"))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "sampled", "tracestate", "x=1")
	if _, err := w.askAs(ctx, token, "acme", 1, descriptor("user_id", "42")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"", "POST " + envoy.Route + " x=1"}; !slices.Equal(w.traces, want) {
		t.Errorf("the traces are %q, want %q", w.traces, want)
	}
}

func TestHitsAreTheCost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", window(t, 1, "user:{user_id}", 10, time.Minute),
		window(t, 2, "attr.tier:{attr.tier}", 10, time.Minute))
	free, three := descriptor("user_id", "42"), descriptor("tier", "a")
	free.HitsAddend, three.HitsAddend = wrapperspb.UInt64(0), wrapperspb.UInt64(3)
	expect(t, w.ask(t, "acme", 5, free, three, descriptor("tier", "b")),
		"OK | OK 10/MINUTE 10 60s | OK 10/MINUTE 7 60s | OK 10/MINUTE 5 60s")
	expect(t, w.ask(t, "acme", 1, three, descriptor("tier", "a", "more", "x")),
		"OK | OK 10/MINUTE 4 60s | OK 10/MINUTE 4 60s")
	expect(t, w.ask(t, "acme", 11, descriptor("user_id", "42")), "OVER_LIMIT | OVER_LIMIT 10/MINUTE 10 60s")
	back := descriptor("tier", "a")
	back.IsNegativeHits = true
	expect(t, w.ask(t, "acme", 2, back), "OK | OK 10/MINUTE 6 60s")
	if _, err := w.askAs(t.Context(), "Bearer slk_check_"+secret, "acme", 2,
		back); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a key without refund: %v", err)
	}
}

func TestADeniedRequestGivesNothingBack(t *testing.T) {
	t.Parallel()
	blocked := window(t, 3, "attr.blocked:{attr.blocked}", 1, time.Minute)
	blocked.Action = rules.ActionBlock
	w := newWorld(t, "", window(t, 1, "user:{user_id}", 1, time.Minute),
		window(t, 2, "attr.tier:{attr.tier}", 5, time.Minute), blocked)
	expect(t, w.ask(t, "acme", 1, descriptor("user_id", "42"), descriptor("tier", "a")),
		"OK | OK 1/MINUTE 0 60s | OK 5/MINUTE 4 60s")
	back := descriptor("tier", "a")
	back.IsNegativeHits = true
	expect(t, w.ask(t, "acme", 1, back, descriptor("user_id", "42")), "OVER_LIMIT | OK | OVER_LIMIT 1/MINUTE 0 60s")
	expect(t, w.ask(t, "acme", 1, descriptor("blocked", "1"), back), "OVER_LIMIT | OVER_LIMIT 0/SECOND 0 1s | OK")
	expect(t, w.ask(t, "acme", 1, descriptor("tier", "a")), "OK | OK 5/MINUTE 3 60s")
}

func TestAnUnknownDomainHasNoLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"domains":{"edge":{}}}`, window(t, 1, "user:{user_id}", 1, time.Minute))
	for range 2 {
		expect(t, w.ask(t, "other", 1, descriptor("user_id", "1"), descriptor("a", "b")), "OK | OK | OK")
	}
	expect(t, w.ask(t, "edge", 1, descriptor("user_id", "1")), "OK | OK 1/MINUTE 0 60s")
	expect(t, w.ask(t, "acme", 1, descriptor("user_id", "1")), "OVER_LIMIT | OVER_LIMIT 1/MINUTE 0 60s")
}

func TestARuleThatFailsClosedIsOverLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", window(t, 1, "user:{user_id}", 1, time.Minute))
	w.away = errors.New("away")
	expect(t, w.ask(t, "acme", 1, descriptor("user_id", "1"), descriptor("other", "1")), "OVER_LIMIT | OVER_LIMIT | OK")
}

func TestVisitorsCannotMakeErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", window(t, 1, "user:{user_id}", 1, time.Minute),
		window(t, 2, "attr.h:{attr.h}", 1, time.Minute))
	long := strings.Repeat("x", 16<<10)
	for _, d := range []*common.RateLimitDescriptor{
		descriptor("user_id", long), descriptor("h", long), descriptor("h", "a\x00b"),
		descriptor("user_id", "7", "plan", "nonesuch"),
		descriptor("user_id", "8", "ip", "nowhere", "path", long, "method", long),
	} {
		expect(t, w.ask(t, "acme", 1, d), "OK | OK 1/MINUTE 0 60s")
		expect(t, w.ask(t, "acme", 1, d), "OVER_LIMIT | OVER_LIMIT 1/MINUTE 0 60s")
	}
	expect(t, w.ask(t, "acme", 1, descriptor("user_id", long+"y")), "OK | OK 1/MINUTE 0 60s")
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", window(t, 1, "user:{user_id}", 1, time.Minute))
	many := make([]*common.RateLimitDescriptor, 1000)
	for i := range many {
		many[i] = descriptor("user_id", fmt.Sprint(i))
	}
	beyond := descriptor("user_id", "1")
	beyond.HitsAddend = wrapperspb.UInt64(1 << 63)
	for name, c := range map[string]struct {
		token, domain string
		hits          uint32
		descriptors   []*common.RateLimitDescriptor
		code          codes.Code
	}{
		"no domain":              {token, "", 1, many[:1], codes.InvalidArgument},
		"no descriptors":         {token, "acme", 1, nil, codes.InvalidArgument},
		"a thousand descriptors": {token, "acme", 1, many, codes.InvalidArgument},
		"no entries":             {token, "acme", 1, []*common.RateLimitDescriptor{{}}, codes.InvalidArgument},
		"no key": {
			token, "acme", 1,
			[]*common.RateLimitDescriptor{descriptor("", "1")},
			codes.InvalidArgument,
		},
		"hits beyond range":     {token, "acme", 1 << 31, many[:1], codes.InvalidArgument},
		"own hits beyond range": {token, "acme", 1, []*common.RateLimitDescriptor{beyond}, codes.InvalidArgument},
		"a large message": {
			token, "acme", 1,
			[]*common.RateLimitDescriptor{descriptor("user_id", strings.Repeat("x", 1<<20))},
			codes.ResourceExhausted,
		},
		"no key of ours": {"", "acme", 1, many[:1], codes.Unauthenticated},
		"a wrong key": {
			"Bearer slk_all_" + strings.Repeat("0", 32), "acme", 1, many[:1],
			codes.Unauthenticated,
		},
		"a key for other things": {"Bearer slk_explain_" + secret, "acme", 1, many[:1], codes.PermissionDenied},
		"a key of a network far": {"Bearer slk_away_" + secret, "acme", 1, many[:1], codes.PermissionDenied},
		"a long header":          {"Bearer " + strings.Repeat("x", 81<<10), "acme", 1, many[:1], codes.Internal},
	} {
		_, err := w.askAs(t.Context(), c.token, c.domain, c.hits, c.descriptors...)
		if got := status.Code(err); got != c.code && name != "a long header" || err == nil {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	expect(t, w.ask(t, "acme", 1, many[1]), "OK | OK 1/MINUTE 0 60s") // nothing was taken
}

func TestHealthFollowsReadiness(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	watch := must(healthpb.NewHealthClient(w.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{}))(t)
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{
		healthpb.HealthCheckResponse_SERVING,
		healthpb.HealthCheckResponse_NOT_SERVING,
	} {
		answer, err := watch.Recv()
		if err != nil || answer.GetStatus() != want {
			t.Fatalf("%v, %v, want %v", answer, err, want)
		}
		w.mu.Lock()
		w.ready.Draining = true
		w.mu.Unlock()
	}
	if err := w.server.Shutdown(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestNoValueOfADescriptorEscapesALimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", window(t, 1, "attr.descriptor:x-api-key:attr.x-api-key:{attr.x-api-key}", 1, time.Minute),
		window(t, 2, "user:{user_id}", 1, time.Minute), window(t, 3, "endpoint:/api/*", 1, time.Minute))
	for _, d := range []*common.RateLimitDescriptor{
		descriptor("x-api-key", ""), descriptor("user_id", ""), descriptor("path", "/api/"+strings.Repeat("x", 2000)),
	} {
		expect(t, w.ask(t, "acme", 1, d), "OK | OK 1/MINUTE 0 60s")
		expect(t, w.ask(t, "acme", 1, d), "OVER_LIMIT | OVER_LIMIT 1/MINUTE 0 60s")
	}
}

func TestNoSpellingOfAPathEscapesALimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", window(t, 1, "endpoint:/login", 1, time.Minute),
		window(t, 2, "endpoint:/orders/{id}", 1, time.Minute))
	expect(t, w.ask(t, "acme", 1, descriptor("path", "/login")), "OK | OK 1/MINUTE 0 60s")
	for _, path := range []string{"/login?x", "/login#x", "//login", "/%6Cogin", "/x/../login"} {
		expect(t, w.ask(t, "acme", 1, descriptor("path", path)), "OVER_LIMIT | OVER_LIMIT 1/MINUTE 0 60s")
	}
	expect(t, w.ask(t, "acme", 1, descriptor("endpoint", "/orders/{id}")), "OK | OK 1/MINUTE 0 60s")
}

// Envoy takes 60 KiB of headers from a visitor, and may send them in each descriptor and beside them.
func TestAVisitorsLongHeadersAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", window(t, 1, "user:{user_id}", 1, time.Minute))
	long := make([]*common.RateLimitDescriptor, 8)
	for i := range long {
		long[i] = descriptor("agent", strings.Repeat("x", 60<<10))
	}
	long[0] = descriptor("user_id", strings.Repeat("x", 60<<10))
	for _, want := range []rls.RateLimitResponse_Code{rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT} {
		traced := metadata.AppendToOutgoingContext(t.Context(), "tracestate", strings.Repeat("x", 60<<10))
		answer, err := w.askAs(traced, token, "acme", 1, long...)
		if err != nil || answer.GetOverallCode() != want {
			t.Errorf("answered %s, %v, want %s", answer.GetOverallCode(), err, want)
		}
	}
}

func TestGapsOfDescriptorsAreCounted(t *testing.T) {
	t.Parallel()
	gaps := make(chan gateway.Gap, 10)
	count := func(c *envoy.Config) { c.Gap = func(gap gateway.Gap) { gaps <- gap } }
	w := newWorldWith(t, count, "", window(t, 1, "user:{user_id}", 1, time.Minute))
	w.ask(t, "elsewhere", 1, descriptor("user_id", "7"))
	w.ask(t, "acme", 1, descriptor("user_id", "7"), descriptor("x", "y"))
	w.ask(t, "acme", 1, descriptor("user_id", "7"))
	close(gaps)
	var got []gateway.Gap
	for gap := range gaps {
		got = append(got, gap)
	}
	if want := []gateway.Gap{gateway.GapDomain, gateway.GapRule}; !slices.Equal(got, want) {
		t.Errorf("the gaps are %q, want %q", got, want)
	}
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
