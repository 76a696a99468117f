package traffic_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

func TestMain(m *testing.M) {
	// The first block creates channels that all later blocks use. Created in a bubble, other tests could not use them.
	new(traffic.Block).SetRuns([]traffic.Run{{UserID: "42", Times: []uint32{1}}})
	goleak.VerifyTestMain(m)
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

type shelf struct {
	mu     sync.Mutex
	blocks map[string]traffic.Block
	months map[string]traffic.UserMonth
	usage  []traffic.Usage
	stored int64 // of all tenants
	err    error
	panics int // how many writes do
}

func (s *shelf) WriteTraffic(_ context.Context, blocks []traffic.Block) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panics--; s.panics >= 0 {
		panic("by the test")
	}
	if s.err != nil {
		return s.err
	}
	if s.blocks == nil {
		s.blocks = map[string]traffic.Block{}
	}
	for _, b := range blocks {
		s.blocks[fmt.Sprint(b.Writer, b.Number)] = b
	}
	return nil
}

func (s *shelf) WriteUserMonths(_ context.Context, writer string, number int64, counts []traffic.UserMonth) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if s.months == nil {
		s.months = map[string]traffic.UserMonth{}
	}
	for _, c := range counts {
		month := c.Month.Format(time.DateOnly)
		s.months[fmt.Sprintf("%s-%d-%d-%s-%s", writer, number, c.Tenant, month, c.User+string(c.Meter))] = c
	}
	return nil
}

func (s *shelf) TrafficUsage(context.Context, []rules.TenantID) ([]traffic.Usage, int64, int, error) {
	return s.usage, s.stored, 1, nil
}

