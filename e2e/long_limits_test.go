package e2e_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

const (
	longLimit, busyLimit = 1000, 1_000_000
	longRules            = `
rules:
  - {key_pattern: "user:{user_id}:endpoint:/token", rate: 1000/day, burst_capacity: 1000}
  - {key_pattern: "user:{user_id}:endpoint:/window", algorithm: fixed_window, window: 24h, burst_capacity: 1000}
  - {key_pattern: "user:{user_id}:endpoint:/calendar", algorithm: fixed_window, window: month, burst_capacity: 1000}
  - {key_pattern: "endpoint:/busy", rate: 1000000/day, burst_capacity: 1000000}
`
	writtenShare = 0.02             // of a limit, before a bucket is written
	allowedFor   = 10 * time.Second // admitted checks may be unwritten
)

var longKinds = [...]string{"token", "window", "calendar"}

type longAdmission struct {
	asked, decided time.Duration
	cost           float64
}

type longBucket struct {
	check    string // without the cost
	limit    float64
	mu       sync.Mutex
	admitted []longAdmission
}

// longWorld is two processes, a store that is about to be lost, and buckets that are used from 0 to 100 %.
type longWorld struct {
	store     longStore
	tn        tenant
	database  *privatePostgres // nil unless it goes away
	apis      []*api
	serving   [2]atomic.Pointer[api]
	leaving   sync.Map // the processes that may leave checks unanswered
	buckets   []*longBucket
	busy      *longBucket
	began     time.Time
	stop      chan struct{}
	callers   sync.WaitGroup
	end       func()
	answered  atomic.Int64
	degraded  atomic.Int64
	inARow    atomic.Int64 // answers of the store
	times     sync.Mutex
	askedAt   []time.Duration // degraded checks
	soak      time.Duration   // the load before the loss, with -soak
	lostAt    time.Duration
	writtenAt time.Duration
	backAt    time.Duration // when the store last did not decide
}

type longStore struct {
	url     string
	options []string // of the processes
	halfway func()   // when half of the use has happened; nil for nothing
	// away takes the store away, and back brings it back without the latest data.
	away, back func()
}

func TestALongLimitSurvivesTheLossOfItsStore(t *testing.T) {
	t.Parallel()
	onOneRedis := func(t *testing.T) longStore {
		t.Helper()
		server := devdbtest.Redis(t)
		return longStore{
			url: server.URL(), away: server.Kill, back: func() { mustHappen(t, server.Restart(t.Context())) },
		}
	}
	for name, test := range map[string]struct {
		open                func(*testing.T) longStore
		withoutDB, killsAPI bool
	}{
		"Redis is emptied": {open: func(t *testing.T) longStore {
			t.Helper()
			server := devdbtest.Redis(t)
			return longStore{url: server.URL(), back: func() { command(t, server.Addr(), "FLUSHALL") }}
		}},
		"Redis is killed and comes back empty":                          {open: onOneRedis},
		"Redis comes back empty while the database is away":             {open: onOneRedis, withoutDB: true},
		"a process is killed, and Redis is killed and comes back empty": {open: onOneRedis, killsAPI: true},
		"Redis comes back from an old file": {open: func(t *testing.T) longStore {
			t.Helper()
			server := devdbtest.Redis(t)
			return longStore{
				url: server.URL(), halfway: func() { command(t, server.Addr(), "SAVE") }, away: server.Kill,
				back: func() { mustHappen(t, server.Restart(t.Context())) },
			}
		}},
		"a sentinel has an empty replica take over": {open: onSentinel},
		"a master of a cluster comes back empty":    {open: onCluster},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := test.open(t)
			w := newLongWorld(t, store, test.withoutDB, test.killsAPI)
			w.use(t)
			w.load(t)
			if test.killsAPI {
				w.leaving.Store(w.apis[0], true)
				w.apis[0].kill()
				w.apis = w.apis[1:]
			}
			if test.withoutDB {
				w.database.proxy.silent.Store(true)
			}
			w.lose(t)
			if test.withoutDB {
				w.awaitAnswers(t, 500)
				if *soak {
					w.awaitTime(t, allowedFor)
				}
				w.database.proxy.silent.Store(false)
				w.backAt = w.now()
			}
			w.wantLimits(t)
		})
	}
	t.Run("the processes move to another Redis", func(t *testing.T) {
		t.Parallel()
		w := newLongWorld(t, longStore{url: devdbtest.Redis(t).URL()}, false, false)
		w.use(t)
		w.load(t)
		w.move(t)
		w.wantLimits(t)
		if n := w.degraded.Load(); n > 0 {
			t.Errorf("customers notice: %d answers are degraded", n)
		}
	})
	t.Run("PostgreSQL crashes with buckets there", func(t *testing.T) {
		t.Parallel()
		var w *longWorld
		w = newLongWorld(t, longStore{
			options: []string{"--buckets=postgres"}, away: func() { w.database.server.Kill() },
			back: func() {
				w.database.start(t)
				w.database.proxy.moveTo(hostOf(t, w.database.server.URL("sluice")))
			},
		}, true, false)
		w.use(t)
		w.load(t)
		w.lose(t)
		w.wantLimits(t)
	})
}

