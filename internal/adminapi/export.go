package adminapi

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

const (
	exportPage = 1000
	// mostRows and longestMaking bound files made during a request; jobs write larger ones.
	mostRows      = 10_000
	longestMaking = 15 * time.Second
	// leastRate is the usual Config.LeastDownloadRate.
	leastRate = 64 << 10
	// mostBehind is how many bytes a caller may be behind that rate: 32 s.
	mostBehind = 2 << 20
	// wholeTimeout bounds how long a file stays in memory.
	wholeTimeout = 2 * time.Minute
)

const csvType = "text/csv; charset=utf-8"

type file struct {
	request         *apiRequest
	leastRate       int64 // of the reader, in bytes a second
	mediaType, name string
	// timeout bounds the whole transfer; 0 for no bound as long as the caller keeps reading.
	timeout time.Duration
	write   func(w io.Writer) error
}

// send answers with the file. Once some of it was sent, an error can only break the connection.
func (f *file) send(w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Content-Type", f.mediaType)
	h.Set("Content-Disposition", `attachment; filename="`+f.name+`"`)
	if f.request.r.Method == http.MethodHead {
		return nil // no body to read rows for
	}
	sent := &pacedWriter{
		Writer: w, file: f, controller: http.NewResponseController(w), slack: mostBehind,
	}
	// The server's deadline for reading is meant for bodies; when it passes, the request's context ends.
	_ = sent.controller.SetReadDeadline(time.Time{})
	if f.timeout > 0 {
		sent.end = time.Now().Add(f.timeout)
	}
	out := bufio.NewWriterSize(sent, 64<<10)
	err := f.write(out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil && !sent.hasWritten {
		h.Del("Content-Disposition")
		return err
	}
	if err != nil {
		panic(http.ErrAbortHandler) // half a file must not look whole
	}
	return nil
}

// pacedWriter ends a transfer that is too slow, and gives up the slot during each write.
type pacedWriter struct {
	io.Writer
	file       *file
	controller *http.ResponseController
	end        time.Time // of all writes; zero for none
	slack      int64     // bytes by which the caller may still fall behind
	hasWritten bool
}

func (b *pacedWriter) Write(p []byte) (int, error) {
	b.hasWritten = true
	started, rate := time.Now(), b.file.leastRate
	deadline := started.Add(time.Duration(b.slack) * time.Second / time.Duration(rate))
	if !b.end.IsZero() && b.end.Before(deadline) {
		deadline = b.end
	}
	_ = b.controller.SetWriteDeadline(deadline) // a writer without deadlines, such as a test's recorder, needs none
	var n int
	err := b.file.request.slot.Away(b.file.request.r.Context(), func() (err error) {
		n, err = b.Writer.Write(p)
		b.slack = min(b.slack+int64(n)-int64(time.Since(started).Seconds()*float64(rate)), mostBehind)
		return err
	})
	return n, err
}

func (f *file) VisitExportUsersResponse(w http.ResponseWriter) error { return f.send(w) }

func (f *file) VisitExportAuditResponse(w http.ResponseWriter) error { return f.send(w) }

func (f *file) VisitExportConfigResponse(w http.ResponseWriter) error { return f.send(w) }

// whole keeps a file in memory, compressed to about a tenth, so that a slow reader holds no slot.
func (s *surface) whole(ctx context.Context, mediaType, name string,
	write func(ctx context.Context, w io.Writer) error,
) *file {
	q := requestOf(ctx)
	return &file{
		request: q, leastRate: s.LeastDownloadRate, mediaType: mediaType, name: name, timeout: wholeTimeout,
		write: func(w io.Writer) error {
			packed, err := pack(ctx, write)
			if err != nil {
				return err
			}
			defer s.countUnread(q, packed.Len())()
			text, err := gzip.NewReader(packed)
			if err != nil {
				return err
			}
			_, err = io.Copy(w, text) //nolint:gosec // our own data, not longer than before
			return err
		},
	}
}

func pack(ctx context.Context, write func(context.Context, io.Writer) error) (*bytes.Buffer, error) {
	defer requestOf(ctx).slot.Release() // sending the file needs none
	var packed bytes.Buffer
	out, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := write(ctx, out); err != nil {
		return nil, err
	}
	return &packed, out.Close()
}

func (s *surface) small(ctx context.Context, mediaType, name, instead string,
	page func(ctx context.Context, w io.Writer, place string) (rows int, next string, err error),
) *file {
	return s.whole(ctx, mediaType, name, func(ctx context.Context, w io.Writer) error {
		making, cancel := context.WithTimeout(ctx, longestMaking)
		defer cancel()
		for place, all := "", 0; ; {
			rows, next, err := page(making, w, place)
			all += rows
			if all <= mostRows && err == nil && next == "" {
				return nil
			}
			if all > mostRows || making.Err() != nil && ctx.Err() == nil {
				return httpapi.InvalidRequest.Problem(fmt.Sprintf(
					"The file has more than %d rows, or takes longer than %d s to make. %s", mostRows,
					int(longestMaking.Seconds()), instead))
			}
			if err != nil {
				return err
			}
			place = next
		}
	})
}

func (s *surface) exported(ctx context.Context, e *exportRequest) *file {
	return s.small(ctx, e.MediaType, e.Name, "POST to the same address: a job writes it.",
		func(ctx context.Context, w io.Writer, place string) (int, string, error) {
			return s.exporter().page(ctx, requestOf(ctx).tenant.ID, e, w, place)
		})
}

func (s *surface) ExportUsers(ctx context.Context,
	request openapi.ExportUsersRequestObject,
) (openapi.ExportUsersResponseObject, error) {
	return s.exported(ctx, s.usersExport(ctx, request.Params.Plan, request.Params.Prefix)), nil
}

func (s *surface) usersExport(ctx context.Context, plan, prefix *string) *exportRequest {
	e := s.newExport(ctx, exportUsers, "users", csvType)
	e.Plan, e.Prefix = valueOf(plan), valueOf(prefix)
	return e
}

func (x *exporter) users(ctx context.Context, tenant rules.TenantID, e *exportRequest, out *rowWriter, place string) (
	next string, err error,
) {
	rows, err := x.Assignments(ctx, tenant, e.Plan, e.Prefix, place, exportPage)
	if err != nil {
		return "", err
	}
	for _, row := range rows {
		out.put([]string{row.UserID, row.Plan}, nil)
	}
	if len(rows) == exportPage {
		next = rows[len(rows)-1].UserID
	}
	return next, nil
}

var auditHeader = []string{
	"audit_id", "change_id", "at", "actor_kind", "actor_id", "actor_name", "act", "request_id", "action", "object_kind",
	"object_id",
	"before", "after", "row",
}

func (s *surface) ExportAudit(ctx context.Context,
	request openapi.ExportAuditRequestObject,
) (openapi.ExportAuditResponseObject, error) {
	p := request.Params
	filter, err := auditFilter(p.From, p.Until, p.ActorId, p.Action, p.ObjectKind, p.ObjectId, p.ChangeId,
		p.RequestId)
	if err != nil {
		return nil, err
	}
	return s.exported(ctx, s.auditExport(ctx, string(valueOf(p.Format)), filter)), nil
}

func (s *surface) auditExport(ctx context.Context, format string, filter auth.AuditFilter) *exportRequest {
	e := s.newExport(ctx, exportAudit, "audit", mediaTypes[format])
	e.Audit = filter
	return e
}

// audit writes entries latest first, with a row for each object of packed ones.
func (x *exporter) audit(ctx context.Context, tenant rules.TenantID, e *exportRequest, out *rowWriter, place string) (
	next string, err error,
) {
	before, err := placeFrom[auth.LogCursor](place)
	if err != nil {
		return "", err
	}
	entries, cursor, err := x.Audit(ctx, tenant, e.Audit, before, exportPage)
	if err != nil {
		return "", err
	}
	written := 0
	for i := range entries {
		entry := &entries[i]
		if written >= exportPage {
			return placeText(auth.LogCursor{At: entries[i-1].At, ID: int64(entries[i-1].ID)})
		}
		if entry.IsPacked() {
			whole, err := x.AuditEntry(ctx, tenant, entry.ID)
			if errors.Is(err, rules.ErrNotFound) {
				continue // retention has dropped it since it was listed
			}
			if err != nil {
				return "", err
			}
			entry = &whole
		}
		for _, row := range entry.Unpacked() {
			shown, err := showEntry(&row)
			if err != nil {
				return "", err
			}
			out.put(auditRecord(&row), shown)
			written++
		}
	}
	return placeText(cursor)
}

func auditRecord(e *auth.AuditEntry) []string {
	return []string{
		formatInt(int64(e.ID)), formatInt(e.Change), e.At.UTC().Format(time.RFC3339Nano), string(e.Actor.Kind),
		e.Actor.ID,
		e.Actor.Name, e.Actor.Act, e.Actor.RequestID, string(e.Action), e.Object.Kind, e.Object.ID, string(e.Before),
		string(e.After), formatRow(e.Row),
	}
}

func formatRow(row int) string {
	if row == 0 {
		return ""
	}
	return formatInt(int64(row))
}

func (s *surface) ExportConfig(ctx context.Context,
	_ openapi.ExportConfigRequestObject,
) (openapi.ExportConfigResponseObject, error) {
	tenant := requestOf(ctx).tenant
	return s.whole(ctx, "application/yaml", tenant.Slug+".yaml", func(ctx context.Context, w io.Writer) error {
		config, err := s.Stores.Config(ctx, tenant.ID)
		if err != nil {
			return err
		}
		return ruleset.Encode(w, config)
	}), nil
}
