package adminapi_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/allowance"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// limited is a world with allowances, on a clock that a test moves. Refusals do not pause.
type limited struct {
	*world
	allowances *allowance.Allowances
	at         atomic.Int64 // microseconds
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	l := &limited{}
	l.at.Store(time.Now().UnixMicro())
	rates := allowance.Rates{allowance.Tenant: 200, allowance.Account: 150, allowance.Platform: 500, allowance.Network: 500}
	l.allowances = allowance.New(rates, l.at.Load)
	closing := make(chan struct{})
	close(closing)
	l.world = newWorld(t, func(c *adminapi.Config) { c.Allowances, c.Closing = l.allowances, closing })
	return l
}

func (l *limited) pass(d time.Duration) { l.at.Add(d.Microseconds()) }

// exhaust puts all allowances that a caller uses into the deepest debt.
func (l *limited) exhaust(by allowance.Caller) {
	l.t.Helper()
	taken := l.allowances.Take(l.ctx(), by)
	if !taken.Allowed {
		l.t.Fatalf("%+v has used up its allowance already", by)
	}
	l.allowances.Settle(l.ctx(), taken, time.Hour)
}

func accountOf(by caller) string { return fmt.Sprintf("account:%d", by.account.ID) }

// loopbackNetwork is that of the test's requests.
var loopbackNetwork = netip.MustParsePrefix("192.0.2.0/24")

func (l *limited) wantDenied(got answer, class string) {
	l.t.Helper()
	const limitExceeded = "urn:sluice:problem:limit-exceeded"
	if got.status != http.StatusTooManyRequests || read[problem](l.t, got).Type != limitExceeded {
		l.t.Errorf("%s answered %d, want a denial: %s", got.operation, got.status, got.body)
		return
	}
	policy, state := got.header.Get("RateLimit-Policy"), got.header.Get("RateLimit")
	if !strings.Contains(policy, `"`+class+`";q=`) || !strings.Contains(state, `"`+class+`";r=0;t=`) || got.header.Get("Retry-After") == "" {
		l.t.Errorf("%s is denied with %q, %q, %q", got.operation, policy, state, got.header.Get("Retry-After"))
	}
}

func TestWhoHasUsedUpAnAllowanceIsDeniedAndNobodyElse(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	greedy, colleague := l.person(l.acme, auth.Owner), l.person(l.acme, auth.Viewer)
	neighbour, admin := l.person(l.other, auth.Owner), l.platformAdmin()
	const ours, theirs = "/api/v1/tenants/acme/rules", "/api/v1/tenants/other/rules"
	first := l.want(l.send(greedy, "GET", ours, nil), http.StatusOK)
	if policy := first.header.Get("RateLimit-Policy"); policy != `"tenant";q=4000;w=20, "account";q=3000;w=20` {
		t.Errorf("an answer has RateLimit-Policy: %s", policy)
	}
	l.exhaust(allowance.Caller{Account: accountOf(greedy)})
	l.wantDenied(l.send(greedy, "GET", ours, nil), "account")
	l.wantDenied(l.send(greedy, "GET", "/api/v1/session", nil), "account")
	l.want(l.send(colleague, "GET", ours, nil), http.StatusOK)
	l.exhaust(allowance.Caller{Tenant: l.acme.ID, Account: "account:0"})
	l.wantDenied(l.send(colleague, "GET", ours, nil), "tenant")
	l.want(l.send(colleague, "GET", "/api/v1/session", nil), http.StatusOK)
	l.want(l.send(neighbour, "GET", theirs, nil), http.StatusOK)
	l.want(l.send(admin, "GET", ours, nil), http.StatusOK)
	l.exhaust(allowance.Caller{Account: accountOf(admin), IsPlatform: true})
	l.wantDenied(l.send(admin, "GET", theirs, nil), "platform")
	l.exhaust(allowance.Caller{Network: loopbackNetwork})
	signIn := map[string]any{"email": neighbour.account.Email, "password": password}
	l.wantDenied(l.send(caller{}, "POST", "/api/v1/session", signIn), "network")
	l.wantDenied(l.send(caller{session: "made up"}, "GET", theirs, nil), "network")
	l.want(l.send(neighbour, "GET", theirs, nil), http.StatusOK)
	l.want(l.send(caller{}, "GET", "/healthz", nil), http.StatusOK)
	l.pass(allowance.Kept + time.Second)
	for _, by := range []caller{greedy, colleague, admin} {
		l.want(l.send(by, "GET", ours, nil), http.StatusOK)
	}
	l.want(l.send(caller{}, "POST", "/api/v1/session", signIn), http.StatusOK)
	if lines := strings.Count(l.log.String(), "an allowance of the admin API is used up"); lines != 4 {
		t.Errorf("%d lines in the log, want one for each allowance", lines)
	}
}

// TestADenialAsksNoDatabase holds every table back that the first queries of a request read.
func TestADenialAsksNoDatabase(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	by := l.person(l.acme, auth.Owner)
	key := l.keyOf(l.acme, auth.PermissionManage)
	l.refresh()
	const path = "/api/v1/tenants/acme/rules"
	for _, by := range []caller{by, key} {
		l.want(l.send(by, "GET", path, nil), http.StatusOK)
	}
	l.exhaust(allowance.Caller{Tenant: l.acme.ID, Account: "account:0"})
	locked := must(must(pgx.Connect(l.ctx(), l.url))(t).Begin(l.ctx()))(t)
	must(locked.Exec(l.ctx(), "LOCK TABLE session, account, tenant, member, api_key IN ACCESS EXCLUSIVE MODE"))(t)
	for range 100 {
		l.wantDenied(l.send(by, "GET", path, nil), "tenant")
		l.wantDenied(l.send(key, "GET", path, nil), "tenant")
	}
	if err := locked.Rollback(l.ctx()); err != nil {
		t.Fatal(err)
	}
	_ = locked.Conn().Close(l.ctx())
}

