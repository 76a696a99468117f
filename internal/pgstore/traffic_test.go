package pgstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

func (w *world) recordFor(t *testing.T, days int) {
	t.Helper()
	tenant := must(w.Tenant(t.Context(), w.ours.ID))(t)
	tenant.Settings.RecordDays = days
	must(w.UpdateTenant(t.Context(), tenant))(t)
}

func blockOf(tenant rules.TenantID, number int64, first time.Time, stratum int, users ...string) traffic.Block {
	b := traffic.Block{
		Tenant: tenant, Writer: "w", Number: number, First: first, Last: first.Add(time.Minute), Stratum: stratum,
		Counts: traffic.Counts{Seen: 10, Dropped: 1},
	}
	var runs []traffic.Run
	for _, user := range users {
		runs = append(runs, traffic.Run{UserID: user, Endpoint: "/a", Times: []uint32{1, 2}})
	}
	b.SetRuns(runs)
	return b
}

func TestRecordedBlocksAreReadInOrderAndOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	now := time.Now().UTC().Truncate(time.Second)
	blocks := []traffic.Block{
		blockOf(ours, 2, now.Add(-time.Hour), 0, "42"), blockOf(ours, 1, now.Add(-2*time.Hour), 3, "43"),
		blockOf(w.theirs.ID, 3, now, 0, "42"),
	}
	if err := w.WriteTraffic(ctx, blocks); err != nil {
		t.Fatal(err)
	}
	day := traffic.Range{Since: now.AddDate(0, 0, -1), Until: now.Add(time.Hour)}
	for _, err := range w.Blocks(ctx, ours, day) {
		t.Error("a block was written for a tenant that does not record", err)
	}
	w.recordFor(t, 7)
	for range 2 { // the second time, the answer to the first was lost
		if err := w.WriteTraffic(ctx, blocks); err != nil {
			t.Fatal(err)
		}
	}
	read := func(of traffic.Range) (numbers []int64) {
		for b, err := range w.Blocks(ctx, ours, of) {
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, b.Number)
			if runs, err := b.Runs(); err != nil || len(runs) != 1 || len(runs[0].Times) != 2 {
				t.Errorf("the runs are %+v (%v)", runs, err)
			}
		}
		return numbers
	}
	if got := read(day); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("blocks %v are read, want 1 and 2", got)
	}
	day.LeastStratum = 2
	if got := read(day); !slices.Equal(got, []int64{1}) {
		t.Errorf("blocks %v of the sample are read, want 1", got)
	}
	usage := must(w.UsageOf(ctx, ours))(t)
	if usage.Checks != 4 || usage.Seen != 20 || usage.Dropped != 2 ||
		usage.Bytes != int64(blocks[0].Bytes()+blocks[1].Bytes()) {
		t.Errorf("the use is %+v", usage)
	}
	all, total, tenants, err := w.TrafficUsage(ctx, []rules.TenantID{ours, w.theirs.ID})
	if err != nil || tenants != 1 || total != usage.Bytes || len(all) != 2 {
		t.Fatalf("all use %d of %d tenants (%v): %+v", total, tenants, err, all)
	}
	sum := must(w.Summary(ctx, ours, day))(t)
	if sum.Blocks != 2 || sum.Strata[0] != 2 || sum.Strata[3] != 2 || sum.Checks != 4 {
		t.Errorf("the summary is %+v", sum)
	}
}

func TestTheLatestBlocksOfAUserAreFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	w.recordFor(t, 7)
	now := time.Now().UTC().Truncate(time.Second)
	long := blockOf(ours, 1, now.Add(-50*time.Minute), 0, "42")
	long.Last = now.Add(-20 * time.Minute)
	blocks := []traffic.Block{
		long, blockOf(ours, 6, now.Add(-25*time.Minute), 0, "43"),
		blockOf(ours, 7, now.Add(-5*time.Minute), traffic.StratumOfExtras, "42"),
	}
	for n := range 4 { // numbers 2 to 5, of two checks of each user
		blocks = append(blocks, blockOf(ours, int64(n+2), now.Add(-time.Duration(40-10*n)*time.Minute), 0, "42", "43"))
	}
	var pages []int64
	for n := range int64(40) {
		pages = append(pages, 100+n)
		blocks = append(blocks, blockOf(ours, 100+n, now.Add(time.Duration(n-40)*time.Second), 0, "45"))
	}
	if err := w.WriteTraffic(ctx, blocks); err != nil {
		t.Fatal(err)
	}
	day := traffic.Range{Since: now.AddDate(0, 0, -1), Until: now.Add(time.Hour), MostStratum: traffic.Strata - 1}
	for name, test := range map[string]struct {
		user   string
		checks int64
		since  time.Time
		want   []int64
	}{
		"fewer than asked":           {"42", 1000, day.Since, []int64{1, 2, 3, 4, 5}},
		"enough in the latest":       {"42", 4, now.Add(-10 * time.Minute), []int64{5}},
		"with one that began before": {"42", 12, now.Add(-30 * time.Minute), []int64{1, 3, 4, 5}},
		"nobody":                     {"44", 4, day.Since, nil},
		"more than a page":           {"45", 1000, day.Since, pages},
	} {
		since, found, err := w.BlocksOfUser(ctx, ours, test.user, day, test.checks)
		if err != nil {
			t.Fatal(err)
		}
		var numbers []int64
		for b, err := range found {
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, b.Number)
		}
		if !since.Equal(test.since) || !slices.Equal(numbers, test.want) {
			t.Errorf("%s: blocks %v since %s, want %v since %s", name, numbers, since, test.want, test.since)
		}
	}
}

func TestRecordedBlocksGoWithTheirTimeAndTheirUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	now := time.Now().UTC()
	w.recordFor(t, 2)
	blocks := []traffic.Block{
		blockOf(ours, 1, now.Add(-12*time.Hour), 0, "mallory", "43"), blockOf(ours, 2, now.AddDate(0, 0, -5), 0, "43"),
		blockOf(ours, 3, now, 0, "mallory"),
	}
	if err := w.WriteTraffic(ctx, blocks); err != nil {
		t.Fatal(err)
	}
	keep := violations.Retention{Details: 30 * 24 * time.Hour, Counts: 24 * 365 * time.Hour}
	must(w.KeepViolations(ctx, now, keep))(t)
	days := traffic.Range{Since: now.AddDate(0, 0, -30), Until: now.Add(time.Hour)}
	left := func() (numbers []int64, users []string) {
		for b, err := range w.Blocks(ctx, ours, days) {
			if err != nil {
				t.Fatal(err)
			}
			numbers, users = append(numbers, b.Number), append(users, b.Users...)
		}
		return numbers, users
	}
	if numbers, _ := left(); !slices.Equal(numbers, []int64{1, 3}) {
		t.Errorf("blocks %v are left of two days, want 1 and 3", numbers)
	}
	erased := w.erase(t, ours, "mallory")
	if _, users := left(); !slices.Equal(users, []string{"43"}) || erased["traffic_blocks"] != 2 {
		t.Errorf("users %v are left, and the receipt says %d blocks", users, erased["traffic_blocks"])
	}
	w.recordFor(t, 0)
	must(w.KeepViolations(ctx, now, keep))(t)
	if numbers, _ := left(); len(numbers) != 0 {
		t.Errorf("blocks %v are left of a tenant that switched recording off", numbers)
	}
}
