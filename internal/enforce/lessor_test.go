package enforce_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

type lending struct {
	*world
	lessor *enforce.Lessor
	seen   []outcome
}

type outcome struct {
	allowed, bypassed bool
	reason            enforce.Reason
	rule              rules.RuleID // that decided
	count             int64
}

func (l *lending) Decided(_ *snapshot.Tenant, _ *enforce.Check, d *enforce.Decision) {
	o := outcome{allowed: d.Allowed, bypassed: d.Bypassed, reason: d.Reason, count: d.Count()}
	if t := d.DecidingTier(); t != nil && !d.Allowed {
		o.rule = t.Match.Rule.ID
	}
	l.seen = append(l.seen, o)
}

func (l *lending) StoreAnswered(time.Duration, error) {}

func newLending(t *testing.T, own ...rule) *lending {
	t.Helper()
	l := &lending{world: newWorld(t, snapshot.Rows{Rules: own})}
	store := membucket.New(membucket.Options{Clock: func() int64 { return l.now.UnixMicro() }})
	l.lessor = enforce.NewLessor(store, l, func() time.Time { return l.now }, func(err error) { t.Error(err) })
	return l
}

func (l *lending) lease(request enforce.LesseeRequest) enforce.LesseeAnswer {
	l.t.Helper()
	return l.lessor.Lease(l.t.Context(), l.tenant, &request)
}

func lesseeCheck() enforce.LesseeCheck {
	return enforce.LesseeCheck{Check: enforce.Check{Request: request(), EffectivePlan: "free", Cost: enforce.Token}}
}

type client struct {
	*lending
	name     string
	ask      enforce.Ask
	held     map[int64]enforce.Tokens // by slot
	spent    enforce.Tokens
	isGreedy bool
}

func (c *client) renew() (got enforce.Tokens) {
	key := enforce.Key{Tenant: tenantID, Rule: 1, Subject: "42"}
	ask := c.ask
	ask.Returns = nil
	for slot, amount := range c.held {
		ask.Returns = append(ask.Returns, enforce.Return{Slot: slot, Spent: amount})
		c.spent += amount
	}
	clear(c.held)
	if c.isGreedy { // it says that it is new and has nothing
		ask.Presence, ask.Held = 0, 0
	}
	answer := c.lease(enforce.LesseeRequest{
		Holder: c.name, Checks: []enforce.LesseeCheck{lesseeCheck()},
		Buckets: []enforce.LesseeBucket{{Key: key, Ask: ask}},
	})
	b := &answer.Buckets[0]
	if !b.Answered {
		return 0
	}
	c.ask.Epoch, c.ask.Presence = b.Grant.Epoch, b.Grant.Slot
	c.held[b.Grant.Slot] += b.Grant.Amount
	return b.Grant.Amount
}

func TestAGreedyClientGetsNoMoreThanItsShare(t *testing.T) {
	t.Parallel()
	const rate, burst, seconds = 1000, 1000, 20
	l := newLending(t, rule{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: rate, Burst: burst})
	greedy := &client{lending: l, name: "greedy", held: map[int64]enforce.Tokens{}, isGreedy: true}
	fair := &client{lending: l, name: "fair", held: map[int64]enforce.Tokens{}}
	greedy.ask.Want, fair.ask.Want = 1e15, 500*enforce.Token
	for ms := range seconds * 1000 {
		greedy.renew()
		if ms%10 == 5 {
			fair.renew()
		}
		l.now = l.now.Add(time.Millisecond)
	}
	all := greedy.spent + fair.spent
	t.Logf("the greedy client spent %v, the other %v", greedy.spent, fair.spent)
	if most := enforce.Tokens(burst+rate*seconds) * enforce.Token; all > most {
		t.Errorf("together they spent %v, more than %v", all, most)
	}
	if fair.spent < all*3/10 {
		t.Errorf("the fair client spent %v of %v", fair.spent, all)
	}
}

func TestAClientThatSpendsNothingHoldsAShare(t *testing.T) {
	t.Parallel()
	const burst = 1000
	l := newLending(t, rule{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 100, Burst: burst})
	hoarder := &client{lending: l, name: "hoarder", held: map[int64]enforce.Tokens{}, isGreedy: true}
	hoarder.ask.Want = 1e15
	other := &client{lending: l, name: "other", held: map[int64]enforce.Tokens{}}
	other.ask.Want = burst * enforce.Token
	for ms := range 4000 {
		clear(hoarder.held) // it reports nothing, ever
		hoarder.renew()
		if ms >= 1000 && ms%10 == 0 {
			other.renew()
		}
		l.now = l.now.Add(time.Millisecond)
	}
	t.Logf("the other client spent %v in 3 s", other.spent)
	if other.spent < (burst/4+100)*enforce.Token {
		t.Errorf("the other client spent %v in 3 s", other.spent)
	}
}

