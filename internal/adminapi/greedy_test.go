package adminapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/violations"
)

type beside struct {
	*world
	limiter *adminapi.RateLimiter
	stop    chan struct{}
	loops   sync.WaitGroup
	wrong   sync.Map // operations of greedy requests by the status that they must not have
	quiet   caller
	ruleURL string
}

const greedyUsers = 2000

func newBeside(t testing.TB) *beside {
	t.Helper()
	b := &beside{stop: make(chan struct{}), limiter: adminapi.NewRateLimiter(membucket.New(membucket.Options{}))}
	b.world = newWorld(t, func(c *adminapi.Config) { c.RateLimiter = b.limiter })
	for _, tenant := range []rules.Tenant{b.acme, b.other} {
		rule := b.rule(tenant)
		for minute := range 5 {
			var many []violations.Violation
			for i := range 1000 {
				at := lately().Add(-time.Duration(minute)*time.Minute + time.Duration(i)*time.Microsecond)
				many = append(many, denied(tenant, at,
					func(v *violations.Violation) { v.Rule, v.UserID = rule.ID, fmt.Sprint(i) }))
			}
			b.violate(many...)
		}
	}
	third := b.tenant("third")
	b.quiet = b.person(third, auth.Editor)
	b.ruleURL = fmt.Sprintf("/api/v1/tenants/third/rules/%d", b.rule(third).ID)
	return b
}

func (b *beside) begin() {
	csv := map[string]string{"Content-Type": "text/csv"}
	for _, tenant := range []rules.Tenant{b.acme, b.other} {
		at := "/api/v1/tenants/" + tenant.Slug
		plans := [2]string{b.plan(tenant), b.plan(tenant)}
		people := []caller{b.person(tenant, auth.Owner), b.person(tenant, auth.Owner), b.person(tenant, auth.Owner)}
		for i, ask := range []func(n int) request{
			func(n int) request { // each import changes all of its users
				var users strings.Builder
				users.WriteString("user_id,plan\n")
				for user := range greedyUsers {
					fmt.Fprintf(&users, "%d,%s\n", user, plans[n%2])
				}
				return request{"POST", at + "/users/import", users.String(), csv}
			},
			func(int) request { return request{method: "GET", path: at + "/violations?plan=none"} },
			func(int) request { return request{method: "GET", path: at + "/violations/export"} },
			func(int) request { return request{method: "GET", path: at + "/users/export"} },
			func(int) request { return request{method: "GET", path: at + "/export"} },
			func(int) request { return request{method: "GET", path: at + "/rules"} },
			func(n int) request { return request{"POST", at + "/plans", fmt.Sprintf(`{"name":"x-%d"}`, n), nil} },
			func(int) request { return request{method: "GET", path: at + "/audit"} },
		} {
			for loop := range 8 {
				by := people[(i+loop)%len(people)]
				b.loops.Go(func() {
					for n := loop * 1_000_000; ; n++ {
						select {
						case <-b.stop:
							return
						default:
							b.greed(by, ask(n))
						}
					}
				})
			}
		}
	}
}

func (b *beside) greed(by caller, q request) {
	r := httptest.NewRequestWithContext(b.ctx(), q.method, loopback+q.path, strings.NewReader(q.body))
	r.Header.Set("Content-Type", "application/json")
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	r.AddCookie(&http.Cookie{Name: "sluice_session", Value: by.session})
	answer := httptest.NewRecorder()
	if !b.serve(answer, r) {
		return // a long answer that the server breaks off
	}
	switch answer.Code {
	case http.StatusOK, http.StatusCreated, http.StatusTooManyRequests, http.StatusServiceUnavailable,
		http.StatusConflict:
	default:
		b.wrong.Store(fmt.Sprintf("%s %s is answered %d: %.200s", q.method, q.path, answer.Code, answer.Body), true)
	}
}

func (b *beside) end() {
	close(b.stop)
	b.loops.Wait()
	b.wrong.Range(func(what, _ any) bool {
		b.t.Error("greedy: ", what)
		return true
	})
}

func (b *beside) read() answer { return b.send(b.quiet, "GET", "/api/v1/tenants/third/rules", nil) }

func (b *beside) write(n int) answer {
	return b.send(b.quiet, "PATCH", b.ruleURL, map[string]any{"burst_capacity": 10 + n%2}, "If-Match", "*")
}

func (b *beside) signIn() answer {
	return b.send(caller{}, "POST", "/api/v1/session",
		map[string]any{"email": b.quiet.account.Email, "password": password})
}

func TestGreedyTenantsMakeNothingFailForAQuietOne(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	b.begin()
	for n := range 10 {
		b.want(b.read(), http.StatusOK)
		b.want(b.write(n), http.StatusOK)
		b.get(b.quiet, "/api/v1/tenants/third/violations")
		if n%5 == 0 {
			b.want(b.signIn(), http.StatusOK)
			b.get(b.quiet, "/api/v1/tenants/third/export")
		}
	}
	b.end()
}

// BenchmarkBesideGreedyTenants reports the quiet tenant's median and p99 of reads and writes at a constant rate, alone
// and beside greedy tenants that have used up their bursts. A latency counts from when its request was due.
func BenchmarkBesideGreedyTenants(b *testing.B) {
	const every = 20 * time.Millisecond
	measure := func(of func(b *testing.B) *beside, stop func(*beside)) func(*testing.B) {
		return func(sub *testing.B) {
			w := of(sub)
			defer stop(w)
			took := map[string][]time.Duration{}
			tick := time.NewTicker(every)
			defer tick.Stop()
			for n := 0; sub.Loop(); n++ {
				at := <-tick.C
				name, got := "read", answer{}
				if n%3 == 2 {
					name, got = "write", w.write(n)
				} else {
					got = w.read()
				}
				if got.status != http.StatusOK {
					sub.Fatalf("the quiet tenant is answered %d: %s", got.status, got.body)
				}
				took[name] = append(took[name], time.Since(at))
			}
			for name, all := range took {
				slices.Sort(all)
				sub.ReportMetric(all[len(all)/2].Seconds()*1000, name+"-p50-ms")
				sub.ReportMetric(all[len(all)*99/100].Seconds()*1000, name+"-p99-ms")
			}
		}
	}
	world := func(b *testing.B) *beside { return newBeside(b) }
	b.Run("alone", measure(world, func(*beside) {}))
	b.Run("beside", measure(func(b *testing.B) *beside {
		w := world(b)
		for _, tenant := range []rules.Tenant{w.acme, w.other} {
			for w.limiter.Take(w.ctx(), 1, of(adminapi.PayerTenant, tenantOf(tenant))).Allowed {
			}
		}
		w.begin()
		return w
	}, (*beside).end))
}
