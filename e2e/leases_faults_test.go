package e2e_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

const (
	faultRate, faultBurst = 300, 300
	// The rules fail closed, so only buckets let checks pass.
	faultRules = `
rules:
  - {key_pattern: global, rate: 300/second, burst_capacity: 300, failure_mode: closed}
  - {key_pattern: "user:{user_id}", rate: 10000/second, burst_capacity: 10000, failure_mode: closed}
`
	faultBudget = "--store-budget=250ms"
)

// In no interval more than the limit is admitted, except for the loss by the fault itself, and enforcement is back
// within two seconds.
func TestALimitOnLeasedTokensHoldsThroughFaults(t *testing.T) {
	t.Parallel()
	t.Run("Redis is frozen for longer than leased tokens live", func(t *testing.T) {
		t.Parallel()
		redis := devdbtest.Redis(t)
		l := startFaultLoad(t, newTenant(t, faultRules).startAPIs(t, 2, redis.URL(), faultBudget))
		mustHappen(t, redis.Freeze())
		l.wantOutage(t)
		mustHappen(t, redis.Thaw())
		l.wantEnforced(t)
		l.wantLimit(t, 0)
	})
	t.Run("Redis is killed and comes back empty", func(t *testing.T) {
		t.Parallel()
		redis := devdbtest.Redis(t)
		l := startFaultLoad(t, newTenant(t, faultRules).startAPIs(t, 2, redis.URL(), faultBudget))
		redis.Kill()
		l.wantOutage(t)
		mustHappen(t, redis.Restart(t.Context()))
		l.wantEnforced(t)
		l.wantLimit(t, faultBurst+faultBurst/2) // a full bucket, and what was lent
	})
	t.Run("Redis is killed and comes back with its data", func(t *testing.T) {
		t.Parallel()
		redis, err := devdb.StartDurableRedis(t.Context(), t.TempDir())
		mustHappen(t, err)
		t.Cleanup(redis.Kill)
		l := startFaultLoad(t, newTenant(t, faultRules).startAPIs(t, 2, redis.URL(), faultBudget))
		mustHappen(t, redis.Restart(t.Context()))
		l.wantEnforced(t) // some leased tokens may be alive still
		redis.Kill()
		l.wantOutage(t)
		mustHappen(t, redis.Restart(t.Context()))
		l.wantEnforced(t)
		l.wantLimit(t, 0)
	})
	t.Run("a sentinel has a replica take over", func(t *testing.T) {
		t.Parallel()
		group, err := devdb.StartRedisGroup(t.Context(), t.TempDir())
		mustHappen(t, err)
		t.Cleanup(group.Kill)
		eventually(t, patience, "the replica to follow, and the sentinel to know it", func() bool {
			return strings.Contains(command(t, group.Replica.Addr(), "INFO replication"), "master_link_status:up") &&
				strings.Contains(command(t, group.Sentinel.Addr(), "INFO sentinel"), "slaves=1")
		})
		l := startFaultLoad(t, newTenant(t, faultRules).startAPIs(t, 2, group.URL(), faultBudget))
		group.Master.Kill()
		eventually(t, patience, "the replica to be the master", func() bool {
			return strings.Contains(command(t, group.Replica.Addr(), "INFO replication"), "role:master")
		})
		l.wantEnforced(t)
		l.wantLimit(t, faultBurst) // the replica may lack the latest takes
	})
	t.Run("PostgreSQL answers nothing", func(t *testing.T) {
		t.Parallel()
		postgres := startPostgres(t)
		admin(t, postgres.address, "migrate")
		apis := newTenantIn(t, postgres.address, faultRules).startAPIs(t, 2, devdbtest.Redis(t).URL(), faultBudget)
		l := startFaultLoad(t, apis)
		postgres.proxy.silent.Store(true)
		eventually(t, patience, "the processes to miss the database", func() bool {
			return !slices.ContainsFunc(apis, func(a *api) bool { return a.ready(t).Database != "down" })
		})
		l.wantEnforced(t) // on leased tokens, as before
		postgres.proxy.silent.Store(false)
		eventually(t, patience, "the database to be up again", func() bool { return apis[0].ready(t).Database == "up" })
		l.wantEnforced(t)
		l.wantLimit(t, 0)
	})
	t.Run("replicas take over", func(t *testing.T) {
		t.Parallel()
		cluster, err := devdb.StartRedisCluster(t.Context(), t.TempDir(), 3, true)
		mustHappen(t, err)
		t.Cleanup(cluster.Kill)
		for _, replica := range cluster.Replicas {
			eventually(t, patience, "a replica to follow", func() bool {
				return strings.Contains(command(t, replica.Addr(), "INFO replication"), "master_link_status:up")
			})
		}
		l := startFaultLoad(t, newTenant(t, faultRules).startAPIs(t, 2, cluster.URL(), faultBudget))
		for i, master := range cluster.Masters {
			master.Kill()
			command(t, cluster.Replicas[i].Addr(), "CLUSTER FAILOVER TAKEOVER")
			l.wantEnforced(t)
		}
		l.wantLimit(t, faultBurst) // replicas may lack the latest takes
	})
}

func mustHappen(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, addr, text string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	mustHappen(t, err)
	defer func() { _ = conn.Close() }()
	mustHappen(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, text+"\r\n")
	mustHappen(t, err)
	var answer strings.Builder
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		answer.WriteString(lines.Text() + "\n")
		if !strings.HasPrefix(answer.String(), "$") || lines.Text() == "" && strings.Count(answer.String(), "\n") > 2 {
			break
		}
	}
	return answer.String()
}

