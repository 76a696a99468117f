package violations_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestSubjectsBeyondTheBoundAreCountedTogether(t *testing.T) {
	t.Parallel()
	const subjects = 20_000
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{MaxBytes: 1 << 20})
	for round := range 2 {
		for i := range subjects {
			r.Record(noon, denied(1, fmt.Sprint(i)))
		}
		if stats := r.Stats(); stats.Bytes > 1<<19 {
			t.Errorf("after round %d %d bytes are in memory, want at most %d", round, stats.Bytes, 1<<19)
		}
	}
	// A shard has memory for eight of this tenant beside the attack. With 50 subjects, more than eight met in one of
	// the 16 shards in one run of sixty.
	const quiet = 16
	for i := range quiet {
		r.Record(noon, denied(2, fmt.Sprint(i)))
	}
	flush(t, r)
	if denied := l.wantBalance(t); denied != 2*subjects+quiet {
		t.Errorf("%d denials are counted, want %d", denied, 2*subjects+quiet)
	}
	known := 0
	for at := range l.tallies {
		if at.tenant == 2 && !at.other {
			known++
		}
	}
	if known != quiet {
		t.Errorf("%d subjects of the tenant that is not attacked are known, want all %d", known, quiet)
	}
	if other := l.tallies[bucket{1, 12, "", true}]; other.Denied < subjects || other.Denied == 2*subjects {
		t.Errorf("%d denials are of others, want most and not all", other.Denied)
	}
}

func TestDenialsOfALongOutageAreCountedByTheHour(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{})
	const seconds, users = 6 * 3600, 30
	for second := range seconds {
		r.Record(noon.Add(time.Duration(second)*time.Second), denied(1, fmt.Sprint(second%users)))
	}
	flush(t, r)
	byUser := map[string]int64{}
	rows := 0
	for _, count := range l.recent {
		if count.Dimension == violations.ByUser {
			byUser[count.Value] += count.Denied
			rows++
		}
	}
	if len(byUser) != users || byUser["7"] != seconds/users {
		t.Errorf("the users were denied %v, want each of %d %d times", byUser, users, seconds/users)
	}
	if most := users*7 + 5*900/5; rows > most {
		t.Errorf("there are %d counts, want at most %d: of hours, and of slots of the last 15 minutes", rows, most)
	}
}

func TestCountsAreExactUnderFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			l := newLedger()
			l.fail = func(b *violations.Batch) (before, after error) {
				switch random.IntN(4) {
				case 0:
					return errAway, nil
				case 1:
					after = errAway
				}
				for i := range b.Tallies {
					for _, row := range b.Tallies[i].Details {
						if strings.Contains(row.Endpoint, "bad") {
							return violations.ErrRefused, nil
						}
					}
					if strings.Contains(b.Tallies[i].Subject, "bad") {
						return violations.ErrRefused, nil
					}
				}
				return nil, after
			}
			r := violations.NewRecorder(l, violations.Options{MaxBytes: 1 << 20})
			want := map[bucket]int64{}
			var mu sync.Mutex
			var callers sync.WaitGroup
			for caller := range 4 {
				callers.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(caller)+2))
					counts := map[bucket]int64{}
					for range 5000 {
						user, endpoint := fmt.Sprint(random.IntN(500)), "/"
						if random.IntN(100) == 0 {
							user = "bad" + user
						}
						if random.IntN(100) == 0 {
							endpoint = "/bad"
						}
						check := denied(rules.TenantID(1+random.IntN(2)), user)
						check.Request.Endpoint = endpoint
						r.Record(noon.Add(time.Duration(random.IntN(120))*time.Second), check)
						counts[bucket{tenant: check.Tenant, rule: 12, subject: user}]++
					}
					mu.Lock()
					defer mu.Unlock()
					for at, n := range counts {
						want[at] += n
					}
				})
			}
			for range 50 {
				_ = r.Flush(t.Context()) // failures are retried
			}
			callers.Wait()
			for tries := 0; r.Flush(t.Context()) != nil || tries == 0; tries++ { // once more after the rest was written
				if tries > 1000 {
					t.Fatal("what is left cannot be written")
				}
			}
			for r.Flush(t.Context()) != nil {
			}
			if got := l.wantBalance(t); got != 20_000 {
				t.Errorf("%d denials are counted, want 20000", got)
			}
			others := map[rules.TenantID]int64{}
			for at, n := range want {
				got := l.tallies[at].Denied
				if strings.Contains(at.subject, "bad") && got != 0 {
					t.Errorf("%+v was refused and is there", at)
				}
				others[at.tenant] += n - got
				if got > n {
					t.Errorf("%+v is counted %d times, want %d", at, got, n)
				}
			}
			for tenant, n := range others {
				if got := l.tallies[bucket{tenant, 12, "", true}].Denied; got != n {
					t.Errorf("%d denials of tenant %d are of others, want %d", got, tenant, n)
				}
			}
			if stats := r.Stats(); stats.CountsLost != 0 {
				t.Errorf("%d counts are lost", stats.CountsLost)
			}
		})
	}
}