func onSentinel(t *testing.T) longStore {
	t.Helper()
	group, err := devdb.StartRedisGroup(t.Context(), t.TempDir())
	mustHappen(t, err)
	t.Cleanup(group.Kill)
	eventually(t, patience, "the replica to follow, and the sentinel to know it", func() bool {
		return strings.Contains(command(t, group.Replica.Addr(), "INFO replication"), "master_link_status:up") &&
			strings.Contains(command(t, group.Sentinel.Addr(), "INFO sentinel"), "slaves=1")
	})
	return longStore{url: group.URL(), away: func() {
		command(t, group.Replica.Addr(), "CONFIG SET replica-read-only no")
		command(t, group.Replica.Addr(), "FLUSHALL")
		group.Master.Kill()
	}, back: func() {
		eventually(t, patience, "the replica to be the master", func() bool {
			return strings.Contains(command(t, group.Replica.Addr(), "INFO replication"), "role:master")
		})
	}}
}

func onCluster(t *testing.T) longStore {
	t.Helper()
	cluster, err := devdb.StartRedisCluster(t.Context(), t.TempDir(), 3, false)
	mustHappen(t, err)
	t.Cleanup(cluster.Kill)
	var keeper *devdb.Redis
	return longStore{url: cluster.URL(), away: func() {
		most := 0
		for _, master := range cluster.Masters {
			size := strings.Trim(command(t, master.Addr(), "DBSIZE"), ":\r\n")
			if n, err := strconv.Atoi(size); err == nil && n > most {
				most, keeper = n, master
			}
		}
		keeper.Kill()
	}, back: func() { mustHappen(t, keeper.Restart(t.Context())) }}
}

func newLongWorld(t *testing.T, store longStore, ownDatabase, killsAPI bool) *longWorld {
	t.Helper()
	w := &longWorld{store: store, began: time.Now(), stop: make(chan struct{})}
	if ownDatabase {
		w.database = startPostgres(t)
		admin(t, w.database.address, "migrate")
		w.tn = newTenantIn(t, w.database.address, longRules)
	} else {
		w.tn = newTenant(t, longRules)
	}
	if killsAPI {
		a := w.tn.spawnAPI(t, store.url, store.options...)
		eventually(t, patience, "the process to be ready", func() bool { return a.ready(t).status == http.StatusOK })
		w.apis = append(w.apis, a, w.tn.startAPI(t, store.url, store.options...))
	} else {
		w.apis = w.tn.startAPIs(t, 2, store.url, store.options...)
	}
	for i, a := range w.apis {
		w.serving[i].Store(a)
	}
	users := 100
	if *soak {
		users, w.soak = 10_000, time.Minute
		if store.halfway != nil { // a file that is ten minutes old
			w.soak *= 10
		}
	}
	for user := range users {
		for _, kind := range longKinds {
			w.buckets = append(w.buckets, &longBucket{
				check: fmt.Sprintf(`{"user_id":"user-%d","endpoint":"/%s","cost":`, user, kind), limit: longLimit,
			})
		}
	}
	w.busy = &longBucket{check: `{"user_id":"all","endpoint":"/busy","cost":`, limit: busyLimit}
	w.end = sync.OnceFunc(func() {
		close(w.stop)
		w.callers.Wait()
	})
	t.Cleanup(w.end)
	return w
}

