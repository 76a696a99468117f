package replay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/traffic"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

type shelf struct {
	mu     sync.Mutex
	blocks map[string]traffic.Block
}

func (s *shelf) WriteTraffic(_ context.Context, blocks []traffic.Block) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range blocks {
		s.blocks[fmt.Sprint(b.Writer, b.Number)] = b
	}
	return nil
}

func (*shelf) WriteUserMonths(context.Context, string, int64, []traffic.UserMonth) error { return nil }

func (*shelf) TrafficUsage(context.Context, []rules.TenantID) ([]traffic.Usage, int64, int, error) {
	return nil, 0, 0, nil
}

func (s *shelf) inOrder() []traffic.Block {
	return slices.SortedFunc(maps.Values(s.blocks), func(a, b traffic.Block) int { return a.First.Compare(b.First) })
}

type street struct {
	t        *testing.T
	rows     snapshot.Rows
	tenant   *snapshot.Tenant
	limiter  *enforce.Limiter
	recorder *traffic.Recorder
	shelf    *shelf
	now      int64
	denied   map[rules.RuleID]int64
	all      int64
}

func newStreet(t *testing.T, all ...rules.Rule) *street {
	t.Helper()
	s := &street{t: t, shelf: &shelf{blocks: map[string]traffic.Block{}}, denied: map[rules.RuleID]int64{}}
	s.rows = snapshot.Rows{Tenants: []rules.Tenant{{ID: 1, Settings: rules.DefaultSettings()}}, Rules: all}
	s.tenant = snapshot.New(s.rows).Tenant(1)
	store := membucket.New(membucket.Options{Clock: func() int64 { return s.now }})
	s.limiter = enforce.NewLimiter(store, store, s, func() time.Time { return time.UnixMicro(s.now) })
	s.recorder = traffic.NewRecorder(s.shelf,
		traffic.Options{MaxBytes: 1 << 30, Now: func() time.Time { return time.UnixMicro(s.now) }})
	return s
}

func (*street) StoreAnswered(time.Duration, error) {}

func (s *street) Decided(tenant *snapshot.Tenant, check *enforce.Check, decision *enforce.Decision) {
	c := traffic.Check{
		Tenant: 1, Settings: &tenant.Tenant.Settings, Request: &check.Request, Plan: decision.Plan,
		Cost: int64(check.Cost), At: s.now, Record: check.Record,
		Named: tenant.NamesAttribute, Denied: !decision.Allowed,
	}
	for _, cost := range check.Costs {
		c.Costs = append(c.Costs, traffic.Cost{Meter: cost.Meter, Amount: int64(cost.Cost)})
	}
	if !check.Record {
		s.all++
	}
	if t := decision.DecidingTier(); t != nil && !decision.Allowed {
		c.Decider = t.Match.Rule.ID
		s.denied[c.Decider]++
	}
	s.recorder.Record(&c)
}

func (s *street) check(at time.Time, request *rules.Request, plan string) {
	s.decide(at, enforce.Check{Request: *request, EffectivePlan: plan, Cost: enforce.Token})
}

func (s *street) decide(at time.Time, check enforce.Check) {
	s.now = at.UnixMicro()
	checks := [1]enforce.Check{check}
	var decisions [1]enforce.Decision
	s.limiter.Decide(s.t.Context(), s.tenant, checks[:], decisions[:])
}

