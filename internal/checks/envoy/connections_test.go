package envoy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/sluicegate/sluice/internal/checks/envoy"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

func both() []*common.RateLimitDescriptor {
	return []*common.RateLimitDescriptor{descriptor("user_id", "42"), descriptor("remote_address", "203.0.113.9")}
}

func (w *world) askOther(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", otherToken)
	_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx,
		&rls.RateLimitRequest{Domain: "other", Descriptors: both()}, grpc.WaitForReady(false))
	return err
}

func (w *world) dialRaw(t *testing.T) (net.Conn, *http2.Framer) {
	t.Helper()
	conn := must(net.Dial("tcp", w.addr))(t)
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, bufio.NewReader(conn))
	_ = framer.WriteSettings()
	return conn, framer
}

func isClosed(t *testing.T, conn net.Conn) bool {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	_, err := io.Copy(io.Discard, conn)
	var late net.Error
	return !errors.As(err, &late) || !late.Timeout()
}

func TestAGreedyNeighbourCannotKeepOthersOut(t *testing.T) {
	t.Parallel()
	const limit = 16
	w := newWorldWith(t, func(c *envoy.Config) { c.MaxConnections = limit }, "")
	victim := w.connect(t)
	if err := w.askOther(t, victim); err != nil {
		t.Fatal(err)
	}
	for name, greedy := range map[string]func(){
		"anonymous": func() {
			_, framer := w.dialRaw(t)
			_, _ = framer.ReadFrame() // the server has accepted the connection
		},
		"with a key": func() {
			conn := w.connect(t)
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
			_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx,
				&rls.RateLimitRequest{Domain: "acme", Descriptors: both()})
			if err != nil {
				t.Error(err)
			}
		},
		// A stream that is open counts as busy.
		"in streams": func() {
			watch, err := healthpb.NewHealthClient(w.connect(t)).Watch(t.Context(), &healthpb.HealthCheckRequest{})
			if err == nil {
				_, err = watch.Recv()
			}
			if err != nil {
				t.Error(err)
			}
		},
	} {
		_, before := w.server.Connections()
		for range 2 * limit {
			greedy()
		}
		if open, evicted := w.server.Connections(); open > limit || evicted == before {
			t.Errorf("%s: %d connections are open, %d were closed, the limit is %d", name, open, evicted-before, limit)
		}
		if err := w.askOther(t, victim); err != nil { // on its connection, which it kept
			t.Errorf("%s: the neighbour's connection: %v", name, err)
		}
		if err := w.askOther(t, w.connect(t)); err != nil {
			t.Errorf("%s: a new connection: %v", name, err)
		}
	}
}

func TestATenantsOpenRequestsLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
	open := func(conn *grpc.ClientConn) grpc.ClientStream { // a request whose message never comes
		return must(conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, envoy.Route))(t)
	}
	for range envoy.InFlightShare / 200 {
		conn := w.connect(t)
		for range 200 {
			open(conn)
		}
	}
	conn := w.connect(t)
	for range envoy.InFlightShare % 200 {
		open(conn)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := w.askAs(t.Context(), token, "acme", 1, both()...)
		if status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "in flight") {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("with %d requests in flight, one more is answered: %v", w.server.InFlight(), err)
		}
		if w.server.InFlight() == envoy.InFlightShare-1 {
			open(conn) // the request had the last place when a stream asked for it
		}
	}
	if err := w.askOther(t, w.conn); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}

func TestAnonymousCallersHoldLittle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	// Without a key the message is not read.
	stream := must(w.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, envoy.Route))(t)
	if err := stream.RecvMsg(new(rls.RateLimitResponse)); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a request without a key and a message: %v", err)
	}
	var watches []healthpb.Health_WatchClient
	for range 5 {
		watch := must(healthpb.NewHealthClient(w.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{}))(t)
		watches = append(watches, watch)
	}
	refused := 0
	for _, watch := range watches {
		if _, err := watch.Recv(); status.Code(err) == codes.ResourceExhausted {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if refused != 1 {
		t.Errorf("%d of 5 streams on a connection are refused, want 1", refused)
	}
}

func TestClientsReconnectNowAndThen(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, func(c *envoy.Config) { c.MaxConnectionAge = 50 * time.Millisecond }, "")
	var mu sync.Mutex
	dialed := 0
	conn := must(grpc.NewClient("passthrough:///"+w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			mu.Lock()
			dialed++
			mu.Unlock()
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		})))(t)
	t.Cleanup(func() { _ = conn.Close() })
	for deadline := time.Now().Add(30 * time.Second); ; {
		if err := w.askOther(t, conn); err != nil {
			t.Fatalf("a request fails when its connection ends: %v", err)
		}
		mu.Lock()
		enough := dialed > 3
		mu.Unlock()
		if enough {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the connection does not end")
		}
	}
}

func TestAClientThatPingsTooOftenIsSentAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	conn, framer := w.dialRaw(t)
	go func() {
		for range 10 {
			_ = framer.WritePing(false, [8]byte{})
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("no GOAWAY: %v", err)
		}
		if away, ok := frame.(*http2.GoAwayFrame); ok {
			if away.ErrCode != http2.ErrCodeEnhanceYourCalm || string(away.DebugData()) != "too_many_pings" {
				t.Errorf("sent away with %s %q", away.ErrCode, away.DebugData())
			}
			break
		}
	}
	if !isClosed(t, conn) {
		t.Error("the connection stays open")
	}
}

func TestAPanicIsAnErrorAndTheServerLives(t *testing.T) {
	t.Parallel()
	var once sync.Once
	w := newWorldWith(t, func(c *envoy.Config) {
		c.KeyUsed = func(*snapshot.Key, time.Time) { once.Do(func() { panic("by the test") }) }
	}, "", window(t, 1, "user:{user_id}", 1, time.Minute))
	if _, err := w.askAs(t.Context(), token, "acme", 1, both()...); status.Code(err) != codes.Unavailable ||
		strings.Contains(err.Error(), "by the test") {
		t.Errorf("a panic is answered %v", err)
	}
	expect(t, w.ask(t, "acme", 1, descriptor("user_id", "1")), "OK | OK 1/MINUTE 0 60s")
	if want := "[503 200]"; fmt.Sprint(w.seen) != want {
		t.Errorf("the observer saw %v, want %s", w.seen, want)
	}
}

func TestReflectionNamesTheServices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	stream := must(grpc_reflection_v1.NewServerReflectionClient(w.conn).ServerReflectionInfo(t.Context()))(t)
	ask := func(q *grpc_reflection_v1.ServerReflectionRequest) *grpc_reflection_v1.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(q); err != nil {
			t.Fatal(err)
		}
		return must(stream.Recv())(t)
	}
	listed := ask(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}).GetListServicesResponse().String()
	const service = "envoy.service.ratelimit.v3.RateLimitService"
	for _, name := range []string{service, "grpc.health.v1.Health"} {
		if !strings.Contains(listed, name) {
			t.Errorf("%s is not in %s", name, listed)
		}
	}
	described := ask(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service},
	})
	if len(described.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("the service is described as %v", described)
	}
}

func TestTheHealthServiceKnowsTheService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	health := healthpb.NewHealthClient(w.conn)
	for service, want := range map[string]codes.Code{
		"": codes.OK, "envoy.service.ratelimit.v3.RateLimitService": codes.OK, "nonesuch": codes.NotFound,
	} {
		answer, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if status.Code(err) != want || err == nil && answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, answer, err)
		}
	}
}

type gate struct {
	*membucket.Store
	entered chan struct{}
	open    chan struct{}
}

func (g gate) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	close(g.entered)
	<-g.open
	return g.Store.Take(ctx, checks)
}

// gRPC waits 10 s for a silent client, and asks nobody to reconnect meanwhile.
func TestASilentClientDoesNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	if err := w.askOther(t, w.conn); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", http2.ClientPreface[:3]} {
		conn := must(net.Dial("tcp", w.addr))(t)
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, text)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for open := 0; open < 3; open, _ = w.server.Connections() {
		<-tick.C
	}
	began := time.Now()
	if err := w.server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the end took %v", took)
	}
}

func TestARequestInFlightIsAnsweredBeforeTheEnd(t *testing.T) {
	t.Parallel()
	held := gate{entered: make(chan struct{}), open: make(chan struct{})}
	w := newWorldWith(t, func(c *envoy.Config) {
		held.Store = c.Creditor.(*membucket.Store)
		c.Limiter = enforce.NewLimiter(held, held.Store, silent{}, c.Now)
	}, "", window(t, 1, "user:{user_id}", 1, time.Minute))
	answered := make(chan error, 1)
	go func() {
		_, err := w.askAs(t.Context(), token, "acme", 1, both()...)
		answered <- err
	}()
	<-held.entered
	ended := make(chan error, 1)
	go func() { ended <- w.server.Shutdown(t.Context()) }()
	// The listener closes before requests are waited for.
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("tcp", w.addr)
		if err != nil {
			break
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("a server that drains accepts connections")
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the server ended with a request in flight: %v", err)
	default:
	}
	close(held.open)
	if err := <-answered; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the drain: %v", err)
	}
}