func (w *longWorld) now() time.Duration { return time.Since(w.began) }

func (w *longWorld) ask(t *testing.T, a *api, b *longBucket, cost float64) (got answer, ok bool) {
	t.Helper()
	asked := w.now()
	got, err := a.try(b.check + fmt.Sprint(cost) + "}")
	if err != nil {
		if _, isLeaving := w.leaving.Load(a); !isLeaving {
			t.Errorf("a check was not answered: %v", err)
		}
		return got, false
	}
	decided := w.now()
	if got.status == http.StatusOK && cost > 0 {
		b.mu.Lock()
		b.admitted = append(b.admitted, longAdmission{asked, decided, cost})
		b.mu.Unlock()
	}
	w.answered.Add(1)
	if !got.Degraded {
		w.inARow.Add(1)
		return got, true
	}
	w.inARow.Store(0)
	w.times.Lock()
	defer w.times.Unlock()
	w.degraded.Add(1)
	w.askedAt = append(w.askedAt, asked)
	return got, true
}

func (w *longWorld) each(do func(n int, b *longBucket)) {
	var doing sync.WaitGroup
	const lanes = 8
	for lane := range lanes {
		doing.Go(func() {
			for n := lane; n < len(w.buckets); n += lanes {
				do(n, w.buckets[n])
			}
		})
	}
	doing.Wait()
}

// use uses 0 to 100 % of each bucket in two halves, and returns when that was written.
func (w *longWorld) use(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.tn.database)
	mustHappen(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	since, written := int64(0), 0
	half := func() {
		since, written = time.Now().UnixMicro(), 1
		for n := range w.buckets {
			if w.half(n) >= writtenShare*longLimit {
				written++
			}
		}
		w.each(func(n int, b *longBucket) {
			if cost := w.half(n); cost > 0 {
				w.ask(t, w.apis[n%2], b, cost)
			}
		})
		w.ask(t, w.apis[0], w.busy, 0.4*busyLimit)
		eventually(t, patience, "the checkpoints to be written", func() bool {
			rows := 0
			mustHappen(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM bucket_checkpoint WHERE stamp >= $1", since).
				Scan(&rows))
			return rows >= written
		})
	}
	half()
	if w.store.halfway != nil {
		w.store.halfway()
	}
	half()
	w.writtenAt = w.now()
	if n := w.degraded.Load(); n > 0 {
		t.Fatalf("%d answers are degraded before anything is lost", n)
	}
}

func (w *longWorld) half(n int) float64 {
	users := len(w.buckets) / len(longKinds)
	return math.Floor(float64(n/len(longKinds)) / float64(users-1) * longLimit / 2)
}

// load asks each process 270 times a second for some user, and 130 times for the busy bucket that it leases.
func (w *longWorld) load(t *testing.T) {
	t.Helper()
	for i := range w.apis {
		for caller := range 6 {
			w.callers.Go(func() {
				every := time.NewTicker(15 * time.Millisecond)
				defer every.Stop()
				for {
					b, cost := w.busy, 10
					if caller > 1 {
						b, cost = w.buckets[rand.IntN(len(w.buckets))], 1+rand.IntN(5)
					}
					a := w.serving[i].Load()
					if _, ok := w.ask(t, a, b, float64(cost)); !ok && w.serving[i].Load() == a {
						return
					}
					select {
					case <-w.stop:
						return
					case <-every.C:
					}
				}
			})
		}
	}
	w.awaitTime(t, w.soak)
	for _, a := range w.apis {
		eventually(t, patience, "checks on leased tokens", func() bool {
			return w.store.url == "" || a.metric(t, "sluice_leased_checks_total") > 50
		})
	}
}

func (w *longWorld) awaitTime(t *testing.T, d time.Duration) {
	t.Helper()
	from := w.now()
	eventually(t, d+patience, "the load to go on", func() bool { return w.now() >= from+d })
}

