package pgstore_test

import (
	"fmt"
	"testing"
	"time"

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

func TestEachWriteOfARowChangesItsTenantsDigest(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	fillEveryTable(t, w)
	owner := connect(t, w.url)
	must(owner.Exec(t.Context(), "SET session_replication_role = replica"))(t)
	_, before, err := w.Digests(t.Context())
	if err != nil || before[w.ours.ID].Rows < 8 || before[w.ours.ID].Revision == 0 {
		t.Fatalf("the digests are %+v: %v", before, err)
	}
	wantOursChanged := func(after string) {
		t.Helper()
		at, now, err := w.Digests(t.Context())
		if err != nil || now[w.ours.ID] == before[w.ours.ID] || now[w.theirs.ID] != before[w.theirs.ID] ||
			time.Since(at).Abs() > time.Minute {
			t.Errorf("after %s the digests of %v are %+v, and were %+v: %v", after, at, now, before, err)
		}
		before = now
	}
	for _, table := range []string{
		"tenant", "plan", "rate_limit_rule", "rate_limit_override", "rate_limit_step", "plan_assignment", "gateway",
		"api_key",
	} {
		one := fmt.Sprintf("ctid = (SELECT min(ctid) FROM %s WHERE tenant_id = %d)", table, w.ours.ID)
		must(owner.Exec(t.Context(), fmt.Sprintf("UPDATE %s SET revision = revision WHERE %s", table, one)))(t)
		wantOursChanged("an update of " + table)
		if table != "tenant" {
			must(owner.Exec(t.Context(), fmt.Sprintf("DELETE FROM %s WHERE %s", table, one)))(t)
			wantOursChanged("a deletion from " + table)
		}
	}
	exec(t, w.url, "VACUUM FREEZE")
	if _, now, err := w.Digests(t.Context()); err != nil || now[w.ours.ID] != before[w.ours.ID] {
		t.Errorf("without a write the digest is %+v, and was %+v: %v", now[w.ours.ID], before[w.ours.ID], err)
	}
}
