package simulate

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/membucket"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

const (
	token = enforce.Token
	ms    = time.Millisecond
)

// candidate returns an enforced limit.
func candidate(rate float64, burst int64) Candidate {
	return Candidate{Rule: rules.Rule{
		Algorithm: rules.TokenBucket, RatePerSecond: rate, Burst: burst, Mode: rules.ModeEnforce, Action: rules.ActionLimit,
	}}
}

func simulate(t *testing.T, candidates []Candidate, arrivals []Arrival, until time.Duration) *Result {
	t.Helper()
	s, err := Run(t.Context(), candidates, arrivals, until)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestASimulationTellsTheStoryOfABucket(t *testing.T) {
	t.Parallel()
	// Two tokens, one more each 100 ms; three arrivals at once, one 50 ms later, and one after a rest.
	arrivals := []Arrival{{0, token}, {0, token}, {0, token}, {50 * ms, token}, {400 * ms, token}}
	got := simulate(t, []Candidate{candidate(10, 2)}, arrivals, 450*ms)
	verdicts := []Verdict{
		{At: 0, Allowed: true},
		{At: 0, Allowed: true},
		{At: 0, Reason: enforce.LimitExceeded, Wait: 100 * ms},
		{At: 50 * ms, Reason: enforce.LimitExceeded, Wait: 50 * ms},
		{At: 400 * ms, Allowed: true},
	}
	if !slices.Equal(got.Verdicts, verdicts) {
		t.Errorf("verdicts\n%+v\nwant\n%+v", got.Verdicts, verdicts)
	}
	curve := []Point{
		{0, 2 * token},
		{0, token},
		{0, 0},
		{200 * ms, 2 * token}, // full
		{400 * ms, 2 * token},
		{400 * ms, token},
		{450 * ms, token * 3 / 2},
	}
	if !slices.Equal(got.Tiers[0].Curve, curve) {
		t.Errorf("curve\n%+v\nwant\n%+v", got.Tiers[0].Curve, curve)
	}
	if got.Allowed != 3 || got.Denied != 2 || got.FirstDenied != 2 || got.LongestWait != 100*ms ||
		got.Tiers[0].Violations != 2 {
		t.Errorf("totals %+v", got)
	}
}

func TestSimulatedRulesDecideAsRulesDo(t *testing.T) {
	t.Parallel()
	half := token / 2
	shadow := candidate(1, 1)
	shadow.Mode = rules.ModeShadow
	shadowBlock := Candidate{Rule: rules.Rule{Mode: rules.ModeShadow, Action: rules.ActionBlock}}
	low := candidate(1, 10)
	low.Level = &half
	block := Candidate{Rule: rules.Rule{Mode: rules.ModeEnforce, Action: rules.ActionBlock}}
	bypass := Candidate{Rule: rules.Rule{Mode: rules.ModeEnforce, Action: rules.ActionBypass}}
	tests := map[string]struct {
		candidates []Candidate
		cost       enforce.Tokens
		reason     enforce.Reason
		deciding   int
		wait       time.Duration
		violations []int
	}{
		"a cost of 0 looks":                    {[]Candidate{candidate(1, 1)}, 0, "", 0, 0, []int{0}},
		"the longest wait decides":             {[]Candidate{low, candidate(1, 10), low}, token, enforce.LimitExceeded, 0, 500 * ms, []int{1, 0, 0}},
		"a cost above the burst has no wait":   {[]Candidate{low, candidate(1, 1)}, 2 * token, enforce.CostExceedsLimit, 1, 0, []int{0, 1}},
		"a block denies":                       {[]Candidate{low, block}, token, enforce.Blocked, 1, 0, []int{0, 1}},
		"a bypass passes":                      {[]Candidate{low, block, bypass}, token, "", -1, 0, []int{0, 0, 0}},
		"shadow rules report and never decide": {[]Candidate{shadow, shadowBlock, candidate(1, 3)}, 2 * token, "", 2, 0, []int{1, 1, 0}},
	}
	for name, test := range tests {
		got := simulate(t, test.candidates, []Arrival{{0, test.cost}}, 0)
		want := Verdict{Allowed: test.reason == "", Reason: test.reason, Deciding: test.deciding, Wait: test.wait}
		if got.Verdicts[0] != want {
			t.Errorf("%s: %+v, want %+v", name, got.Verdicts[0], want)
		}
		for i, want := range test.violations {
			if got.Tiers[i].Violations != want {
				t.Errorf("%s: candidate %d has %d violations, want %d", name, i, got.Tiers[i].Violations, want)
			}
		}
	}
}

func TestAPatternBringsItsArrivals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pattern Pattern
		want    []time.Duration
	}{
		"evenly":                      {Pattern{Rate: 10, BurstSize: 1, Duration: 300 * ms}, []time.Duration{0, 100 * ms, 200 * ms}},
		"to the end and no further":   {Pattern{Rate: 10, BurstSize: 1, Duration: 300*ms + time.Microsecond}, []time.Duration{0, 100 * ms, 200 * ms, 300 * ms}},
		"in bursts, as many in all":   {Pattern{Rate: 10, BurstSize: 3, Duration: 500 * ms}, []time.Duration{0, 0, 0, 300 * ms, 300 * ms, 300 * ms}},
		"on whole microseconds":       {Pattern{Rate: 3, BurstSize: 1, Duration: 700 * ms}, []time.Duration{0, 333333 * time.Microsecond, 666666 * time.Microsecond}},
		"once, if the rate is tiny":   {Pattern{Rate: 1e-300, BurstSize: 2, Duration: rules.MaxTimeToFull}, []time.Duration{0, 0}},
		"many within one microsecond": {Pattern{Rate: 4e6, BurstSize: 1, Duration: time.Microsecond}, []time.Duration{0, 0, 0, 0}},
	}
	for name, test := range tests {
		test.pattern.Cost = 7
		arrivals, err := test.pattern.Arrivals()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []time.Duration
		for _, arrival := range arrivals {
			got = append(got, arrival.At)
			if arrival.Cost != 7 {
				t.Errorf("%s: an arrival costs %v", name, arrival.Cost)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// expectFields expects an error about these fields, in this order.
func expectFields(t *testing.T, name string, err error, want ...string) {
	t.Helper()
	var fields []string
	errs, _ := errors.AsType[rules.FieldErrors](err)
	for _, e := range errs {
		fields = append(fields, e.Field)
	}
	if !slices.Equal(fields, want) {
		t.Errorf("%s: %v is about %q, want %q", name, err, fields, want)
	}
}

func TestPatternsOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	good := Pattern{Rate: 100_000, BurstSize: 1, Duration: time.Second, Cost: token}
	if arrivals, err := good.Arrivals(); err != nil || len(arrivals) != maxArrivals {
		t.Fatalf("%d arrivals, %v", len(arrivals), err)
	}
	for name, test := range map[string]struct {
		edit func(*Pattern)
		want []string
	}{
		"one arrival too many": {func(p *Pattern) { p.Duration += time.Microsecond }, []string{"duration"}},
		"far too many":         {func(p *Pattern) { p.Rate, p.Duration = rules.MaxRate, rules.MaxTimeToFull }, []string{"duration"}},
		"no rate":              {func(p *Pattern) { p.Rate = 0 }, []string{"rate"}},
		"a rate that is none":  {func(p *Pattern) { p.Rate = math.NaN() }, []string{"rate"}},
		"an infinite rate":     {func(p *Pattern) { p.Rate = math.Inf(1) }, []string{"rate"}},
		"everything is wrong":  {func(p *Pattern) { *p = Pattern{Cost: -1} }, []string{"rate", "burst_size", "duration", "cost"}},
		"everything is too large": {func(p *Pattern) {
			*p = Pattern{2 * rules.MaxRate, maxArrivals + 1, rules.MaxTimeToFull + 1, rules.MaxBurst*token + 1}
		}, []string{"rate", "burst_size", "duration", "cost"}},
	} {
		p := good
		test.edit(&p)
		_, err := p.Arrivals()
		expectFields(t, name, err, test.want...)
	}
}

func TestSimulationsOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	good, now := []Candidate{candidate(1, 10)}, []Arrival{{0, token}}
	with := func(edit func(*Candidate)) []Candidate {
		c := candidate(1, 10)
		edit(&c)
		return []Candidate{c}
	}
	above := 10*token + 1
	for name, test := range map[string]struct {
		candidates []Candidate
		arrivals   []Arrival
		until      time.Duration
		want       []string
	}{
		"nothing at all":        {nil, nil, 0, []string{"rules", "timestamps"}},
		"too many rules":        {make([]Candidate, maxCandidates+1), now, 0, []string{"rules"}},
		"too many arrivals":     {good, make([]Arrival, maxArrivals+1), 0, []string{"timestamps"}},
		"arrivals out of order": {good, []Arrival{{2, token}, {1, token}}, 0, []string{"timestamps[1]"}},
		"before the start":      {good, []Arrival{{-1, token}}, 0, []string{"timestamps[0]"}},
		"after a year":          {good, []Arrival{{rules.MaxTimeToFull + 1, token}}, 0, []string{"timestamps[0]"}},
		"a cost below nothing":  {good, []Arrival{{0, -1}}, 0, []string{"timestamps[0].cost"}},
		"an end after a year":   {good, now, rules.MaxTimeToFull + 1, []string{"duration"}},
		"no limit":              {with(func(c *Candidate) { c.RatePerSecond, c.Burst = 0, 0 }), now, 0, []string{"rules[0].rate_per_second", "rules[0].burst_capacity"}},
		"a level above full":    {with(func(c *Candidate) { c.Level = &above }), now, 0, []string{"rules[0].level"}},
		"no mode, no action":    {[]Candidate{good[0], {}}, now, 0, []string{"rules[1].mode", "rules[1].action"}},
		"a bypass in shadow":    {with(func(c *Candidate) { c.Action, c.Mode = rules.ActionBypass, rules.ModeShadow }), now, 0, []string{"rules[0].mode"}},
	} {
		_, err := Run(t.Context(), test.candidates, test.arrivals, test.until)
		expectFields(t, name, err, test.want...)
	}
}

// drawCandidates draws rules whose bursts are a few costs, and levels to start from.
func drawCandidates(t *rapid.T) []Candidate {
	candidates := make([]Candidate, rapid.IntRange(1, 5).Draw(t, "candidates"))
	for i := range candidates {
		c := candidate(
			rapid.SampledFrom([]float64{0.1, 0.3, 1.0 / 3, 1, 7, 100.7, 1e6}).Draw(t, "rate"),
			rapid.Int64Range(1, 20).Draw(t, "burst"))
		switch rapid.IntRange(0, 19).Draw(t, "kind") {
		case 0:
			c.Action = rules.ActionBlock
		case 1:
			c.Action = rules.ActionBypass
		case 2, 3, 4, 5:
			c.Mode = rules.ModeShadow
		case 6:
			c.Action, c.Mode = rules.ActionBlock, rules.ModeShadow
		}
		if rapid.Bool().Draw(t, "started") {
			level := enforce.Tokens(rapid.Int64Range(0, c.Burst*int64(token)).Draw(t, "level"))
			c.Level = &level
		}
		candidates[i] = c
	}
	return candidates
}

func drawArrivals(t *rapid.T) []Arrival {
	arrivals := make([]Arrival, rapid.IntRange(1, 60).Draw(t, "arrivals"))
	at := time.Duration(0)
	for i := range arrivals {
		at += time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1_000_000), rapid.Int64Range(0, 60_000_000)).Draw(t, "gap")) * time.Microsecond
		cost := rapid.OneOf(rapid.Just(token), rapid.Map(rapid.Int64Range(0, 25*int64(token)), func(n int64) enforce.Tokens { return enforce.Tokens(n) }))
		arrivals[i] = Arrival{At: at, Cost: cost.Draw(t, "cost")}
	}
	return arrivals
}

