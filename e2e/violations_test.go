package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

type attack struct {
	subjects, each int           // each subject's first check passes, and all others are denied
	freeze         time.Duration // of the database, midway
	processes      int
}

const attackBatch = 500

func (a attack) checks() int { return a.subjects * a.each }

func TestEveryDenialOfAnAttackIsCountedThoughTheDatabaseFreezes(t *testing.T) {
	t.Parallel()
	scale := attack{subjects: 5_000, each: 9, freeze: time.Second, processes: 4}
	const allowed = 1.25
	if *soak {
		scale = attack{subjects: 100_000, each: 11, freeze: 5 * time.Second, processes: 4}
	}
	postgres := startPostgres(t)
	direct := postgres.server.URL("sluice")
	admin(t, direct, "migrate")
	// The next run would go on from a long limit's bucket.
	tn := newTenantIn(t, direct, `rules: [{key_pattern: "user:{user_id}", rate: 2/hour, burst_capacity: 1}]`)

	var off, on []time.Duration
	rounds := 1
	if *soak {
		rounds = 3
	}
	for range rounds {
		off = append(off, scale.run(t, tn, postgres, "--recording=false")...)
		on = append(on, scale.run(t, tn, postgres)...)
	}
	ratio := float64(quantile(on, 0.5)) / float64(quantile(off, 0.5))
	t.Logf("a batch of %d takes %s without recording and %s with it: %.2f times as long",
		attackBatch, quantile(off, 0.5), quantile(on, 0.5), ratio)
	if *soak && ratio > allowed {
		t.Errorf("recording makes checks %.2f times as slow, want at most %.2f", ratio, allowed)
	}

	books := readBooks(t, direct)
	t.Logf("the books: %+v", books)
	want := books
	want.denied = int64(rounds * (scale.checks() - scale.subjects))
	want.counted, want.verdicts = want.denied, want.denied
	want.allowed, want.unbalanced = int64(rounds*scale.subjects), 0
	if books != want {
		t.Errorf("the books are\n%+v, want\n%+v", books, want)
	}
	if books.subjects < int64(scale.subjects)/2 {
		t.Errorf("only %d of %d subjects are known", books.subjects, scale.subjects)
	}
}

type books struct {
	denied         int64 // by subject and minute
	counted        int64 // denied checks: the sum of the counts of rows, and of rows that were dropped
	verdicts       int64 // denied checks
	allowed        int64
	unbalanced     int64
	subjects, rows int64
}

