package pgstore_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/checkpoint"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

func checkpointOf(tenant rules.TenantID, rule rules.RuleID, user string, stamp int64, state string) rules.Checkpoint {
	owner := sha256.Sum256([]byte(user))
	return rules.Checkpoint{
		CheckpointPlace: rules.CheckpointPlace{Tenant: tenant, Rule: rule, Subject: user}, Stamp: stamp,
		State: []byte(state), Owner: owner[:],
	}
}

func (w *world) checkpoints(t *testing.T) (all []string) {
	t.Helper()
	rows := must(w.CheckpointsAfter(t.Context(), rules.CheckpointPlace{}, 100))(t)
	for i := range rows {
		if rows[i].Rule != 0 {
			all = append(all, fmt.Sprintf("%d/%s=%s", rows[i].Rule, rows[i].Subject, rows[i].State))
		}
	}
	return all
}

func TestTheNewerCheckpointStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours := w.ours.ID
	for _, rows := range [][]rules.Checkpoint{
		{
			checkpointOf(ours, 7, "42", 10, "a"), checkpointOf(ours, -7, "42", 10, "own"),
			checkpointOf(ours, 7, "\x00", 1, "z"),
		},
		{checkpointOf(ours, 7, "42", 9, "older"), checkpointOf(12345, 7, "42", 99, "of no tenant")},
		{checkpointOf(ours, 7, "42", 11, "b")},
	} {
		if err := w.WriteCheckpoints(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"-7/42=own", "7/\x00=z", "7/42=b"}
	if got := w.checkpoints(t); !slices.Equal(got, want) {
		t.Errorf("the table has %q, want %q", got, want)
	}
	old := []rules.Checkpoint{checkpointOf(ours, 7, "42", 10, ""), checkpointOf(ours, -7, "42", 10, "")}
	if n := must(w.DropCheckpoints(t.Context(), old))(t); n != 1 {
		t.Errorf("%d rows were dropped, want the one that is as it was", n)
	}
}

func TestNothingBringsTheCheckpointsOfAnErasedUserBack(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	ours, ctx := w.ours.ID, t.Context()
	long := "long" + fmt.Sprintf("%0100d", 7)
	key := enforce.Key{Subject: long}
	digest := key.Digest()
	stamp := time.Now().UnixMicro()
	hashed := checkpointOf(ours, w.ours.user.ID, fmt.Sprintf("#%x", digest), stamp, "hashed")
	hashed.Owner = digest[:]
	rows := []rules.Checkpoint{
		checkpointOf(ours, 7, "mallory", stamp, "a"), checkpointOf(ours, -7, "mallory", stamp, "own"),
		checkpointOf(ours, 7, "bob", stamp, "b"), checkpointOf(w.theirs.ID, 7, "mallory", stamp, "theirs"), hashed,
	}
	if err := w.WriteCheckpoints(ctx, rows); err != nil {
		t.Fatal(err)
	}
	found := must(w.CheckpointsOfUser(ctx, ours, "mallory", rules.CheckpointPlace{}, 10))(t)
	if len(found) != 2 {
		t.Errorf("an export finds %d checkpoints, want 2", len(found))
	}
	w.erase(t, ours, "mallory")
	w.erase(t, ours, long)
	if err := w.WriteCheckpoints(ctx, rows); err != nil {
		t.Fatal(err)
	}
	want := []string{"7/bob=b", "7/mallory=theirs"}
	if got := w.checkpoints(t); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("after the erasure the table has %q, want %q", got, want)
	}
	again := checkpointOf(ours, 7, "mallory", time.Now().UnixMicro(), "new")
	if err := w.WriteCheckpoints(ctx, []rules.Checkpoint{again}); err != nil {
		t.Fatal(err)
	}
	if got := w.checkpoints(t); !slices.Contains(got, "7/mallory=new") {
		t.Errorf("a user who comes again is not written: %q", got)
	}
}

func TestAnErasureWaitsForTheWriteOfCheckpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	conn := connect(t, w.url)
	tx := must(conn.Begin(ctx))(t)
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock_shared(hashtext('sluice checkpoints'))"); err != nil {
		t.Fatal(err)
	}
	erased := make(chan struct{})
	go func() {
		defer close(erased)
		w.erase(t, w.ours.ID, "mallory")
	}()
	other := connect(t, w.url)
	for waiting := false; !waiting; {
		err := other.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)").
			Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := tx.Exec(ctx, "INSERT INTO bucket_checkpoint VALUES ($1, 7, 'mallory', 1, '', sha256('mallory'))",
		w.ours.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	<-erased
	if got := w.checkpoints(t); len(got) != 0 {
		t.Errorf("the table has %q", got)
	}
}

