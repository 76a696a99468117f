// Package decide wires the decision plane. It stands beside the package app so that only programs that answer checks
// link the check server.
package decide

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/checkapi"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/metrics"
	"github.com/sluicegate/sluice/internal/rlsapi"
	"github.com/sluicegate/sluice/internal/tracing"
)

// NewAPI is app.NewAPI with the servers of checkapi and rlsapi.
func NewAPI(ctx context.Context, cfg config.Config, log *slog.Logger) (*app.API, error) {
	return app.NewAPI(ctx, cfg, app.NewServers{Check: newServer, GRPC: newGRPC}, log)
}

type server struct {
	*checkapi.Server
	tracer *tracing.Tracer // or nil
}

// Connections counts the connections for Prometheus.
func (s server) Connections() metrics.Connections { return metrics.Connections(s.Server.Connections()) }

// Shutdown also sends the last spans.
func (s server) Shutdown(ctx context.Context) error {
	err := s.Server.Shutdown(ctx)
	if s.tracer != nil {
		limited, cancel := context.WithTimeout(ctx, lastSpans)
		defer cancel()
		_ = s.tracer.Close(limited) // those for a collector that is away are lost
	}
	return err
}

// lastSpans is how long a shutdown waits for the collector.
const lastSpans = time.Second

func newServer(parts app.CheckParts) (app.CheckServer, error) {
	config := checkapi.Config{
		Snapshots:      parts.Watcher,
		Limiter:        parts.Limiter,
		KeyUsed:        parts.KeyUsed,
		Readiness:      parts.Readiness,
		Log:            parts.Log,
		Observer:       parts.Observer,
		Tokens:         parts.Tokens,
		MaxConnections: parts.MaxConnections,
		Version:        config.ReadBuild().Version,
	}
	var tracer *tracing.Tracer
	if parts.TraceEndpoint != "" {
		var err error
		if tracer, err = tracing.New(context.Background(), parts.TraceEndpoint, "sluice-api", config.Version, parts.Log); err != nil {
			return nil, err
		}
		config.Tracer = tracer
	}
	return server{checkapi.NewServer(config), tracer}, nil
}

func newGRPC(parts app.CheckParts) app.Server {
	return rlsapi.NewServer(rlsapi.Config{
		Snapshots:      parts.Watcher,
		Limiter:        parts.Limiter,
		Creditor:       parts.Creditor,
		KeyUsed:        parts.KeyUsed,
		Readiness:      parts.Readiness,
		Log:            parts.Log,
		Observer:       parts.Observer,
		MaxConnections: parts.MaxConnections,
	})
}
