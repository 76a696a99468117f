package pgstore_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

func pagesOf(pages int) pgstore.WriteExport {
	return func(_ context.Context, _ rules.TenantID, _ []byte, w io.Writer, place string) (int, string, error) {
		page, _ := strconv.Atoi(place)
		page++
		if _, err := fmt.Fprintf(w, "%d\n", page); err != nil {
			return 0, "", err
		}
		if page == pages {
			return 1, "", nil
		}
		return 1, strconv.Itoa(page), nil
	}
}

func linesUpTo(pages int) string {
	var all strings.Builder
	for page := range pages {
		fmt.Fprintln(&all, page+1)
	}
	return all.String()
}

func (w *world) fileOf(t *testing.T, export rules.Export) string {
	t.Helper()
	var file strings.Builder
	for number := range export.Chunks {
		chunk := must(w.ExportChunk(t.Context(), w.ours.ID, export.ID, number))(t)
		must(io.Copy(&file, must(gzip.NewReader(bytes.NewReader(chunk)))(t)))(t)
	}
	return file.String()
}

func (w *world) workOnExport(t *testing.T, kind jobs.Kind, tenant rules.TenantID, export rules.Export) rules.Export {
	t.Helper()
	for turn := 0; export.FinishedAt.IsZero() && turn < 100; turn++ {
		w.due(t) // also after a failure of a slow machine
		w.work(t, kind)
		export = must(w.Export(t.Context(), tenant, export.ID))(t)
	}
	return export
}

func TestAnExportSurvivesProcessesThatAreKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.WriteChunksOf(1)
	ctx, ours := t.Context(), w.ours.ID
	const pages = 200
	export := must(w.RequestExport(ctx, ours, []byte("{}")))(t)
	doomed := must(url.Parse(runtimeOf(t, w.url)))(t)
	doomed.RawQuery += "&application_name=doomed"
	process := must(pgstore.Open(ctx, doomed.String(), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(process.Close)
	process.WriteChunksOf(1)
	kind, killer := process.ExportWork(pagesOf(pages)), connect(t, w.url)
	for kill := range jobs.MaxAttempts / 2 { // a slow machine may fail some of the others
		job := w.claim(t, kind.Name)
		before := must(w.Export(ctx, ours, export.ID))(t).Rows
		working, end := context.WithCancel(ctx)
		ended := make(chan bool, 1)
		go func() {
			_, _ = kind.Do(working, &job) // it is killed
			ended <- true
		}()
		for deadline := time.Now().Add(time.Minute); must(w.Export(ctx, ours, export.ID))(t).Rows == before &&
			len(ended) == 0; <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("no page is written in a minute")
			}
		}
		if kill%2 == 0 {
			must(killer.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'doomed'`))(t)
		}
		end()
		<-ended
		must(killer.Exec(ctx, "UPDATE job SET next_run_at = now(), lease_ends_at = now()"))(t)
	}
	export = w.workOnExport(t, w.ExportWork(pagesOf(pages)), ours, must(w.Export(ctx, ours, export.ID))(t))
	if !export.IsReady() || export.Rows != pages {
		t.Errorf("it is %+v, want %d rows", export, pages)
	}
	if w.fileOf(t, export) != linesUpTo(pages) {
		t.Error("the file has pages twice, or lacks some")
	}
}

func TestAnExportGoesOnAfterTheDatabaseWasAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.WriteChunksOf(1)
	ctx, ours := t.Context(), w.ours.ID
	owner, role := connect(t, w.url), roleOf(t, w.url)
	const pages = 20
	write := pagesOf(pages)
	isAway := false
	kind := w.ExportWork(func(ctx context.Context, tenant rules.TenantID, request []byte, out io.Writer, place string) (
		int, string, error,
	) {
		if place == "10" && !isAway {
			isAway = true
			must(owner.Exec(ctx, fmt.Sprintf("ALTER ROLE %s NOLOGIN", role)))(t)
			must(owner.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", role))(t)
		}
		return write(ctx, tenant, request, out, place)
	})
	export := must(w.RequestExport(ctx, ours, []byte("{}")))(t)
	runner := jobs.New(w, []jobs.Kind{kind}, slog.New(slog.DiscardHandler))
	for turn := 0; turn < 100 && !isAway; turn++ {
		if err := runner.Round(ctx); err != nil {
			t.Fatal(err)
		}
		runner.Wait()
	}
	if err := runner.Round(ctx); err == nil {
		t.Error("a round works without the database")
	}
	must(owner.Exec(ctx, fmt.Sprintf("ALTER ROLE %s LOGIN", role)))(t)
	middle := must(w.Export(ctx, ours, export.ID))(t)
	if middle.Rows != 10 || !middle.FinishedAt.IsZero() {
		t.Errorf("while the database was away it was %+v", middle)
	}
	w.die(t) // the minute of the lease is over
	export = w.workOnExport(t, kind, ours, middle)
	if !export.IsReady() || w.fileOf(t, export) != linesUpTo(pages) {
		t.Errorf("it is %+v with the file\n%s", export, w.fileOf(t, export))
	}
}

func TestWorkGoesOnOnceAFullDiskHasRoom(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	w.WriteChunksOf(1)
	ctx, ours, theirs := t.Context(), w.ours.ID, w.theirs.ID // an erasure removes the files of its tenant
	const pages = 20
	exec(t, w.url, `INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
		VALUES ($1, '2026-11-01', $2, 'mallory', false, 5, 0)`, theirs, w.theirs.user.ID)
	export := must(w.RequestExport(ctx, ours, []byte("{}")))(t)
	erasure := must(w.EraseUser(ctx, theirs, "mallory"))(t)
	exec(t, w.url, `CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN RAISE EXCEPTION ''could not extend file'' USING ERRCODE = ''53100''; END'`)
	for _, table := range []string{"export_chunk", "violation_minute"} {
		exec(t, w.url, "CREATE TRIGGER full_disk BEFORE INSERT ON "+table+
			" FOR EACH STATEMENT EXECUTE FUNCTION is_full()")
	}
	kinds := []jobs.Kind{w.ExportWork(pagesOf(pages)), w.ErasureWork(threeBuckets)}
	for turn := 0; turn < 100 && (export.Error == "" || erasure.Error == ""); turn++ { // a slow machine needs several
		w.work(t, kinds...)
		export, erasure = must(w.Export(ctx, ours, export.ID))(t), must(w.Erasure(ctx, theirs, erasure.ID))(t)
	}
	for what, failure := range map[string]string{"export": export.Error, "erasure": erasure.Error} {
		if !strings.Contains(failure, "full") || strings.Contains(failure, "extend") {
			t.Errorf("the %s says %q", what, failure)
		}
	}
	if !export.FinishedAt.IsZero() || !erasure.FinishedAt.IsZero() {
		t.Errorf("with a full disk they end: %+v, %+v", export, erasure)
	}
	wantPause(t, export.NextTryAt, jobs.Pause(1))
	wantPause(t, erasure.NextTryAt, jobs.Pause(1))
	for _, table := range []string{"export_chunk", "violation_minute"} {
		exec(t, w.url, "DROP TRIGGER full_disk ON "+table)
	}
	w.due(t)
	for turn := 0; turn < 100 && w.jobsLike(t, "kind IN ('export', 'erase user')") > 0; turn++ {
		w.work(t, kinds...)
	}
	export, erasure = must(w.Export(ctx, ours, export.ID))(t), must(w.Erasure(ctx, theirs, erasure.ID))(t)
	if !export.IsReady() || w.fileOf(t, export) != linesUpTo(pages) || erasure.FinishedAt.IsZero() ||
		erasure.Error != "" {
		t.Errorf("with room again they are %+v, %+v", export, erasure)
	}
}

func TestAFailingExportSaysWhyAndGivesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	kind := w.ExportWork(func(context.Context, rules.TenantID, []byte, io.Writer, string) (int, string, error) {
		return 0, "", errors.New("mallory is at 10.0.0.7")
	})
	export := must(w.RequestExport(ctx, ours, []byte("{}")))(t)
	w.work(t, kind)
	failed := must(w.Export(ctx, ours, export.ID))(t)
	if failed.Error == "" || strings.Contains(failed.Error, "mallory") || !failed.FinishedAt.IsZero() {
		t.Errorf("it is %+v", failed)
	}
	wantPause(t, failed.NextTryAt, jobs.Pause(1))
	exec(t, w.url, "UPDATE job SET attempts = $1", jobs.MaxAttempts-1)
	w.due(t)
	w.work(t, kind)
	ended := must(w.Export(ctx, ours, export.ID))(t)
	if ended.FinishedAt.IsZero() || ended.IsReady() || !strings.Contains(ended.Error, "Export again.") ||
		!ended.NextTryAt.IsZero() {
		t.Errorf("in the end it is %+v", ended)
	}
}

func TestExportsFillNoMoreThanTheirTenantMay(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	w.WriteChunksOf(1)
	ctx, ours := t.Context(), w.ours.ID
	made := func(tenant rules.TenantID, pages int) rules.Export {
		export := must(w.RequestExport(ctx, tenant, []byte("{}")))(t)
		return w.workOnExport(t, w.ExportWork(pagesOf(pages)), tenant, export)
	}
	one := made(ours, 1).Bytes
	w.LimitExports(10*one, 25*one) // 9 are in a file of about 10 pages, and two such files in a tenant
	if large := made(ours, 100); large.IsReady() || large.FinishedAt.IsZero() || large.Bytes != 0 ||
		!strings.Contains(large.Error, "Export a shorter time") {
		t.Errorf("a file that is too large is %+v", large)
	}
	first := made(ours, 9)
	if second := made(ours, 9); !first.IsReady() || !second.IsReady() {
		t.Errorf("two files are %+v and %+v", first, second)
	}
	if third := made(ours, 9); !third.IsReady() {
		t.Errorf("a third file is %+v", third)
	}
	_, err := w.Export(ctx, ours, first.ID) // whose place it has
	wantError(t, err, rules.ErrNotFound)
	other := w.As(rules.Actor{Kind: rules.ActorAccount, ID: "1234"})
	theirOwn := must(other.RequestExport(ctx, ours, []byte("{}")))(t)
	if theirOwn = w.workOnExport(t, w.ExportWork(pagesOf(5)), ours, theirOwn); !theirOwn.IsReady() {
		t.Errorf("a file of somebody with less is %+v", theirOwn)
	}
	if fourth := made(ours, 9); !fourth.IsReady() {
		t.Errorf("a fourth file is %+v", fourth)
	}
	must(w.Export(ctx, ours, theirOwn.ID))(t) // is not for those with more to take
	if theirs := made(w.theirs.ID, 9); !theirs.IsReady() {
		t.Errorf("another tenant's is %+v", theirs)
	}
	if kept := lines(t, connect(t, w.url), "SELECT sum(length(data))::text FROM export_chunk WHERE tenant_id = $1",
		ours)[0]; kept != lines(t, connect(t, w.url), "SELECT sum(bytes)::text FROM export WHERE tenant_id = $1",
		ours)[0] {
		t.Errorf("%s bytes are stored", kept)
	}
	exec(t, w.url, "UPDATE export SET finished_at = now() - interval '25 hours'")
	_, err = w.Export(ctx, ours, theirOwn.ID)
	wantError(t, err, rules.ErrNotFound)
	must(w.KeepViolations(ctx, time.Now(), keep))(t)
	if left := lines(t, connect(t, w.url), "SELECT count(*)::text FROM export_chunk"); left[0] != "0" {
		t.Errorf("%s chunks are left after a day", left[0])
	}
}

func TestAnErasureBeginsOpenExportsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.WriteChunksOf(1)
	ctx, ours := t.Context(), w.ours.ID
	about := must(w.RequestExport(ctx, ours, []byte(`{"user_id":"mallory"}`)))(t)
	export := must(w.RequestExport(ctx, ours, []byte(`{"prefix":"mal"}`)))(t)
	write, erased := pagesOf(5), false
	kind := w.ExportWork(func(ctx context.Context, tenant rules.TenantID, request []byte, out io.Writer, place string) (
		int, string, error,
	) {
		if !erased {
			erased = true
			must(fmt.Fprintln(out, "mallory"))(t)
			w.erase(t, ours, "mallory")
		}
		return write(ctx, tenant, request, out, place)
	})
	exec(t, w.url, "DELETE FROM job WHERE about = $1", fmt.Sprint(about.ID))
	job := w.claim(t, "export")
	for again := time.Now(); !again.IsZero(); {
		var err error
		if again, err = kind.Do(ctx, &job); err != nil {
			t.Fatal(err)
		}
	}
	_, err := w.Export(ctx, ours, about.ID)
	wantError(t, err, rules.ErrNotFound)
	export = must(w.Export(ctx, ours, export.ID))(t)
	if !erased || !export.IsReady() || export.Rows != 5 || w.fileOf(t, export) != linesUpTo(5) {
		t.Errorf("it is %+v with the file\n%s", export, w.fileOf(t, export))
	}
}