func (w *longWorld) awaitAnswers(t *testing.T, n int64) {
	t.Helper()
	from := w.answered.Load()
	eventually(t, patience, "answers", func() bool { return w.answered.Load() >= from+n })
}

func (w *longWorld) lose(t *testing.T) {
	t.Helper()
	w.lostAt = w.now()
	if w.store.away != nil {
		w.store.away()
		eventually(t, patience, "degraded answers", func() bool { return w.degraded.Load() > 100 })
	}
	w.store.back()
	w.backAt = w.now()
}

func (w *longWorld) move(t *testing.T) {
	t.Helper()
	other := devdbtest.Redis(t)
	w.lostAt = w.now()
	for i, former := range w.apis {
		w.apis[i] = w.tn.startAPI(t, other.URL())
		w.serving[i].Store(w.apis[i])
		w.leaving.Store(former, true)
		former.stop(t)
	}
	w.backAt = w.now()
}

// wantLimits waits for the store to decide again, and then asks each bucket for the rest.
func (w *longWorld) wantLimits(t *testing.T) {
	t.Helper()
	eventually(t, patience, "the store to decide again", func() bool { return w.inARow.Load() > 200 })
	w.awaitAnswers(t, 500)
	w.end()
	during := w.degraded.Load()
	w.each(func(n int, b *longBucket) { w.empty(t, w.apis[n%len(w.apis)], b) })
	w.empty(t, w.apis[0], w.busy)
	if more := w.degraded.Load() - during; more > 0 {
		t.Errorf("%d answers are degraded long after the loss", more)
	}
	if during > 0 {
		slices.Sort(w.askedAt)
		late, _ := slices.BinarySearch(w.askedAt, w.backAt+changesArriveIn)
		t.Logf("the store was away for %v; %d of %d answers were degraded, to checks from %v to %v after the loss; "+
			"%d of them were asked more than %v after the store was back", w.backAt-w.lostAt, during, w.answered.Load(),
			w.askedAt[0]-w.lostAt, w.askedAt[during-1]-w.lostAt, len(w.askedAt)-late, changesArriveIn)
		w.backAt = max(w.backAt, w.askedAt[during-1])
	}
	worst, over, tooMuch := 0.0, 0, 0
	for _, b := range append(w.buckets, w.busy) {
		excess, allowed := w.excess(b)
		if excess > 0 {
			worst = max(worst, excess/b.limit)
			over++
		}
		if excess > allowed {
			if tooMuch++; tooMuch <= 5 {
				t.Errorf("a bucket of %g has admitted %.0f more than one that lost nothing, of %.0f allowed: %s…",
					b.limit, excess, allowed, b.check)
			}
		}
	}
	t.Logf("%d of %d buckets admitted more than one that lost nothing, at most by %.1f %% of the limit; %d too much",
		over, len(w.buckets)+1, 100*worst, tooMuch)
}

func (w *longWorld) empty(t *testing.T, a *api, b *longBucket) {
	t.Helper()
	got, ok := w.ask(t, a, b, 0)
	if !ok || len(got.Tiers) != 1 || got.Tiers[0].Remaining == nil {
		t.Errorf("a look says %d %s", got.status, got.text)
		return
	}
	if left := math.Floor(*got.Tiers[0].Remaining); left > 0 {
		w.ask(t, a, b, left)
	}
	w.ask(t, a, b, b.limit/100)
	w.ask(t, a, b, 1)
}

// excess returns how much more than a lossless bucket one has admitted, and how much more it may.
func (w *longWorld) excess(b *longBucket) (excess, allowed float64) {
	from := w.writtenAt
	if *soak {
		from = w.lostAt - allowedFor
	}
	allowed = writtenShare * b.limit
	first, last := w.now(), time.Duration(0)
	for _, one := range b.admitted {
		excess += one.cost
		first, last = min(first, one.asked), max(last, one.decided)
		if one.decided >= from && one.asked <= w.backAt {
			allowed += one.cost
		}
	}
	excess -= b.limit * (1 + (last-first).Hours()/24) // what a token bucket earns
	if begins := time.Now().UTC().Truncate(24 * time.Hour); begins.After(w.began.Add(first)) {
		excess -= b.limit // a window has begun
	}
	return excess, allowed
}
