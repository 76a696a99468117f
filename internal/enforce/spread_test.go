package enforce

import (
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestLimitsThatCannotBeLentAreOfOneUserWhereBucketsAreSpread(t *testing.T) {
	t.Parallel()
	bucket, window := Limit{Rate: 1, Burst: 1}, Limit{Kind: rules.KindFixedWindow, Burst: 1, Interval: 1}
	tier := func(shard uint8, limit Limit) Tier { return Tier{Key: Key{Shard: shard}, Limit: limit} }
	for name, test := range map[string]struct {
		tiers []Tier
		want  bool
	}{
		"together":                   {[]Tier{tier(0, window), tier(0, window)}, false},
		"one user, and what is lent": {[]Tier{tier(1, window), tier(1, window), tier(2, bucket), tier(3, bucket)}, false},
		"two users":                  {[]Tier{tier(1, window), tier(2, bucket), tier(3, window)}, true},
	} {
		if got := areSpread(test.tiers); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
