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
	exportKind    = "export"
	exportsAtOnce = 2
	// Erasures of users restart an export at most exportRestarts times.
	exportRestarts   = 3
	exportPiece      = time.Second
	exportChunkBytes = 256 << 10
)

var errNoRoom = errors.New("no room for an export")

// WriteExport writes the page of an export after a cursor, "" at first, and returns the next one, or "" at the end.
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
	return exportFromRow(row, time.Time{}), wrap(err, "ask for an export of tenant %d", tenant)
}

// Export returns an export that has not expired.
func (s *Store) Export(ctx context.Context, tenant rules.TenantID, id int64) (rules.Export, error) {
	q := s.queriesFor(classRead, only(tenant))
	row, err := q.Export(ctx, tenant, id, time.Now().Add(-rules.ExportKept))
	var next time.Time
	if err == nil {
		next, err = nextTry(ctx, q, tenant, exportKind, id)
	}
	return exportFromRow(row, next), wrap(err, "read export %d", id)
}

// ExportChunk returns a part of an export's file, compressed by gzip.
func (s *Store) ExportChunk(ctx context.Context, tenant rules.TenantID, id int64, number int) ([]byte, error) {
	data, err := s.queriesFor(classRead, only(tenant)).ExportChunk(ctx, tenant, id, int32(number))
	return data, wrap(err, "read chunk %d of export %d", number, id)
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

// exportPiece commits the next chunk with its end, so the next attempt goes on there. Returns whether more is left.
func (s *Store) exportPiece(ctx context.Context, tenant rules.TenantID, id int64, write WriteExport) (bool, error) {
	open, err := s.queriesFor(classBackground, only(tenant)).OpenExport(ctx, tenant, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, wrap(err, "read export %d", id)
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
	return goesOn, wrap(writeError(err), "store a chunk of export %d", id)
}

// makeRoom deletes files of the maker with the most bytes, or says why there is no room.
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

type exportLimits struct {
	file, tenant int64
	chunk        int
}

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
