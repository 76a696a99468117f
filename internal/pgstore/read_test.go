package pgstore_test

import (
	"testing"

	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func TestAReadShowsSignsOfLifeWhileTenantsHaveNoRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	known := w.revisions(t)
	exec(t, w.url, "INSERT INTO tenant (slug, name) SELECT 'empty-' || n, 'Empty' FROM generate_series(1, 1000) AS n")
	visits := 0
	err := w.Read(t.Context(), known, func(rows snapshot.Rows) error {
		if visits++; visits > 1 && count(rows) != (rowCounts{}) {
			t.Errorf("there are no rows but tenants, and a page has %+v", count(rows))
		}
		return nil
	})
	// One page of tenants, and for each of seven tables 1,000 tenants at 100 in a round trip.
	if want := 1 + 7*10; err != nil || visits != want {
		t.Errorf("%d visits, want %d: %v", visits, want, err)
	}
}
