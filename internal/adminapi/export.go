package adminapi

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rulesfile"
)

const (
	// exportPage is how many rows are read at once; all that an export holds in memory.
	exportPage = 1000
	// pagePatience is how long the caller has to take a page.
	pagePatience = 30 * time.Second
)

// file is an answer that is written as it is read, in constant memory and as long as it takes.
type file struct {
	mediaType, name string
	// write writes all of it. It calls progress after each page.
	write func(w io.Writer, progress func()) error
}

// send answers with the file. Once some of it is on its way an error can only break the connection.
func (f *file) send(w http.ResponseWriter) error {
	controller := http.NewResponseController(w)
	progress := func() {
		// A writer without deadlines, such as a test's recorder, needs none.
		_ = controller.SetWriteDeadline(time.Now().Add(pagePatience))
	}
	// The server's deadline for reading is meant for bodies; when it passes, the request's context ends.
	_ = controller.SetReadDeadline(time.Time{})
	h := w.Header()
	h.Set("Content-Type", f.mediaType)
	h.Set("Content-Disposition", `attachment; filename="`+f.name+`"`)
	progress()
	sent := &begun{Writer: w, before: progress}
	out := bufio.NewWriterSize(sent, 64<<10)
	err := errors.Join(f.write(out, progress), out.Flush())
	if err != nil && !sent.yes {
		h.Del("Content-Disposition")
		return err
	}
	if err != nil {
		panic(http.ErrAbortHandler) // what was sent must not look whole
	}
	return nil
}

// begun remembers that something was written. The deadline is set before each write, since what is
// looked for may be rare.
type begun struct {
	io.Writer
	before func()
	yes    bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.yes = true
	b.before()
	return b.Writer.Write(p)
}

// VisitExportUsersResponse makes a file an answer.
func (f *file) VisitExportUsersResponse(w http.ResponseWriter) error { return f.send(w) }

// VisitExportAuditResponse makes a file an answer.
func (f *file) VisitExportAuditResponse(w http.ResponseWriter) error { return f.send(w) }

// VisitExportConfigResponse makes a file an answer.
func (f *file) VisitExportConfigResponse(w http.ResponseWriter) error { return f.send(w) }

// ExportUsers handles GET …/users/export.
func (s *surface) ExportUsers(ctx context.Context, request openapi.ExportUsersRequestObject) (openapi.ExportUsersResponseObject, error) {
	tenant := visitOf(ctx).tenant
	plan, prefix := valueOf(request.Params.Plan), valueOf(request.Params.Prefix)
	return &file{"text/csv; charset=utf-8", tenant.Slug + "-users.csv", func(w io.Writer, progress func()) error {
		out := csv.NewWriter(w)
		_ = out.Write(usersHeader) // Error tells of all writes
		for after := ""; ; {
			rows, err := s.Stores.Assignments(ctx, tenant.ID, plan, prefix, after, exportPage)
			if err != nil {
				return err
			}
			for _, row := range rows {
				_ = out.Write([]string{inert(row.UserID), inert(row.Plan)})
			}
			out.Flush()
			if len(rows) < exportPage || out.Error() != nil {
				return out.Error()
			}
			after = rows[len(rows)-1].UserID
			progress()
		}
	}}, nil
}

var auditHeader = []string{
	"audit_id", "change_id", "at", "actor_kind", "actor_id", "actor_name", "act", "request_id", "action", "object_kind", "object_id",
	"before", "after",
}

// ExportAudit handles GET …/audit/export.
func (s *surface) ExportAudit(ctx context.Context, request openapi.ExportAuditRequestObject) (openapi.ExportAuditResponseObject, error) {
	tenant := visitOf(ctx).tenant
	p := request.Params
	filter := auditFilter(p.From, p.Until, p.ActorId, p.Action, p.ObjectKind, p.ObjectId, p.ChangeId)
	if valueOf(p.Format) == openapi.ExportAuditParamsFormatJsonl {
		return &file{"application/jsonl", tenant.Slug + "-audit.jsonl", func(w io.Writer, progress func()) error {
			out := json.NewEncoder(w) // which ends each value with a new line
			return s.eachAuditPage(ctx, filter, progress, func(entry *rules.AuditEntry) error {
				shown, err := showEntry(entry)
				if err != nil {
					return err
				}
				return out.Encode(shown)
			})
		}}, nil
	}
	return &file{"text/csv; charset=utf-8", tenant.Slug + "-audit.csv", func(w io.Writer, progress func()) error {
		out := csv.NewWriter(w)
		_ = out.Write(auditHeader) // Error tells of all writes
		err := s.eachAuditPage(ctx, filter, progress, func(entry *rules.AuditEntry) error {
			return out.Write(auditRecord(entry))
		})
		out.Flush()
		return errors.Join(err, out.Error())
	}}, nil
}

func auditRecord(e *rules.AuditEntry) []string {
	record := []string{
		formatInt(int64(e.ID)), formatInt(e.Change), e.At.UTC().Format(time.RFC3339Nano), string(e.Actor.Kind), e.Actor.ID,
		e.Actor.Name, e.Actor.Act, e.Actor.RequestID, string(e.Action), e.Object.Kind, e.Object.ID, string(e.Before), string(e.After),
	}
	for i := range record {
		record[i] = inert(record[i])
	}
	return record
}

// eachAuditPage visits all entries, the latest first.
func (s *surface) eachAuditPage(ctx context.Context, filter rules.AuditFilter, progress func(), visit func(*rules.AuditEntry) error) error {
	tenant := visitOf(ctx).tenant.ID
	for before := (rules.AuditCursor{}); ; {
		entries, cursor, err := s.Stores.Audit(ctx, tenant, filter, before, exportPage)
		if err != nil {
			return err
		}
		for i := range entries {
			if err := visit(&entries[i]); err != nil {
				return err
			}
		}
		if cursor == (rules.AuditCursor{}) {
			return nil
		}
		before = cursor
		progress()
	}
}

// ExportConfig handles GET …/export.
func (s *surface) ExportConfig(ctx context.Context, _ openapi.ExportConfigRequestObject) (openapi.ExportConfigResponseObject, error) {
	tenant := visitOf(ctx).tenant
	config, err := s.Stores.Config(ctx, tenant.ID)
	if err != nil {
		return nil, err
	}
	return &file{"application/yaml", tenant.Slug + ".yaml", func(w io.Writer, _ func()) error {
		return rulesfile.Encode(w, config)
	}}, nil
}
