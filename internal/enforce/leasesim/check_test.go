package leasesim

import (
	"math"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
)

func TestTheIdealBucketKnowsWhatAddsToALimit(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	limit, cut := enforce.Limit{Rate: 10, Burst: 100}, enforce.Limit{Rate: 10, Burst: 40, Since: 1}
	admit := func(at float64, tokens int64) entry {
		return entry{at: int64(at * second), amount: enforce.Tokens(tokens) * enforce.Token}
	}
	happen := func(at float64, change func(*ideal)) entry { return entry{at: int64(at * second), change: change} }
	for name, test := range map[string]struct {
		log  []entry
		want float64
	}{
		"a burst and what it earns":                {[]entry{admit(0, 100), admit(3, 30)}, 0},
		"one more":                                 {[]entry{admit(0, 100), admit(3, 31)}, -1},
		"no more than a burst after a long time":   {[]entry{admit(1000, 101)}, -1},
		"an earlier admission that is noted later": {[]entry{admit(3, 30), admit(0, 100)}, 0},
		"a credit": {[]entry{
			admit(0, 100), happen(0, given(20*enforce.Token)),
			admit(0, 20),
		}, 0},
		"a credit above the burst": {[]entry{
			admit(0, 10), happen(0, given(20*enforce.Token)),
			admit(0, 101),
		}, -1},
		"a negative credit":                   {[]entry{happen(0, given(-20*enforce.Token)), admit(0, 81)}, -1},
		"a bucket that was lost":              {[]entry{admit(0, 100), happen(1, made(limit)), admit(1, 100)}, 0},
		"what was lacking before it was lost": {[]entry{admit(0, 105), happen(1, made(limit))}, -5},
		"debt of a settled reservation": {[]entry{
			admit(0, 70),
			happen(0, charged(80*enforce.Token, 50*enforce.Token, 50*enforce.Token)),
		}, 0},
		"tokens that were lent meanwhile": {[]entry{
			admit(0, 70),
			happen(0, charged(80*enforce.Token, 70*enforce.Token, 70*enforce.Token)), admit(0, 20),
		}, 0},
		"debt is paid before anything is earned": {[]entry{
			admit(0, 100),
			happen(0, charged(50*enforce.Token, 50*enforce.Token, 50*enforce.Token)), admit(5, 1),
		}, -1},
		"debt that is paid": {[]entry{
			admit(0, 100),
			happen(0, charged(50*enforce.Token, 50*enforce.Token, 50*enforce.Token)), admit(6, 10),
		}, 0},
		"debt of more than a burst": {[]entry{
			admit(0, 100),
			happen(0, charged(101*enforce.Token, 101*enforce.Token, 101*enforce.Token)),
		}, -1},
		"a credit of a bucket in debt": {[]entry{
			admit(0, 100),
			happen(0, charged(50*enforce.Token, 50*enforce.Token, 50*enforce.Token)),
			happen(0, given(60*enforce.Token)), admit(0, 11),
		}, -1},
		"a cut burst within a second":        {[]entry{happen(0, edited(cut)), admit(0.9, 100)}, 0},
		"a cut burst earns nothing above it": {[]entry{happen(0, edited(cut)), admit(0.9, 101)}, -1},
		"a cut burst after a second":         {[]entry{happen(0, edited(cut)), admit(1, 41)}, -1},
		"a cut burst forgives debt above it": {[]entry{
			admit(0, 100),
			happen(0, charged(90*enforce.Token, 90*enforce.Token, 90*enforce.Token)), happen(0, edited(cut)),
			admit(5, 10),
		}, 0},
		"an older limit": {[]entry{
			happen(0, edited(cut)), happen(1, edited(limit)),
			admit(100, 41),
		}, -1},
		"a rate from when it came into force": {[]entry{
			admit(0, 100),
			happen(2, edited(enforce.Limit{Rate: 20, Burst: 100, Since: 1})), admit(4, 61),
		}, -1},
		"a failover to a fuller bucket": {[]entry{
			admit(0, 100),
			happen(0, failedOver(30*enforce.Token, 0, 0)), admit(0, 31),
		}, -1},
		"what an older state does not know as lent": {[]entry{
			happen(0, failedOver(0, 5*enforce.Token, 0)),
			admit(1, 105),
		}, 0},
		"one that has forgotten all that was lent": {[]entry{
			happen(0, failedOver(0, 5*enforce.Token, 0)),
			admit(1.5, 101),
		}, -1},
		"an older state in debt": {[]entry{happen(0,
			failedOver(-120*enforce.Token, 0, 20*enforce.Token)), admit(2, 1)}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := min(0, replay(append([]entry{happen(0, made(limit))}, test.log...)))
			if math.Abs(got-test.want) > slack {
				t.Errorf("lacks %.3f tokens, want %.3f", -got, -test.want)
			}
		})
	}
}
