package adminapi

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

const (
	// exportPage is how many rows an export reads and holds at once.
	exportPage = 1000
	// leastRate is how many bytes of a file a caller must take a second, on average; see Config.LeastDownloadRate.
	leastRate = 64 << 10
	// mostBehind is how many bytes a caller may be behind that: 32 s.
	mostBehind = 2 << 20
	// wholePatience is how long the caller has to take a file that stays in memory until then.
	wholePatience = 2 * time.Minute
)

const csvType = "text/csv; charset=utf-8"

// file is an answer that is written while it is read.
type file struct {
	request         *apiRequest
	mediaType, name string
	// patience bounds the whole transfer; 0 for no bound as long as the caller keeps reading.
	patience time.Duration
	// write writes the file. It calls progress after each page and stops at its error.
	write func(w io.Writer, progress func() error) error
}

// send answers with the file. Once some of it was sent, an error can only break the connection. After each page it
// checks whether the caller may still read, because an export can outlast their session by hours.
func (f *file) send(w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Content-Type", f.mediaType)
	h.Set("Content-Disposition", `attachment; filename="`+f.name+`"`)
	if f.request.r.Method == http.MethodHead {
		return nil // no body to read rows for
	}
	sent := &begun{
		Writer: w, request: f.request, controller: http.NewResponseController(w), ahead: mostBehind,
	}
	// The server's deadline for reading is meant for bodies; when it passes, the request's context ends.
	_ = sent.controller.SetReadDeadline(time.Time{})
	if f.patience > 0 {
		sent.end = time.Now().Add(f.patience)
	}
	out := bufio.NewWriterSize(sent, 64<<10)
	err := f.write(out, f.request.admitAgain)
	if err == nil {
		err = out.Flush()
	}
	if err != nil && !sent.yes {
		h.Del("Content-Disposition")
		return err
	}
	if err != nil {
		panic(http.ErrAbortHandler) // half a file must not look whole
	}
	return nil
}

// begun notes whether something was written, ends a transfer that is too slow, and lets other requests run meanwhile.
type begun struct {
	io.Writer
	request    *apiRequest
	controller *http.ResponseController
	end        time.Time // of all writes; zero for none
	ahead      int64     // bytes that the caller is ahead of being too slow
	yes        bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.yes = true
	started, rate := time.Now(), b.request.leastRate
	deadline := started.Add(time.Duration(b.ahead) * time.Second / time.Duration(rate))
	if !b.end.IsZero() && b.end.Before(deadline) {
		deadline = b.end
	}
	_ = b.controller.SetWriteDeadline(deadline) // a writer without deadlines, such as a test's recorder, needs none
	var n int
	err := b.request.place.Away(b.request.r.Context(), func() (err error) {
		n, err = b.Writer.Write(p)
		b.ahead = min(b.ahead+int64(n)-int64(time.Since(started).Seconds()*float64(rate)), mostBehind)
		return err
	})
	return n, err
}

// VisitExportUsersResponse makes a file an answer.
func (f *file) VisitExportUsersResponse(w http.ResponseWriter) error { return f.send(w) }

// VisitExportAuditResponse makes a file an answer.
func (f *file) VisitExportAuditResponse(w http.ResponseWriter) error { return f.send(w) }

// VisitExportConfigResponse makes a file an answer.
func (f *file) VisitExportConfigResponse(w http.ResponseWriter) error { return f.send(w) }

// ExportUsers handles GET …/users/export.
func (s *surface) ExportUsers(ctx context.Context,
	request openapi.ExportUsersRequestObject,
) (openapi.ExportUsersResponseObject, error) {
	q := requestOf(ctx)
	tenant := q.tenant
	plan, prefix := valueOf(request.Params.Plan), valueOf(request.Params.Prefix)
	return &file{
		request: q, mediaType: csvType, name: tenant.Slug + "-users.csv",
		write: func(w io.Writer, progress func() error) error {
			out := csv.NewWriter(w)
			_ = out.Write(usersHeader) // Error reports all writes
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
				if err := progress(); err != nil {
					return err
				}
			}
		},
	}, nil
}