func TestOneBadRowTakesNoNeighbourAlong(t *testing.T) {
	t.Parallel()
	l := newLedger()
	l.fail = func(b *violations.Batch) (before, after error) {
		for i := range b.Tallies {
			for _, row := range b.Tallies[i].Details {
				if row.Endpoint == "/bad" {
					return violations.ErrRefused, nil
				}
			}
		}
		return nil, nil
	}
	r := violations.NewRecorder(l, violations.Options{DetailsPerSecond: 5})
	for i := range 1000 {
		r.Record(noon, denied(1, fmt.Sprint(i)))
	}
	for _, endpoint := range []string{"/a", "/bad", "/b", "/c"} {
		check := denied(1, "500")
		check.Request.Endpoint = endpoint
		r.Record(noon, check)
	}
	flush(t, r)
	if denied := l.wantBalance(t); denied != 1004 {
		t.Errorf("%d denials are counted, want 1004", denied)
	}
	if len(l.rows) != 1003 {
		t.Errorf("%d rows are written, want all 1003 but the bad one", len(l.rows))
	}
	if got := l.tallies[bucket{1, 12, "500", false}]; got.Denied != 5 || got.DetailDropped != 1 {
		t.Errorf("the subject with the bad row is counted as %d with %d dropped, want 5 with 1", got.Denied,
			got.DetailDropped)
	}
	if refused := r.Stats().Refused; refused != 1 {
		t.Errorf("%d rows were refused, want 1", refused)
	}
}

func TestALongOutageKeepsTotalsAndGivesUpMinutes(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{MaxBytes: 1 << 16})
	for minute := range 10_000 {
		r.Record(noon.Add(time.Duration(minute)*time.Minute), denied(1, fmt.Sprint(minute)))
	}
	flush(t, r)
	wantVerdicts(t, "all checks", l.checks[1], violations.Verdicts{Denied: 10_000})
	if denied := l.wantBalance(t); denied != 10_000 {
		t.Errorf("%d denials are counted, want 10000", denied)
	}
	if len(l.minutes) > 1500 {
		t.Errorf("%d minutes were kept in 64 KiB", len(l.minutes))
	}
}

func TestALongSubjectIsCountedUnderAKeyOfItsOwn(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{})
	long := strings.Repeat("ä", 1000)
	for _, subject := range []string{long + "1", long + "2", long + "2", long[:1024]} {
		r.Record(noon, denied(1, subject))
	}
	flush(t, r)
	if len(l.tallies) != 3 {
		t.Errorf("%d subjects are counted, want 3", len(l.tallies))
	}
	for at := range l.tallies {
		if len(at.subject) > 1100 {
			t.Errorf("a subject of %d bytes is stored", len(at.subject))
		}
	}
}

func TestRunEndsThoughTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.fail = func(*violations.Batch) (before, after error) { return errAway, nil }
		var log strings.Builder
		r := violations.NewRecorder(l, violations.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 7 {
			r.Record(noon, denied(1, "42"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		r.Run(ctx, 2*time.Second)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it ended after %s, want its grace of 2 s", took)
		}
		if !strings.Contains(log.String(), "violations=7") {
			t.Errorf("the log does not say how many are lost: %s", &log)
		}
	})
}

func TestRunWritesEachIntervalAndAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		away := false
		l.fail = func(*violations.Batch) (before, after error) {
			if away {
				return errAway, nil
			}
			return nil, nil
		}
		r := violations.NewRecorder(l, violations.Options{FlushInterval: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx, time.Second) }()
		denials := func() int64 { l.mu.Lock(); defer l.mu.Unlock(); return l.checks[1].Denied }

		r.Record(noon, denied(1, "42"))
		time.Sleep(1100 * time.Millisecond) //nolint:forbidigo // the bubble's clock
		if denials() != 1 {
			t.Error("nothing was written after the flush interval")
		}
		l.mu.Lock()
		away = true
		l.mu.Unlock()
		r.Record(noon, denied(1, "42"))
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		if lag := r.Stats().Lag; lag < 59*time.Second {
			t.Errorf("the lag is %s after a minute's outage", lag)
		}
		l.mu.Lock()
		away = false
		l.mu.Unlock()
		time.Sleep(3100 * time.Millisecond) //nolint:forbidigo // the bubble's clock
		if denials() != 2 {
			t.Error("nothing was written within 3 s of the end of the outage")
		}
		r.Record(noon, denied(1, "42"))
		l.mu.Lock()
		fails := 3
		l.fail = func(*violations.Batch) (before, after error) {
			if fails--; fails >= 0 {
				return errAway, nil
			}
			return nil, nil
		}
		l.mu.Unlock()
		cancel()
		<-ended
		if denials() != 3 {
			t.Error("what was recorded last was not written at the end, though only the first tries failed")
		}
	})
}

// A thousand tenants whose checks match two rules each fill more than a batch.
func TestManyCountsWaitAndViolationsDoNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		counts, tallies := 0, 0
		l.fail = func(b *violations.Batch) (before, after error) {
			counts += len(b.Decisions)
			tallies += len(b.Tallies)
			return nil, nil
		}
		r := violations.NewRecorder(l, violations.Options{FlushInterval: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx, time.Second) }()
		const tenants, seconds = 1000, 17
		mostLag := time.Duration(0)
		for second := range seconds {
			for tenant := range rules.TenantID(tenants) {
				c := denied(tenant+1, "42")
				if tenant > 0 {
					c.Allowed, c.Tiers[0].Allowed, c.Tiers[0].Reason = true, true, ""
				}
				r.Record(noon, c)
			}
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock
			synctest.Wait()
			l.mu.Lock()
			if tallies < second {
				t.Errorf("after %d s, %d denials were written", second+1, tallies)
			}
			l.mu.Unlock()
			mostLag = max(mostLag, r.Stats().Lag)
		}
		cancel()
		<-ended
		if mostLag < 8*time.Second || mostLag > 11*time.Second {
			t.Errorf("the lag was %s at most, want about the ten seconds for which counts are held back", mostLag)
		}
		if most := 3 * 3 * tenants; counts > most {
			t.Errorf("it wrote %d counts, want at most %d", counts, most)
		}
		if got := l.checks[1].Denied; got != seconds {
			t.Errorf("%d denials were counted, want %d", got, seconds)
		}
		if got := l.checks[tenants].Allowed; got != seconds {
			t.Errorf("%d checks were counted, want %d", got, seconds)
		}
	})
}

func TestCountsThatAreTooManyToHoldAreWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		r := violations.NewRecorder(l, violations.Options{FlushInterval: time.Second, MaxBytes: 4 << 20})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx, time.Second) }()
		for second := range int64(5) {
			for tenant := range rules.TenantID(1000) {
				r.Record(noon, denied(tenant+1, "42"))
			}
			time.Sleep(1100 * time.Millisecond) //nolint:forbidigo // the bubble's clock
			synctest.Wait()
			l.mu.Lock()
			if got := l.checks[1000].Denied; got != second+1 {
				t.Errorf("%d checks were counted after %d", got, second+1)
			}
			l.mu.Unlock()
		}
		cancel()
		<-ended
	})
}

func TestWritesGoOnAfterAPanicInOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		panicked := false
		l.fail = func(*violations.Batch) (before, after error) {
			if !panicked {
				panicked = true
				panic("by the test")
			}
			return nil, nil
		}
		r := violations.NewRecorder(l, violations.Options{FlushInterval: time.Second})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx, time.Second) }()
		r.Record(noon, denied(1, "42"))
		<-time.After(5 * time.Second)
		if denied := l.wantBalance(t); denied != 1 || !panicked {
			t.Errorf("%d denials are written after a panic (%t), want 1", denied, panicked)
		}
		stop()
		<-ended
	})
}
