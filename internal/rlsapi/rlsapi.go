// Package rlsapi answers Envoy's rate limit service, envoy.service.ratelimit.v3.RateLimitService, over gRPC.
//
// The key in the metadata authorization names the tenant, whose mapping (see gateway.Descriptors) makes a check of each
// descriptor. All descriptors of a request are decided as one, by enforce.Limiter.DecideTogether: tokens are taken for all of
// them or for none. Statuses stand in the order of the descriptors.
//
// A denied request is OVER_LIMIT, also where a rule fails closed. The overall code is never UNKNOWN, which Envoy takes for
// OK. What cannot be decided is an error of gRPC: UNAUTHENTICATED, PERMISSION_DENIED, INVALID_ARGUMENT, or UNAVAILABLE.
// Envoy lets requests pass on errors unless failure_mode_deny is set, so no value that a visitor can choose is an error.
package rlsapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// Config has the parts of the server. Observer, KeyUsed and Now are optional.
type Config struct {
	// Snapshots is a *snapshot.Watcher.
	Snapshots Snapshots
	Limiter   *enforce.Limiter
	// Creditor takes what negative hits give back.
	Creditor enforce.Creditor
	// Readiness must not block. The health service says what it does.
	Readiness func() httpapi.Readiness
	Log       *slog.Logger
	// Observer is told of every request, with the status that HTTP would have.
	Observer httpapi.Observer
	// KeyUsed is told of each authenticated request; it must not block.
	KeyUsed func(key *snapshot.Key, at time.Time)
	// Now judges when keys expire; nil is time.Now.
	Now func() time.Time
	// MaxConnections caps the open connections; 0 is 1024.
	MaxConnections int
}

// Snapshots has the latest rules in memory, or nil while none were ever loaded.
type Snapshots interface {
	Snapshot() *snapshot.Snapshot
}

// The bounds of requests and connections.
const (
	MaxDescriptors = 100
	MaxEntries     = 16
	maxMessage     = 256 << 10
	maxDomain      = 256
	maxStreams     = 1000
	maxConnections = 1024
)

// Route is the name of the service's one method in logs and metrics.
const Route = rls.RateLimitService_ShouldRateLimit_FullMethodName

// Server is a gRPC server with the service, a health service and reflection.
type Server struct {
	rls.UnimplementedRateLimitServiceServer
	Config
	grpc   *grpc.Server
	health *health.Server
	ended  chan struct{} // closed when the server drains
	once   sync.Once
}

// NewServer returns a server that does not serve yet.
func NewServer(c Config) *Server {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.KeyUsed == nil {
		c.KeyUsed = func(*snapshot.Key, time.Time) {}
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = maxConnections
	}
	s := &Server{Config: c, health: health.NewServer(), ended: make(chan struct{})}
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(16<<10),
		grpc.ConnectionTimeout(10*time.Second), grpc.WaitForHandlers(true),
		// Clients that reconnect now and then find processes that were added.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 15 * time.Minute, MaxConnectionAge: 30 * time.Minute, MaxConnectionAgeGrace: 10 * time.Second,
			Time: 30 * time.Second, Timeout: 10 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.intercept), grpc.StreamInterceptor(s.endWithDrain),
	)
	rls.RegisterRateLimitServiceServer(s.grpc, s)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.showHealth()
	return s
}

// Serve answers connections of the listener until Shutdown or Close. TLS is the listener's.
func (s *Server) Serve(l net.Listener) error {
	go s.watchHealth()
	return s.grpc.Serve(netutil.LimitListener(l, s.MaxConnections))
}

// Shutdown accepts no more connections, asks clients to go elsewhere, and waits for the requests in flight until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	s.end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain gRPC: %w", context.Cause(ctx))
	}
}

// Close ends all connections.
func (s *Server) Close() error {
	s.grpc.Stop()
	s.end()
	return nil
}

func (s *Server) end() { s.once.Do(func() { close(s.ended) }) }

// endWithDrain ends a stream when the server drains: those of the health service and of reflection never end by themselves.
func (s *Server) endWithDrain(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				s.Log.Error("panic", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
				done <- status.Error(codes.Unavailable, "The request failed; the log of the server says why.")
			}
		}()
		done <- handler(service, stream)
	}()
	select {
	case err := <-done:
		return err
	case <-s.ended:
		return status.Error(codes.Unavailable, "This process ends; connect to another.")
	}
}

// healthEvery is how often the health service learns of the process's readiness.
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
	if r := s.Readiness(); r.Draining || !r.RulesLoaded {
		word = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.health.SetServingStatus("", word)
	s.health.SetServingStatus(rls.RateLimitService_ServiceDesc.ServiceName, word)
}

