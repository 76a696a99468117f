package adminapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

// limited is a world with rate limits, on a clock that a test moves. Refusals do not pause.
type limited struct {
	*world
	limiter *adminapi.RateLimiter
	at      atomic.Int64 // microseconds
}

func newLimited(t *testing.T, change ...func(*adminapi.Config)) *limited {
	t.Helper()
	l := &limited{}
	l.at.Store(time.Now().UnixMicro())
	l.limiter = adminapi.NewRateLimiter(membucket.New(membucket.Options{Clock: l.at.Load}))
	closing := make(chan struct{})
	close(closing)
	l.world = newWorld(t, append(change,
		func(c *adminapi.Config) { c.RateLimiter, c.Closing = l.limiter, closing })...)
	return l
}

func of(payer adminapi.Payer, value string) rules.Attribute {
	return rules.Attribute{Name: string(payer), Value: value}
}

func (l *limited) exhaust(payer adminapi.Payer, value string) (tokens int) {
	l.t.Helper()
	for l.limiter.Take(l.ctx(), 1, of(payer, value)).Allowed {
		tokens++
	}
	return tokens
}

func accountOf(by caller) string {
	if by.key != "" {
		return "api_key:" + strings.Split(by.key, "_")[1]
	}
	return fmt.Sprintf("account:%d", by.account.ID)
}

func tenantOf(tenant rules.Tenant) string { return fmt.Sprint(tenant.ID) }

const loopbackNetwork = "192.0.2.0/24"

func (l *limited) wantDenied(got answer, class string) {
	l.t.Helper()
	const limitExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	if got.status != http.StatusTooManyRequests || read[problem](l.t, got).Type != limitExceeded {
		l.t.Errorf("%s answered %d, want a denial: %s", got.operation, got.status, got.body)
		return
	}
	if want := `"violated-policies":["` + class + `"]`; !strings.Contains(got.body, want) {
		l.t.Errorf("%s is denied without %s: %s", got.operation, want, got.body)
	}
	policy, state := got.header.Get("RateLimit-Policy"), got.header.Get("RateLimit")
	if !strings.Contains(policy, `"`+class+`";q=`) || !strings.Contains(state, `"`+class+`";r=0;t=`) ||
		got.header.Get("Retry-After") == "" {
		l.t.Errorf("%s is denied with %q, %q, %q", got.operation, policy, state, got.header.Get("Retry-After"))
	}
}

func TestWhoExceedsARateLimitIsDeniedAndNobodyElse(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	greedy, colleague := l.person(l.acme, auth.Owner), l.person(l.acme, auth.Viewer)
	neighbour, admin := l.person(l.other, auth.Owner), l.platformAdmin()
	const ours, theirs = "/api/v1/tenants/acme/rules", "/api/v1/tenants/other/rules"
	first := l.get(greedy, ours)
	if policy := first.header.Get("RateLimit-Policy"); policy != `"tenant";q=5000;w=63, "account";q=2000;w=50` {
		t.Errorf("an answer has RateLimit-Policy: %s", policy)
	}
	l.exhaust(adminapi.PayerAccount, accountOf(greedy))
	l.wantDenied(l.send(greedy, "GET", ours, nil), "account")
	l.wantDenied(l.send(greedy, "GET", "/api/v1/session", nil), "account")
	l.get(colleague, ours)
	l.exhaust(adminapi.PayerTenant, tenantOf(l.acme))
	l.wantDenied(l.send(colleague, "GET", ours, nil), "tenant")
	l.get(colleague, "/api/v1/session")
	l.get(neighbour, theirs)
	l.get(admin, ours)
	l.exhaust(adminapi.PayerPlatform, accountOf(admin))
	l.wantDenied(l.send(admin, "GET", theirs, nil), "platform")
	l.exhaust(adminapi.PayerNetwork, loopbackNetwork)
	signIn := map[string]any{"email": neighbour.account.Email, "password": password}
	l.wantDenied(l.send(caller{}, "POST", "/api/v1/session", signIn), "network")
	l.wantDenied(l.send(caller{session: "made up"}, "GET", theirs, nil), "network")
	l.get(neighbour, theirs)
	l.get(caller{}, "/healthz")
	l.at.Add(time.Second.Microseconds())
	for _, by := range []caller{greedy, colleague, admin} {
		l.get(by, ours)
	}
	l.want(l.send(caller{}, "POST", "/api/v1/session", signIn), http.StatusOK)
	if lines := strings.Count(l.log.String(),
		"a caller of the admin API exceeds its rate limit"); lines != len(adminapi.Payers) {
		t.Errorf("%d lines in the log, want one for each kind of limit", lines)
	}
	for payer, want := range map[adminapi.Payer]int64{
		adminapi.PayerTenant: 1, adminapi.PayerAccount: 2, adminapi.PayerPlatform: 1, adminapi.PayerNetwork: 2,
	} {
		if denied := l.limiter.Denied(payer); denied != want {
			t.Errorf("%d denials of the %s are counted, want %d", denied, payer, want)
		}
	}
}

