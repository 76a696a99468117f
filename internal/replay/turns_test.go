package replay

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/traffic"
)

func TestBlocksAreUnpackedInTurns(t *testing.T) {
	t.Parallel()
	turns := NewTurns()
	done, err := turns.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, end := context.WithCancel(t.Context())
	since := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	_, err = Run(ctx, &Input{
		Tenant: 1, Since: since, Until: since.Add(time.Hour),
		History: &History{Start: snapshot.Rows{Tenants: []rules.Tenant{{ID: 1, Settings: rules.DefaultSettings()}}}},
		Blocks: func(yield func(traffic.Block, error) bool) {
			end()
			yield(traffic.Block{Tenant: 1, First: since, Payload: []byte("what cannot be unpacked")}, nil)
		},
	}, Options{Turns: turns})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("while another replay has the turn, a block is unpacked: %v", err)
	}
}