func readBooks(t *testing.T, database string) (b books) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(t.Context()) }()
	err = connection.QueryRow(t.Context(), `
		WITH rows AS (
			SELECT tenant_id, rule_id, substr(bucket_key, strpos(bucket_key, ':') + 1) AS subject,
				sum(count) AS counted, count(*) AS n
			FROM rate_limit_violation GROUP BY 1, 2, 3
		), counts AS (
			SELECT tenant_id, rule_id, subject, sum(denied) AS denied, sum(detail_dropped) AS dropped
				FROM violation_minute GROUP BY 1, 2, 3
		)
		SELECT coalesce(sum(denied), 0)::bigint, (coalesce(sum(counted), 0) + coalesce(sum(dropped), 0))::bigint,
			(SELECT coalesce(sum(denied), 0)::bigint FROM decision_minute WHERE rule_id = 0),
			(SELECT coalesce(sum(allowed), 0)::bigint FROM decision_span WHERE rule_id = 0 AND span_minutes = 1440),
			count(*) FILTER (WHERE coalesce(denied, 0) <> coalesce(counted, 0) + coalesce(dropped, 0)), count(*),
				coalesce(sum(n), 0)::bigint
		FROM counts FULL JOIN rows USING (tenant_id, rule_id, subject)`).
		Scan(&b.denied, &b.counted, &b.verdicts, &b.allowed, &b.unbalanced, &b.subjects, &b.rows)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (a attack) run(t *testing.T, tn tenant, postgres *privatePostgres, options ...string) []time.Duration {
	t.Helper()
	apis := make([]*api, a.processes)
	redis := devdbtest.Redis(t).URL()
	for i := range apis {
		apis[i] = tn.spawnAPI(t, redis, options...)
	}
	for _, process := range apis {
		eventually(t, patience, "the api process to be ready",
			func() bool { return process.ready(t).status == http.StatusOK })
	}
	began := time.Now()
	batches := a.checks() / attackBatch
	var next, denials atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	var callers sync.WaitGroup
	halfway := make(chan struct{})
	for _, process := range apis {
		callers.Go(func() {
			var mine []time.Duration
			for {
				batch := int(next.Add(1)) - 1
				if batch == batches/2 {
					close(halfway)
				}
				if batch >= batches {
					break
				}
				at := time.Now()
				denied, err := process.batch(a.bodyOf(batch))
				if err != nil {
					t.Error(err)
					break
				}
				mine = append(mine, time.Since(at))
				denials.Add(int64(denied))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	<-halfway
	thaw := postgres.freeze(t)
	time.AfterFunc(a.freeze, thaw)
	callers.Wait()
	asked := time.Since(began)
	most := 0.0
	for _, process := range apis {
		most = max(most, process.metric(t, "process_resident_memory_bytes"))
	}
	thawed := began.Add(asked)
	eventually(t, a.freeze+patience, "the database to be there again", func() bool {
		return apis[0].ready(t).Database == "up"
	})
	for _, process := range apis {
		process.stop(t)
	}
	t.Logf("%v: %d checks in %s, %d denied, %.0f MiB at most in one process, stopped %s later",
		options, a.checks(), asked.Round(time.Millisecond), denials.Load(), most/(1<<20),
		time.Since(thawed).Round(time.Millisecond))
	if want := int64(a.checks() - a.subjects); denials.Load() != want {
		t.Errorf("%d checks were denied, want %d", denials.Load(), want)
	}
	if most > 400<<20 {
		t.Errorf("a process used %.0f MiB", most/(1<<20))
	}
	return took
}

func (a attack) bodyOf(batch int) []byte {
	var body bytes.Buffer
	body.WriteString(`{"checks":[`)
	for i := range attackBatch {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"user_id":"user-%d","endpoint":"/api/search","method":"GET","ip":"203.0.113.9"}`,
			(batch*attackBatch+i)%a.subjects)
	}
	body.WriteString("]}")
	return body.Bytes()
}

func (a *api) batch(body []byte) (denied int, err error) {
	request, err := http.NewRequest(http.MethodPost, "http://"+a.checks+"/v1/check/batch", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+a.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("batch: status %d, %w: %.200s", response.StatusCode, err, text)
	}
	return bytes.Count(text, []byte(`"status":429`)), nil
}

// freeze stops every process of the server until thaw is called.
func (p *privatePostgres) freeze(t *testing.T) (thaw func()) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.server.Dir(), "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	postmaster, err := strconv.Atoi(strings.SplitN(string(text), "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	stopped := []int{postmaster} // first, so that it starts no others
	_ = syscall.Kill(postmaster, syscall.SIGSTOP)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The name in parentheses may hold anything; the state and the parent follow the last one.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if parent, parentErr := strconv.Atoi(fields[1]); err == nil && parentErr == nil && parent == postmaster {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			stopped = append(stopped, pid)
		}
	}
	thaw = sync.OnceFunc(func() {
		for _, pid := range slices.Backward(stopped) {
			_ = syscall.Kill(pid, syscall.SIGCONT) // fails only if it has ended
		}
	})
	t.Cleanup(thaw)
	return thaw
}

func TestAKilledProcessLosesAtMostOneFlushInterval(t *testing.T) {
	t.Parallel()
	postgres := devdbtest.Postgres(t)
	tn := newTenantIn(t, postgres, `rules: [{key_pattern: "user:{user_id}", rate: 1/hour, burst_capacity: 1}]`)
	const interval = time.Second
	a := tn.spawnAPI(t, devdbtest.Redis(t).URL())
	eventually(t, patience, "the api process to be ready", func() bool { return a.ready(t).status == http.StatusOK })
	watch := awake.Start()
	defer watch.Stop()
	denials := make([]time.Duration, 0, 1024) // when each was answered
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; watch.Now() < 4*interval; <-tick.C {
		if got, err := a.try(`{"user_id":"42"}`); err == nil && got.status == http.StatusTooManyRequests {
			denials = append(denials, watch.Now())
		}
	}
	killed := watch.Now()
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-a.ended
	old := 0 // those that a flush and the time that it takes were enough for
	for _, at := range denials {
		if killed-at > 2*interval {
			old++
		}
	}
	b := readBooks(t, postgres)
	t.Logf("%d denials, %d of them older than a flush; %d are stored", len(denials), old, b.denied)
	if b.denied < int64(old) || b.denied > int64(len(denials)) || b.unbalanced != 0 {
		t.Errorf("%d denials are stored and %d subjects do not add up, want from %d to %d and none", b.denied,
			b.unbalanced, old, len(denials))
	}
}

func TestStoppingAProcessWritesWhatItRecorded(t *testing.T) {
	t.Parallel()
	postgres := devdbtest.Postgres(t)
	tn := newTenantIn(t, postgres, `
rules:
  - {key_pattern: "user:{user_id}", rate: 1/hour, burst_capacity: 1}
  - {key_pattern: "user:{user_id}", name: candidate, rate: 1/hour, burst_capacity: 1, mode: shadow}
`)
	a := tn.spawnAPI(t, devdbtest.Redis(t).URL(), "--flush-interval=1m")
	eventually(t, patience, "the api process to be ready", func() bool { return a.ready(t).status == http.StatusOK })
	odd, err := json.Marshal("\u0001\t'\"\\ \u2028\ufeff\U0001f6b0; DROP TABLE plan --")
	if err != nil {
		t.Fatal(err)
	}
	a.want(t, `{"user_id":`+string(odd)+`}`, http.StatusOK)
	for range 10 {
		a.want(t, `{"user_id":`+string(odd)+`}`, http.StatusTooManyRequests)
		a.want(t, `{"user_id":`+string(odd)+`,"cost":0}`, http.StatusOK) // looks, and is not counted
	}
	if got := readBooks(t, postgres); got != (books{}) {
		t.Errorf("before the flush interval passed there are %+v", got)
	}
	a.stop(t)
	if got := readBooks(t, postgres); got.denied != 10 || got.counted != 10 || got.verdicts != 10 || got.allowed != 1 {
		t.Errorf("after the end there are %+v, want 10 denials and one allowed", got)
	}
}
