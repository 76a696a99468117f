package sluice

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/leasesim"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// modelServer lends to the clients of a run, as POST /v1/leases does.
type modelServer struct {
	t      testing.TB
	node   *leasesim.Node // whose request it answers
	tenant *snapshot.Tenant
	lessor *enforce.Lessor
}

func newModelServer(t testing.TB, node *leasesim.Node) *modelServer {
	t.Helper()
	pattern, err := rules.ParsePattern("global")
	if err != nil {
		t.Fatal(err)
	}
	tenant := leasesim.SharedKey.Tenant
	rows := snapshot.Rows{
		Tenants: []rules.Tenant{{ID: tenant, Slug: "acme", Settings: rules.DefaultSettings(), DefaultPlan: "free", Revision: 1}},
		Plans:   []rules.Plan{{TenantID: tenant, Name: "free", Revision: 1}},
		Rules: []rules.Rule{{
			TenantID: tenant, ID: leasesim.SharedKey.Rule, Active: true, Revision: 1, Pattern: pattern, Algorithm: rules.TokenBucket,
			Action: rules.ActionLimit, Mode: rules.ModeEnforce, RatePerSecond: node.Limit.Rate, Burst: node.Limit.Burst,
		}},
	}
	s := &modelServer{t: t, node: node, tenant: snapshot.New(rows).Tenant(tenant)}
	s.lessor = enforce.NewLessor(s, s, func() time.Time { return time.UnixMicro(s.node.Now()) }, func(err error) { t.Error(err) })
	return s
}

// Lease implements enforce.Lender with the store of the run.
func (s *modelServer) Lease(_ context.Context, leases []enforce.Lease) error {
	for i := range leases {
		own := leases[i]
		own.Key, own.Limit = leasesim.SharedKey, s.node.Limit
		s.node.Lend(&own)
		leases[i].Grant, leases[i].Answered = own.Grant, true
	}
	return nil
}

func (s *modelServer) Decided(*snapshot.Tenant, *enforce.Check, *enforce.Decision) {}
func (s *modelServer) StoreAnswered(time.Duration, error)                          {}

// answer answers a request.
func (s *modelServer) answer(node *leasesim.Node, body []byte) []byte {
	s.node = node
	var r httpapi.Reader
	r.Reset(bytes.NewBuffer(body))
	request := checkjson.DecodeLeases(&r, s.tenant.Tenant.ID)
	if err := r.Close(); err != nil {
		s.t.Fatalf("a client sent %s: %v", body, err)
	}
	if err := checkjson.ChooseLeasePlans(s.tenant, request.Checks); err != nil {
		s.t.Fatal(err)
	}
	answer := s.lessor.Lease(context.Background(), s.tenant, &request)
	return checkjson.AppendLeases(nil, &answer)
}

// modelled is a process whose checks go through handles as in production, but for the goroutine that looks after them, and the
// connection.
type modelled struct {
	*leasesim.Node
	server    *modelServer
	leases    *leases
	handles   map[enforce.Tokens]*Handle // by cost
	lentAfter map[*lot]int               // how many losses of the store
}

// startModelled returns what starts processes. Those of a run share a server.
func startModelled(t testing.TB) func(*leasesim.Node) leasesim.Process {
	var servers sync.Map
	return func(n *leasesim.Node) leasesim.Process {
		if n.ID == 0 && n.Life() == 0 { // the first of a run
			servers.Store(n.World, newModelServer(t, n))
		}
		found, _ := servers.Load(n.World)
		server := found.(*modelServer)
		c := &Client{config: Config{Logger: slog.New(slog.DiscardHandler)}}
		m := &modelled{Node: n, server: server, leases: &c.leases, handles: map[enforce.Tokens]*Handle{}, lentAfter: map[*lot]int{}}
		m.leases.init(c)
		m.leases.holder = fmt.Sprintf("p%dlife%d", n.ID, n.Life())
		m.leases.clock = func() instant {
			mono, wall := n.Clocks()
			return instant{mono, wall}
		}
		for cost := enforce.Token; cost <= enforce.Tokens(n.Largest)*enforce.Token; cost += enforce.Token {
			check := Check{Cost: float64(cost / enforce.Token)}
			asked, err := check.ask(-1)
			if err != nil {
				t.Fatal(err)
			}
			m.handles[cost] = &Handle{client: c, check: check, asked: asked, cost: int64(cost)}
		}
		n.After(n.Draw(10_000), m.tick)
		return m
	}
}

// spent returns what was spent of lots that the store had lent since it lost its data so often; see the model of internal/lease.
func (m *modelled) spent(losses int) (sum int64) {
	for _, b := range m.leases.buckets {
		if lots := b.lots.Load(); lots != nil {
			for _, l := range *lots {
				if m.lentAfter[l] == losses {
					sum += l.spent.Load()
				}
			}
		}
	}
	return sum
}

func (m *modelled) Decide(check enforce.BucketCheck) {
	verdict := Undecided
	if !check.Mixed {
		losses := m.Losses()
		before := m.spent(losses)
		verdict = m.handles[check.Cost].Try()
		m.Admit(m.Now(), m.spent(losses)-before)
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

// tick looks after the handles as leases.run does: it waits for the answer to a request.
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
			lots := b.lots.Load()
			if lots == nil {
				continue
			}
			for _, one := range *lots {
				if _, known := m.lentAfter[one]; !known {
					m.lentAfter[one] = losses
				}
			}
		}
		next()
	})
}

// soak is for make soak.
var soak = flag.Bool("soak", false, "play more runs")

// TestModelOfHandles wants handles to reach the goals of leases, which are those of the API processes.
func TestModelOfHandles(t *testing.T) {
	t.Parallel()
	leasesim.RunGoals(t, startModelled(t))
}

// TestHandlesAmongFaults: whatever happens, they admit no more than one bucket would.
func TestHandlesAmongFaults(t *testing.T) {
	t.Parallel()
	passed, runs := 0, uint64(10)
	if *soak {
		runs = 500
	}
	for seed := range runs {
		setup := leasesim.Hostile(seed)
		setup.Users = 0 // a check with a limit that is not lent is asked
		w := leasesim.Run(t, setup, startModelled(t))
		passed += w.Passed
	}
	if t.Logf("%d checks passed", passed); passed == 0 {
		t.Error("no check passed, so nothing was tested")
	}
}

// TestTheModelSeesFaultsOfHandles: what would break the promise shows.
func TestTheModelSeesFaultsOfHandles(t *testing.T) {
	t.Parallel()
	leasesim.RunFaults(t, startModelled(t))
}
