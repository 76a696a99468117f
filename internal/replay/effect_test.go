package replay_test

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/traffic"
)

type shelves struct {
	rows   snapshot.Rows
	blocks []traffic.Block // in order of First
	read   int             // blocks
}

func newShelves(all ...rules.Rule) *shelves {
	return &shelves{rows: snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Settings: rules.DefaultSettings()}},
		Rules:   all,
	}}
}

func (s *shelves) record(first time.Time, stratum, level int, runs ...traffic.Run) {
	b := traffic.Block{Tenant: 1, Number: int64(len(s.blocks)), First: first, Stratum: stratum, Level: level}
	latest := uint32(0)
	for _, run := range runs {
		latest = max(latest, slices.Max(run.Times))
	}
	b.Last = first.Add(time.Duration(latest) * time.Millisecond)
	b.SetRuns(runs)
	b.Seen = int64(b.Checks)
	s.blocks = append(s.blocks, b)
	slices.SortStableFunc(s.blocks, func(a, b traffic.Block) int { return a.First.Compare(b.First) })
}

func (s *shelves) in(of traffic.Range) (found []traffic.Block) {
	for _, b := range s.blocks {
		isIn := b.First.Before(of.Until) && !b.Last.Before(of.Since)
		if isIn && b.Stratum >= of.LeastStratum && (of.MostStratum == 0 || b.Stratum <= of.MostStratum) {
			found = append(found, b)
		}
	}
	return found
}

func (s *shelves) Blocks(_ context.Context, _ rules.TenantID, of traffic.Range) iter.Seq2[traffic.Block, error] {
	blocks := s.in(of)
	s.read += len(blocks)
	return replay.Slice(blocks)
}

func (s *shelves) BlocksOfUser(
	_ context.Context, _ rules.TenantID, user string, of traffic.Range, _ int64,
) (time.Time, iter.Seq2[traffic.Block, error], error) {
	blocks := slices.DeleteFunc(s.in(of), func(b traffic.Block) bool { return !slices.Contains(b.Users, user) })
	return of.Since, replay.Slice(blocks), nil
}

func (s *shelves) Latest(_ context.Context, _ rules.TenantID, of traffic.Range, checks, seen int64) (time.Time, error) {
	var soFar, seenSoFar int64
	for _, b := range slices.Backward(s.in(traffic.Range{Since: of.Since, Until: of.Until})) {
		seenSoFar += b.Seen
		if len((&shelves{blocks: []traffic.Block{b}}).in(of)) > 0 {
			soFar += int64(b.Checks)
		}
		if soFar >= checks || seenSoFar >= seen {
			return b.First, nil
		}
	}
	return of.Since, nil
}

func (s *shelves) Summary(_ context.Context, _ rules.TenantID, of traffic.Range) (sum traffic.Summary, err error) {
	for _, b := range s.in(traffic.Range{Since: of.Since, Until: of.Until}) {
		sum.Blocks++
		sum.Level = max(sum.Level, b.Level)
		sum.Checks += int64(b.Checks)
		sum.Seen += b.Seen
		if b.Stratum < traffic.Strata {
			sum.Strata[b.Stratum] += int64(b.Checks)
		}
	}
	return sum, nil
}

func (*shelves) UsageOf(context.Context, rules.TenantID) (traffic.Usage, error) {
	return traffic.Usage{}, nil
}

func (s *shelves) History(context.Context, rules.TenantID, time.Time) (*replay.History, error) {
	return &replay.History{Start: s.rows}, nil
}

func (s *shelves) effect(t *testing.T, candidate *replay.Candidate) *replay.Result {
	t.Helper()
	result, err := replay.Effect(t.Context(), s, 1, candidate, replay.EffectChecks, noon)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func times(n int, every uint32) []uint32 {
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i) * every
	}
	return all
}

func sampledUsers(stratum, n int) (users []string) {
	for i := 0; len(users) < n; i++ {
		if user := fmt.Sprint("user-", i); traffic.StratumOfUser(1, user) == stratum {
			users = append(users, user)
		}
	}
	return users
}

const token = 1_000_000

func TestAnEffectComparesWithWhatIsInForce(t *testing.T) {
	t.Parallel()
	s := newShelves(rule(t, 1, "user:{user_id}", "", 0.001, 5), rule(t, 2, "endpoint:/a", "", 0.001, 1))
	s.rows.Rules[0].InForceSince = noon.Add(-time.Minute)
	s.rows.Rules[1].ExpiresAt = noon.Add(-time.Minute)
	raise := func(user string, expires time.Time) rules.Override {
		return rules.Override{
			TenantID: 1, RuleID: 1, UserID: user, RatePerSecond: 0.001, Burst: 100,
			InForceSince: noon.Add(-time.Minute), ExpiresAt: expires,
		}
	}
	s.rows.Overrides = []rules.Override{raise("raised", noon.Add(time.Hour)), raise("ended", noon.Add(-time.Second))}
	for i, user := range []string{"raised", "ended"} {
		s.record(noon.Add(-time.Hour), i, 0,
			traffic.Run{UserID: user, Endpoint: "/a", Cost: token, Times: times(10, 1)})
	}
	got := s.effect(t, candidateOf(rule(t, 0, "user:{user_id}", "", 0.001, 3)))
	if got.DeniedThen.Value != 5 || got.NewlyDenied.Value != 2 || got.NoLongerDenied.Value != 0 ||
		len(got.Users) != 1 || got.Users[0].UserID != "ended" {
		t.Errorf("the effect is %+v of %+v", got.Counts, got.Users)
	}
}

