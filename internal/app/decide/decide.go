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
)

// NewAPI is app.NewAPI with the check server of checkapi.
func NewAPI(ctx context.Context, cfg config.Config, log *slog.Logger) (*app.API, error) {
	return app.NewAPI(ctx, cfg, newServer, log)
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
		Tokens:         parts.Tokens,
		MaxConnections: parts.MaxConnections,
		Version:        config.ReadBuild().Version,
	})}
}
