package adminapi

import (
	"context"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/fleet"
)

// GetStatus handles GET /status.
func (s *surface) GetStatus(ctx context.Context, _ openapi.GetStatusRequestObject) (openapi.GetStatusResponseObject, error) {
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
			RulesAgeMs: ageOrNull(self.RulesLoaded, self.RulesAge), Redis: openapi.RedisState(self.Redis),
		},
		Processes: itemsOf(reports, showProcess),
	}, nil
}

func showProcess(r *fleet.Report) openapi.ProcessStatus {
	return openapi.ProcessStatus{
		ProcessId: r.ID, Name: r.Name, Version: r.Version, StartedAt: r.StartedAt, ReportedAt: r.At,
		RulesLoaded: r.RulesLoaded, Rules: r.Rules, RulesAgeMs: ageOrNull(r.RulesLoaded, r.RulesAge),
		Database: openapi.ProcessStatusDatabase(r.Database), Redis: openapi.RedisState(r.Redis),
		RedisDown:       itemsOf(r.RedisDown, func(addr *string) string { return *addr }),
		ChecksPerSecond: r.ChecksPerSecond(), DegradedShare: r.DegradedShare(),
	}
}

// ageOrNull is null while there are no rules to have an age.
func ageOrNull(loaded bool, age time.Duration) nullable.Nullable[int64] {
	if !loaded {
		return nullable.NewNullNullable[int64]()
	}
	return nullable.NewNullableWithValue(age.Milliseconds())
}