func TestHowClientsDecide(t *testing.T) {
	t.Parallel()
	user := pattern(t, "user:{user_id}")
	small, large := rule{Pattern: user, RatePerSecond: 100, Burst: 10},
		rule{Pattern: user, RatePerSecond: 100, Burst: 100}
	never := large
	never.NeverLeased = true
	named := func(id rules.RuleID, name string, r rule) rule {
		r.ID, r.Name = id, name
		return r
	}
	for name, test := range map[string]struct {
		own     []rule
		change  func(*enforce.Check)
		how     enforce.How
		buckets int
	}{
		"no rule": {how: enforce.HowPass},
		"a limit": {own: []rule{named(1, "", large)}, how: enforce.HowLease, buckets: 1},
		"two limits": {
			own: []rule{named(1, "a", large), named(2, "b", large)}, how: enforce.HowLease,
			buckets: 2,
		},
		"a shadow limit": {
			own: []rule{
				named(1, "a", large),
				{ID: 2, Pattern: user, RatePerSecond: 9, Burst: 90, Mode: rules.ModeShadow},
			}, how: enforce.HowLease,
			buckets: 2,
		},
		"a small limit beside": {own: []rule{named(1, "a", large), named(2, "b", small)}, how: enforce.HowAsk},
		"never leased beside":  {own: []rule{named(1, "a", large), named(2, "b", never)}, how: enforce.HowAsk},
		"a slow limit": {
			own: []rule{{ID: 1, Pattern: user, RatePerSecond: 1, Burst: 100}},
			how: enforce.HowAsk,
		},
		"a bypass": {
			own: []rule{named(1, "a", large), {ID: 2, Pattern: user, Action: rules.ActionBypass}},
			how: enforce.HowPass,
		},
		"a block": {
			own: []rule{named(1, "a", large), {ID: 2, Pattern: user, Action: rules.ActionBlock}},
			how: enforce.HowBlock,
		},
		"a look": {
			own: []rule{named(1, "", large)}, change: func(c *enforce.Check) { c.Cost = 0 },
			how: enforce.HowAsk,
		},
		"a cost above all": {
			own:    []rule{named(1, "", large)},
			change: func(c *enforce.Check) { c.Cost = 101 * enforce.Token }, how: enforce.HowAsk,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLending(t, test.own...)
			check := lesseeCheck()
			if test.change != nil {
				test.change(&check.Check)
			}
			answer := l.lease(enforce.LesseeRequest{Holder: "a", Checks: []enforce.LesseeCheck{check}})
			got := answer.Checks[0]
			if got.How != test.how || len(got.Buckets) != test.buckets ||
				(got.Block != nil) != (test.how == enforce.HowBlock) {
				t.Errorf("%+v, want %s with %d buckets", got, test.how, test.buckets)
			}
		})
	}
}

func TestWhatClientsDecidedIsCountedInBulk(t *testing.T) {
	t.Parallel()
	user := pattern(t, "user:{user_id}")
	limits := []rule{
		{ID: 1, Pattern: user, RatePerSecond: 100, Burst: 100},
		{ID: 2, Name: "b", Pattern: user, RatePerSecond: 100, Burst: 100},
	}
	for name, test := range map[string]struct {
		own    []rule
		denied []enforce.LesseeDenials
		want   []outcome
	}{
		"limits": {limits, []enforce.LesseeDenials{{Rule: 2, Count: 3}, {Rule: 1, Count: 4}}, []outcome{
			{allowed: true, count: 1000},
			{reason: enforce.LimitExceeded, rule: 2, count: 3},
			{reason: enforce.LimitExceeded, rule: 1, count: 4},
		}},
		"a rule that is gone": {limits, []enforce.LesseeDenials{{Rule: 9, Count: 3}}, []outcome{
			{allowed: true, count: 1000}, {reason: enforce.LimitExceeded, rule: 1, count: 3},
		}},
		"a block": {
			[]rule{{ID: 3, Pattern: user, Action: rules.ActionBlock}},
			[]enforce.LesseeDenials{{Rule: 3, Count: 5}},
			[]outcome{
				{allowed: true, count: 1000}, {reason: enforce.Blocked, rule: 3, count: 5},
			},
		},
		"a bypass": {
			[]rule{{ID: 3, Pattern: user, Action: rules.ActionBypass}},
			nil,
			[]outcome{{allowed: true, bypassed: true, count: 1000}},
		},
		"no rule":   {nil, []enforce.LesseeDenials{{Rule: 3, Count: 5}}, []outcome{{allowed: true, count: 1000}}},
		"no denial": {limits, []enforce.LesseeDenials{{Rule: 1}}, []outcome{{allowed: true, count: 1000}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLending(t, test.own...)
			check := lesseeCheck()
			check.Allowed, check.Denied = 1000, test.denied
			l.lease(enforce.LesseeRequest{Holder: "a", Checks: []enforce.LesseeCheck{check}})
			if !slices.Equal(l.seen, test.want) {
				t.Errorf("observed %+v, want %+v", l.seen, test.want)
			}
		})
	}
}

func TestLongSubjectsOfLesseesStayApart(t *testing.T) {
	t.Parallel()
	l := newLending(t, rule{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 1000, Burst: 1000})
	for _, last := range []string{"a", "b"} {
		check := lesseeCheck()
		check.Check.UserID = strings.Repeat("x", 200) + last
		answer := l.lease(enforce.LesseeRequest{Holder: "h", Checks: []enforce.LesseeCheck{check}})
		key := answer.Buckets[0].Key
		answer = l.lease(enforce.LesseeRequest{
			Holder: "h", Checks: []enforce.LesseeCheck{check},
			Buckets: []enforce.LesseeBucket{{Key: key, Ask: enforce.Ask{Want: 50 * enforce.Token}}},
		})
		if got := answer.Buckets[0].Grant.Amount; got != 50*enforce.Token {
			t.Errorf("%s is lent %v, want 50", last, got)
		}
	}
	if got := l.lessor.Stats().Lessees; got != 2 {
		t.Errorf("%d clients are remembered, want 2", got)
	}
}
