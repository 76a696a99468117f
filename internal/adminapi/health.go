package adminapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
)

func (s *surface) GetHealth(context.Context, openapi.GetHealthRequestObject) (openapi.GetHealthResponseObject, error) {
	return openapi.GetHealth200JSONResponse{Status: openapi.Ok, Version: s.Version}, nil
}

func (s *surface) GetReadiness(context.Context, openapi.GetReadinessRequestObject) (openapi.GetReadinessResponseObject,
	error,
) {
	now := s.Readiness()
	answer := openapi.Readiness{
		Status: now.Word(), RulesLoaded: now.RulesLoaded,
		RulesAgeMs: orNullIf(now.RulesLoaded, now.RulesAge.Milliseconds()),
		Database:   now.Database, Redis: now.Redis, Warnings: append([]string{}, now.Warnings...),
	}
	return readiness{answer, now.Status()}, nil
}

type readiness struct {
	openapi.Readiness
	code int
}

// VisitGetReadinessResponse answers 503 until the process is ready.
func (r readiness) VisitGetReadinessResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(r.code)
	return json.NewEncoder(w).Encode(r.Readiness)
}
