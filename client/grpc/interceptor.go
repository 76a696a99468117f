// Package sluicegrpc limits gRPC calls. The module is separate, because package sluice needs only the standard library.
//
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(sluicegrpc.Unary(limits, identify)),
//		grpc.StreamInterceptor(sluicegrpc.Stream(limits, identify)),
//	)
//
// A denied call ends with RESOURCE_EXHAUSTED and, if a wait helps, a google.rpc.RetryInfo. FailureMode Closed ends it
// with UNAVAILABLE, and an invalid check with INVALID_ARGUMENT. A stream is one call.
//
// Stop the server with grpc.WaitForHandlers or GracefulStop before closing the client, because a concurrency slot is
// released when its handler ends.
package sluicegrpc

import (
	"context"
	"net/http"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	sluice "github.com/sluicegate/sluice/client"
)

// Identify returns the check of a call, or false for a call without limits. fullMethod is /package.Service/Method,
// which suits Check.Endpoint.
type Identify func(ctx context.Context, fullMethod string) (sluice.Check, bool)

// Unary limits unary calls.
func Unary(limits *sluice.Client, identify Identify) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		release, err := enter(ctx, limits, identify, info.FullMethod)
		if err != nil {
			return nil, err
		}
		defer release()
		return handler(ctx, request)
	}
}

// Stream limits streams when they begin.
func Stream(limits *sluice.Client, identify Identify) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		release, err := enter(stream.Context(), limits, identify, info.FullMethod)
		if err != nil {
			return err
		}
		defer release()
		return handler(server, stream)
	}
}

// enter returns a function for the end of the call, or the error that ends it now.
func enter(ctx context.Context, limits *sluice.Client, identify Identify, fullMethod string) (func(), error) {
	nothing := func() {}
	check, ask := identify(ctx, fullMethod)
	if !ask {
		return nothing, nil
	}
	// The answer contains the slot to release, so the check outlives its caller.
	decision, err := limits.Check(context.WithoutCancel(ctx), check)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "the call cannot be identified")
	}
	release := nothing
	if decision.Reservation != "" {
		release = func() { limits.ReleaseLater(ctx, decision.Reservation) }
	}
	if err := denial(&decision); err != nil {
		release()
		return nil, err
	}
	if decision.Pause(ctx) != nil || ctx.Err() != nil {
		release()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return release, nil
}

func denial(d *sluice.Decision) error {
	if d.Allowed {
		return nil
	}
	code, message := codes.ResourceExhausted, "too many requests: "+d.Reason
	if d.Status == http.StatusServiceUnavailable {
		code, message = codes.Unavailable, "the limits cannot be checked"
	}
	denied := status.New(code, message)
	if d.RetryAfter > 0 {
		if detailed, err := denied.WithDetails(
			&errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryWithJitter())}); err == nil {
			denied = detailed
		}
	}
	return denied.Err()
}