func TestErasuresBesideExportsLoseNoChunk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.WriteChunksOf(1)
	ctx, ours := t.Context(), w.ours.ID
	const pages, exports, erasures = 40, rules.MaxOwnExports, 3
	watch := connect(t, w.url)
	var watching sync.Mutex
	restarts := func() (n int) {
		watching.Lock()
		defer watching.Unlock()
		if err := watch.QueryRow(ctx, "SELECT max(restarts) FROM export").Scan(&n); err != nil {
			return erasures // the test ends
		}
		return n
	}
	write := pagesOf(pages)
	kind := w.ExportWork(func(ctx context.Context, tenant rules.TenantID, request []byte, out io.Writer, place string) (
		int, string, error,
	) {
		// The first erasure comes in the middle, the others while pages are written.
		for place == "10" && restarts() < 1 || place == "30" && restarts() < erasures {
			runtime.Gosched()
		}
		return write(ctx, tenant, request, out, place)
	})
	var ids []int64
	for range exports {
		ids = append(ids, must(w.RequestExport(ctx, ours, []byte("{}")))(t).ID)
	}
	var writing sync.WaitGroup
	for range exports {
		claimed, _, err := w.ClaimJobs(ctx, []jobs.Claim{{Kind: kind.Name, Room: 1, PerTenant: exports}})
		if err != nil || len(claimed) != 1 {
			t.Fatalf("%+v is claimed: %v", claimed, err)
		}
		job := claimed[0]
		writing.Go(func() {
			for tries := 0; ; tries++ {
				again, err := kind.Do(ctx, &job)
				switch {
				case err == nil && again.IsZero():
					return
				case err != nil && tries > 100: // a busy machine may have some timeouts
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range erasures {
		w.erase(t, ours, fmt.Sprintf("user-%d", n))
	}
	writing.Wait()
	for _, id := range ids {
		export := must(w.Export(ctx, ours, id))(t)
		if !export.IsReady() || w.fileOf(t, export) != linesUpTo(pages) {
			t.Errorf("export %d is %+v with the file\n%s", id, export, w.fileOf(t, export))
		}
	}
	if stray := lines(t, connect(t, w.url), `SELECT count(*)::text FROM export_chunk AS c
		JOIN export AS e USING (export_id)
		WHERE c.number >= e.chunks`)[0]; stray != "0" {
		t.Errorf("%s chunks belong to no file", stray)
	}
}

func TestNobodyFillsTheExportsOfATenantAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	var made []rules.Export
	for range rules.MaxOwnExports {
		made = append(made, must(w.RequestExport(ctx, ours, []byte("{}")))(t))
	}
	_, err := w.RequestExport(ctx, ours, []byte("{}"))
	wantError(t, err, rules.ErrTooManyExports)
	other := w.As(rules.Actor{Kind: rules.ActorAccount, ID: "1234"})
	must(other.RequestExport(ctx, ours, []byte("{}")))(t)
	exec(t, w.url, "UPDATE export SET finished_at = now() WHERE export_id IN ($1, $2)", made[0].ID, made[1].ID)
	must(w.RequestExport(ctx, ours, []byte("{}")))(t)
	_, err = w.Export(ctx, ours, made[0].ID)
	wantError(t, err, rules.ErrNotFound)
	for _, kept := range made[1:] {
		must(w.Export(ctx, ours, kept.ID))(t)
	}
}
