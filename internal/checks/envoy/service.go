package envoy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules/gateway"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// describe has a handler that checks the key before it reads the message.
func (s *Server) describe() *grpc.ServiceDesc {
	description := rls.RateLimitService_ServiceDesc
	description.HandlerType = (*any)(nil)
	description.Methods = []grpc.MethodDesc{{
		MethodName: description.Methods[0].MethodName,
		Handler: func(_ any, ctx context.Context, receive func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return s.handle(ctx, receive)
		},
	}}
	return &description
}

func (s *Server) handle(ctx context.Context, receive func(any) error) (answer *rls.RateLimitResponse, err error) {
	start, inFlight := time.Now(), s.telemetry.Begin(Route, details{ctx})
	defer func() {
		if cause := recover(); cause != nil {
			answer, err = nil, s.recovered(ctx, Route, cause)
		}
		inFlight.End(ctx, httpStatus(answer, err))
	}()
	key, tenant, err := s.authorize(ctx)
	if err != nil {
		return nil, err
	}
	if c := connOf(ctx); c != nil {
		c.begin(tenant.Tenant.ID, start)
		defer c.end()
	}
	if !s.inFlight.take(tenant.Tenant.ID) {
		return nil, status.Error(codes.Unavailable,
			"Too many requests of this tenant are in flight; send fewer at once.")
	}
	defer s.inFlight.release(tenant.Tenant.ID)
	r := requests.Get().(*request)
	defer r.release()
	if err := receive(r); err != nil {
		return nil, err
	}
	return s.shouldRateLimit(ctx, key, tenant, r)
}

func (s *Server) recovered(ctx context.Context, route string, cause any) error {
	s.telemetry.LogPanic(ctx, route, details{ctx}, cause)
	return status.Error(codes.Unavailable, "The request failed; see the server's log.")
}

type details struct{ ctx context.Context }

func (details) Method() string    { return http.MethodPost } // of HTTP/2
func (details) RequestID() string { return "" }

func (d details) RequestHeader(name string) string {
	if values := metadata.ValueFromIncomingContext(d.ctx, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

func httpStatus(answer *rls.RateLimitResponse, err error) int {
	switch status.Code(err) {
	case codes.OK:
		if answer.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
			return http.StatusTooManyRequests
		}
		return http.StatusOK
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.InvalidArgument, codes.Internal: // gRPC's code for an unreadable message
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

func (s *Server) shouldRateLimit(
	ctx context.Context, key *snapshot.Key, tenant *snapshot.Tenant, r *request,
) (*rls.RateLimitResponse, error) {
	if err := checkBounds(r); err != nil {
		return nil, err
	}
	mapping, err := tenant.Descriptors()
	if err != nil {
		s.Log.ErrorContext(ctx, "descriptors of a tenant cannot be mapped; upgrade this process", "tenant",
			tenant.Tenant.Slug, "error", err)
		return nil, status.Error(codes.Unavailable,
			"This process cannot read the tenant's mapping, which a newer version wrote.")
	}
	if !mapping.Answers(tenant.Tenant.Slug, r.domain) {
		s.Gap(gateway.GapDomain)
		return &newAnswer(len(r.descriptors)).RateLimitResponse, nil
	}
	asked := questions.Get().(*question)
	defer asked.release()
	if err := asked.read(r, tenant, mapping); err != nil {
		return nil, err
	}
	if len(asked.refunded.checks) > 0 && !slices.Contains(key.Permissions, auth.PermissionRefund) {
		return nil, status.Error(codes.PermissionDenied,
			"Negative hits need an API key with the permission "+string(auth.PermissionRefund)+".")
	}
	if len(asked.recorded.checks) > 0 && !slices.Contains(key.Permissions, auth.PermissionReport) {
		return nil, status.Error(codes.PermissionDenied,
			"Hits that the mapping records need an API key with the permission "+string(auth.PermissionReport)+".")
	}
	return s.decide(ctx, tenant, asked, newAnswer(len(r.descriptors)))
}

// decide charges records whether the checks pass or not, and makes refunds if they do.
func (s *Server) decide(
	ctx context.Context, tenant *snapshot.Tenant, asked *question, answer *answer,
) (*rls.RateLimitResponse, error) {
	now := s.Now()
	allowed, err := s.decidePart(ctx, tenant, &asked.asked, answer)
	if err != nil {
		return nil, err
	}
	if !allowed {
		answer.OverallCode = rls.RateLimitResponse_OVER_LIMIT
	}
	switch recorded, err := s.decidePart(ctx, tenant, &asked.recorded, answer); {
	case err != nil:
		return nil, err
	case !recorded && allowed: // on an error, Envoy lets a denied request pass
		return nil, status.Error(codes.Unavailable, "The buckets did not answer in time; hits may not be recorded.")
	}
	for i := range asked.refunded.checks {
		if !allowed {
			break // nothing is given back; the statuses of refunds stay OK, without limits
		}
		given, err := s.Limiter.Refund(ctx, s.Creditor, tenant, &asked.refunded.checks[i])
		if err != nil {
			s.Log.WarnContext(ctx, "hits were not given back", "tenant", tenant.Tenant.Slug, "error", err)
			return nil, status.Error(codes.Unavailable,
				"The buckets did not answer in time; some hits may have been given back.")
		}
		given.Allowed = true
		answer.statuses[asked.refunded.indexes[i]].describe(&given, now)
	}
	answer.ResponseHeadersToAdd = asked.headers(tenant, now)
	return &answer.RateLimitResponse, nil
}

func (s *Server) decidePart(ctx context.Context, tenant *snapshot.Tenant, p *part, answer *answer) (bool, error) {
	if len(p.checks) == 0 {
		return true, nil
	}
	decisions := p.decisions[:len(p.checks)]
	allowed, err := s.Limiter.DecideTogether(ctx, tenant, p.checks, decisions)
	if errors.Is(err, enforce.ErrTooManyBuckets) {
		return false, invalid("the descriptors reach more than %d buckets; send fewer descriptors, or have fewer "+
			"rules meet them", enforce.MaxTogether)
	}
	for i := range decisions {
		if d := &decisions[i]; len(d.Tiers) == 0 && d.Allowed && !d.Degraded {
			s.Gap(gateway.GapRule)
		}
		if d := &decisions[i]; d.Allowed || !d.Record { // records are never denied
			answer.statuses[p.indexes[i]].describe(d, s.Now())
		}
	}
	return allowed, nil
}

func (s *Server) authorize(ctx context.Context) (*snapshot.Key, *snapshot.Tenant, error) {
	lines := metadata.ValueFromIncomingContext(ctx, "authorization")
	key, tenant, err := s.Authorize(lines, auth.PermissionCheck, func() (netip.Addr, []string) {
		from, ok := peer.FromContext(ctx)
		if !ok {
			return netip.Addr{}, nil
		}
		addr, err := netip.ParseAddrPort(from.Addr.String())
		if err != nil {
			return netip.Addr{}, nil
		}
		return addr.Addr(), metadata.ValueFromIncomingContext(ctx, "x-forwarded-for")
	})
	var refused *httpapi.Problem
	if !errors.As(err, &refused) {
		return key, tenant, err
	}
	code := codes.Unavailable
	switch refused.Status {
	case http.StatusUnauthorized:
		code = codes.Unauthenticated
	case http.StatusForbidden:
		code = codes.PermissionDenied
	}
	return nil, nil, status.Error(code, refused.Detail)
}

func invalid(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return status.Error(codes.InvalidArgument, strings.ToUpper(text[:1])+text[1:]+".")
}
