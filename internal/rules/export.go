package rules

import (
	"context"
	"errors"
	"time"
)

const (
	// MaxOpenExports is how many exports of a tenant may be made at once.
	MaxOpenExports = 10
	// MaxOwnExports is how many exports a person or key has in a tenant, so that nobody fills its places alone.
	MaxOwnExports = 3
	// ExportKept is how long the file of an export can be downloaded.
	ExportKept = 24 * time.Hour
	// MaxExportBytes bounds the compressed file of one export.
	MaxExportBytes = 128 << 20
	// MaxTenantExportBytes bounds the compressed files of a tenant's exports together.
	MaxTenantExportBytes = 512 << 20
)

// ErrTooManyExports means that as many exports are being made as MaxOpenExports or MaxOwnExports allow.
var ErrTooManyExports = errors.New("too many exports are being made")

// Export is a file that somebody asked for, and its progress.
type Export struct {
	ID          int64
	By          Actor  // its kind and id
	Request     []byte // in JSON
	RequestedAt time.Time
	FinishedAt  time.Time // zero: it goes on
	NextTryAt   time.Time // zero: during a try, and at the end
	// Error is the reason of the latest failure, for people; "" after a success. An export that has finished with an
	// error has no file.
	Error  string
	Rows   int64 // so far
	Bytes  int64 // compressed
	Chunks int
}

// IsReady reports whether it has a file.
func (e *Export) IsReady() bool { return !e.FinishedAt.IsZero() && e.Error == "" }

// ExportReader reads exports.
type ExportReader interface {
	// Export returns an export that has not expired.
	Export(ctx context.Context, tenant TenantID, id int64) (Export, error)
	// ExportChunk returns a part of an export's file, compressed by gzip. The first has the number 0.
	ExportChunk(ctx context.Context, tenant TenantID, id int64, number int) ([]byte, error)
}