func (s *street) input(candidate *replay.Candidate, until time.Time) *replay.Input {
	s.t.Helper()
	if err := s.recorder.Flush(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if dropped := s.recorder.Stats().Dropped; dropped > 0 {
		s.t.Fatalf("%d checks were not recorded", dropped)
	}
	return &replay.Input{
		Tenant: 1, Since: noon, Until: until, Candidate: candidate, History: &replay.History{Start: s.rows},
		Blocks: replay.Slice(s.shelf.inOrder()),
	}
}

func (s *street) replay(in *replay.Input) *replay.Result {
	s.t.Helper()
	result, err := replay.Run(s.t.Context(), in, replay.Options{Parallel: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return result
}

func rule(t *testing.T, id rules.RuleID, pattern, plan string, rate float64, burst int64) rules.Rule {
	t.Helper()
	parsed, err := rules.ParsePattern(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return rules.Rule{
		ID: id, TenantID: 1, Pattern: parsed, Plan: plan, RatePerSecond: rate, RateUnit: rules.PerSecond, Burst: burst,
		Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true, Version: 1,
	}
}

func everyKind(t *testing.T) []rules.Rule {
	t.Helper()
	all := []rules.Rule{
		rule(t, 1, "user:{user_id}", "", 0.06, 3), rule(t, 2, "user:{user_id}", "pro", 0.05, 2),
		rule(t, 3, "endpoint:/search", "", 0.8, 5),
		rule(t, 4, "ip:{ip}", "", 0.18, 4), rule(t, 5, "global", "", 3.4, 8), rule(t, 6, "user:bad", "", 0, 0),
		rule(t, 7, "user:{user_id}:endpoint:{endpoint}", "", 0, 9), rule(t, 8, "attr.org:{attr.org}", "", 0.5, 12),
		rule(t, 9, "user:{user_id}:attr.org:acme", "", 0.004, 1), rule(t, 10, "endpoint:/export", "", 0.9, 5),
	}
	all[5].Action = rules.ActionBlock
	all[6].Algorithm, all[6].Window = rules.FixedWindow, rules.Window{Length: 10 * time.Minute}
	all[8].Mode = rules.ModeShadow
	all[9].Algorithm = rules.LeakyBucket
	return all
}

func (s *street) arrive(spread bool) (until time.Time) {
	random := rand.New(rand.NewPCG(1, 2))
	at := noon
	for at.Before(noon.Add(time.Hour)) {
		user := fmt.Sprint("user-", random.IntN(60))
		if random.IntN(100) == 0 {
			user = "bad"
		}
		request := rules.Request{
			UserID: user, Endpoint: []string{"/search", "/a", "/b", "/export"}[random.IntN(4)], Method: "GET",
			IP: netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(20))}),
		}
		if random.IntN(3) == 0 {
			request.Attributes = []rules.Attribute{{Name: "org", Value: []string{"acme", "other"}[random.IntN(2)]}}
		}
		s.check(at, &request, []string{"free", "pro"}[len(user)%2])
		if spread {
			at = at.Add(time.Duration(1+random.IntN(400)) * time.Millisecond)
		} else {
			at = at.Add(time.Duration(random.IntN(300_000)) * time.Microsecond)
		}
	}
	return at
}

// A replay decides the same if it is whole, in one process, from an empty store, without leases.
func TestTheReplayOfTheRulesInForceIsWhatWasDecided(t *testing.T) {
	t.Parallel()
	for name, spread := range map[string]bool{
		"exactly, at whole milliseconds":  true,
		"within one percent, at any time": false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreet(t, everyKind(t)...)
			until := s.arrive(spread)
			result := s.replay(s.input(nil, until))
			if result.Read != s.all {
				t.Fatalf("%d of %d checks were replayed", result.Read, s.all)
			}
			if result.Share != 1 || result.IsEstimate {
				t.Errorf("everything was recorded, and the result is of a share of %g, an estimate: %v", result.Share,
					result.IsEstimate)
			}
			got := map[rules.RuleID]int64{}
			for _, of := range result.Rules {
				got[rules.RuleID(of.RuleID)] = int64(of.DeniedThen.Value)
				if of.Mode == string(rules.ModeEnforce) && of.RecordedDenied != s.denied[rules.RuleID(of.RuleID)] {
					t.Errorf("rule %d denied %d, and %d are recorded", of.RuleID, s.denied[rules.RuleID(of.RuleID)],
						of.RecordedDenied)
				}
			}
			if len(s.denied) < 7 {
				t.Errorf("only the rules %v denied, so little is shown", s.denied)
			}
			for id, want := range s.denied {
				allowed := 0.01 * float64(want)
				if spread {
					allowed = 0
				}
				if math.Abs(float64(got[id]-want)) > allowed {
					t.Errorf("rule %d denied %d, and the replay says %d", id, want, got[id])
				}
			}
			if spread && result.Agreeing != result.Read {
				t.Errorf("%d of %d checks are decided as they were", result.Agreeing, result.Read)
			}
			if got[9] == 0 {
				t.Error("the shadow rule would have denied nothing")
			}
		})
	}
}

