package replay_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

func TestASeedDrawsTheSameSampleAgain(t *testing.T) {
	t.Parallel()
	s := newStreet(t, rule(t, 1, "user:{user_id}", "", 1, 2), rule(t, 2, "endpoint:/a", "", 1000, 2000))
	random := rand.New(rand.NewPCG(3, 4))
	for ms := 0; ms < 60_000; ms += 1 + random.IntN(4) {
		s.check(noon.Add(time.Duration(ms)*time.Millisecond),
			&rules.Request{UserID: fmt.Sprint(random.IntN(500)), Endpoint: "/a"}, "")
	}
	in := s.input(candidateOf(rule(t, 0, "user:{user_id}", "", 0.3, 2)), noon.Add(time.Minute))
	truth := s.replay(in)
	results := map[uint64]*replay.Result{}
	for _, seed := range []uint64{0, 1, 2} {
		in.Draw = traffic.Draw{Level: 1, Seed: seed}
		results[seed] = s.replay(in)
		if again := s.replay(in); !reflect.DeepEqual(results[seed], again) {
			t.Errorf("seed %d gives\n%+v and then\n%+v", seed, results[seed], again)
		}
		got := results[seed].NewlyDenied
		if results[seed].Share != 0.25 || got.Error == 0 ||
			math.Abs(got.Value-truth.NewlyDenied.Value) > 1.5*got.Error {
			t.Errorf("seed %d: %g are newly denied, and the estimate of a share of %g is %g ± %g", seed,
				truth.NewlyDenied.Value, results[seed].Share, got.Value, got.Error)
		}
	}
	if reflect.DeepEqual(results[0].Users, results[1].Users) || reflect.DeepEqual(results[1].Users, results[2].Users) {
		t.Error("different seeds draw the same users")
	}
	in.Level, in.Draw = 1, traffic.Draw{Level: 1}
	if of := s.replay(in); of.Share != 1.0/16 || of.Read == 0 || of.Read > results[0].Read {
		t.Errorf("a quarter of a recorded quarter has a share of %g, and %d of %d checks", of.Share, of.Read,
			results[0].Read)
	}
}

func TestACandidateWithoutRules(t *testing.T) {
	t.Parallel()
	all := []rules.Rule{
		rule(t, 1, "user:{user_id}", "pro", 0.001, 2), rule(t, 2, "user:{user_id}", "free", 0.001, 2),
		rule(t, 3, "global", "free", 1000, 1000),
	}
	s := newStreet(t, all...)
	for i := range 10 {
		s.check(noon.Add(time.Duration(i)*time.Second), &rules.Request{UserID: "42"}, []string{"pro", "free"}[i%2])
	}
	for name, test := range map[string]struct {
		candidate replay.Candidate
		freed     float64
	}{
		"a removed rule": {replay.Candidate{Remove: []rules.RuleIdentity{all[0].Identity()}}, 3},
		"a plan's rules": {replay.Candidate{Plan: "free"}, 3},
		"both":           {replay.Candidate{Plan: "free", Remove: []rules.RuleIdentity{all[0].Identity()}}, 6},
		"all":            {replay.Candidate{Prune: true}, 6},
	} {
		if got := s.replay(s.input(&test.candidate, noon.Add(time.Minute))); got.NoLongerDenied.Value != test.freed ||
			got.DeniedThen.Value != 6 {
			t.Errorf("without %s %g of %g are no longer denied, want %g of 6", name, got.NoLongerDenied.Value,
				got.DeniedThen.Value, test.freed)
		}
	}
}