func (s *shelf) checks(t *testing.T, tenant rules.TenantID) (lines []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.blocks)) {
		b := s.blocks[key]
		if b.Tenant != tenant {
			continue
		}
		runs, err := b.Runs()
		if err != nil {
			t.Fatal(err)
		}
		for i := range runs {
			for _, at := range runs[i].Times {
				run := runs[i]
				run.Times = nil
				lines = append(lines, fmt.Sprint(b.First.Add(time.Duration(at)*time.Millisecond).UnixMilli(), run))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

var settings = rules.DefaultSettings()

func check(user string, at time.Time) *traffic.Check {
	return &traffic.Check{
		Tenant: 1, Settings: &settings, Plan: "free", Cost: 1_000_000, At: at.UnixMicro(),
		Request: &rules.Request{
			UserID: user, Endpoint: "/search", Method: "GET",
			IP: netip.MustParseAddr("203.0.113.9"),
		},
	}
}

func TestARecordedCheckIsReadBackAsItWas(t *testing.T) {
	t.Parallel()
	sink := &shelf{}
	r := traffic.NewRecorder(sink, traffic.Options{})
	var want []string
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		at := noon.Add(time.Duration(random.IntN(60_000)) * time.Millisecond)
		c := check(fmt.Sprint("user-", random.IntN(50)), at)
		c.Request.Endpoint = fmt.Sprint("/", random.IntN(5))
		c.Request.Attributes = []rules.Attribute{{Name: "org", Value: "acme"}, {Name: "secret", Value: "x"}}
		c.Named = func(name string) bool { return name == "org" }
		run := traffic.Run{
			UserID: c.Request.UserID, Plan: "free", Method: "GET", Endpoint: c.Request.Endpoint, IP: c.Request.IP,
			Attributes: c.Request.Attributes[:1], Cost: c.Cost,
		}
		if c.Denied = random.IntN(3) == 0; c.Denied {
			c.Decider, run.Decider, run.Flags = 7, 7, traffic.Denied
		}
		r.Record(c)
		want = append(want, fmt.Sprint(at.UnixMilli(), run))
		if random.IntN(1000) == 0 {
			if err := r.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if got := sink.checks(t, 1); !slices.Equal(got, want) {
		t.Errorf("%d checks are read back, %d were recorded, and they differ", len(got), len(want))
	}
	var counts traffic.Counts
	for _, b := range sink.blocks {
		counts.Seen += b.Seen
	}
	if counts.Seen != 5000 {
		t.Errorf("%d checks were seen, want 5000", counts.Seen)
	}
}

func TestCostsOfMetersAreReadBackAndSummedOutsideOfTheSample(t *testing.T) {
	t.Parallel()
	sink := &shelf{usage: []traffic.Usage{{Tenant: 1, Days: 1, YesterdayBytes: 4000}}}
	r := traffic.NewRecorder(sink, traffic.Options{Budget: traffic.Budget{PerTenant: 1000, Total: 1 << 40}})
	r.Record(check("42", noon))
	traffic.AdjustNow(t.Context(), r)
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	sink.blocks = nil
	var want, got [3]int64 // of requests, input_tokens and usd
	for i := range 400 {
		c := check(fmt.Sprint("user-", i), noon.Add(time.Duration(i%7)*time.Second))
		c.Request.IP, c.Record = netip.Addr{}, i%2 == 0
		c.Costs = []traffic.Cost{
			{Meter: "input_tokens", Amount: int64(i) * 1_000_000}, {Meter: "usd", Amount: int64(i)},
		}
		r.Record(c)
		for j, amount := range []int64{c.Cost, c.Costs[0].Amount, c.Costs[1].Amount} {
			want[j] += amount
		}
	}
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sums, alone, records int
	for _, b := range sink.blocks {
		runs, err := b.Runs()
		if err != nil {
			t.Fatal(err)
		}
		for i := range runs {
			run := &runs[i]
			if !slices.Equal(run.Meters, []rules.Meter{"input_tokens", "usd"}) {
				t.Fatalf("a run has the meters %v", run.Meters)
			}
			if run.Flags.Is(traffic.Record) {
				records++
			}
			for at := range run.Times {
				if run.Flags.Is(traffic.Sum) {
					sums++
				} else {
					alone++
				}
				for j, cost := range run.CostsAt(at) {
					got[j] += cost
				}
			}
		}
	}
	if got != want || sums > 14 || sums == 0 || alone == 0 || records == 0 {
		t.Errorf("%d sums and %d checks cost %v, want %v and at most a sum for each second", sums, alone, got, want)
	}
}

func TestTheStateTellsWhatTheBudgetsLeave(t *testing.T) {
	t.Parallel()
	sink := &shelf{stored: 14_000, usage: []traffic.Usage{
		{Tenant: 1, Days: 1, YesterdayBytes: 4000}, {Tenant: 2, Days: 10, Bytes: 10_000}, {Tenant: 3, Days: 1},
	}}
	r := traffic.NewRecorder(sink, traffic.Options{Budget: traffic.Budget{PerTenant: 1000, Total: 1 << 40}})
	if got := r.Stats(); got.Stored != 0 || got.Sampled+got.Stopped != 0 {
		t.Errorf("before the database was asked it is %+v", got)
	}
	r.Record(check("42", noon))
	traffic.AdjustNow(t.Context(), r)
	if got := r.Stats(); got.Stored != 14_000 || got.Sampled != 1 || got.Stopped != 1 {
		t.Errorf("it is %+v, want one tenant sampled and one stopped, and 14,000 bytes", got)
	}
}

func TestASampleHasWholeUsersAndWhatTheOthersAskedInSum(t *testing.T) {
	t.Parallel()
	sink := &shelf{usage: []traffic.Usage{{Tenant: 1, Days: 1, YesterdayBytes: 4000}}}
	r := traffic.NewRecorder(sink, traffic.Options{Budget: traffic.Budget{PerTenant: 1000, Total: 1 << 40}})
	r.Record(check("42", noon))
	traffic.AdjustNow(t.Context(), r)
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	sink.blocks = nil
	const users, each = 400, 5
	inSample := 0
	var denied string // a user outside of the sample
	for i := range users {
		user := fmt.Sprint("user-", i)
		if traffic.StratumOfUser(1, user) >= 1 {
			inSample++
		} else if denied == "" {
			denied = user
		}
		for j := range each {
			c := check(user, noon.Add(time.Duration(j)*time.Second))
			c.Request.IP = netip.Addr{}
			if c.Denied = user == denied; c.Denied {
				c.Decider = 9
			}
			r.Record(c)
		}
	}
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sampled, summed, extra int64
	for _, b := range sink.blocks {
		if b.Level != 1 {
			t.Fatalf("the level is %d, want 1", b.Level)
		}
		runs, err := b.Runs()
		if err != nil {
			t.Fatal(err)
		}
		for i := range runs {
			stratum := min(b.Stratum, traffic.Strata-1)
			switch run := &runs[i]; {
			case run.Flags.Is(traffic.Sum):
				stratum = traffic.StratumOfSums
				for _, cost := range run.Costs {
					summed += cost / 1_000_000
				}
			case run.IsExtra():
				stratum = traffic.StratumOfExtras
				extra += int64(len(run.Times))
			default:
				sampled += int64(len(run.Times))
			}
			if b.Stratum != stratum {
				t.Errorf("%v is in stratum %d, want %d", runs[i], b.Stratum, stratum)
			}
		}
	}
	if sampled != int64(inSample*each) || summed != int64((users-inSample)*each) {
		t.Errorf("%d checks are in the sample and %d in sums, want %d and %d", sampled, summed, inSample*each,
			(users-inSample)*each)
	}
	if extra != each {
		t.Errorf("%d denials are kept beside the sample, want %d", extra, each)
	}
	if inSample < users/8 || inSample > users/2 {
		t.Errorf("%d of %d users are in a sample of a quarter", inSample, users)
	}
}

func TestATenantCannotFillTheBuffersOfOthers(t *testing.T) {
	t.Parallel()
	sink := &shelf{}
	r := traffic.NewRecorder(sink, traffic.Options{MaxBytes: 1 << 20})
	for i := range 100_000 {
		r.Record(check(fmt.Sprint(i), noon))
	}
	if r.Stats().Dropped == 0 {
		t.Fatal("the loud tenant was not held back, so nothing is shown")
	}
	dropped := r.Stats().Dropped
	for i := range 100 {
		c := check(fmt.Sprint(i), noon)
		c.Tenant = 2
		r.Record(c)
	}
	if now := r.Stats().Dropped; now != dropped {
		t.Errorf("%d checks of the quiet tenant were dropped", now-dropped)
	}
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(sink.checks(t, 2)); got != 100 {
		t.Errorf("%d checks of the quiet tenant are recorded, want 100", got)
	}
}

func TestBlocksWaitWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	sink := &shelf{err: context.DeadlineExceeded}
	r := traffic.NewRecorder(sink, traffic.Options{})
	r.Record(check("42", noon))
	if err := r.Flush(t.Context()); err == nil {
		t.Fatal("the store was away, and Flush did not say so")
	}
	sink.err = nil
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(sink.checks(t, 1)); got != 1 {
		t.Errorf("%d checks are recorded, want 1", got)
	}
}

func TestRunWritesTheRestWhenItEnds(t *testing.T) {
	t.Parallel()
	sink := &shelf{}
	r := traffic.NewRecorder(sink, traffic.Options{})
	ctx, stop := context.WithCancel(t.Context())
	r.Record(check("42", noon))
	stop()
	r.Run(ctx, time.Minute)
	if got := len(sink.checks(t, 1)); got != 1 {
		t.Errorf("%d checks are recorded, want 1", got)
	}
}

type endless struct {
	recorder *traffic.Recorder
	asked    chan struct{}
}

func (e *endless) WriteTraffic(context.Context, []traffic.Block) error {
	for _, pause := range []time.Duration{time.Minute, time.Second} {
		e.recorder.Record(check("42", time.Now()))
		time.Sleep(pause) //nolint:forbidigo // the bubble's clock
	}
	return nil
}

func (e *endless) WriteUserMonths(context.Context, string, int64, []traffic.UserMonth) error {
	return nil
}

func (e *endless) TrafficUsage(context.Context, []rules.TenantID) ([]traffic.Usage, int64, int, error) {
	select {
	case e.asked <- struct{}{}:
	default:
	}
	return nil, 0, 1, nil
}

func TestTheSampleFollowsTheBudgetThoughBlocksWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sink := &endless{asked: make(chan struct{}, 1)}
		sink.recorder = traffic.NewRecorder(sink, traffic.Options{MaxAge: time.Second})
		sink.recorder.Record(check("42", time.Now()))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { sink.recorder.Run(ctx, time.Nanosecond) })
		select {
		case <-sink.asked:
		case <-time.After(time.Hour): // on the bubble's clock
			t.Error("the use is not read while blocks wait")
		}
		stop()
		running.Wait()
	})
}