func TestWhoSendsARequestPaysForIt(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	const (
		rulesOf   = "/api/v1/tenants/acme/rules"
		searchOf  = "/api/v1/tenants/acme/violations"
		importsOf = "/api/v1/tenants/acme/users/import?dry_run=true"
	)
	csv := map[string]string{"Content-Type": "text/csv"}
	for name, test := range map[string]struct {
		by     caller
		send   request
		status int
		pays   map[adminapi.Payer]int
	}{
		"a member reads": {
			l.person(l.acme, auth.Viewer),
			request{"GET", rulesOf, "", nil},
			http.StatusOK,
			map[adminapi.Payer]int{adminapi.PayerTenant: 1, adminapi.PayerAccount: 1},
		},
		"a member searches": {
			l.person(l.acme, auth.Viewer),
			request{"GET", searchOf, "", nil},
			http.StatusOK,
			map[adminapi.Payer]int{adminapi.PayerTenant: 5, adminapi.PayerAccount: 5},
		},
		"a member imports": {
			l.person(l.acme, auth.Editor),
			request{"POST", importsOf, "user_id,plan\n", csv},
			http.StatusOK,
			map[adminapi.Payer]int{adminapi.PayerTenant: 200, adminapi.PayerAccount: 200},
		},
		"a member who may not": {
			l.person(l.acme, auth.Viewer),
			request{"POST", importsOf, "user_id,plan\n", csv},
			http.StatusForbidden,
			map[adminapi.Payer]int{adminapi.PayerTenant: 200, adminapi.PayerAccount: 200},
		},
		"a platform admin": {
			l.platformAdmin(),
			request{"GET", rulesOf, "", nil},
			http.StatusOK,
			map[adminapi.Payer]int{adminapi.PayerPlatform: 1},
		},
		"another tenant's member": {
			l.person(l.other, auth.Owner),
			request{"GET", rulesOf, "", nil},
			http.StatusNotFound,
			map[adminapi.Payer]int{adminapi.PayerAccount: 1},
		},
		"a stranger": {
			caller{session: strings.Repeat("x", 43)},
			request{"GET", rulesOf, "", nil},
			http.StatusUnauthorized,
			map[adminapi.Payer]int{adminapi.PayerNetwork: 1},
		},
	} {
		l.at.Add(time.Hour.Microseconds()) // fills all buckets
		l.want(l.do(test.by, test.send), test.status)
		for payer, value := range map[adminapi.Payer]string{
			adminapi.PayerTenant: tenantOf(l.acme), adminapi.PayerAccount: accountOf(test.by),
			adminapi.PayerPlatform: accountOf(test.by), adminapi.PayerNetwork: loopbackNetwork,
		} {
			left := l.exhaust(payer, value)
			l.at.Add(time.Hour.Microseconds())
			if paid := l.exhaust(payer, value) - left; paid != test.pays[payer] {
				t.Errorf("%s: the %s pays %d, want %d", name, payer, paid, test.pays[payer])
			}
			l.at.Add(time.Hour.Microseconds())
			l.do(test.by, test.send)
		}
	}
}

