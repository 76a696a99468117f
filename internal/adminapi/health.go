package adminapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
)

// Readiness is what readyz reports; its words are those of the check API.
type Readiness struct {
	// RulesLoaded says that rules and API keys were loaded at least once, which makes the process ready.
	RulesLoaded bool
	// RulesAge is how long ago they were last known to be those of the database.
	RulesAge time.Duration
	// Database and Redis are single words, such as up, down, or memory.
	Database, Redis string
	// Warnings are sentences about what keeps limits from holding, such as a setting of Redis.
	Warnings []string
}

// GetHealth handles GET /healthz.
func (s *surface) GetHealth(context.Context, openapi.GetHealthRequestObject) (openapi.GetHealthResponseObject, error) {
	return openapi.GetHealth200JSONResponse{Status: openapi.Ok}, nil
}

// GetReadiness handles GET /readyz.
func (s *surface) GetReadiness(context.Context, openapi.GetReadinessRequestObject) (openapi.GetReadinessResponseObject, error) {
	now := s.Readiness()
	answer := readiness{
		Status: "waiting for rules", RulesLoaded: now.RulesLoaded, RulesAgeMs: nullable.NewNullNullable[int64](),
		Database: now.Database, Redis: now.Redis, Warnings: itemsOf(now.Warnings, func(w *string) string { return *w }),
	}
	if now.RulesLoaded {
		answer.Status = "ready"
		answer.RulesAgeMs.Set(now.RulesAge.Milliseconds())
	}
	return answer, nil
}

// readiness has the status that its content says.
type readiness openapi.Readiness

// VisitGetReadinessResponse answers 503 until the process is ready.
func (r readiness) VisitGetReadinessResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", jsonType)
	if !r.RulesLoaded {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	return json.NewEncoder(w).Encode(r)
}