// intercept tells the observer of requests to the service, and turns panics into errors.
func (s *Server) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	start := time.Now()
	defer func() {
		if cause := recover(); cause != nil {
			s.Log.ErrorContext(ctx, "panic", "route", info.FullMethod, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			answer, err = nil, status.Error(codes.Unavailable, "The request failed; the log of the server says why.")
		}
		if info.FullMethod != Route {
			return
		}
		word := httpStatus(answer, err)
		if s.Observer != nil {
			s.Observer.RequestAnswered(Route, word, time.Since(start))
		}
		if s.Log.Enabled(ctx, slog.LevelDebug) {
			s.Log.DebugContext(ctx, "request", "route", Route, "status", word, "took", time.Since(start))
		}
	}()
	return handler(ctx, request)
}

// httpStatus is the status that the answer would have over HTTP.
func httpStatus(answer any, err error) int {
	switch status.Code(err) {
	case codes.OK:
		if a, ok := answer.(*rls.RateLimitResponse); ok && a.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
			return http.StatusTooManyRequests
		}
		return http.StatusOK
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.InvalidArgument:
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// ShouldRateLimit implements the service.
func (s *Server) ShouldRateLimit(ctx context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	key, tenant, err := s.authorize(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkBounds(request); err != nil {
		return nil, err
	}
	mapping, err := tenant.Descriptors()
	if err != nil {
		s.Log.ErrorContext(ctx, "descriptors of a tenant cannot be mapped; upgrade this process", "tenant", tenant.Tenant.Slug, "error", err)
		return nil, status.Error(codes.Unavailable, "This process cannot read the tenant's mapping, which a newer version wrote.")
	}
	if !mapping.Answers(tenant.Tenant.Slug, request.GetDomain()) {
		return withoutLimits(len(request.GetDescriptors())), nil
	}
	asked, err := read(request, tenant, mapping)
	if err != nil {
		return nil, err
	}
	if len(asked.refunds) > 0 && !slices.Contains(key.Permissions, auth.PermissionRefund) {
		return nil, status.Error(codes.PermissionDenied, "Negative hits need an API key with the permission "+string(auth.PermissionRefund)+".")
	}
	return s.decide(ctx, tenant, asked)
}

// decide takes for all checks together and, if they pass, gives back what the refunds say.
func (s *Server) decide(ctx context.Context, tenant *snapshot.Tenant, asked *question) (*rls.RateLimitResponse, error) {
	decisions := make([]enforce.Decision, len(asked.checks))
	allowed, err := s.Limiter.DecideTogether(ctx, tenant, asked.checks, decisions)
	if errors.Is(err, enforce.ErrTooManyBuckets) {
		return nil, invalid("the descriptors reach more than %d buckets; send fewer descriptors, or have fewer rules meet them", enforce.MaxTogether)
	}
	answer := &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK,
		Statuses:    make([]*rls.RateLimitResponse_DescriptorStatus, len(asked.checks)+len(asked.refunds)),
	}
	if !allowed {
		answer.OverallCode = rls.RateLimitResponse_OVER_LIMIT
	}
	for i := range decisions {
		answer.Statuses[asked.places[i]] = statusOf(&decisions[i])
	}
	for i := range asked.refunds {
		d := new(enforce.Decision)
		if allowed {
			given, err := s.Limiter.Refund(ctx, s.Creditor, tenant, &asked.refunds[i])
			if err != nil {
				s.Log.WarnContext(ctx, "hits were not given back", "tenant", tenant.Tenant.Slug, "error", err)
				return nil, status.Error(codes.Unavailable, "The buckets did not answer in time; some hits may have been given back.")
			}
			d = &given
		}
		d.Allowed = true
		answer.Statuses[asked.refundPlaces[i]] = statusOf(d)
	}
	answer.ResponseHeadersToAdd = headersOf(tenant, asked.checks, decisions, s.Now())
	return answer, nil
}

// authorize returns the tenant of the key, if that may ask.
func (s *Server) authorize(ctx context.Context) (*snapshot.Key, *snapshot.Tenant, error) {
	rules := s.Snapshots.Snapshot()
	if rules == nil {
		return nil, nil, status.Error(codes.Unavailable, "No rules were loaded yet; try again in a second.")
	}
	now := s.Now()
	key, tenant, refusal := rules.Authenticate(metadata.ValueFromIncomingContext(ctx, "authorization"), now)
	if refusal != "" {
		return nil, nil, status.Error(codes.Unauthenticated, refusal)
	}
	s.KeyUsed(key, now)
	switch {
	case tenant.Tenant.Suspended:
		return nil, nil, status.Error(codes.PermissionDenied,
			"No checks are answered for this tenant until an administrator lifts the suspension.")
	case !slices.Contains(key.Permissions, auth.PermissionCheck):
		return nil, nil, status.Error(codes.PermissionDenied, "Use an API key with the permission "+string(auth.PermissionCheck)+".")
	}
	return key, tenant, nil
}

func invalid(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return status.Error(codes.InvalidArgument, strings.ToUpper(text[:1])+text[1:]+".")
}

func withoutLimits(descriptors int) *rls.RateLimitResponse {
	answer := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	for range descriptors {
		answer.Statuses = append(answer.Statuses, &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK})
	}
	return answer
}
