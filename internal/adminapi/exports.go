package adminapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// What exports have.
const (
	exportViolations = "violations"
	exportAudit      = "audit"
	exportUsers      = "users"
	exportRuleUsage  = "usage_by_rule"
	exportUserUsage  = "usage_by_user"
	exportUserData   = "user_data"
)

const linesType = "application/jsonl"

var mediaTypes = map[string]string{"": csvType, "csv": csvType, "jsonl": linesType}

// exportRequest is stored as JSON in the table export.
type exportRequest struct {
	What      string    `json:"what"`
	Name      string    `json:"name"` // of the file
	MediaType string    `json:"media_type"`
	Least     access    `json:"least"` // the least role that may ask for it and read it
	At        time.Time `json:"at"`    // when it was asked for

	Violations violations.Filter `json:"violations,omitzero"`
	Audit      auth.AuditFilter  `json:"audit,omitzero"`
	Plan       string            `json:"plan,omitempty"`
	Prefix     string            `json:"prefix,omitempty"` // of user ids
	UserID     string            `json:"user_id,omitempty"`
	Months     []time.Time       `json:"months,omitempty"`
}

func (s *surface) newExport(ctx context.Context, what, name, mediaType string) *exportRequest {
	q := requestOf(ctx)
	ending := ".csv"
	if mediaType == linesType {
		ending = ".jsonl"
	}
	return &exportRequest{
		What: what, Name: q.tenant.Slug + "-" + name + ending, MediaType: mediaType, Least: q.route.least,
		At: s.Now().UTC(),
	}
}

type exporter struct {
	Stores
	violations.Store
}

func (s *surface) exporter() *exporter { return &exporter{s.Stores, s.Violations} }

// WriteExports returns the writer of the files that jobs make.
func WriteExports(stores Stores, found violations.Store) pgstore.WriteExport {
	x := &exporter{stores, found}
	return func(ctx context.Context, tenant rules.TenantID, request []byte, w io.Writer, place string) (int, string,
		error,
	) {
		var e exportRequest
		if err := json.Unmarshal(request, &e); err != nil {
			return 0, "", fmt.Errorf("read the request of an export: %w", err)
		}
		return x.page(ctx, tenant, &e, w, place)
	}
}

func (x *exporter) page(ctx context.Context, tenant rules.TenantID, e *exportRequest, w io.Writer, place string) (
	rows int, next string, err error,
) {
	if e.What == exportUserData {
		return x.userData(ctx, tenant, e, w, place)
	}
	table, ok := map[string]struct {
		header []string
		page   func(context.Context, rules.TenantID, *exportRequest, *rowWriter, string) (string, error)
	}{
		exportViolations: {violationHeader, x.denials},
		exportAudit:      {auditHeader, x.audit},
		exportUsers:      {usersHeader, x.users},
		exportRuleUsage:  {ruleUsageHeader, x.ruleUsage},
		exportUserUsage:  {userUsageHeader, x.userUsage},
	}[e.What]
	if !ok {
		return 0, "", fmt.Errorf("there is no export of %q", e.What)
	}
	out := &rowWriter{}
	if e.MediaType == linesType {
		out.json = json.NewEncoder(w) // which ends each value with a new line
	} else if out.csv = csv.NewWriter(w); place == "" {
		out.err = out.csv.Write(table.header)
	}
	next, err = table.page(ctx, tenant, e, out, place)
	if err != nil {
		return 0, "", err
	}
	return out.rows, next, out.end()
}

type rowWriter struct {
	csv  *csv.Writer
	json *json.Encoder
	rows int
	err  error
}

func (o *rowWriter) put(cells []string, value any) {
	if o.err != nil {
		return
	}
	o.rows++
	if o.json != nil {
		o.err = o.json.Encode(value)
		return
	}
	for i := range cells {
		cells[i] = escapeFormulas(cells[i])
	}
	o.err = o.csv.Write(cells)
}

func (o *rowWriter) end() error {
	if o.csv == nil {
		return o.err
	}
	o.csv.Flush()
	return errors.Join(o.err, o.csv.Error())
}

func placeText[T comparable](place T) (string, error) {
	var zero T
	if place == zero {
		return "", nil
	}
	text, err := json.Marshal(place)
	return string(text), err
}

func placeFrom[T comparable](text string) (place T, err error) {
	if text == "" {
		return place, nil
	}
	err = json.Unmarshal([]byte(text), &place)
	return place, err
}

func (s *surface) start(ctx context.Context, e *exportRequest) (started openapi.ExportStartedJSONResponse, err error) {
	q := requestOf(ctx)
	request, err := json.Marshal(e)
	if err != nil {
		return started, err
	}
	export, err := s.store(ctx).RequestExport(ctx, q.tenant.ID, request)
	if errors.Is(err, rules.ErrTooManyExports) {
		return started, httpapi.Conflict.Problem(fmt.Sprintf(
			"A tenant has at most %d exports under way, a caller %d. Wait until one has finished.",
			rules.MaxOpenExports, rules.MaxOwnExports))
	}
	if err != nil {
		return started, err
	}
	address := exportAddress(q, export.ID)
	return openapi.ExportStartedJSONResponse{
		Body: showExport(q, &export, e), Headers: openapi.ExportStartedResponseHeaders{Location: &address},
	}, nil
}

func exportAddress(q *apiRequest, id int64) string {
	return location("tenants/%s/exports/%s", q.tenant.Slug, id)
}

