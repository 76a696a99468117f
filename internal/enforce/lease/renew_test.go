package lease

import (
	"log/slog"
	"reflect"
	"slices"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestBucketsOfATenantAreRenewedTogether(t *testing.T) {
	t.Parallel()
	const want = 4 * enforce.Token // the least
	const due, soon, full = want / 8, want / 2, want * 7 / 8
	now := lend.Instant{Mono: 1e9, Wall: 1e9}
	held := map[enforce.Key]*leased{}
	add := func(tenant rules.TenantID, rule rules.RuleID, amount enforce.Tokens) {
		key := enforce.Key{Tenant: tenant, Rule: rule}
		e := newLeased(key, plenty, now)
		if _, ok := e.Ask(now, lend.TopUp); !ok {
			t.Fatal("the bucket asks for nothing")
		}
		grant := enforce.Grant{
			Amount: amount, Level: enforce.Level{Micros: 1000 * enforce.Token}, Slot: 7, Epoch: 1, Limit: plenty,
		}
		e.granted(now, now, &grant)
		held[key] = e
	}
	add(1, 1, due)
	add(1, 2, soon)
	add(1, 3, full)
	add(2, 1, soon) // of another tenant
	for rule := range rules.RuleID(3 * company) {
		add(3, rule, soon)
	}
	add(3, 1000, due)

	b := newBuckets(nil, func() lend.Instant { return now }, slog.New(slog.DiscardHandler), 16)
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

func TestACallIsOneScript(t *testing.T) {
	t.Parallel()
	due := map[rules.TenantID]*asking{}
	for tenant, buckets := range map[rules.TenantID]int{1: 2*inOneAsk + 1, 2: 3} {
		of := &asking{}
		for range buckets {
			of.add(&leased{key: enforce.Key{Tenant: tenant}}, plenty, enforce.Ask{})
		}
		due[tenant] = of
	}
	got := map[rules.TenantID][]int{}
	for tenant, calls := range callsOf(due, lend.Instant{}) {
		for _, call := range calls {
			got[tenant] = append(got[tenant], len(call.leases))
		}
	}
	if want := map[rules.TenantID][]int{1: {inOneAsk, inOneAsk, 1}, 2: {3}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the calls have %v buckets, want %v", got, want)
	}
}
