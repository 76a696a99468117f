package adminapi

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/violations"
)

// VisitExportViolationsResponse makes a file an answer.
func (f *file) VisitExportViolationsResponse(w http.ResponseWriter) error { return f.send(w) }

// violationHeader names the columns of a CSV file, in the order of openapi.yaml.
var violationHeader = []string{
	"violation_id", "requested_at", "last_at", "count", "rule_id", "rule_version", "bucket_key", "scope", "mode", "reason",
	"key_pattern", "rate_per_second", "burst_capacity", "user_id", "ip_address", "endpoint", "method", "plan", "cost",
	"tokens_at_time", "retry_after_ms",
}

// ExportViolations handles GET …/violations/export.
func (s *surface) ExportViolations(ctx context.Context, request openapi.ExportViolationsRequestObject) (openapi.ExportViolationsResponseObject, error) {
	v := visitOf(ctx)
	filter, err := violationFilter(v.r.URL.Query(), s.Now())
	if err != nil {
		return nil, err
	}
	if valueOf(request.Params.Format) == openapi.ExportViolationsParamsFormatJsonl {
		return &file{"application/jsonl", v.tenant.Slug + "-violations.jsonl", func(w io.Writer, progress func()) error {
			out := json.NewEncoder(w) // which ends each value with a new line
			return s.eachViolation(ctx, &filter, progress, func(v *violations.Violation) error {
				return out.Encode(showViolation(v))
			})
		}}, nil
	}
	return &file{"text/csv; charset=utf-8", v.tenant.Slug + "-violations.csv", func(w io.Writer, progress func()) error {
		out := csv.NewWriter(w)
		_ = out.Write(violationHeader) // Error tells of all writes
		record := make([]string, 0, len(violationHeader))
		err := s.eachViolation(ctx, &filter, progress, func(v *violations.Violation) error {
			shown := showViolation(v)
			record = appendRecord(record[:0], &shown)
			return out.Write(record)
		})
		out.Flush()
		return errors.Join(err, out.Error())
	}}, nil
}

// eachViolation visits all that a filter wants, the latest first.
func (s *surface) eachViolation(
	ctx context.Context, filter *violations.Filter, progress func(), visit func(*violations.Violation) error,
) error {
	visited := 0
	for v, err := range s.Violations.AllViolations(ctx, visitOf(ctx).tenant.ID, filter) {
		if err != nil {
			return err
		}
		if err := visit(&v); err != nil {
			return err
		}
		if visited++; visited%exportPage == 0 {
			progress()
		}
	}
	return nil
}

func appendRecord(record []string, v *openapi.Violation) []string {
	record = append(record,
		v.ViolationId, v.RequestedAt.Format(time.RFC3339Nano), v.LastAt.Format(time.RFC3339Nano), formatInt(v.Count),
		formatInt(v.RuleId), formatInt(v.RuleVersion), v.BucketKey, string(v.Scope), string(v.Mode), string(v.Reason),
		v.KeyPattern, formatFloat(v.RatePerSecond), formatInt(v.BurstCapacity), orZero(v.UserId), orZero(v.IpAddress),
		orZero(v.Endpoint), orZero(v.Method), orZero(v.Plan), formatFloat(v.Cost),
		cell(v.TokensAtTime, formatFloat), cell(v.RetryAfterMs, formatInt),
	)
	for i := range record {
		record[i] = inert(record[i])
	}
	return record
}

// cell is empty for null.
func cell[T any](value nullable.Nullable[T], format func(T) string) string {
	if value.IsNull() {
		return ""
	}
	return format(orZero(value))
}

func formatFloat(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
