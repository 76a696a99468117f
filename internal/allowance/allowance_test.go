package allowance_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/allowance"
	"github.com/sluicegate/sluice/internal/meter"
)

// clock is a store's clock that a test moves.
type clock int64

func (c *clock) now() int64           { return int64(*c) }
func (c *clock) pass(d time.Duration) { *c += clock(d.Microseconds()) }

var rates = allowance.Rates{allowance.Tenant: 200, allowance.Account: 150, allowance.Platform: 500, allowance.Network: 500}

// work has a caller do one request, and reports which class denied it.
func work(t *testing.T, a *allowance.Allowances, by allowance.Caller, took time.Duration) allowance.Class {
	t.Helper()
	decision := a.Take(t.Context(), by)
	class, _ := decision.Denial()
	if class == "" {
		a.Settle(t.Context(), decision, took)
	}
	return class
}

func TestLoopsGetAShareOfAProcessor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		by   allowance.Caller
		rate time.Duration // a second
	}{
		"an account":       {allowance.Caller{Tenant: 7, Account: "account:1"}, 150 * time.Millisecond},
		"without a tenant": {allowance.Caller{Account: "account:1"}, 150 * time.Millisecond},
		"a platform admin": {allowance.Caller{Account: "account:1", IsPlatform: true}, 500 * time.Millisecond},
		"strangers":        {allowance.Caller{Network: netip.MustParsePrefix("203.0.113.0/24")}, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := new(clock)
			a := allowance.New(rates, at.now)
			var worked time.Duration
			for *at < clock((10 * time.Minute).Microseconds()) {
				if work(t, a, test.by, 300*time.Millisecond) == "" {
					worked += 300 * time.Millisecond
					at.pass(300 * time.Millisecond)
				} else {
					at.pass(10 * time.Millisecond)
				}
			}
			most := test.rate*600 + time.Duration(float64(test.rate)*allowance.Kept.Seconds()) + time.Second
			if worked > most || worked < test.rate*600 {
				t.Errorf("it worked for %v in ten minutes, want %v", worked, most)
			}
		})
	}
}

func TestAPersonIsNotDenied(t *testing.T) {
	t.Parallel()
	at := new(clock)
	a := allowance.New(rates, at.now)
	by := allowance.Caller{Tenant: 7, Account: "account:1"}
	for range 600 { // a screen of ten requests each second
		for range 10 {
			if class := work(t, a, by, 8*time.Millisecond); class != "" {
				t.Fatalf("the %s denies after %v", class, at)
			}
		}
		at.pass(time.Second)
	}
}

func TestMembersShareTheTenantsAllowanceAndNoOther(t *testing.T) {
	t.Parallel()
	at := new(clock)
	a := allowance.New(rates, at.now)
	one, two := allowance.Caller{Tenant: 7, Account: "account:1"}, allowance.Caller{Tenant: 7, Account: "key:2"}
	for work(t, a, one, time.Second) == "" {
	}
	if class := work(t, a, one, 0); class != allowance.Account {
		t.Errorf("the %q denies the first member", class)
	}
	for work(t, a, two, time.Second) == "" {
	}
	if class := work(t, a, two, 0); class != allowance.Tenant {
		t.Errorf("the %q denies the second member", class)
	}
	for name, by := range map[string]allowance.Caller{
		"another tenant":                  {Tenant: 8, Account: "account:3"},
		"the second one's account":        {Account: "key:2"},
		"a platform admin in that tenant": {Tenant: 7, Account: "account:4", IsPlatform: true},
		"a network":                       {Network: netip.MustParsePrefix("203.0.113.0/24")},
	} {
		if class := work(t, a, by, 0); class != "" {
			t.Errorf("%s: the %s denies", name, class)
		}
	}
	if a.Denied(allowance.Tenant) == 0 || a.Worked(allowance.Tenant) == 0 {
		t.Error("nothing is counted for tenants")
	}
}

func TestADebtIsAtMostAFullAllowance(t *testing.T) {
	t.Parallel()
	at := new(clock)
	a := allowance.New(rates, at.now)
	by := allowance.Caller{Account: "account:1"}
	work(t, a, by, time.Hour)
	_, wait := a.Look(t.Context(), by).Denial()
	if wait != allowance.Kept {
		t.Errorf("it waits for %v, want %v", wait, allowance.Kept)
	}
	at.pass(wait + 10*time.Millisecond)
	if class := work(t, a, by, 0); class != "" {
		t.Errorf("after the wait the %s denies", class)
	}
}

func TestWithoutRatesThereIsNoLimit(t *testing.T) {
	t.Parallel()
	a := allowance.New(nil, nil)
	by := allowance.Caller{Tenant: 7, Account: "account:1"}
	for range 3 {
		if class := work(t, a, by, time.Hour); class != "" {
			t.Fatalf("the %s denies", class)
		}
	}
}

// TestAQuietCallerIsNotDeniedBecauseOthersAreBusy has a caller that uses half of its allowance, with queries that are
// delayed by chance.
func TestAQuietCallerIsNotDeniedBecauseOthersAreBusy(t *testing.T) {
	t.Parallel()
	const asks, works = 30, 2500 * time.Microsecond // each second
	for _, delay := range []time.Duration{0, 20 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			a := allowance.New(rates, func() int64 { return time.Now().UnixMicro() })
			by := allowance.Caller{Tenant: 7, Account: "key:1"}
			var usual meter.Usual
			dice := rand.New(rand.NewPCG(1, 2)) // the same in each run
			query := func(isLookup bool, works time.Duration) (work time.Duration) {
				q := usual.Begin(isLookup)
				<-time.After(works + time.Duration(dice.ExpFloat64()*float64(delay)))
				return usual.End(q, true)
			}
			next := time.Now()
			for range 300 * asks {
				cost := query(true, 0) + query(false, works)
				if class := work(t, a, by, cost); class != "" {
					t.Fatalf("with delays of %v the %s denies", delay, class)
				}
				next = next.Add(time.Second / asks)
				<-time.After(time.Until(next))
			}
			charged := a.Worked(allowance.Account) / (300 * asks)
			if charged < works*8/10 || charged > works*15/10 {
				t.Errorf("with delays of %v a request costs %v, want %v", delay, charged, works)
			}
		})
	}
}

func TestWhatWasPaidTooMuchIsMadeUpFor(t *testing.T) {
	t.Parallel()
	a := allowance.New(rates, new(clock).now)
	by, other := allowance.Caller{Account: "account:1"}, allowance.Caller{Account: "account:2"}
	var before time.Duration
	for _, step := range []struct {
		by            allowance.Caller
		worked, costs time.Duration
	}{
		{by, 5 * time.Millisecond, 5 * time.Millisecond},
		{by, -3 * time.Millisecond, time.Millisecond},       // 4 too much
		{other, 5 * time.Millisecond, 5 * time.Millisecond}, // nothing of another's
		{by, 3 * time.Millisecond, time.Millisecond},        // 2 too much
		{by, 5 * time.Millisecond, 3 * time.Millisecond},
		{by, 5 * time.Millisecond, 5 * time.Millisecond},
		{by, -time.Hour, time.Millisecond}, // at most a second too much
		{by, 2 * time.Second, time.Second},
		{by, time.Second, time.Second},
	} {
		work(t, a, step.by, step.worked)
		now := a.Worked(allowance.Account)
		if now-before != step.costs {
			t.Errorf("%v of work of %s cost %v, want %v", step.worked, step.by.Account, now-before, step.costs)
		}
		before = now
	}
}
