package violations_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is when these tests take place.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// bucket is what counts are kept for.
type bucket struct {
	tenant  rules.TenantID
	rule    rules.RuleID
	subject string
	other   bool
}

// ledger is a Sink in memory that can fail like a database.
type ledger struct {
	mu       sync.Mutex
	applied  map[int64]bool
	batches  int
	checks   map[rules.TenantID]violations.Verdicts // rule 0
	verdicts map[rules.RuleID]violations.Verdicts
	tallies  map[bucket]violations.Tally // summed over minutes
	rows     []*violations.Violation
	minutes  map[time.Time]bool

	fail func(*violations.Batch) (before, after error) // before or after the batch is applied
}

func newLedger() *ledger {
	return &ledger{
		applied: map[int64]bool{}, checks: map[rules.TenantID]violations.Verdicts{},
		verdicts: map[rules.RuleID]violations.Verdicts{}, tallies: map[bucket]violations.Tally{}, minutes: map[time.Time]bool{},
		fail: func(*violations.Batch) (before, after error) { return nil, nil },
	}
}

var errAway = errors.New("away")

func (l *ledger) WriteViolations(ctx context.Context, b *violations.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	before, after := l.fail(b)
	if before != nil {
		return before
	}
	if l.applied[b.Number] {
		return after
	}
	l.applied[b.Number] = true
	l.batches++
	for i := range b.Decisions {
		d := &b.Decisions[i]
		l.minutes[d.Minute] = true
		if d.Rule == 0 {
			l.checks[d.Tenant] = sum(l.checks[d.Tenant], d.Verdicts)
		} else {
			l.verdicts[d.Rule] = sum(l.verdicts[d.Rule], d.Verdicts)
		}
	}
	for i := range b.Tallies {
		t := &b.Tallies[i]
		at := bucket{t.Tenant, t.Rule, t.Subject, t.Other}
		all := l.tallies[at]
		all.Denied += t.Denied
		all.DetailDropped += t.DetailDropped
		all.Details = append(all.Details, t.Details...)
		l.tallies[at] = all
		l.rows = append(l.rows, t.Details...)
		l.minutes[t.Minute] = true
	}
	return after
}

func sum(a, b violations.Verdicts) violations.Verdicts {
	return violations.Verdicts{
		Allowed: a.Allowed + b.Allowed, Denied: a.Denied + b.Denied, Bypassed: a.Bypassed + b.Bypassed,
		Degraded: a.Degraded + b.Degraded, Taken: a.Taken + b.Taken, TakenParts: a.TakenParts + b.TakenParts,
	}
}

// wantBalance wants every denial to be in a row or dropped, and returns how many there are.
func (l *ledger) wantBalance(t *testing.T) (denied int64) {
	t.Helper()
	for at, tally := range l.tallies {
		counted := tally.DetailDropped
		for _, row := range tally.Details {
			counted += row.Count
		}
		if counted != tally.Denied {
			t.Errorf("%+v was denied %d times, and rows and dropped detail are %d", at, tally.Denied, counted)
		}
		denied += tally.Denied
	}
	return denied
}

// ruleOf returns a rule of a tenant.
func ruleOf(id rules.RuleID, pattern string, mode rules.Mode) *rules.Rule {
	parsed, err := rules.ParsePattern(pattern)
	if err != nil {
		panic(err)
	}
	return &rules.Rule{ID: id, Pattern: parsed, Mode: mode, Action: rules.ActionLimit, Version: 3}
}

var (
	userRule   = ruleOf(12, "user:{user_id}", rules.ModeEnforce)
	globalRule = ruleOf(13, "global", rules.ModeEnforce)
	shadowRule = ruleOf(14, "user:{user_id}", rules.ModeShadow)
)