// admittedCheck was admitted at an unknown time between asked and decided.
type admittedCheck struct {
	user           string
	asked, decided time.Duration
}

type faultLoad struct {
	rate, burst float64 // of the bucket that all checks share
	victim      *api    // may leave checks unanswered; nil for none
	began       time.Time
	stop        chan struct{}
	end         func() // the load
	callers     sync.WaitGroup
	mu          sync.Mutex
	admitted    []admittedCheck
	passed      atomic.Int64
	denied      atomic.Int64 // by whatever limit
	exhausted   atomic.Int64 // those that the shared bucket denied
	unavailable atomic.Int64
}

func newFaultLoad(t *testing.T, rate, burst float64) *faultLoad {
	t.Helper()
	l := &faultLoad{rate: rate, burst: burst, began: time.Now(), stop: make(chan struct{})}
	l.end = sync.OnceFunc(func() {
		close(l.stop)
		l.callers.Wait()
	})
	t.Cleanup(l.end)
	return l
}

// startFaultLoad asks for nearly twice the limit, once each process serves checks from leased tokens.
func startFaultLoad(t *testing.T, apis []*api) *faultLoad {
	t.Helper()
	l := newFaultLoad(t, faultRate, faultBurst)
	for _, a := range apis {
		l.add(t, a, 4, ownUser)
	}
	for _, a := range apis {
		eventually(t, patience, "checks on leased tokens",
			func() bool { return a.metric(t, "sluice_leased_checks_total") > 50 })
	}
	return l
}

func ownUser(caller, _ int) string { return fmt.Sprint("user-", caller) }

// add adds callers with up to 67 checks a second each.
func (l *faultLoad) add(t *testing.T, a *api, callers int, userOf func(caller, n int) string) {
	t.Helper()
	for caller := range callers {
		l.callers.Go(func() { l.ask(t, a, func(n int) string { return userOf(caller, n) }) })
	}
}

func (l *faultLoad) ask(t *testing.T, a *api, userOf func(n int) string) {
	every := time.NewTicker(15 * time.Millisecond)
	defer every.Stop()
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		case <-every.C:
		}
		user, asked := userOf(n), time.Since(l.began)
		got, err := a.try(fmt.Sprintf(`{"user_id":%q}`, user))
		if err != nil {
			if a != l.victim {
				t.Errorf("a check was not answered: %v", err)
			}
			return
		}
		switch got.status {
		case http.StatusOK:
			l.mu.Lock()
			l.admitted = append(l.admitted, admittedCheck{user, asked, time.Since(l.began)})
			l.mu.Unlock()
			l.passed.Add(1)
		case http.StatusTooManyRequests:
			l.denied.Add(1)
			if got.ViolatedTier != nil && *got.ViolatedTier == "global" {
				l.exhausted.Add(1)
			}
		default:
			l.unavailable.Add(1)
		}
	}
}

func (l *faultLoad) wantOutage(t *testing.T) {
	t.Helper()
	before := l.unavailable.Load()
	eventually(t, patience, "checks to fail", func() bool { return l.unavailable.Load() > before+100 })
	passed := l.passed.Load()
	before = l.unavailable.Load()
	eventually(t, patience, "no check to pass", func() bool {
		if now := l.passed.Load(); now != passed {
			passed, before = now, l.unavailable.Load()
		}
		return l.unavailable.Load() > before+200
	})
}

func (l *faultLoad) wantEnforced(t *testing.T) {
	t.Helper()
	before := l.passed.Load()
	eventually(t, changesArriveIn, "checks to pass", func() bool { return l.passed.Load() > before+20 })
	before = l.passed.Load()
	eventually(t, patience, "checks to go on", func() bool { return l.passed.Load() > before+200 })
}

func (l *faultLoad) wantLimit(t *testing.T, allowance float64) {
	t.Helper()
	l.end()
	t.Logf("%d were denied and %d failed", l.denied.Load(), l.unavailable.Load())
	wantWithinLimit(t, l.admitted, l.rate, l.burst, allowance)
}

func wantWithinLimit(t *testing.T, admitted []admittedCheck, rate, burst, allowance float64) {
	t.Helper()
	over, from, to := mostOver(admitted, rate, burst)
	t.Logf("%d passed; the most in an interval was %.1f above the limit, from %v to %v", len(admitted), over, from, to)
	if over > allowance {
		t.Errorf("%.1f more than the limit passed, of at most %.0f", over, allowance)
	}
}

// mostOver returns the interval with the most checks beyond a bucket's.
func mostOver(admitted []admittedCheck, rate, burst float64) (over float64, from, to time.Duration) {
	starts, ends := slices.Clone(admitted), slices.Clone(admitted)
	slices.SortFunc(starts, func(a, b admittedCheck) int { return cmp.Compare(a.asked, b.asked) })
	slices.SortFunc(ends, func(a, b admittedCheck) int { return cmp.Compare(a.decided, b.decided) })
	over = math.Inf(-1)
	for i := range starts {
		since, within := starts[i].asked, 0.0 // those that were certainly admitted since then
		for _, one := range ends {
			if one.asked < since {
				continue
			}
			within++
			if more := within - burst - rate*(one.decided-since).Seconds(); more > over {
				over, from, to = more, since-starts[0].asked, one.decided-starts[0].asked
			}
		}
	}
	return over, from, to
}
