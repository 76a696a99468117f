package adminapi

import (
	"context"
	"slices"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func (s *surface) GetStatus(ctx context.Context, _ openapi.GetStatusRequestObject) (openapi.GetStatusResponseObject,
	error,
) {
	asked := time.Now()
	reports, now, err := s.Fleet.Processes(ctx, fleet.Recent)
	if err != nil {
		return nil, err
	}
	self := s.Readiness()
	return openapi.GetStatus200JSONResponse{
		At: now,
		Database: openapi.DatabaseStatus{
			State: openapi.DatabaseStatusStateUp, LatencyMs: float64(time.Since(asked).Microseconds()) / 1000,
		},
		Admin: openapi.AdminStatus{
			Version: s.Version, StartedAt: s.started.UTC(), RulesLoaded: self.RulesLoaded,
			RulesAgeMs: orNullIf(self.RulesLoaded, self.RulesAge.Milliseconds()), Redis: openapi.RedisState(self.Redis),
		},
		Processes: itemsOf(reports, showProcess),
	}, nil
}

const statusMinutes = 5

// GetTenantStatus leaves out hosts, versions and other tenants.
func (s *surface) GetTenantStatus(ctx context.Context,
	_ openapi.GetTenantStatusRequestObject,
) (openapi.GetTenantStatusResponseObject, error) {
	reports, now, err := s.Fleet.Processes(ctx, fleet.Recent)
	if err != nil {
		return nil, err
	}
	until := now.Truncate(time.Minute)
	all := []rules.RuleID{0} // all checks
	totals, err := violations.Totals(ctx, s.Violations, requestOf(ctx).tenant.ID, all,
		until.Add(-statusMinutes*time.Minute), until)
	if err != nil {
		return nil, err
	}
	total := totals[0]
	status := openapi.TenantStatus{
		At: now, Answering: openapi.TenantStatusAnsweringDown, Redis: worstRedis(reports),
		RulesAgeMs:      nullable.NewNullNullable[int64](),
		ChecksPerSecond: float64(total.Checks()) / (statusMinutes * 60), ShareDenied: shareDenied(&total),
		DegradedShare: float64(total.Degraded) / float64(max(total.Checks(), 1)),
	}
	oldest := time.Duration(0)
	for i := range reports {
		if reports[i].RulesLoaded {
			oldest = max(oldest, reports[i].RulesAge)
			status.Answering = openapi.TenantStatusAnsweringUp
			status.RulesAgeMs.Set(oldest.Milliseconds())
		}
	}
	return openapi.GetTenantStatus200JSONResponse(status), nil
}

func worstRedis(reports []fleet.Report) openapi.RedisState {
	for _, state := range []openapi.RedisState{
		openapi.RedisStateDown, openapi.RedisStatePartial, openapi.RedisStateUnknown, openapi.RedisStateUp,
		openapi.RedisStateMemory,
	} {
		if slices.ContainsFunc(reports, func(r fleet.Report) bool { return openapi.RedisState(r.Redis) == state }) {
			return state
		}
	}
	return openapi.RedisStateUnknown
}

func showProcess(r *fleet.Report) openapi.ProcessStatus {
	return openapi.ProcessStatus{
		ProcessId: r.ID, Name: r.Name, Version: r.Version, StartedAt: r.StartedAt, ReportedAt: r.At,
		RulesLoaded: r.RulesLoaded, Rules: r.Rules, RulesAgeMs: orNullIf(r.RulesLoaded, r.RulesAge.Milliseconds()),
		Database: openapi.ProcessStatusDatabase(r.Database), Redis: openapi.RedisState(r.Redis),
		RedisDown:       append([]string{}, r.RedisDown...),
		ChecksPerSecond: r.ChecksPerSecond(), DegradedShare: r.DegradedShare(),
	}
}