func TestTheReplayOfMetersIsWhatWasDecided(t *testing.T) {
	t.Parallel()
	tokens, money := rule(t, 1, "user:{user_id}", "", 40, 4000), rule(t, 2, "user:{user_id}", "", 0, 3)
	tokens.Meter, tokens.Name = "input_tokens", "input_tokens"
	money.Meter, money.Name, money.ChargedAfter = "usd", "usd", true
	money.Algorithm, money.Window = rules.FixedWindow, rules.Window{Length: 10 * time.Minute}
	s := newStreet(t, tokens, money, rule(t, 3, "global", "", 0.2, 5))
	random := rand.New(rand.NewPCG(3, 4))
	at := noon
	for at.Before(noon.Add(time.Hour)) {
		check := enforce.Check{
			Request: rules.Request{UserID: fmt.Sprint("user-", random.IntN(20))}, EffectivePlan: "free",
			Cost: enforce.Token,
		}
		amount := enforce.Tokens(1+random.IntN(2000)) * enforce.Token
		switch random.IntN(3) {
		case 0:
			check.Costs = []enforce.MeterCost{{Meter: "input_tokens", Cost: amount}}
		case 1:
			check.Cost, check.Record = 0, true
			check.Costs = []enforce.MeterCost{{Meter: "input_tokens", Cost: amount}, {Meter: "usd", Cost: amount / 1e4}}
		}
		s.decide(at, check)
		at = at.Add(time.Duration(1+random.IntN(500)) * time.Millisecond)
	}
	result := s.replay(s.input(nil, at))
	if result.Read != s.all || result.Agreeing != s.all {
		t.Errorf("%d of %d checks are replayed, and %d decided as they were", result.Read, s.all, result.Agreeing)
	}
	if len(s.denied) != 3 {
		t.Errorf("only the rules %v denied, so little is shown", s.denied)
	}
	money.Burst = 1000
	if wider := s.replay(s.input(candidateOf(money), at)); wider.NoLongerDenied.Value == 0 {
		t.Error("a higher budget of money would have allowed nothing more")
	}
}

func candidateOf(all ...rules.Rule) *replay.Candidate {
	return &replay.Candidate{Config: ruleset.Config{Rules: all}}
}

func TestACandidateShowsWhoIsDeniedAndWhoNoLonger(t *testing.T) {
	t.Parallel()
	s := newStreet(t, rule(t, 1, "user:{user_id}", "", 1, 2), rule(t, 2, "endpoint:/b", "", 1, 1))
	for second := range 60 {
		at := noon.Add(time.Duration(second) * time.Second)
		s.check(at, &rules.Request{UserID: "calm", Endpoint: "/a"}, "free")
		for i := range 3 {
			s.check(at.Add(time.Duration(i+1)*time.Millisecond), &rules.Request{UserID: "busy", Endpoint: "/a"}, "pro")
		}
	}
	in := s.input(candidateOf(rule(t, 0, "user:{user_id}", "", 0.5, 3), rule(t, 0, "user:busy", "pro", 100, 100)),
		noon.Add(time.Minute))
	result := s.replay(in)
	again := s.replay(in)
	if !reflect.DeepEqual(result, again) {
		t.Errorf("the same replay gives\n%+v and then\n%+v", result, again)
	}
	if result.Checks != (replay.Figure{Value: 240}) || result.DeniedThen.Value != float64(s.denied[1]) ||
		result.NewlyDenied.Value == 0 || result.Share != 1 {
		t.Errorf("the result is %+v", result)
	}
	if result.DeniedNow.Value != result.DeniedThen.Value+result.NewlyDenied.Value-result.NoLongerDenied.Value {
		t.Errorf("the figures do not add up: %+v", result.Counts)
	}
	var steps float64
	for _, step := range result.Steps {
		steps += step.NewlyDenied
	}
	users := map[string]int64{}
	for _, u := range result.Users {
		users[u.UserID] = u.NewlyDenied
	}
	if steps != result.NewlyDenied.Value || users["calm"]+users["busy"] != int64(steps) || users["calm"] == 0 {
		t.Errorf("steps have %g and users %v of %g", steps, users, result.NewlyDenied.Value)
	}
	if plans := result.Plans; len(plans) != 2 || plans[0].Plan != "free" ||
		plans[0].NewlyDenied.Value != float64(users["calm"]) {
		t.Errorf("the plans are %+v", plans)
	}
	if !result.Rules[0].IsChanged {
		t.Errorf("the rules are %+v", result.Rules)
	}
	changed := map[string]bool{}
	for _, of := range result.Rules {
		changed[of.Rule] = of.IsChanged
	}
	if !changed["user:busy [pro]"] {
		t.Errorf("the new rule, which denies nothing, is missing: %v", changed)
	}
}