type slowMonths struct {
	shelf
	tried int
}

func (s *slowMonths) WriteUserMonths(context.Context, string, int64, []traffic.UserMonth) error {
	s.tried++
	<-time.After(5 * time.Second) // on the bubble's clock
	return context.DeadlineExceeded
}

// Failed counts are tried again once a minute, so blocks have the other 55 seconds.
func TestBlocksDoNotWaitForTheCountsOfUsers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sink := &slowMonths{}
		r := traffic.NewRecorder(sink, traffic.Options{MaxAge: time.Minute})
		r.Record(check("42", time.Now()))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx, time.Nanosecond) })
		<-time.After(10*time.Minute + 30*time.Second)
		stop()
		running.Wait() // a last attempt
		if tried := sink.tried - 1; tried < 9 || tried > 10 {
			t.Errorf("counts are tried %d times in ten minutes, want once in each", tried)
		}
		if got := len(sink.checks(t, 1)); got != 1 {
			t.Errorf("%d checks are recorded, want 1", got)
		}
	})
}

func TestAUserIsTakenOutOfABlock(t *testing.T) {
	t.Parallel()
	var b traffic.Block
	b.SetRuns([]traffic.Run{
		{UserID: "42", Endpoint: "/a", Times: []uint32{1, 2}},
		{UserID: "43", Endpoint: "/b", Times: []uint32{3}},
		{Endpoint: "/b", Flags: traffic.Sum, Times: []uint32{3}, Costs: []int64{5}},
	})
	rest, ok, err := b.WithoutUser("42")
	if err != nil || !ok || !slices.Equal(rest.Users, []string{"43"}) || rest.Checks != 1 {
		t.Fatalf("the rest is %+v, %v (%v)", rest, ok, err)
	}
	runs, err := rest.Runs()
	if err != nil || len(runs) != 2 || runs[0].UserID != "43" || !reflect.DeepEqual(runs[1].Costs, []int64{5}) {
		t.Errorf("the runs are %+v (%v)", runs, err)
	}
}

