package lease

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// TestBucketsOfAShardAreRenewedTogether: those that would be due before long come along with one that is, if a script reaches them.
func TestBucketsOfAShardAreRenewedTogether(t *testing.T) {
	t.Parallel()
	const due, soon, full = leastWanted / 8, leastWanted / 2, leastWanted * 7 / 8
	key := func(tenant rules.TenantID, rule rules.RuleID, shard uint8) enforce.Key {
		return enforce.Key{Tenant: tenant, Rule: rule, Shard: shard}
	}
	now := Instant{Mono: 1e9, Wall: 1e9}
	held := map[enforce.Key]*leased{}
	add := func(key enforce.Key, amount enforce.Tokens) {
		e := &leased{Bucket: NewBucket(plenty, now), key: key}
		if _, ok := e.Ask(now, 0, 0); !ok {
			t.Fatal("the bucket asks for nothing")
		}
		e.Answered(now, now, &enforce.Grant{Amount: amount, Level: enforce.Level{Micros: 1000 * enforce.Token}, Slot: 7, Epoch: 1, Limit: plenty})
		held[key] = e
	}
	add(key(1, 1, 3), due)
	add(key(1, 2, 3), soon)
	add(key(1, 3, 3), full)
	add(key(1, 4, 5), soon) // of another shard
	add(key(2, 1, 3), soon) // of another tenant
	for rule := range rules.RuleID(3 * company) {
		add(key(3, rule, 1), soon)
	}
	add(key(3, 1000, 1), due)

	b := newBuckets(nil, func() Instant { return now }, slog.New(slog.DiscardHandler), 16)
	b.TurnOn(true)
	b.held.Store(&held)
	calls := b.collect()
	if len(calls) != 2 || len(calls[1]) != 1 || len(calls[3]) != 1 {
		t.Fatalf("the calls are %v", calls)
	}
	var asked []rules.RuleID
	for _, l := range calls[1][0].leases {
		asked = append(asked, l.Key.Rule)
	}
	if slices.Sort(asked); !slices.Equal(asked, []rules.RuleID{1, 2}) {
		t.Errorf("of the first tenant it asks for the buckets of rules %v", asked)
	}
	if got := len(calls[3][0].leases); got != company {
		t.Errorf("of many that would be due before long it asks for %d", got)
	}
}