// figuresOf returns the figures of a result's rules: denied then, newly, no longer, from other rules, and denied now.
func figuresOf(result *replay.Result) map[string][5]float64 {
	figures := map[string][5]float64{}
	for i := range result.Rules {
		of := &result.Rules[i]
		figures[of.Rule+" "+of.Mode] = [5]float64{
			of.DeniedThen.Value, of.NewlyDenied.Value, of.NoLongerDenied.Value, of.FromOtherRules.Value,
			of.DeniedNow.Value,
		}
	}
	return figures
}

func TestACheckThatAnotherRuleDeniesNowIsNeitherNewlyNorNoLongerDenied(t *testing.T) {
	t.Parallel()
	s := newStreet(t, rule(t, 1, "user:{user_id}", "", 1, 2), rule(t, 2, "endpoint:/a", "", 0.5, 1))
	for range 3 {
		s.check(noon, &rules.Request{UserID: "42", Endpoint: "/a"}, "")
	}
	s.check(noon.Add(2*time.Second), &rules.Request{UserID: "42", Endpoint: "/a"}, "")
	result := s.replay(s.input(candidateOf(rule(t, 0, "user:{user_id}", "", 0.1, 1)), noon.Add(time.Minute)))
	want := map[string][5]float64{"user:{user_id} enforce": {0, 1, 0, 2, 3}, "endpoint:/a enforce": {2, 0, 0, -2, 0}}
	if got := figuresOf(result); !reflect.DeepEqual(got, want) {
		t.Errorf("the figures of the rules are %v, not %v", got, want)
	}
}

func TestWhatAShadowRuleWouldDenyIsApartFromWhatIsDenied(t *testing.T) {
	t.Parallel()
	tried, live := rule(t, 1, "user:{user_id}", "", 1, 1), rule(t, 2, "endpoint:/a", "", 1000, 1000)
	tried.Mode = rules.ModeShadow
	s := newStreet(t, tried, live)
	for range 3 {
		s.check(noon, &rules.Request{UserID: "42", Endpoint: "/a"}, "")
	}
	tried.Mode = rules.ModeEnforce
	result := s.replay(s.input(candidateOf(tried), noon.Add(time.Minute)))
	want := map[string][5]float64{"user:{user_id} enforce": {0, 2, 0, 0, 2}, "user:{user_id} shadow": {2, 0, 2, 0, 0}}
	if got := figuresOf(result); !reflect.DeepEqual(got, want) || result.NoLongerDenied.Value != 0 ||
		result.DeniedThen.Value != 0 {
		t.Errorf("the figures of the rules are %v, not %v, and in all %+v", got, want, result.Counts)
	}
}

func TestAReplayUsesTheRulesThatWereInForce(t *testing.T) {
	t.Parallel()
	before, after := rule(t, 1, "user:{user_id}", "", 1, 1), rule(t, 1, "user:{user_id}", "", 1000, 100)
	after.Version, after.InForceSince = 2, noon.Add(30*time.Second)
	s := newStreet(t, before)
	for second := range 60 {
		if second == 30 {
			s.tenant = snapshot.New(snapshot.Rows{Tenants: s.rows.Tenants, Rules: []rules.Rule{after}}).Tenant(1)
		}
		for i := range 3 {
			s.check(noon.Add(time.Duration(second)*time.Second+time.Duration(i)*time.Millisecond),
				&rules.Request{UserID: "42"}, "")
		}
	}
	in := s.input(nil, noon.Add(time.Minute))
	in.History.Changes = []replay.Change{{
		At:   noon.Add(30 * time.Second),
		Rows: snapshot.Rows{Rules: []rules.Rule{after}},
	}}
	if result := s.replay(in); result.Agreeing != result.Read || int64(result.DeniedThen.Value) != s.denied[1] ||
		s.denied[1] == 0 {
		t.Errorf("%d of %d checks are decided as they were; %d were denied, the replay denies %g", result.Agreeing,
			result.Read, s.denied[1], result.DeniedThen.Value)
	}
	in.Candidate = candidateOf(before)
	if result := s.replay(in); result.NewlyDenied.Value < 50 {
		t.Errorf("with the former limit, %g are newly denied", result.NewlyDenied.Value)
	}
}