// TestTheUIStaysFarBelowItsLimits prices the largest screens opened many times at once: ten times 50,000 rules in pages
// of 500, and 100 charts.
func TestTheUIStaysFarBelowItsLimits(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	by := l.person(l.acme, auth.Viewer)
	for payer, value := range map[adminapi.Payer]string{
		adminapi.PayerTenant: tenantOf(l.acme), adminapi.PayerAccount: accountOf(by),
	} {
		fill := func() { l.at.Add(time.Hour.Microseconds()) }
		fill()
		full := l.exhaust(payer, value)
		all := 0
		for path, times := range map[string]int{
			"/api/v1/tenants/acme/rules?limit=500": 10 * 100,
			"/api/v1/tenants/acme/violations":      100,
		} {
			fill()
			l.get(by, path)
			all += times * (full - l.exhaust(payer, value))
		}
		if all == 0 || all > full {
			t.Errorf("the screens cost the %s %d of %d tokens", payer, all, full)
		}
	}
}

func TestEveryOperationDeniesWhoIsOverItsRate(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	third := l.tenant("third")
	callers := map[string]struct {
		by     caller
		tenant rules.Tenant
		payer  adminapi.Payer
	}{
		"viewer over its rate":   {l.person(l.acme, auth.Viewer), l.acme, adminapi.PayerAccount},
		"key over its rate":      {l.keyOf(l.acme, auth.PermissionManage), l.acme, adminapi.PayerAccount},
		"platform over its rate": {l.platformAdmin(), l.acme, adminapi.PayerPlatform},
		"owner of a busy tenant": {l.person(l.other, auth.Owner), l.other, adminapi.PayerTenant},
		"key of a busy tenant":   {l.keyOf(l.other, auth.PermissionManage), l.other, adminapi.PayerTenant},
		"nobody, over its rate":  {caller{}, third, adminapi.PayerNetwork},
		"wrong key, over the rate": {
			caller{key: "slk_nobody_0123456789abcdef0123456789abcdef"},
			third,
			adminapi.PayerNetwork,
		},
	}
	l.refresh()
	fixtures := map[string]*fixture{}
	requests := map[string]request{}
	limitedOperations := func(visit func(name, method, path string, o *openapi3.Operation)) {
		eachOperation(l.description, func(method, path string, o *openapi3.Operation) {
			if strings.HasPrefix(path, "/api/") {
				for name := range callers {
					visit(name, method, path, o)
				}
			}
		})
	}
	limitedOperations(func(name, method, path string, o *openapi3.Operation) {
		c := callers[name]
		if fixtures[c.tenant.Slug+path] == nil {
			fixtures[c.tenant.Slug+path] = l.newFixture(c.tenant, c.by, path)
		}
		requests[name+method+path] = fixtures[c.tenant.Slug+path].request(method, path, o)
	})
	for _, c := range callers { // a network without tokens gives only verified credentials a lookup
		l.do(c.by, request{method: "GET", path: "/api/v1/tenants"})
	}
	for _, c := range callers {
		switch c.payer {
		case adminapi.PayerTenant:
			l.exhaust(c.payer, tenantOf(c.tenant))
		case adminapi.PayerNetwork:
			l.exhaust(c.payer, loopbackNetwork)
		default:
			l.exhaust(c.payer, accountOf(c.by))
		}
	}
	limitedOperations(func(name, method, path string, o *openapi3.Operation) {
		c := callers[name]
		least := fmt.Sprint(o.Extensions["x-least-role"])
		payer := c.payer
		switch {
		case least == "anyone":
			payer = adminapi.PayerNetwork
		case payer == adminapi.PayerTenant && !strings.Contains(path, "{tenant}"):
			return
		case payer == adminapi.PayerTenant && c.by.key != "" && o.Extensions["x-permission"] == nil:
			return // what is for people refuses a key before it looks for the tenant
		}
		l.wantDenied(l.do(c.by, requests[name+method+path]), string(payer))
	})
}
