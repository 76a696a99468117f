package adminapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func (f *file) VisitExportViolationsResponse(w http.ResponseWriter) error { return f.send(w) }

var violationHeader = []string{
	"violation_id", "requested_at", "last_at", "count", "rule_id", "rule_version", "bucket_key", "scope", "mode",
	"reason",
	"key_pattern", "rate_per_second", "burst_capacity", "user_id", "ip_address", "endpoint", "method", "plan", "cost",
	"tokens_at_time", "retry_after_ms", "algorithm", "limit_text", "queue_ms", "meter",
}

func (s *surface) ExportViolations(ctx context.Context,
	request openapi.ExportViolationsRequestObject,
) (openapi.ExportViolationsResponseObject, error) {
	e, err := s.violationsExport(ctx, string(valueOf(request.Params.Format)))
	if err != nil {
		return nil, err
	}
	return s.exported(ctx, e), nil
}

func (s *surface) violationsExport(ctx context.Context, format string) (*exportRequest, error) {
	e := s.newExport(ctx, exportViolations, "violations", mediaTypes[format])
	var err error
	e.Violations, err = violationFilter(requestOf(ctx).r.URL.Query(), s.Now())
	return e, err
}

func (x *exporter) denials(ctx context.Context, tenant rules.TenantID, e *exportRequest, out *rowWriter,
	place string,
) (next string, err error) {
	before, err := placeFrom[violations.ID](place)
	if err != nil {
		return "", err
	}
	page, err := x.Violations(ctx, tenant, &e.Violations, before, exportPage)
	if err != nil {
		return "", err
	}
	for i := range page.Violations {
		shown := showViolation(&page.Violations[i])
		out.put(violationRecord(&shown), shown)
	}
	return placeText(page.Next)
}

func violationRecord(v *openapi.Violation) []string {
	return []string{
		v.ViolationId, v.RequestedAt.Format(time.RFC3339Nano), v.LastAt.Format(time.RFC3339Nano), formatInt(v.Count),
		formatInt(v.RuleId), formatInt(v.RuleVersion), v.BucketKey, string(v.Scope), string(v.Mode), string(v.Reason),
		v.KeyPattern, formatFloat(v.RatePerSecond), formatInt(v.BurstCapacity), orZero(v.UserId), orZero(v.IpAddress),
		orZero(v.Endpoint), orZero(v.Method), orZero(v.Plan), formatFloat(v.Cost),
		cell(v.TokensAtTime, formatFloat), cell(v.RetryAfterMs, formatInt), string(v.Algorithm), v.LimitText,
		cell(v.QueueMs, formatInt), v.Meter,
	}
}

func cell[T any](value nullable.Nullable[T], format func(T) string) string {
	if value.IsNull() {
		return ""
	}
	return format(orZero(value))
}

func formatFloat(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