func TestAnEstimateFromASampleHoldsTheTruth(t *testing.T) {
	t.Parallel()
	s := newStreet(t, rule(t, 1, "user:{user_id}", "", 1, 2), rule(t, 2, "endpoint:/a", "", 1000, 2000),
		rule(t, 3, "attr.org:{attr.org}", "", 1, 1))
	random := rand.New(rand.NewPCG(3, 4))
	for ms := 0; ms < 60_000; ms += 1 + random.IntN(4) {
		s.check(noon.Add(time.Duration(ms)*time.Millisecond),
			&rules.Request{UserID: fmt.Sprint(random.IntN(500)), Endpoint: "/a"}, "")
	}
	candidate := candidateOf(rule(t, 0, "user:{user_id}", "", 0.3, 2))
	in := s.input(candidate, noon.Add(time.Minute))
	truth := s.replay(in)
	in.Level = 1
	estimate := s.replay(in)
	if truth.NewlyDenied.Value < 100 || truth.NewlyDenied.Error != 0 || estimate.Share != 0.25 ||
		estimate.Read > truth.Read/2 {
		t.Fatalf("the truth is %+v, the estimate %+v", truth.Counts, estimate.Counts)
	}
	for name, of := range map[string][2]replay.Figure{
		"checks": {truth.Checks, estimate.Checks}, "denied then": {truth.DeniedThen, estimate.DeniedThen},
		"newly denied": {truth.NewlyDenied, estimate.NewlyDenied},
	} {
		if off := math.Abs(of[0].Value - of[1].Value); off > 1.5*of[1].Error || of[1].Error == 0 {
			t.Errorf("%s: %g, and the estimate is %g ± %g", name, of[0].Value, of[1].Value, of[1].Error)
		}
	}
	if len(estimate.LeftOut) != 1 || estimate.LeftOut[0].RuleID != 3 || len(truth.LeftOut) != 0 {
		t.Errorf("left out are %+v", estimate.LeftOut)
	}
}

// A new rule has a number only in its replay, which may be another rule's.
func TestVeryManyPlansTakeNoRuleFromTheResult(t *testing.T) {
	t.Parallel()
	s := newStreet(t, rule(t, 1, "user:{user_id}", "", 2, 2))
	for plan := range 5001 {
		s.check(noon, &rules.Request{UserID: fmt.Sprint(plan)}, fmt.Sprint("plan-", plan))
	}
	result := s.replay(s.input(candidateOf(rule(t, 0, "global", "", 300, 300000)), noon.Add(time.Minute)))
	if len(result.Rules) != 1 || result.Rules[0].Rule != "global" || len(result.Notes) != 1 {
		t.Errorf("the rules are %+v, want the one that denies nothing, and the notes %q", result.Rules, result.Notes)
	}
}

func TestANewRuleThatIsLeftOutHasNoNumber(t *testing.T) {
	t.Parallel()
	s := newStreet(t, rule(t, 1, "user:{user_id}", "", 2, 2))
	for user := range 100 {
		s.check(noon, &rules.Request{UserID: fmt.Sprint(user)}, "")
	}
	candidate := candidateOf(rule(t, 0, "global", "", 300, 300))
	in := s.input(candidate, noon.Add(time.Minute))
	in.Level, in.IsPartial = 1, true
	if left := s.replay(in).LeftOut; len(left) != 1 || left[0].RuleID != 0 || left[0].Rule != "global" {
		t.Errorf("left out are %+v, want the new rule without a number", left)
	}
}

