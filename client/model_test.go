package sluice

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/leasesim"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"

	"github.com/sluicegate/sluice/internal/enforce/lend"
)

type modelServer struct {
	t      testing.TB
	node   *leasesim.Node // whose request is answered
	lessor *enforce.Lessor
	tenant *snapshot.Tenant
	shared enforce.Limit // the tenant's limits
	user   enforce.Limit
}

func newModelServer(t testing.TB, node *leasesim.Node) *modelServer {
	t.Helper()
	s := &modelServer{t: t, node: node}
	s.lessor = enforce.NewLessor(s, s, func() time.Time { return time.UnixMicro(s.node.Now()) },
		func(err error) { t.Error(err) })
	return s
}

// load returns the tenant with the limits that the node knows, because servers learn of an edit at different times.
func (s *modelServer) load() *snapshot.Tenant {
	shared, user := s.node.SharedLimit(), s.node.UserLimit()
	if s.tenant != nil && shared == s.shared && user == s.user {
		return s.tenant
	}
	rows := snapshot.Rows{
		Tenants: []rules.Tenant{{
			ID: leasesim.SharedKey.Tenant, Slug: "acme", Settings: rules.DefaultSettings(),
			DefaultPlan: "free", Revision: 1,
		}},
		Plans: []rules.Plan{{TenantID: leasesim.SharedKey.Tenant, Name: "free", Revision: 1}},
		Rules: []rules.Rule{s.rule(leasesim.SharedKey, "global", shared)},
	}
	if s.node.Users > 0 {
		rows.Rules = append(rows.Rules, s.rule(leasesim.UserKey(0), "user:{user_id}", user))
	}
	s.tenant, s.shared, s.user = snapshot.New(rows).Tenant(leasesim.SharedKey.Tenant), shared, user
	return s.tenant
}

func (s *modelServer) rule(of enforce.Key, pattern string, limit enforce.Limit) rules.Rule {
	s.t.Helper()
	parsed, err := rules.ParsePattern(pattern)
	if err != nil {
		s.t.Fatal(err)
	}
	r := rules.Rule{
		TenantID: of.Tenant, ID: of.Rule, Active: true, Revision: 1, Pattern: parsed, Algorithm: rules.TokenBucket,
		Action: rules.ActionLimit, Mode: rules.ModeEnforce, RatePerSecond: limit.Rate, Burst: limit.Burst,
	}
	if limit.Since > 0 {
		r.InForceSince = time.UnixMicro(limit.Since)
	}
	return r
}

func (s *modelServer) Lease(_ context.Context, leases []enforce.Lease) error {
	for i := range leases {
		s.node.Lend(&leases[i])
	}
	return nil
}

func (s *modelServer) Decided(*snapshot.Tenant, *enforce.Check, *enforce.Decision) {}
func (s *modelServer) StoreAnswered(time.Duration, error)                          {}

func (s *modelServer) answer(node *leasesim.Node, body []byte) []byte {
	s.node = node
	tenant := s.load()
	request, err := checkjson.DecodeLeases(body, tenant.Tenant.ID)
	if err != nil {
		s.t.Fatalf("a client sent %s: %v", body, err)
	}
	if err := checkjson.ChooseLeasePlans(tenant, request.Checks); err != nil {
		s.t.Fatal(err)
	}
	answer := s.lessor.Lease(context.Background(), tenant, &request)
	return checkjson.AppendLeases(nil, &tenant.Tenant, &request, &answer)
}

// modelled uses handles as in production, without the background goroutine and the connection.
type modelled struct {
	*leasesim.Node
	server    *modelServer
	leases    *leases
	handles   map[checked]*Handle
	lentAfter map[*lend.Lot]int // by the number of the store's losses
}

type checked struct {
	user string
	cost enforce.Tokens
}

func startModelled(t testing.TB) func(*leasesim.Node) leasesim.Process {
	var servers sync.Map
	return func(n *leasesim.Node) leasesim.Process {
		if n.ID == 0 && n.Life() == 0 { // the first of a run
			servers.Store(n.World, newModelServer(t, n))
		}
		found, _ := servers.Load(n.World)
		server := found.(*modelServer)
		c := &Client{config: Config{Logger: slog.New(slog.DiscardHandler)}}
		m := &modelled{
			Node: n, server: server, leases: &c.leases, handles: map[checked]*Handle{},
			lentAfter: map[*lend.Lot]int{},
		}
		m.leases.init(c)
		m.leases.holder = fmt.Sprintf("p%dlife%d", n.ID, n.Life())
		m.leases.clock = func() lend.Instant {
			mono, wall := n.Clocks()
			return lend.Instant{Mono: mono, Wall: wall}
		}
		n.After(n.Draw(10_000), m.tick)
		return m
	}
}

func (m *modelled) handle(of *enforce.BucketCheck) *Handle {
	name := checked{of.Tiers[len(of.Tiers)-1].Key.Subject, of.Cost}
	h := m.handles[name]
	if h == nil {
		check := Check{UserID: name.user, Cost: float64(name.cost / enforce.Token)}
		asked, err := check.ask(-1)
		if err != nil {
			m.server.t.Fatal(err)
		}
		h = &Handle{client: m.leases.client, check: check, asked: asked, cost: name.cost}
		m.handles[name] = h
	}
	return h
}

func (m *modelled) spent(key enforce.Key) (sum int64) {
	if b := m.leases.buckets[key.Text()]; b != nil {
		b.Lots(m.leases.clock(), func(l *lend.Lot, _ bool, _, spent, _ lend.Tokens) {
			if m.lentAfter[l] >= m.LossOf(key) {
				sum += int64(spent)
			}
		})
	}
	return sum
}

