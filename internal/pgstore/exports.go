package pgstore

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var _ rules.ExportReader = (*Store)(nil)

const (
	exportKind = "export"
	// exportsAtOnce bounds the exports that one process works on.
	exportsAtOnce = 2
	// exportPiece and exportChunkBytes end a piece of an export: its time, and about the compressed bytes of its chunk.
	// exportRestarts is how often erasures of users begin an export again.
	exportRestarts   = 3
	exportPiece      = time.Second
	exportChunkBytes = 256 << 10
)

var errNoRoom = errors.New("no room for an export")

// WriteExport writes the next page of an export, which a request in JSON describes. It goes on at a place, "" at first,
// and returns the next one, or "" at the end.
type WriteExport func(ctx context.Context, tenant rules.TenantID, request []byte, w io.Writer, place string) (
	rows int, next string, err error)

// RequestExport asks for a file, which may replace its maker's oldest one, or returns rules.ErrTooManyExports.
func (s Writer) RequestExport(ctx context.Context, tenant rules.TenantID, request []byte) (rules.Export, error) {
	var row dbsqlc.Export
	err := s.inTenantAs(ctx, s.by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		open, err := q.CountOpenExports(ctx, tenant)
		if err != nil {
			return err
		}
		own, err := q.MakeRoomForExport(ctx, dbsqlc.MakeRoomForExportParams{
			TenantID: tenant, ByKind: string(s.by.Kind), ByID: s.by.ID, AtMost: rules.MaxOwnExports,
		})
		if err != nil {
			return err
		}
		if open >= rules.MaxOpenExports || own >= rules.MaxOwnExports {
			return rules.ErrTooManyExports
		}
		row, err = q.RequestExport(ctx, dbsqlc.RequestExportParams{
			TenantID: tenant, ByKind: string(s.by.Kind), ByID: s.by.ID, Request: request,
		})
		if err != nil {
			return err
		}
		return enqueue(ctx, q, tenant, exportKind, row.ExportID, time.Time{})
	})
	if err != nil {
		return rules.Export{}, fmt.Errorf("ask for an export of tenant %d: %w", tenant, err)
	}
	return exportFromRow(row, time.Time{}), nil
}

// Export returns an export that has not expired.
func (s *Store) Export(ctx context.Context, tenant rules.TenantID, id int64) (rules.Export, error) {
	var next time.Time
	row, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (row dbsqlc.Export, err error) {
		if row, err = q.Export(ctx, tenant, id, time.Now().Add(-rules.ExportKept)); err == nil {
			next, err = nextTry(ctx, q, tenant, exportKind, id)
		}
		return row, err
	})
	if err != nil {
		return rules.Export{}, fmt.Errorf("read export %d: %w", id, err)
	}
	return exportFromRow(row, next), nil
}

// ExportChunk returns a part of an export's file, compressed by gzip.
func (s *Store) ExportChunk(ctx context.Context, tenant rules.TenantID, id int64, number int) ([]byte, error) {
	data, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) ([]byte, error) {
		return q.ExportChunk(ctx, tenant, id, int32(number))
	})
	if err != nil {
		return nil, fmt.Errorf("read chunk %d of export %d: %w", number, id, err)
	}
	return data, nil
}

// ExportWork returns the kind of job that writes the files of exports.
func (s *Store) ExportWork(write WriteExport) jobs.Kind {
	return jobs.Kind{
		Name: exportKind, MaxConcurrent: exportsAtOnce, PerTenant: 1, Timeout: longestWork,
		Do: func(ctx context.Context, job *jobs.Job) (time.Time, error) {
			tenant, id, err := exportOf(job)
			if err != nil {
				return time.Time{}, err
			}
			again, err := inPieces(func() (bool, error) { return s.exportPiece(ctx, tenant, id, write) })
			if err != nil && ctx.Err() == nil { // else the process stops, or has lost the job
				err = errors.Join(err, s.queriesFor(classBackground, only(tenant)).NoteExportError(ctx,
					"The latest try failed: "+inWords(err), tenant, id))
			}
			return again, err
		},
		GiveUp: func(ctx context.Context, job *jobs.Job, cause error) error {
			tenant, id, err := exportOf(job)
			if err != nil {
				return err
			}
			return s.queriesFor(classBackground, only(tenant)).FailExport(ctx,
				"It failed too often: "+inWords(cause)+" Export again.", tenant, id)
		},
	}
}

func exportOf(job *jobs.Job) (rules.TenantID, int64, error) {
	id, err := strconv.ParseInt(job.About, 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("read the id of an export: %w", err)
	}
	return rules.TenantID(job.Tenant), id, nil
}

