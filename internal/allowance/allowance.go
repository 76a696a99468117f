// Package allowance limits how much work the admin API does for each tenant, account and network.
//
// It is decided as Sluice decides checks: by an [enforce.Limiter], on token buckets in this process's memory. A token is a
// millisecond of work, as package meter measures it, so what is expensive costs more, by whatever route. A request takes
// the least cost when it begins, and the rest when it has ended. That may put a bucket into debt; until the debt is earned
// back, further requests are denied.
//
// Limits hold per process. A bucket holds what it earns in [Kept]. Debt is at most as much, so nobody waits longer than
// that; what a single request costs beyond it is not charged.
package allowance

import (
	"context"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/membucket"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// Kept is how long an allowance can be saved up.
const Kept = 20 * time.Second

// least is what each request costs, in tokens. Answers from memory and denials later on are cheaper than they look.
const least = 1

// maxBuckets bounds the memory: about 30 MB.
const maxBuckets = 100_000

// mostOverpaid is more than chance adds up to while queries are delayed by 20 ms, and a part of a full allowance.
const mostOverpaid = time.Second

// Class says what an allowance is for.
type Class string

// Classes. A Platform caller acts in every tenant: a platform admin or a service key. A Network is for callers that are
// not known.
const (
	Tenant   Class = "tenant"
	Account  Class = "account"
	Platform Class = "platform"
	Network  Class = "network"
)

// Classes are in the order of their rules.
var Classes = []Class{Tenant, Account, Platform, Network} //nolint:gochecknoglobals // a constant

// Rates are milliseconds of work per second; 0 is no limit.
type Rates map[Class]int

// Caller is whose allowance a request uses.
type Caller struct {
	Tenant  rules.TenantID // 0 for none
	Account string         // a person or an API key; "" for a caller that is not known
	// IsPlatform: the caller acts in every tenant, so that its work counts for itself alone.
	IsPlatform bool
	Network    netip.Prefix // of a caller that is not known
}

// Allowances decides. It is safe for concurrent use.
type Allowances struct {
	limiter *enforce.Limiter
	rules   *snapshot.Tenant
	denied  map[Class]*atomic.Int64
	worked  map[Class]*atomic.Int64 // microseconds

	mu       sync.Mutex
	overpaid map[Caller]time.Duration
}

// own is the tenant that the rules of allowances belong to, in a store of their own.
const own rules.TenantID = 1

// New returns Allowances that are all full. clock returns microseconds since the Unix epoch; nil is the wall clock.
func New(rates Rates, clock func() int64) *Allowances {
	a := &Allowances{denied: map[Class]*atomic.Int64{}, worked: map[Class]*atomic.Int64{}, overpaid: map[Caller]time.Duration{}}
	rows := snapshot.Rows{Tenants: []rules.Tenant{{ID: own, Settings: rules.DefaultSettings()}}}
	for i, class := range Classes {
		a.denied[class], a.worked[class] = new(atomic.Int64), new(atomic.Int64)
		if rates[class] == 0 {
			continue
		}
		rows.Rules = append(rows.Rules, rules.Rule{
			ID: rules.RuleID(i + 1), TenantID: own, Name: string(class), Pattern: patternOf(class), Active: true,
			Mode: rules.ModeEnforce, Action: rules.ActionLimit, Algorithm: rules.TokenBucket, RateUnit: rules.PerSecond,
			RatePerSecond: float64(rates[class]), Burst: int64(rates[class]) * int64(Kept/time.Second),
		})
	}
	a.rules = snapshot.New(rows).Tenant(own)
	buckets := membucket.New(membucket.Options{MaxBuckets: maxBuckets, Clock: clock})
	a.limiter = enforce.NewLimiter(buckets, buckets, unobserved{}, nil)
	return a
}

// patternOf gives each value of the attribute with the class's name a bucket.
func patternOf(class Class) rules.Pattern {
	name := "attr." + string(class)
	pattern, err := rules.ParsePattern(name + ":{" + name + "}")
	if err != nil {
		panic(err) // it is a constant
	}
	return pattern
}

// unobserved is an enforce.Observer: denials are counted where they are answered.
type unobserved struct{}

func (unobserved) Decided(*snapshot.Tenant, *enforce.Check, *enforce.Decision) {}
func (unobserved) StoreAnswered(time.Duration, error)                          {}

// Decision is the answer to a request. Its tiers are the allowances that the request uses, named by their classes.
type Decision struct {
	enforce.Decision
	caller Caller
}

// Denial returns whose allowance is used up, and how long until it is not; "" if the request may go on. Too many open
// reservations say nothing of the caller, and deny nobody.
func (d *Decision) Denial() (class Class, wait time.Duration) {
	tier := d.DecidingTier()
	if d.Allowed || tier == nil {
		return "", 0
	}
	return Class(tier.Match.Rule.Name), tier.RetryAfter
}

// Look decides and takes nothing. Only debt is denied.
func (a *Allowances) Look(ctx context.Context, c Caller) *Decision { return a.decide(ctx, c, 0) }

// Take decides and takes the least cost. If it is allowed, Settle must follow.
func (a *Allowances) Take(ctx context.Context, c Caller) *Decision {
	return a.decide(ctx, c, least*enforce.Token)
}

func (a *Allowances) decide(ctx context.Context, c Caller, cost enforce.Tokens) *Decision {
	checks := [1]enforce.Check{{Request: rules.Request{Attributes: c.attributes()}, Cost: cost, Reserve: cost > 0}}
	var decisions [1]enforce.Decision
	a.limiter.Decide(ctx, a.rules, checks[:], decisions[:])
	d := &Decision{Decision: decisions[0], caller: c}
	if class, _ := d.Denial(); class != "" {
		a.denied[class].Add(1)
	}
	return d
}

// Settle charges the work of a request that was allowed, also after ctx has ended. Work that is less than the least cost
// makes later requests cheaper, since it was measured too low as often as too high; see package meter.
func (a *Allowances) Settle(ctx context.Context, d *Decision, worked time.Duration) {
	worked = a.level(d.caller, worked)
	for _, used := range d.caller.attributes() {
		a.worked[Class(used.Name)].Add(worked.Microseconds())
	}
	if !d.HasReservation {
		return
	}
	cost := enforce.Tokens(worked.Microseconds()) * (enforce.Token / 1000)
	// The store is this process's memory, which always answers.
	_, _ = a.limiter.SettleReservation(ctx, a.rules, d.Reservation, enforce.Settlement{Cost: cost, HasCost: true})
}

// level returns what a caller pays for work: at least the least cost, and what that is too much is made up for later.
func (a *Allowances) level(c Caller, worked time.Duration) time.Duration {
	const leastWork = least * time.Millisecond
	a.mu.Lock()
	defer a.mu.Unlock()
	worked -= a.overpaid[c]
	if worked >= leastWork {
		delete(a.overpaid, c)
		return worked
	}
	if len(a.overpaid) >= maxBuckets {
		clear(a.overpaid)
	}
	a.overpaid[c] = min(leastWork-worked, mostOverpaid)
	return leastWork
}

// Denied counts the denials of a class.
func (a *Allowances) Denied(class Class) int64 { return a.denied[class].Load() }

// Worked returns the work that was charged to a class.
func (a *Allowances) Worked(class Class) time.Duration {
	return time.Duration(a.worked[class].Load()) * time.Microsecond
}

// attributes name the buckets of a caller.
func (c *Caller) attributes() []rules.Attribute {
	switch {
	case c.Account == "":
		return []rules.Attribute{{Name: string(Network), Value: c.Network.String()}}
	case c.IsPlatform:
		return []rules.Attribute{{Name: string(Platform), Value: c.Account}}
	case c.Tenant == 0:
		return []rules.Attribute{{Name: string(Account), Value: c.Account}}
	}
	return []rules.Attribute{
		{Name: string(Tenant), Value: strconv.FormatInt(int64(c.Tenant), 10)}, {Name: string(Account), Value: c.Account},
	}
}
