package rules

import (
	"context"
	"errors"
	"time"
)

// The bounds of exports.
const (
	MaxOpenExports = 10
	// MaxOwnExports is per person or key, so that nobody fills a tenant's exports alone.
	MaxOwnExports = 3
	ExportKept    = 24 * time.Hour
	// MaxExportBytes and MaxTenantExportBytes bound compressed files.
	MaxExportBytes       = 128 << 20
	MaxTenantExportBytes = 512 << 20
)

// ErrTooManyExports means that MaxOpenExports or MaxOwnExports is reached.
var ErrTooManyExports = errors.New("too many exports are being made")

// Export is a file that somebody asked for, and its progress.
type Export struct {
	ID          int64
	By          Actor  // its kind and id
	Request     []byte // in JSON
	RequestedAt time.Time
	FinishedAt  time.Time // zero: it goes on
	NextTryAt   time.Time // zero: during a try, and at the end
	// Error is of the latest try, for people; a finished export with an error has no file.
	Error  string
	Rows   int64 // so far
	Bytes  int64 // compressed
	Chunks int
}

// IsReady reports whether there is a file.
func (e *Export) IsReady() bool { return !e.FinishedAt.IsZero() && e.Error == "" }

// ExportReader reads exports.
type ExportReader interface {
	Export(ctx context.Context, tenant TenantID, id int64) (Export, error)
	// ExportChunk returns a part of the compressed file, counted from 0.
	ExportChunk(ctx context.Context, tenant TenantID, id int64, number int) ([]byte, error)
}