func TestWorkIsPaidByWhoAskedForIt(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	worked := func() map[allowance.Class]time.Duration {
		all := map[allowance.Class]time.Duration{}
		for _, class := range allowance.Classes {
			all[class] = l.allowances.Worked(class)
		}
		return all
	}
	const path = "/api/v1/tenants/acme/violations"
	for name, test := range map[string]struct {
		by     caller
		status int
		pays   []allowance.Class
	}{
		"a member":         {l.person(l.acme, auth.Viewer), http.StatusOK, []allowance.Class{allowance.Tenant, allowance.Account}},
		"a platform admin": {l.platformAdmin(), http.StatusOK, []allowance.Class{allowance.Platform}},
		// A tenant does not pay for those whom it did not let in.
		"another tenant's member": {l.person(l.other, auth.Owner), http.StatusNotFound, []allowance.Class{allowance.Account}},
		"a stranger":              {caller{session: strings.Repeat("x", 43)}, http.StatusUnauthorized, []allowance.Class{allowance.Network}},
	} {
		before := worked()
		l.want(l.send(test.by, "GET", path, nil), test.status)
		after := worked()
		for _, class := range allowance.Classes {
			pays := false
			for _, one := range test.pays {
				pays = pays || one == class
			}
			if (after[class] > before[class]) != pays {
				t.Errorf("%s: the %s pays %v", name, class, after[class]-before[class])
			}
		}
	}
}

// TestAnExportOfWhoHasUsedUpAnAllowanceGoesOnSlowly lets time pass whenever the export is denied its next page.
func TestAnExportOfWhoHasUsedUpAnAllowanceGoesOnSlowly(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	by := l.person(l.acme, auth.Viewer)
	var assignments []rules.Assignment
	for i := range 5000 {
		assignments = append(assignments, rules.Assignment{TenantID: l.acme.ID, UserID: fmt.Sprint(i), Plan: "free"})
	}
	must(l.system().AssignAll(l.ctx(), l.acme.ID, assignments))(t)
	// What is left covers the beginning.
	taken := l.allowances.Take(l.ctx(), allowance.Caller{Account: accountOf(by)})
	l.allowances.Settle(l.ctx(), taken, 3*time.Second-2*time.Millisecond)
	stop := make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() {
		for seen := int64(0); ; {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if denied := l.allowances.Denied(allowance.Account); denied > seen {
				seen = denied
				l.pass(allowance.Kept)
				taken := l.allowances.Take(l.ctx(), allowance.Caller{Account: accountOf(by)})
				l.allowances.Settle(l.ctx(), taken, 3*time.Second-2*time.Millisecond)
			}
		}
	})
	got := l.want(l.send(by, "GET", "/api/v1/tenants/acme/users/export", nil), http.StatusOK)
	close(stop)
	passing.Wait()
	if lines := strings.Count(got.body, "\n"); lines != 5001 {
		t.Errorf("the export has %d lines", lines)
	}
	if l.allowances.Denied(allowance.Account) == 0 {
		t.Error("the export had no need to wait")
	}
}

// TestEveryOperationDeniesWhoIsOverItsRate is the matrix of operations and callers over their rate.
func TestEveryOperationDeniesWhoIsOverItsRate(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	third := l.tenant("third")
	callers := map[string]struct {
		by     caller
		tenant rules.Tenant
		class  allowance.Class
	}{
		"viewer over its rate":     {l.person(l.acme, auth.Viewer), l.acme, allowance.Account},
		"key over its rate":        {l.keyOf(l.acme, auth.PermissionManage), l.acme, allowance.Account},
		"platform over its rate":   {l.platformAdmin(), l.acme, allowance.Platform},
		"owner of a busy tenant":   {l.person(l.other, auth.Owner), l.other, allowance.Tenant},
		"key of a busy tenant":     {l.keyOf(l.other, auth.PermissionManage), l.other, allowance.Tenant},
		"nobody, over its rate":    {caller{}, third, allowance.Network},
		"wrong key, over the rate": {caller{key: "slk_nobody_0123456789abcdef0123456789abcdef"}, third, allowance.Network},
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
	for _, c := range callers {
		if c.class != allowance.Network { // a process knows whose a credential is after its first request
			l.send(c.by, "GET", "/api/v1/tenants/"+c.tenant.Slug, nil)
			l.send(c.by, "GET", "/api/v1/tenants", nil)
		}
	}
	for name, c := range callers {
		account := accountOf(c.by)
		if c.by.key != "" {
			account = "api_key:" + strings.Split(c.by.key, "_")[1]
		}
		switch c.class {
		case allowance.Account:
			l.exhaust(allowance.Caller{Account: account})
		case allowance.Platform:
			l.exhaust(allowance.Caller{Account: account, IsPlatform: true})
		case allowance.Tenant:
			if name == "owner of a busy tenant" {
				l.exhaust(allowance.Caller{Tenant: c.tenant.ID, Account: "account:0"})
			}
		}
	}
	l.exhaust(allowance.Caller{Network: loopbackNetwork})
	limitedOperations(func(name, method, path string, o *openapi3.Operation) {
		c := callers[name]
		least := fmt.Sprint(o.Extensions["x-least-role"])
		class := c.class
		switch {
		case least == "anyone":
			class = allowance.Network
		case class == allowance.Tenant && !strings.Contains(path, "{tenant}"):
			return
		}
		l.wantDenied(l.do(c.by, requests[name+method+path]), string(class))
	})
}
