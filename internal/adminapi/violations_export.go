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
	"violation_id", "requested_at", "last_at", "count", "rule_id", "rule_version", "bucket_key", "scope", "mode",
	"reason",
	"key_pattern", "rate_per_second", "burst_capacity", "user_id", "ip_address", "endpoint", "method", "plan", "cost",
	"tokens_at_time", "retry_after_ms", "algorithm", "limit_text", "queue_ms",
}

// ExportViolations handles GET …/violations/export.
func (s *surface) ExportViolations(ctx context.Context,
	request openapi.ExportViolationsRequestObject,
) (openapi.ExportViolationsResponseObject, error) {
	q := requestOf(ctx)
	filter, err := violationFilter(q.r.URL.Query(), s.Now())
	if err != nil {
		return nil, err
	}
	if valueOf(request.Params.Format) == openapi.ExportViolationsParamsFormatJsonl {
		return &file{
			request: q, mediaType: "application/jsonl", name: q.tenant.Slug + "-violations.jsonl",
			write: func(w io.Writer, progress func() error) error {
				out := json.NewEncoder(w) // which ends each value with a new line
				return s.eachViolation(ctx, &filter, progress, func(row *violations.Violation) error {
					return out.Encode(showViolation(row))
				})
			},
		}, nil
	}
	return &file{
		request: q, mediaType: csvType, name: q.tenant.Slug + "-violations.csv",
		write: func(w io.Writer, progress func() error) error {
			out := csv.NewWriter(w)
			_ = out.Write(violationHeader) // Error reports all writes
			record := make([]string, 0, len(violationHeader))
			err := s.eachViolation(ctx, &filter, progress, func(row *violations.Violation) error {
				shown := showViolation(row)
				record = appendRecord(record[:0], &shown)
				return out.Write(record)
			})
			out.Flush()
			return errors.Join(err, out.Error())
		},
	}, nil
}

// eachViolation calls each for every violation of a filter, the latest first.
func (s *surface) eachViolation(
	ctx context.Context, filter *violations.Filter, progress func() error, each func(*violations.Violation) error,
) error {
	rows := 0
	for v, err := range s.Violations.AllViolations(ctx, requestOf(ctx).tenant.ID, filter) {
		if err != nil {
			return err
		}
		if err := each(&v); err != nil {
			return err
		}
		if rows++; rows%exportPage == 0 {
			if err := progress(); err != nil {
				return err
			}
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
		cell(v.TokensAtTime, formatFloat), cell(v.RetryAfterMs, formatInt), string(v.Algorithm), v.LimitText,
		cell(v.QueueMs, formatInt),
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