func TestADamagedBlockIsAnError(t *testing.T) {
	t.Parallel()
	var b traffic.Block
	b.SetRuns([]traffic.Run{{UserID: "42", Endpoint: "/a", Times: []uint32{1, 2}}})
	for i := range b.Payload {
		damaged := b
		damaged.Payload = slices.Clone(b.Payload)
		damaged.Payload[i] ^= 0xff
		_, _ = damaged.Runs() // must not panic
		_, _ = damaged.RunsOf("43")
		damaged.Payload = b.Payload[:i]
		if _, err := damaged.Runs(); err == nil {
			t.Errorf("a block that ends after %d bytes is read", i)
		}
	}
	b.Users = nil
	if _, err := b.Runs(); err == nil {
		t.Error("a block without its users is read")
	}
}

func TestTheSampleFollowsTheBudget(t *testing.T) {
	t.Parallel()
	budget := traffic.Budget{PerTenant: 10_000, Total: 100_000}
	for name, c := range map[string]struct {
		usage   traffic.Usage
		all     int64
		tenants int
		want    int
	}{
		"a tenant within its budget records all": {
			traffic.Usage{Days: 10, TodayBytes: 400, YesterdayBytes: 900},
			0, 1, 0,
		},
		"yesterday would have needed four times a day": {traffic.Usage{Days: 10, YesterdayBytes: 4000}, 0, 1, 1},
		"half of the day's part is used":               {traffic.Usage{Days: 10, TodayBytes: 600}, 0, 1, 1},
		"nearly all of the day's part is used": {
			traffic.Usage{Days: 10, TodayBytes: 990},
			0, 1,
			traffic.Strata,
		},
		"the whole budget is used":     {traffic.Usage{Days: 10, Bytes: 10_000}, 0, 1, traffic.Stopped},
		"the total is used, by others": {traffic.Usage{Days: 10, Bytes: 500}, 100_000, 20, 0},
		"the total is used, by this one too": {
			traffic.Usage{Days: 10, Bytes: 6000},
			100_000, 20,
			traffic.Stopped,
		},
	} {
		if got := budget.Level(&c.usage, c.all, c.tenants); got != c.want {
			t.Errorf("%s: level %d, want %d", name, got, c.want)
		}
	}
}

func TestRecordingAllocatesNothing(t *testing.T) { //nolint:paralleltest // counts all allocations
	r := traffic.NewRecorder(&shelf{}, traffic.Options{})
	c := check("42", noon)
	for range 300_000 { // until the buffers are full
		r.Record(c)
	}
	if allocated := testing.AllocsPerRun(1000, func() { r.Record(c) }); allocated > 0 {
		t.Errorf("%g allocations per check, want none", allocated)
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, users := range []int{1, 100_000} {
		b.Run(fmt.Sprint(users, " users"), func(b *testing.B) {
			r := traffic.NewRecorder(&shelf{}, traffic.Options{MaxBytes: 1 << 30})
			checks := make([]*traffic.Check, users)
			for i := range checks {
				checks[i] = check(fmt.Sprint("user-", i), noon)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Record(checks[i%users])
				if i%50_000 == 49_999 {
					b.StopTimer()
					traffic.PackNow(r)
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(r.Stats().Dropped)/float64(b.N), "dropped/op")
		})
	}
}

func TestWritesGoOnAfterAPanicInOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sink := &shelf{panics: 1}
		r := traffic.NewRecorder(sink, traffic.Options{MaxAge: time.Second})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx, time.Second) }()
		r.Record(check("42", noon))
		<-time.After(10 * time.Second)
		if got := len(sink.checks(t, 1)); got != 1 {
			t.Errorf("%d checks are recorded, want 1", got)
		}
		stop()
		<-ended
	})
}