func (m *modelled) Held(key enforce.Key) (sum int64) {
	if b := m.leases.buckets[key.Text()]; b != nil {
		b.Lots(m.leases.clock(), func(l *lend.Lot, isAlive bool, left, spent, _ lend.Tokens) {
			if isAlive && m.lentAfter[l] >= m.LossOf(key) {
				sum += int64(left + spent)
			}
		})
	}
	return sum
}

func (m *modelled) Decide(check enforce.BucketCheck) {
	verdict := Undecided
	if !check.Mixed {
		var before [2]int64
		for i := range check.Tiers {
			before[i] = m.spent(check.Tiers[i].Key)
		}
		verdict = m.handle(&check).Try()
		for i := range check.Tiers {
			key := check.Tiers[i].Key
			m.Admit(key, m.Now(), m.spent(key)-before[i])
		}
	}
	switch verdict {
	case Allowed:
		m.Passed++
	case Undecided: // the client asks, and the store decides
		checks := []enforce.BucketCheck{check}
		m.Call(func() { m.Take(&checks[0]) }, func(isLost bool) {
			if !isLost && checks[0].Allowed {
				m.Passed++
			}
		})
	}
}

func (m *modelled) tick() {
	l := m.leases
	next := func() {
		l.forget()
		m.After(int64(tickEvery/time.Microsecond), m.tick)
	}
	for len(l.hot) > 0 {
		l.admit(<-l.hot)
	}
	if len(l.handles) == 0 {
		next()
		return
	}
	r := l.due(l.clock())
	if r == nil {
		next()
		return
	}
	body, err := l.encode(r)
	if err != nil {
		m.server.t.Fatal(err)
	}
	var text []byte
	losses := 0
	m.Call(func() { text, losses = m.server.answer(m.Node, body), m.Losses() }, func(isLost bool) {
		var failed *Error
		if isLost {
			failed = &Error{Kind: KindTimeout}
		}
		l.received(r, text, failed)
		for _, b := range l.buckets {
			b.Lots(l.clock(), func(one *lend.Lot, _ bool, _, _, _ lend.Tokens) {
				if _, known := m.lentAfter[one]; !known {
					m.lentAfter[one] = losses
				}
			})
		}
		next()
	})
}

var soak = flag.Bool("soak", false, "play more and larger runs")

func TestModelOfHandles(t *testing.T) {
	t.Parallel()
	leasesim.RunGoals(t, startModelled(t))
}

func TestHandlesAmongFaults(t *testing.T) {
	t.Parallel()
	runs, processes := uint64(10), 30
	if *soak {
		runs, processes = 500, 1000
	}
	leasesim.RunHostile(t, runs, processes, startModelled(t))
}

func TestTheModelSeesFaultsOfHandles(t *testing.T) {
	t.Parallel()
	leasesim.RunFaults(t, startModelled(t))
}

func denialOf(wait time.Duration) *enforce.Decision {
	return &enforce.Decision{Reason: enforce.LimitExceeded, Tiers: []enforce.TierDecision{{
		Match: &rules.Match{Rule: &rules.Rule{ID: 12, Action: rules.ActionLimit}}, Reason: enforce.LimitExceeded,
		RetryAfter: wait,
	}}}
}

func TestRetryAfterIsThatOfTheServer(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{
		time.Millisecond, 35 * time.Millisecond, time.Second, 9959 * time.Millisecond, 100 * time.Second,
		24 * time.Hour, 365 * 24 * time.Hour,
	} {
		for _, jitter := range []int64{0, 1, 7, 100, 1234, 2050, 4999, 5000} {
			denied := denialOf(wait)
			var server checkjson.Headers
			server.AddRateLimit(denied, time.Now(), jitter)
			want := ""
			for name, value := range server.Strings() {
				if name == "Retry-After" {
					want = value
				}
			}
			d, ok := decodeDecision(checkjson.AppendDecision(nil, denied, jitter), http.StatusTooManyRequests)
			header := http.Header{}
			d.SetHeaders(header, time.Now())
			if got := header.Get("Retry-After"); !ok || got != want {
				t.Errorf("a wait of %s with a jitter of %d is %q, want %q", wait, jitter, got, want)
			}
		}
	}
	for percent, want := range map[float64]time.Duration{-1: time.Minute, 1e9: 90 * time.Second} {
		d := Decision{RetryAfter: time.Minute, RetryJitterPercent: percent}
		if got := d.RetryWithJitter(); got != want {
			t.Errorf("%g %% makes a minute %s, want %s", percent, got, want)
		}
	}
}

func TestHandlesLearnTheirJitter(t *testing.T) {
	t.Parallel()
	tenant := rules.Tenant{ID: 1, Settings: rules.Settings{RetryJitterPercent: 50}}
	request := enforce.LesseeRequest{Checks: []enforce.LesseeCheck{{Check: enforce.Check{
		Request: rules.Request{UserID: "42"},
	}}}}
	for _, how := range []enforce.How{enforce.HowLease, enforce.HowPass} {
		text := checkjson.AppendLeases(nil, &tenant, &request,
			&enforce.LesseeAnswer{Checks: []enforce.CheckAnswer{{How: how}}})
		var answer leaseAnswer
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatal(err)
		}
		want := 0.0
		if how == enforce.HowLease {
			want = float64(checkjson.Jitter(&tenant, &request.Checks[0].Check.Request)) / 100
		}
		if got := answer.Checks[0].RetryJitter; got != want {
			t.Errorf("%s: a jitter of %g %%, want %g: %s", how, got, want, text)
		}
	}
}