// denied is a check of a user that the user's rule denies.
func denied(tenant rules.TenantID, user string) *violations.Check {
	return &violations.Check{
		Tenant: tenant, Request: &rules.Request{UserID: user, Endpoint: "/api/search", Method: "GET"},
		Plan: "free", Cost: violations.Token,
		Tiers: []violations.Tier{
			{
				Rule: userRule, Subject: user, Reason: "limit_exceeded", Limit: rules.Limit{Rate: 10, Burst: 50},
				Known: true, Remaining: 650_000, RetryAfter: 35 * time.Millisecond,
			},
			{Rule: globalRule, Allowed: true, Known: true},
		},
	}
}

func flush(t *testing.T, r *violations.Recorder) {
	t.Helper()
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestADeniedCheckLeavesOneViolation(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{})
	r.Record(noon, denied(1, "42"))
	flush(t, r)
	if len(l.rows) != 1 {
		t.Fatalf("%d rows, want 1", len(l.rows))
	}
	got := *l.rows[0]
	want := violations.Violation{
		ID: violations.ID{At: noon}, Tenant: 1, Rule: 12, Subject: "42", Reason: "limit_exceeded",
		Scope: rules.ScopeUser, Mode: rules.ModeEnforce, Pattern: "user:{user_id}", Version: 3, Rate: 10, Burst: 50,
		UserID: "42", Endpoint: "/api/search", Method: "GET", Plan: "free", Cost: violations.Token,
		Tokens: 650_000, TokensKnown: true, RetryAfter: 35 * time.Millisecond, Count: 1, LastAt: noon,
	}
	if got != want {
		t.Errorf("the row is\n%+v, want\n%+v", got, want)
	}
	if got.BucketKey() != "12:42" {
		t.Errorf("the bucket is %q", got.BucketKey())
	}
	wantVerdicts(t, "all checks", l.checks[1], violations.Verdicts{Denied: 1})
	wantVerdicts(t, "the rule that denied", l.verdicts[12], violations.Verdicts{Denied: 1})
	wantVerdicts(t, "the rule that did not", l.verdicts[13], violations.Verdicts{Allowed: 1})
}

func wantVerdicts(t *testing.T, of string, got, want violations.Verdicts) {
	t.Helper()
	if got != want {
		t.Errorf("the verdicts of %s are %+v, want %+v", of, got, want)
	}
}

