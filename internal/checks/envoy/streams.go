package envoy

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/sluicegate/sluice/internal/jobs/panics"
)

// limitMessage: an anonymous caller's open request costs memory.
func limitMessage(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName == healthpb.Health_Check_FullMethodName {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, messageTimeout)
		context.AfterFunc(ctx, cancel) // when the request or the time ends
	}
	return ctx, nil
}

func (s *Server) recoverUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler,
) (answer any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			answer, err = nil, s.recovered(ctx, info.FullMethod, cause)
		}
	}()
	return handler(ctx, request)
}

// limitStream ends streams when the server drains, because those of the health service and of reflection never end by
// themselves.
func (s *Server) limitStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	if c := connOf(stream.Context()); c != nil {
		defer c.streams.Add(-1)
		if c.streams.Add(1) > maxStreams {
			return status.Errorf(codes.ResourceExhausted, "A connection may have %d streams of this kind.", maxStreams)
		}
	}
	done := make(chan error, 1)
	panics.Go(s.Log, "a stream", func() {
		defer func() {
			if cause := recover(); cause != nil {
				done <- s.recovered(stream.Context(), info.FullMethod, cause)
			}
		}()
		done <- handler(service, stream)
	})
	select {
	case err := <-done:
		return err
	case <-s.ended:
		return status.Error(codes.Unavailable, "This process ends; connect to another.")
	}
}