func showExport(q *apiRequest, export *rules.Export, e *exportRequest) openapi.Export {
	shown := openapi.Export{
		ExportId: openapi.ID(export.ID), What: openapi.ExportWhat(e.What), Name: e.Name,
		RequestedAt: export.RequestedAt,
		FinishedAt:  orNull(export.FinishedAt), ExpiresAt: orNull(time.Time{}), Rows: export.Rows, Error: export.Error,
		NextTryAt: orNull(export.NextTryAt), File: orNull(""),
	}
	if !export.FinishedAt.IsZero() {
		shown.ExpiresAt = orNull(export.FinishedAt.Add(rules.ExportKept))
	}
	if export.IsReady() {
		shown.File = orNull(exportAddress(q, export.ID) + "/file")
	}
	return shown
}

// ownExport checks a person's role again, which may have changed; a key's permissions cannot.
func (s *surface) ownExport(ctx context.Context, id int64) (rules.Export, *exportRequest, error) {
	q, e := requestOf(ctx), &exportRequest{}
	export, err := s.Stores.Export(ctx, q.tenant.ID, id)
	isOwn := export.By.Kind == q.actor.Kind && export.By.ID == q.actor.ID
	if errors.Is(err, rules.ErrNotFound) || err == nil && !isOwn {
		return export, e, httpapi.NotFound.Problem(
			"You have no such export. It expired, a later one replaced it, or a user of the tenant was erased since. " +
				"Export again.")
	}
	if err != nil {
		return export, e, err
	}
	if err := json.Unmarshal(export.Request, e); err != nil {
		return export, e, fmt.Errorf("read the request of export %d: %w", id, err)
	}
	if q.key == nil {
		err = q.judge(e.Least, "", true)
	}
	return export, e, err
}

func (s *surface) GetExport(ctx context.Context, request openapi.GetExportRequestObject,
) (openapi.GetExportResponseObject, error) {
	export, e, err := s.ownExport(ctx, int64(request.ExportId))
	return openapi.GetExport200JSONResponse(showExport(requestOf(ctx), &export, e)), err
}

func (f *file) VisitDownloadExportResponse(w http.ResponseWriter) error { return f.send(w) }

func (s *surface) DownloadExport(ctx context.Context, request openapi.DownloadExportRequestObject,
) (openapi.DownloadExportResponseObject, error) {
	export, e, err := s.ownExport(ctx, int64(request.ExportId))
	switch {
	case err != nil:
		return nil, err
	case export.FinishedAt.IsZero():
		return nil, httpapi.Conflict.Problem("The file is not complete yet. Wait until finished_at is set.")
	case !export.IsReady():
		return nil, httpapi.Conflict.Problem("There is no file. " + export.Error)
	}
	q := requestOf(ctx)
	return &file{
		request: q, leastRate: s.LeastDownloadRate, mediaType: e.MediaType, name: e.Name,
		write: func(w io.Writer) error {
			for number := range export.Chunks {
				chunk, err := s.Stores.ExportChunk(ctx, q.tenant.ID, export.ID, number)
				if err != nil {
					return err
				}
				text, err := gzip.NewReader(bytes.NewReader(chunk))
				if err != nil {
					return err
				}
				if _, err := io.Copy(w, text); err != nil { //nolint:gosec // our own data
					return err
				}
				if err := s.mayStillRead(q, e); err != nil { //nolint:contextcheck // it has the request's
					return err
				}
			}
			return nil
		},
	}, nil
}

// mayStillRead returns an error if the caller has lost access since a download began, which may be hours ago.
func (s *surface) mayStillRead(q *apiRequest, e *exportRequest) error {
	again := q.again()
	if err := s.admit(again); err != nil || again.key != nil {
		return err
	}
	return again.judge(e.Least, "", true)
}

func (s *surface) StartViolationsExport(ctx context.Context, request openapi.StartViolationsExportRequestObject,
) (openapi.StartViolationsExportResponseObject, error) {
	e, err := s.violationsExport(ctx, string(valueOf(request.Params.Format)))
	if err != nil {
		return nil, err
	}
	started, err := s.start(ctx, e)
	return openapi.StartViolationsExport202JSONResponse{ExportStartedJSONResponse: started}, err
}

func (s *surface) StartAuditExport(ctx context.Context, request openapi.StartAuditExportRequestObject,
) (openapi.StartAuditExportResponseObject, error) {
	p := request.Params
	filter, err := auditFilter(p.From, p.Until, p.ActorId, p.Action, p.ObjectKind, p.ObjectId, p.ChangeId,
		p.RequestId)
	if err != nil {
		return nil, err
	}
	started, err := s.start(ctx, s.auditExport(ctx, string(valueOf(p.Format)), filter))
	return openapi.StartAuditExport202JSONResponse{ExportStartedJSONResponse: started}, err
}

func (s *surface) StartUsersExport(ctx context.Context, request openapi.StartUsersExportRequestObject,
) (openapi.StartUsersExportResponseObject, error) {
	started, err := s.start(ctx, s.usersExport(ctx, request.Params.Plan, request.Params.Prefix))
	return openapi.StartUsersExport202JSONResponse{ExportStartedJSONResponse: started}, err
}

func (s *surface) StartUsageExport(ctx context.Context, request openapi.StartUsageExportRequestObject,
) (openapi.StartUsageExportResponseObject, error) {
	p := request.Params
	e, err := s.usageExport(ctx, string(valueOf(p.By)), p.UserId, p.From, p.To)
	if err != nil {
		return nil, err
	}
	started, err := s.start(ctx, e)
	return openapi.StartUsageExport202JSONResponse{ExportStartedJSONResponse: started}, err
}