func TestChecksThatAnotherRuleDeniesHaveAnErrorOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newStreet(t, rule(t, 1, "user:{user_id}", "", 1, 2), rule(t, 2, "user:{user_id}", "pro", 0.5, 1))
	random := rand.New(rand.NewPCG(3, 4))
	for ms := 0; ms < 60_000; ms += 1 + random.IntN(4) {
		s.check(noon.Add(time.Duration(ms)*time.Millisecond), &rules.Request{UserID: fmt.Sprint(random.IntN(500))},
			"pro")
	}
	in := s.input(candidateOf(rule(t, 0, "user:{user_id}", "", 0.1, 1)), noon.Add(time.Minute))
	moved := func(level int) map[string]replay.Figure {
		in.Level = level
		figures := map[string]replay.Figure{}
		for _, of := range s.replay(in).Rules {
			figures[of.Rule] = of.FromOtherRules
		}
		return figures
	}
	truth, estimate := moved(0), moved(1)
	if truth["user:{user_id}"].Value < 1000 || len(estimate) != 2 {
		t.Fatalf("the truth is %+v, and the estimate %+v", truth, estimate)
	}
	for rule, of := range estimate {
		off := math.Abs(truth[rule].Value - of.Value)
		if truth[rule].Error != 0 || of.Error == 0 || off > 1.5*of.Error || of.Error > math.Abs(truth[rule].Value)/2 {
			t.Errorf("%s: %+v, and the estimate is %g ± %g", rule, truth[rule], of.Value, of.Error)
		}
	}
}

func TestDenialsOfALimitThatIsLeftOutStand(t *testing.T) {
	t.Parallel()
	shared := rule(t, 2, "global", "", 300, 300)
	s := newStreet(t, rule(t, 1, "user:{user_id}", "", 2, 2), shared)
	random := rand.New(rand.NewPCG(3, 4))
	for ms := 0; ms < 60_000; ms += random.IntN(6) { // 400 a second of 500 users
		s.check(noon.Add(time.Duration(ms)*time.Millisecond),
			&rules.Request{UserID: fmt.Sprint(random.IntN(500)), Endpoint: "/a"}, "")
	}
	candidate := candidateOf(rule(t, 0, "user:{user_id}", "", 0.1, 2))
	in := s.input(candidate, noon.Add(time.Minute))
	truth := s.replay(in)
	in.Level, in.IsPartial = 1, true
	estimate := s.replay(in)
	if len(estimate.LeftOut) != 1 || estimate.Share != 0.25 {
		t.Fatalf("left out are %+v, and the share is %g", estimate.LeftOut, estimate.Share)
	}
	for name, of := range map[string][2]replay.Figure{
		"denied then": {truth.DeniedThen, estimate.DeniedThen}, "denied now": {truth.DeniedNow, estimate.DeniedNow},
		"newly denied": {truth.NewlyDenied, estimate.NewlyDenied},
	} {
		if off := math.Abs(of[0].Value - of[1].Value); off > 1.5*of[1].Error || of[0].Value < 1000 {
			t.Errorf("%s: %g, and the estimate is %g ± %g", name, of[0].Value, of[1].Value, of[1].Error)
		}
	}
	in.Candidate = &replay.Candidate{Remove: []rules.RuleIdentity{shared.Identity()}}
	if without := s.replay(in); without.NoLongerDenied.Value == 0 {
		t.Error("without the limit that is left out, the checks that it denied stay denied")
	}
}

func TestNothingRecordedIsSaid(t *testing.T) {
	t.Parallel()
	s := newStreet(t, rule(t, 1, "global", "", 1, 1))
	if _, err := replay.Run(t.Context(), s.input(nil, noon.Add(time.Minute)), replay.Options{}); !errors.Is(err,
		replay.ErrNothing) {
		t.Errorf("the error is %v", err)
	}
}

func TestAConditionIsReadAndJudged(t *testing.T) {
	t.Parallel()
	result := &replay.Result{
		Checks: replay.Figure{Value: 1000},
		Counts: replay.Counts{NewlyDenied: replay.Figure{Value: 2}},
	}
	for text, want := range map[string]bool{
		"newly_denied > 0.1%": true, "newly_denied > 0.2%": false, "newly_denied>=2": true,
		"no_longer_denied > 0": false, "denied_now > 5, newly_denied >= 0.2 %": true,
	} {
		c, err := replay.ParseCondition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if _, met := c.Met(result); met != want {
			t.Errorf("%s is %v", text, met)
		}
	}
	for _, text := range []string{
		"", "newly > 1", "newly_denied", "newly_denied > x", "newly_denied < 1",
		"newly_denied > -1", "newly_denied > 101%",
	} {
		if _, err := replay.ParseCondition(text); err == nil {
			t.Errorf("%q is taken for a condition", text)
		}
	}
}