// exportPiece writes the next chunk of an export, and returns whether more is left. The chunk and the place where it
// ends are one transaction, so whatever ends it, the next attempt goes on there.
func (s *Store) exportPiece(ctx context.Context, tenant rules.TenantID, id int64, write WriteExport) (bool, error) {
	open, err := s.queriesFor(classBackground, only(tenant)).OpenExport(ctx, tenant, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read export %d: %w", id, err)
	}
	var chunk bytes.Buffer
	packed := gzip.NewWriter(&chunk)
	place, rows := open.Place, int64(0)
	for end := time.Now().Add(exportPiece); ; {
		written, next, err := write(ctx, tenant, open.Request, packed, place)
		if err != nil {
			return false, fmt.Errorf("write export %d: %w", id, err)
		}
		place, rows = next, rows+int64(written)
		if place == "" || chunk.Len() >= s.exportLimits.chunk || time.Now().After(end) {
			break
		}
	}
	if err := packed.Close(); err != nil {
		return false, fmt.Errorf("compress export %d: %w", id, err)
	}
	goesOn := place != ""
	var full string
	err = s.transaction(ctx, classWrite, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := q.LockExport(ctx, tenant, id)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && (row.Chunks != open.Chunks || row.Restarts != open.Restarts):
			return errUnchanged // another process wrote this chunk, or a user was erased
		case err != nil:
			return err
		}
		if full, err = s.makeRoom(ctx, q, &row, int64(chunk.Len())); err != nil {
			return err
		}
		if full != "" {
			return errNoRoom // so the files that went for it stay
		}
		err = q.AddExportChunk(ctx, dbsqlc.AddExportChunkParams{
			TenantID: tenant, ExportID: id, Number: row.Chunks, Data: chunk.Bytes(),
		})
		if err != nil {
			return err
		}
		return q.NoteExport(ctx, dbsqlc.NoteExportParams{
			TenantID: tenant, ExportID: id, Place: place, Rows: rows, Bytes: int64(chunk.Len()), IsLast: !goesOn,
		})
	})
	switch {
	case errors.Is(err, errUnchanged):
		return true, nil
	case errors.Is(err, errNoRoom):
		err = s.queriesFor(classBackground, only(tenant)).FailExport(ctx, full, tenant, id)
		goesOn = false
	}
	if err != nil {
		return false, fmt.Errorf("store a chunk of export %d: %w", id, writeError(err))
	}
	return goesOn, nil
}

// makeRoom makes room for a chunk of an export, for which files of whoever has the most bytes go. Without room it says
// what to do.
func (s *Store) makeRoom(ctx context.Context, q *dbsqlc.Queries, row *dbsqlc.Export, chunk int64) (full string,
	err error,
) {
	for evicted := int64(1); ; {
		kept, err := q.ExportBytes(ctx, row.TenantID)
		if err != nil {
			return "", err
		}
		full = s.exportLimits.exceeded(row.Bytes+chunk, kept+chunk)
		if full == "" || row.Bytes+chunk > s.exportLimits.file || evicted == 0 {
			return full, nil
		}
		evicted, err = q.EvictExport(ctx, dbsqlc.EvictExportParams{
			TenantID: row.TenantID, ByKind: row.RequestedByKind, ByID: row.RequestedByID, Held: chunk,
		})
		if err != nil {
			return "", err
		}
	}
}

// exportLimits bound the compressed bytes of one file, of all files of a tenant and, about, of a chunk.
type exportLimits struct {
	file, tenant int64
	chunk        int
}

// exceeded says what to do about too many bytes, or "".
func (l exportLimits) exceeded(file, tenant int64) string {
	switch {
	case file > l.file:
		return fmt.Sprintf("The file is larger than %s. Export a shorter time, or with a filter.", megabytes(l.file))
	case tenant > l.tenant:
		return fmt.Sprintf("The exports of this tenant have more than %s. Wait until the first of them expires, "+
			"which takes at most %d hours, and export again.", megabytes(l.tenant), int(rules.ExportKept.Hours()))
	}
	return ""
}

func megabytes(bytes int64) string { return fmt.Sprintf("%d MB compressed", bytes>>20) }

func exportFromRow(row dbsqlc.Export, next time.Time) rules.Export {
	return rules.Export{
		ID: row.ExportID, By: rules.Actor{Kind: rules.ActorKind(row.RequestedByKind), ID: row.RequestedByID},
		Request: row.Request, RequestedAt: row.RequestedAt.UTC(), FinishedAt: orZero(row.FinishedAt),
		NextTryAt: next, Error: row.Error, Rows: row.Rows, Bytes: row.Bytes, Chunks: int(row.Chunks),
	}
}