func TestWhatIsBesideTheSampleTakesNoRoomOfChecks(t *testing.T) {
	t.Parallel()
	ofUser, ofAll := rule(t, 0, "user:{user_id}", "", 0.001, 10), rule(t, 0, "global", "", 0.001, 10)
	inSample := sampledUsers(2, 10)
	sample := func(s *shelves) {
		for _, user := range inSample {
			s.record(noon.Add(-3*time.Hour), 2, 1,
				traffic.Run{UserID: user, Endpoint: "/a", Cost: token, Times: times(100, 108_000)})
		}
	}
	flood := func(stratum int) func(*shelves) {
		return func(s *shelves) {
			for i := range 100 {
				s.record(noon.Add(-10*time.Minute).Add(time.Duration(i)*6*time.Second), stratum, 1, traffic.Run{
					UserID: sampledUsers(0, 1)[0], Endpoint: "/a", Cost: token, Decider: 1,
					Flags: traffic.Denied | traffic.Extra, Times: times(10_000, 0),
				})
			}
		}
	}
	sums := func(stratum int) func(*shelves) {
		return func(s *shelves) {
			for i := range 36 {
				run := traffic.Run{
					Endpoint: "/a", Flags: traffic.Sum, Times: times(300, 1000),
					Costs: make([]int64, 300),
				}
				for j := range run.Costs {
					run.Costs[j] = 100 * token
				}
				s.record(noon.Add(-3*time.Hour).Add(time.Duration(i)*5*time.Minute), stratum, 1, run)
			}
		}
	}
	for name, test := range map[string]struct {
		beside    func(*shelves)
		candidate rules.Rule
		least     int64
	}{
		"denied checks, a limit of users":                       {flood(traffic.StratumOfExtras), ofUser, 1000},
		"denied checks, a limit that users share":               {flood(traffic.StratumOfExtras), ofAll, 1000},
		"denied checks in blocks of the sample, a shared limit": {flood(traffic.Strata - 1), ofAll, 1000},
		"sums, a limit of users":                                {sums(traffic.StratumOfSums), ofUser, 1000},
		"sums in blocks of the sample, a limit of users":        {sums(traffic.Strata - 1), ofUser, 1000},
		"sums, a limit that users share":                        {sums(traffic.StratumOfSums), ofAll, 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelves(rule(t, 1, "user:{user_id}", "", 100, 100))
			sample(s)
			test.beside(s)
			result := s.effect(t, candidateOf(test.candidate))
			if result.Read < test.least || result.Share != 0.25 || len(result.Listed) > 0 {
				t.Errorf("%d of 1000 checks were looked at, as a sample of %g; listed are %v", result.Read,
					result.Share, result.Listed)
			}
			if result.NewlyDenied.Value < 0.8*float64(test.least)/result.Share {
				t.Errorf("of %d checks %g are newly denied", result.Read, result.NewlyDenied.Value*result.Share)
			}
		})
	}
}

func TestFloodsOfDeniedChecksAreNotRead(t *testing.T) {
	t.Parallel()
	s := newShelves()
	s.record(noon.Add(-time.Minute), 2, 1, traffic.Run{UserID: sampledUsers(2, 1)[0], Cost: token, Times: times(5, 1)})
	for i := range 10 {
		s.record(noon.Add(-time.Duration(i)*time.Second), traffic.StratumOfExtras, 1,
			traffic.Run{UserID: "x", Flags: traffic.Denied | traffic.Extra, Times: times(5, 1)})
	}
	for _, of := range []string{"user:{user_id}", "global"} {
		s.read = 0
		if result := s.effect(t, candidateOf(rule(t, 0, of, "", 1, 1))); result.Read != 5 || s.read != 1 {
			t.Errorf("%s: %d blocks were read for %d checks", of, s.read, result.Read)
		}
	}
}

// A proxy's address in the sample has the checks of all users recorded, most of them without use for users.
func TestChecksOfAddressesInTheSampleTakeNoRoomOfUsers(t *testing.T) {
	t.Parallel()
	settings := rules.DefaultSettings()
	proxy := netip.MustParseAddr("10.0.0.1")
	for traffic.StratumOfIP(1, proxy, &settings) < 3 {
		proxy = proxy.Next()
	}
	s := newShelves()
	for _, user := range sampledUsers(3, 10) {
		s.record(noon.Add(-3*time.Hour), 3, 3, traffic.Run{UserID: user, Cost: token, Times: times(100, 100)})
	}
	outside := sampledUsers(0, 1)[0]
	for i := range 15 {
		s.record(noon.Add(-time.Hour).Add(time.Duration(i)*time.Minute), 3, 3,
			traffic.Run{UserID: outside, IP: proxy, Cost: token, Times: times(10_000, 1)})
	}
	if result := s.effect(t, candidateOf(rule(t, 0, "user:{user_id}", "", 0.001, 1))); result.Read != 1000 {
		t.Errorf("%d of 1000 checks were looked at", result.Read)
	}
}

// A sample that is small enough may have none of the busy users.
func TestAnEffectOnFewBusyUsersHasThem(t *testing.T) {
	t.Parallel()
	s := newShelves()
	for i, user := range append(sampledUsers(0, 6), sampledUsers(1, 2)...) {
		for hour := range 5 {
			s.record(noon.Add(-time.Duration(hour+1)*time.Hour), i/6, 0,
				traffic.Run{UserID: user, Cost: token, Times: times(20_000, 100)})
		}
	}
	result := s.effect(t, candidateOf(rule(t, 0, "user:{user_id}", "", 0.001, 1)))
	if result.Read != 100_000 || result.Share != 0.25 || len(result.Users) != 2 {
		t.Errorf("%d checks of %d users were looked at, as a sample of %g", result.Read, len(result.Users),
			result.Share)
	}
}