func TestASimulationDecidesAsALimiterOverMemoryDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		candidates, arrivals := drawCandidates(t), drawArrivals(t)
		got, err := Run(t.Context(), candidates, arrivals, 0)
		if err != nil {
			t.Fatal(err)
		}

		start, tenantID := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), rules.TenantID(1)
		now := start.UnixMicro()
		clock := func() int64 { return now }
		buckets := membucket.New(membucket.Options{Clock: clock})
		global, err := rules.ParsePattern("global")
		if err != nil {
			t.Fatal(err)
		}
		rows := snapshot.Rows{Tenants: []rules.Tenant{{ID: tenantID, Slug: "acme", Settings: rules.DefaultSettings(), Revision: 1}}}
		for i, c := range candidates {
			row := rules.Rule{
				ID: rules.RuleID(i), TenantID: tenantID, Pattern: global, Mode: c.Mode, Action: c.Action,
				RatePerSecond: c.RatePerSecond, Burst: c.Burst, Active: true, InForceSince: start.Add(-time.Hour),
			}
			rows.Rules = append(rows.Rules, row)
			if c.Action == rules.ActionLimit && c.Level != nil {
				limit := enforce.Limit{Rate: c.RatePerSecond, Burst: c.Burst, Since: row.InForceSince.UnixMicro()}
				key := enforce.Key{Tenant: tenantID, Rule: row.ID}
				if _, _, err := buckets.Credit(t.Context(), key, limit, *c.Level-enforce.Tokens(c.Burst)*token); err != nil {
					t.Fatal(err)
				}
			}
		}
		tenant := snapshot.New(rows).Tenant(tenantID)
		limiter := enforce.NewLimiter(buckets, buckets, unobserved{}, func() time.Time { return time.UnixMicro(now) })
		for i, arrival := range arrivals {
			now = start.Add(arrival.At).UnixMicro()
			decisions := make([]enforce.Decision, 1)
			limiter.Decide(t.Context(), tenant, []enforce.Check{{Cost: arrival.Cost}}, decisions)
			want := Verdict{At: arrival.At, Allowed: decisions[0].Allowed, Reason: decisions[0].Reason, Deciding: -1}
			if tier := decisions[0].DecidingTier(); tier != nil {
				want.Deciding, want.Wait = int(tier.Match.Rule.ID), tier.RetryAfter
			}
			if got.Verdicts[i] != want {
				t.Fatalf("arrival %d of cost %v: %+v, want %+v", i, arrival.Cost, got.Verdicts[i], want)
			}
		}
	})
}

func TestASimulationEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ended, []Candidate{candidate(1, 1)}, []Arrival{{Cost: enforce.Token}}, 0)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func BenchmarkSimulateTheMost(b *testing.B) {
	arrivals, err := Pattern{Rate: 1000, BurstSize: 1, Duration: 100 * time.Second, Cost: token}.Arrivals()
	if err != nil {
		b.Fatal(err)
	}
	candidates := make([]Candidate, maxCandidates)
	for i := range candidates {
		candidates[i] = candidate(500.1+float64(i), 500)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(b.Context(), candidates, arrivals, 0); err != nil {
			b.Fatal(err)
		}
	}
}
