package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestWhatPassesByItselfIsAnOutage(t *testing.T) {
	t.Parallel()
	refused := func(code string) error { return fmt.Errorf("write: %w", &pgconn.PgError{Code: code}) }
	for err, want := range map[error]bool{
		refused("25006"): true, refused("53300"): true, refused("53100"): true, refused("08006"): true,
		refused("57P01"): true,
		refused("57P03"): true, refused("40001"): true, refused("40P01"): true, io.ErrUnexpectedEOF: true,
		&pgconn.ConnectError{}: true,
		refused("42P01"):       false, refused("23514"): false, refused(""): false, errors.New("else"): false,
		fmt.Errorf("%w: %w", context.Canceled, io.ErrUnexpectedEOF): false,
	} {
		if got := errors.Is(domainError(err), rules.ErrAway); got != want {
			t.Errorf("%v is an outage: %t, want %t", err, got, want)
		}
	}
	if err := domainError(refused("57014")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a statement that took too long at the server is %v", err)
	}
}