func TestACheckpointIsOfTheUserWhoOwnsItsBucket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	named := must(w.CreateRule(ctx, limit(t, ours, "user:mallory:endpoint:{endpoint}", "", "")))(t).ID
	watcher := snapshot.NewWatcher(w.Store, snapshot.WatcherOptions{})
	if err := watcher.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	long := fmt.Sprintf("%0100d", 1)
	memory := membucket.New(membucket.Options{CheckpointAbove: time.Hour})
	daily := enforce.Limit{Rate: 1000.0 / 86400, Burst: 1000}
	own := enforce.Limit{Kind: rules.KindFixedWindow, Burst: 1000, Interval: 24 * time.Hour.Microseconds()}
	_ = memory.Take(ctx, []enforce.BucketCheck{{
		Cost: 600 * enforce.Token,
		Tiers: []enforce.Tier{
			{Key: enforce.Key{Tenant: ours, Rule: named, Subject: "/api"}, Limit: daily},
			{Key: enforce.Key{Tenant: ours, Rule: w.ours.user.ID, Subject: long}, Limit: daily},
			{Key: enforce.Key{Tenant: ours, Rule: 1 << 40, Subject: "mallory"}, Limit: daily},
			{Key: enforce.Key{Tenant: ours, Rule: -named, Subject: rules.OwnSubject(own, "/api")}, Limit: own},
			{Key: enforce.Key{Tenant: ours, Rule: -named, Subject: rules.OwnSubject(own, "/"+long)}, Limit: own},
		},
	}})
	if n, err := checkpoint.NewWriter(memory, w.Store, watcher.Snapshot, nil).Write(ctx); err != nil || n != 4 {
		t.Fatalf("%d checkpoints are written, want 4: %v", n, err)
	}
	for user, want := range map[string]int{"mallory": 3, long: 1} {
		if found := must(w.CheckpointsOfUser(ctx, ours, user, rules.CheckpointPlace{}, 10))(t); len(found) != want {
			t.Errorf("%s owns %d checkpoints, want %d", user, len(found), want)
		}
		w.erase(t, ours, user)
	}
	if got := w.checkpoints(t); len(got) != 0 {
		t.Errorf("after the erasures the table has %q", got)
	}
}

func TestBucketsOfALongLimitSurviveTheirProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	watcher := snapshot.NewWatcher(w.Store, snapshot.WatcherOptions{})
	if err := watcher.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	open := func() *membucket.Store {
		return membucket.New(membucket.Options{
			CheckpointAbove: time.Hour, Clock: now.UnixMicro,
		})
	}
	daily := enforce.Limit{Rate: 1000.0 / 86400, Burst: 1000}
	tiers := func() []enforce.BucketCheck {
		return []enforce.BucketCheck{{
			Cost: 600 * enforce.Token,
			Tiers: []enforce.Tier{
				{Key: enforce.Key{Tenant: ours, Rule: w.ours.user.ID, Subject: "42"}, Limit: daily},
				{Key: enforce.Key{Tenant: ours, Rule: w.ours.user.ID, Subject: fmt.Sprintf("%0100d", 1)}, Limit: daily},
			},
		}}
	}
	first := open()
	checks := tiers()
	_ = first.Take(ctx, checks)
	writer := checkpoint.NewWriter(first, w.Store, watcher.Snapshot, nil)
	if n, err := writer.Write(ctx); err != nil || n != 2 || writer.Written() != 2 {
		t.Fatalf("%d checkpoints are written, want 2: %v", n, err)
	}
	if found := must(w.CheckpointsOfUser(ctx, ours, "42", rules.CheckpointPlace{}, 10))(t); len(found) != 1 {
		t.Errorf("the user owns %d checkpoints, want 1", len(found))
	}
	second := open()
	if n, err := checkpoint.Load(ctx, w.Store, second); err != nil || n != 2 {
		t.Fatalf("%d buckets are loaded, want 2: %v", n, err)
	}
	checks = tiers()
	_ = second.Take(ctx, checks)
	for i := range checks[0].Tiers {
		if left := checks[0].Tiers[i].Bucket.Level.Micros; left != 400*enforce.Token {
			t.Errorf("bucket %d has %d millionths after a restart", i, left)
		}
	}
	for _, then := range []struct {
		age     time.Duration
		removed int64
	}{{47 * time.Hour, 0}, {49 * time.Hour, 2}} {
		n, err := checkpoint.Tidy(ctx, w.Store, watcher.Snapshot(), now.Add(then.age))
		if err != nil || n != then.removed {
			t.Errorf("after %s %d are removed, want %d: %v", then.age, n, then.removed, err)
		}
	}
}

func TestTenantsWithCheckpointsAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url, `INSERT INTO bucket_checkpoint (tenant_id, rule_id, subject, stamp, state)
SELECT 1000001, 1 + n % 10, n::text::bytea, n, ''::bytea FROM generate_series(1, 20000) AS n
UNION ALL SELECT 1000002, -7, 'own', 1, ''
UNION ALL SELECT 1000003, 0, n::text::bytea, n, '' FROM generate_series(1, 1000) AS n`)
	exec(t, w.url, "VACUUM ANALYZE bucket_checkpoint")
	got := must(w.TenantsWithCheckpoints(t.Context(), []rules.TenantID{1000004, 1000003, 1000002, 1000001}))(t)
	slices.Sort(got)
	if want := []rules.TenantID{1000001, 1000002}; !slices.Equal(got, want) {
		t.Errorf("tenants %d have checkpoints, want %d", got, want)
	}
	query := queryOf(t, "platform.sql", "TenantsWithCheckpoints :many", map[string]string{
		"tenant_ids": "ARRAY(SELECT generate_series(1000001, 1000500))",
	})
	plan := lines(t, connect(t, w.url), "EXPLAIN (ANALYZE, TIMING OFF) "+query)
	notMoreThan(t, plan, 500)
	if text := strings.Join(plan, "\n"); strings.Contains(text, "Seq Scan on bucket_checkpoint") {
		t.Errorf("the table is read as a whole:\n%s", text)
	}
}
