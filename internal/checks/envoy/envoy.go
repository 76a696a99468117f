// Package envoy answers Envoy's rate limit service, envoy.service.ratelimit.v3.RateLimitService, over gRPC.
//
// The tenant's mapping makes a check of each descriptor, and enforce.Limiter.DecideTogether takes tokens for all of a
// request or for none.
//
// A denied request is OVER_LIMIT, even where a rule fails closed, and the overall code is never UNKNOWN, which Envoy
// treats as OK. Undecided requests are gRPC errors, on which Envoy lets requests pass unless failure_mode_deny is set,
// so no value that a visitor can choose is an error.
//
// The key is checked before a message is read.
package envoy

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/sluicegate/sluice/internal/checks/door"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
)

// Config configures a Server; Gap is optional.
type Config struct {
	door.Config
	Limiter *enforce.Limiter
	// Creditor credits negative hits.
	Creditor enforce.Creditor
	// Gap counts a gap of a request; it must not block.
	Gap func(gateway.Gap)
	// MaxConnectionAge is when a client must reconnect, by default 30 minutes.
	MaxConnectionAge time.Duration
}

// The bounds of requests and connections.
const (
	MaxDescriptors = 100
	MaxEntries     = 16
	// maxMessage has room for 60 KiB of a visitor's headers in 8 descriptors.
	maxMessage = 512 << 10
	// maxMetadata has room for all headers of a visitor, and for the key.
	maxMetadata    = 80 << 10
	maxDomain      = 256
	maxConnections = 1024
	// Per connection; anonymous callers can open streams of the health service and of reflection.
	maxRequests    = 250
	maxStreams     = 4
	messageTimeout = 10 * time.Second
)

// Route is the name of the service's one method in logs and metrics.
const Route = rls.RateLimitService_ShouldRateLimit_FullMethodName

// Server is a gRPC server with the service, a health service and reflection.
type Server struct {
	Config
	telemetry   httpapi.Telemetry
	grpc        *grpc.Server
	health      *health.Server
	connections connections
	inFlight    inFlight
	ended       chan struct{} // closed when the server drains
	once        sync.Once
}

// NewServer returns a server that does not serve yet.
func NewServer(c Config) *Server {
	c.SetDefaults(maxConnections)
	if c.Gap == nil {
		c.Gap = func(gateway.Gap) {}
	}
	s := &Server{
		Config: c, telemetry: c.Telemetry(),
		health: health.NewServer(), ended: make(chan struct{}),
		connections: connections{limit: c.MaxConnections, all: map[*conn]struct{}{}},
		inFlight:    inFlight{tenants: map[rules.TenantID]int{}},
	}
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxRequests), grpc.MaxHeaderListSize(maxMetadata),
		grpc.ConnectionTimeout(10*time.Second), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(c.keepalive()), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: minPing, PermitWithoutStream: true,
		}),
		grpc.NumStreamWorkers(streamWorkers), grpc.Creds(handshake{}), grpc.ForceServerCodecV2(newCodec()),
		grpc.InTapHandle(limitMessage),
		grpc.UnaryInterceptor(s.recoverUnary), grpc.StreamInterceptor(s.limitStream),
	)
	s.grpc.RegisterService(s.describe(), s)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.showHealth()
	return s
}

// streamWorkers are goroutines that stay, because growing the stack of a new one per request took a tenth of the
// processor's time.
const streamWorkers = 128

// A client that pings more often than minPing is disconnected.
const minPing = 5 * time.Second

// Clients reconnect at times, so that they find added processes.
func (c *Config) keepalive() keepalive.ServerParameters {
	return keepalive.ServerParameters{
		MaxConnectionIdle: 15 * time.Minute, MaxConnectionAge: cmp.Or(c.MaxConnectionAge, 30*time.Minute),
		MaxConnectionAgeGrace: 10 * time.Second,
		Time:                  30 * time.Second, Timeout: 10 * time.Second,
	}
}

// Serve answers connections of the listener until Shutdown or Close. TLS is the listener's.
func (s *Server) Serve(l net.Listener) error {
	panics.Go(s.Log, "the health of gRPC", func() {
		panics.Loop(context.Background(), s.Log, "the health of gRPC", func(context.Context) { s.watchHealth() })
	})
	return s.grpc.Serve(listener{l, &s.connections})
}

// Connections returns the number of open and of evicted connections.
func (s *Server) Connections() (open int, evicted int64) {
	return s.connections.open(), s.connections.evicted.Load()
}

// Shutdown asks clients to reconnect elsewhere, and waits for the requests in flight until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	s.end()
	done := make(chan struct{})
	panics.Go(s.Log, "the end of gRPC", func() {
		defer close(done)
		s.grpc.GracefulStop()
	})
	silent := time.NewTicker(silentGrace)
	defer silent.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-silent.C:
			s.connections.closeSilent()
		case <-ctx.Done():
			return fmt.Errorf("drain gRPC: %w", context.Cause(ctx))
		}
	}
}

// silentGrace is for clients that have not begun HTTP/2, which gRPC's drain would wait for.
const silentGrace = 250 * time.Millisecond

// Close ends all connections.
func (s *Server) Close() error {
	s.grpc.Stop()
	s.end()
	return nil
}

func (s *Server) end() { s.once.Do(func() { close(s.ended) }) }

const healthEvery = 500 * time.Millisecond

func (s *Server) watchHealth() {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ended:
			return
		case <-tick.C:
			s.showHealth()
		}
	}
}

func (s *Server) showHealth() {
	word := healthpb.HealthCheckResponse_SERVING
	if r := s.Readiness(); r.Status() != http.StatusOK {
		word = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.health.SetServingStatus("", word)
	s.health.SetServingStatus(rls.RateLimitService_ServiceDesc.ServiceName, word)
}