func TestWhatIsCounted(t *testing.T) {
	t.Parallel()
	block := ruleOf(15, "user:{user_id}", rules.ModeEnforce)
	block.Action = rules.ActionBlock
	bypass := ruleOf(16, "user:{user_id}", rules.ModeEnforce)
	bypass.Action = rules.ActionBypass
	taken := violations.Verdicts{Allowed: 1, Taken: 1, TakenParts: 500_000}
	tests := map[string]struct {
		check     violations.Check
		whole     violations.Verdicts
		verdicts  map[rules.RuleID]violations.Verdicts
		violation rules.RuleID // 0 for none
	}{
		"an allowed check takes its cost from every bucket": {
			check: violations.Check{Allowed: true, Tiers: []violations.Tier{
				{Rule: userRule, Allowed: true, Known: true}, {Rule: globalRule, Allowed: true, Known: true},
			}},
			whole: taken, verdicts: map[rules.RuleID]violations.Verdicts{12: taken, 13: taken},
		},
		"a shadow rule that would have denied reports and took nothing": {
			check: violations.Check{Allowed: true, Tiers: []violations.Tier{
				{Rule: userRule, Allowed: true, Known: true}, {Rule: shadowRule, Known: true, Reason: "limit_exceeded"},
			}},
			whole: taken, verdicts: map[rules.RuleID]violations.Verdicts{12: taken, 14: {Denied: 1}}, violation: 14,
		},
		"a shadow rule does not report a check that another denied": {
			check: violations.Check{Tiers: []violations.Tier{
				{Rule: userRule, Known: true, Reason: "limit_exceeded"}, {Rule: shadowRule, Known: true, Reason: "limit_exceeded"},
			}},
			whole:    violations.Verdicts{Denied: 1},
			verdicts: map[rules.RuleID]violations.Verdicts{12: {Denied: 1}, 14: {Denied: 1}}, violation: 12,
		},
		"a block": {
			check: violations.Check{Tiers: []violations.Tier{{Rule: block, Reason: "blocked"}}},
			whole: violations.Verdicts{Denied: 1}, verdicts: map[rules.RuleID]violations.Verdicts{15: {Denied: 1}}, violation: 15,
		},
		"a bypass takes nothing": {
			check:    violations.Check{Allowed: true, Bypassed: true, Tiers: []violations.Tier{{Rule: bypass, Allowed: true}}},
			whole:    violations.Verdicts{Bypassed: 1},
			verdicts: map[rules.RuleID]violations.Verdicts{16: {Bypassed: 1}},
		},
		"a check without rules": {
			check: violations.Check{Allowed: true}, whole: taken,
		},
		"a degraded decision": {
			check: violations.Check{Degraded: true, Tiers: []violations.Tier{{Rule: userRule, Reason: "store_unavailable"}}},
			whole: violations.Verdicts{Denied: 1, Degraded: 1}, violation: 12,
			verdicts: map[rules.RuleID]violations.Verdicts{12: {Denied: 1, Degraded: 1}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger()
			r := violations.NewRecorder(l, violations.Options{})
			check := test.check
			check.Tenant, check.Request = 1, &rules.Request{}
			r.Record(noon, &check) // at no cost: not counted
			check.Cost = 1_500_000
			r.Record(noon, &check)
			flush(t, r)
			wantVerdicts(t, "all checks", l.checks[1], test.whole)
			if len(l.verdicts) != len(test.verdicts) {
				t.Errorf("%d rules were counted, want %d", len(l.verdicts), len(test.verdicts))
			}
			for rule, want := range test.verdicts {
				wantVerdicts(t, fmt.Sprint("rule ", rule), l.verdicts[rule], want)
			}
			if test.violation == 0 && len(l.rows) == 0 {
				return
			}
			if len(l.rows) != 1 || l.rows[0].Rule != test.violation || l.rows[0].Count != 1 {
				t.Errorf("the violations are %+v, want one of rule %d", l.rows, test.violation)
			}
		})
	}
}

func TestTheFirstFewDifferentViolationsOfASecondAreRows(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{DetailsPerSecond: 2})
	for second := range 3 {
		for i := range 40 {
			check := denied(1, "42")
			check.Request.Endpoint = fmt.Sprintf("/%d", i%4)
			r.Record(noon.Add(time.Duration(second)*time.Second+time.Duration(i)*time.Millisecond), check)
		}
	}
	flush(t, r)
	if denied := l.wantBalance(t); denied != 120 {
		t.Errorf("%d denials are counted, want 120", denied)
	}
	if len(l.rows) != 6 {
		t.Fatalf("%d rows in three seconds, want 6", len(l.rows))
	}
	for _, row := range l.rows {
		if row.Count != 10 || row.LastAt.Sub(row.ID.At) != 36*time.Millisecond {
			t.Errorf("a row stands for %d from %s to %s, want 10 within 36 ms", row.Count, row.ID.At, row.LastAt)
		}
	}
	if dropped := r.Stats().Dropped; dropped != 60 {
		t.Errorf("%d details were dropped, want 60", dropped)
	}
}

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
	const quiet = 50
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

// TestCountsAreExactUnderFaults lets the store fail before and after it applied a batch, and refuse rows.
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
				_ = r.Flush(t.Context()) // what fails is tried again
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
			if stats := r.Stats(); stats.Lost != 0 {
				t.Errorf("%d counts are lost", stats.Lost)
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
		t.Errorf("the subject with the bad row is counted as %d with %d dropped, want 5 with 1", got.Denied, got.DetailDropped)
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
