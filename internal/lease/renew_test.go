package lease

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// TestBucketsOfAShardAreRenewedTogether: those that would be due before long come along with one that is, if a script reaches them, and
// so do shards that would be due soon.
func TestBucketsOfAShardAreRenewedTogether(t *testing.T) {
	t.Parallel()
	const due, near, soon, full = leastWanted / 8, leastWanted * 3 / 8, leastWanted / 2, leastWanted * 7 / 8
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
	add(key(1, 5, 6), near)
	add(key(1, 6, 6), soon)
	add(key(1, 7, 6), full)
	add(key(2, 1, 3), near) // of another tenant
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
	if slices.Sort(asked); !slices.Equal(asked, []rules.RuleID{1, 2, 5, 6}) {
		t.Errorf("of the first tenant it asks for the buckets of rules %v", asked)
	}
	if got := len(calls[3][0].leases); got != company {
		t.Errorf("of many that would be due before long it asks for %d", got)
	}
}

// TestACallHasAScriptOfEachShard: scripts are short, because the store does nothing else while one runs.
func TestACallHasAScriptOfEachShard(t *testing.T) {
	t.Parallel()
	due := map[shard]*asking{}
	for number, buckets := range map[uint8]int{1: 2*inOneAsk + 1, 2: 3, 3: inOneAsk} {
		of := &asking{}
		for range buckets {
			of.add(&leased{key: enforce.Key{Tenant: 1, Shard: number}}, plenty, enforce.Ask{})
		}
		due[shard{1, number}] = of
	}
	var got [][4]int // of each call and shard
	for _, call := range callsOf(due, Instant{})[1] {
		var buckets [4]int
		for i := range call.leases {
			buckets[call.leases[i].Key.Shard]++
		}
		got = append(got, buckets)
	}
	if want := [][4]int{{0, inOneAsk, 3, inOneAsk}, {0, inOneAsk}, {0, 1}}; !slices.Equal(got, want) {
		t.Errorf("the calls have %v buckets of each shard, want %v", got, want)
	}
}
