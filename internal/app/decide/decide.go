// Package decide wires the decision plane. It stands beside the package app so that only programs that answer checks
// link the check server.
package decide

import (
	"context"
	"log/slog"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/checkapi"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/metrics"
	"github.com/sluicegate/sluice/internal/rlsapi"
	"github.com/sluicegate/sluice/internal/tracing"
)

// NewAPI is app.NewAPI with the servers of checkapi and rlsapi, and the tracer of tracing.
func NewAPI(ctx context.Context, cfg config.Config, log *slog.Logger) (*app.API, error) {
	return app.NewAPI(ctx, cfg, app.NewServers{Check: newServer, GRPC: newGRPC, Tracer: newTracer}, log)
}

type server struct{ *checkapi.Server }

// Connections counts the connections for Prometheus.
func (s server) Connections() metrics.Connections { return metrics.Connections(s.Server.Connections()) }

func newServer(parts app.CheckParts) app.CheckServer {
	return server{checkapi.NewServer(checkapi.Config{
		Snapshots:      parts.Watcher,
		Limiter:        parts.Limiter,
		KeyUsed:        parts.KeyUsed,
		Readiness:      parts.Readiness,
		Log:            parts.Log,
		Observer:       parts.Observer,
		Tracer:         parts.Tracer,
		Tokens:         parts.Tokens,
		Reports:        parts.Reports,
		Lessor:         parts.Lessor,
		MaxConnections: parts.MaxConnections,
		TrustedProxies: parts.TrustedProxies,
		Version:        config.ReadBuild().Version,
	})}
}

func newTracer(endpoint string, log *slog.Logger) (app.Tracer, error) {
	tracer, err := tracing.New(context.Background(), endpoint, "sluice-api", config.ReadBuild().Version, log)
	if err != nil {
		return nil, err
	}
	return tracer, nil
}

type grpcServer struct{ *rlsapi.Server }

// Connections counts the connections for Prometheus.
func (s grpcServer) Connections() metrics.Connections {
	open, evicted := s.Server.Connections()
	return metrics.Connections{Open: open, Evicted: evicted}
}

func newGRPC(parts app.CheckParts) app.GRPCServer { return grpcServer{newRateLimitService(parts)} }

func newRateLimitService(parts app.CheckParts) *rlsapi.Server {
	return rlsapi.NewServer(rlsapi.Config{
		Snapshots:      parts.Watcher,
		Limiter:        parts.Limiter,
		Creditor:       parts.Creditor,
		KeyUsed:        parts.KeyUsed,
		Readiness:      parts.Readiness,
		Log:            parts.Log,
		Observer:       parts.Observer,
		Tracer:         parts.Tracer,
		MaxConnections: parts.MaxConnections,
		TrustedProxies: parts.TrustedProxies,
	})
}
