package decide

import (
	"time"

	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/checks/door"
	"github.com/sluicegate/sluice/internal/checks/envoy"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules/gateway"
	"github.com/sluicegate/sluice/internal/telemetry/metrics"
)

const grpcShare = 4 // one in so many connections, each with many requests at once

func (a *API) newServers(observer enforce.Observer) (err error) {
	connections, overGRPC := checkConnections(a.Config.CheckMaxConnections, a.Log), 0
	if a.Config.GRPCAddr != "" {
		overGRPC = connections / grpcShare
		connections -= overGRPC
	}
	requests, count := a.Metrics.Requests("check"), a.Metrics.GatewayGaps(gateway.Gaps())
	gap := func(gap gateway.Gap) { count(string(gap)) }
	checks := a.newCheckServer(connections, observer, requests, gap)
	a.Metrics.CheckConnections(connections,
		func() metrics.Connections { return metrics.Connections(checks.Connections()) })
	if a.checks, err = a.NewListener("check", a.Config.CheckAddr, a.Config.CheckCerts(), checks); err != nil {
		return err
	}
	if a.Config.GRPCAddr == "" {
		return nil
	}
	service := a.newRateLimitService(overGRPC, requests, gap)
	a.Metrics.GRPCConnections(overGRPC, func() metrics.Connections {
		open, evicted := service.Connections()
		return metrics.Connections{Open: open, Evicted: evicted}
	})
	a.grpc, err = a.NewListener("grpc", a.Config.GRPCAddr, a.Config.GRPCCerts(), service, "h2")
	return err
}

func (a *API) newCheckServer(
	connections int, observer enforce.Observer, requests httpapi.Observer, gap func(gateway.Gap),
) *checkapi.Server {
	lessor := enforce.NewLessor(a.Buckets.Lender(), observer, time.Now, func(err error) {
		a.Log.Debug("tokens were not lent to a client", "error", err)
	})
	lessor.LendWhile(a.Buckets.Lends)
	a.Metrics.Lessor(lessor.Stats)
	return checkapi.NewServer(checkapi.Config{
		Config:  a.doorConfig(connections, requests),
		Limiter: a.limiter,
		Gap:     gap,
		Tokens:  a.tokens,
		Reports: a.reports,
		Lessor:  lessor,
		Version: config.ReadBuild().Version,
	})
}

func (a *API) newRateLimitService(
	connections int, requests httpapi.Observer, gap func(gateway.Gap),
) *envoy.Server {
	return envoy.NewServer(envoy.Config{
		Config:   a.doorConfig(connections, requests),
		Limiter:  a.limiter,
		Creditor: a.Buckets.Creditor(),
		Gap:      gap,
	})
}

func (a *API) doorConfig(connections int, requests httpapi.Observer) door.Config {
	return door.Config{
		Snapshots:      a.Watcher,
		KeyUsed:        a.KeyUses.Note,
		Readiness:      a.Readiness,
		Log:            a.Log,
		Observer:       requests,
		Tracer:         a.requestTracer(),
		MaxConnections: connections,
		TrustedProxies: a.Config.TrustedProxies,
	}
}

// requestTracer returns an untyped nil if nothing is traced.
func (a *API) requestTracer() httpapi.Tracer {
	if a.tracer == nil {
		return nil
	}
	return a.tracer
}