var auditHeader = []string{
	"audit_id", "change_id", "at", "actor_kind", "actor_id", "actor_name", "act", "request_id", "action", "object_kind",
	"object_id",
	"before", "after",
}

// ExportAudit handles GET …/audit/export.
func (s *surface) ExportAudit(ctx context.Context,
	request openapi.ExportAuditRequestObject,
) (openapi.ExportAuditResponseObject, error) {
	q := requestOf(ctx)
	p := request.Params
	filter, err := auditFilter(p.From, p.Until, p.ActorId, p.Action, p.ObjectKind, p.ObjectId, p.ChangeId,
		p.RequestId)
	if err != nil {
		return nil, err
	}
	if valueOf(p.Format) == openapi.ExportAuditParamsFormatJsonl {
		return &file{
			request: q, mediaType: "application/jsonl", name: q.tenant.Slug + "-audit.jsonl",
			write: func(w io.Writer, progress func() error) error {
				out := json.NewEncoder(w) // which ends each value with a new line
				return s.eachAuditEntry(ctx, filter, progress, func(entry *auth.AuditEntry) error {
					shown, err := showEntry(entry)
					if err != nil {
						return err
					}
					return out.Encode(shown)
				})
			},
		}, nil
	}
	return &file{
		request: q, mediaType: csvType, name: q.tenant.Slug + "-audit.csv",
		write: func(w io.Writer, progress func() error) error {
			out := csv.NewWriter(w)
			_ = out.Write(auditHeader) // Error tells of all writes
			err := s.eachAuditEntry(ctx, filter, progress, func(entry *auth.AuditEntry) error {
				return out.Write(auditRecord(entry))
			})
			out.Flush()
			return errors.Join(err, out.Error())
		},
	}, nil
}

func auditRecord(e *auth.AuditEntry) []string {
	record := []string{
		formatInt(int64(e.ID)), formatInt(e.Change), e.At.UTC().Format(time.RFC3339Nano), string(e.Actor.Kind),
		e.Actor.ID,
		e.Actor.Name, e.Actor.Act, e.Actor.RequestID, string(e.Action), e.Object.Kind, e.Object.ID, string(e.Before),
		string(e.After),
	}
	for i := range record {
		record[i] = inert(record[i])
	}
	return record
}

// eachAuditEntry calls each for every entry, the latest first.
func (s *surface) eachAuditEntry(ctx context.Context, filter auth.AuditFilter, progress func() error,
	each func(*auth.AuditEntry) error,
) error {
	tenant := requestOf(ctx).tenant.ID
	for before := (auth.LogCursor{}); ; {
		entries, cursor, err := s.Stores.Audit(ctx, tenant, filter, before, exportPage)
		if err != nil {
			return err
		}
		for i := range entries {
			if err := each(&entries[i]); err != nil {
				return err
			}
		}
		if cursor == (auth.LogCursor{}) {
			return nil
		}
		before = cursor
		if err := progress(); err != nil {
			return err
		}
	}
}

// ExportConfig handles GET …/export.
func (s *surface) ExportConfig(ctx context.Context,
	_ openapi.ExportConfigRequestObject,
) (openapi.ExportConfigResponseObject, error) {
	q := requestOf(ctx)
	return &file{
		request: q, mediaType: "application/yaml", name: q.tenant.Slug + ".yaml", patience: wholePatience,
		write: func(w io.Writer, _ func() error) error {
			packed, err := s.packConfig(ctx, q.tenant.ID)
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
	}, nil
}

// packConfig writes a tenant's configuration into memory, compressed to about a tenth, so that a slow reader holds
// little and others need not wait for it.
func (s *surface) packConfig(ctx context.Context, tenant rules.TenantID) (*bytes.Buffer, error) {
	defer requestOf(ctx).place.Release() // writing the file needs none
	config, err := s.Stores.Config(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	out, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	return &packed, errors.Join(ruleset.Encode(out, config), out.Close())
}
