package adminapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

var creating = []string{
	"createPlan", "createRule", "createCandidate", "importUsers", "importConfig", "putOverride", "assignPlan",
	"createKey", "rotateKey", "createAlert",
	"invite", "acceptInvitation",
}

func (w *world) capacity(tenant rules.Tenant, n int64) {
	w.t.Helper()
	exceptions := rules.Exceptions{}
	for _, thing := range rules.Things {
		exceptions[thing] = n
	}
	must(w.store.PutCapacity(w.ctx(), rules.Actor{Kind: rules.ActorSystem, Name: "test"}, tenant.ID, exceptions,
		rules.AnyVersion))(w.t)
}

func (m *matrix) askOverCapacity(method, path string, o *openapi3.Operation) {
	creates := slices.Contains(creating, o.OperationID)
	least, _ := o.Extensions["x-least-role"].(string)
	if method == http.MethodGet || !creates && (!strings.Contains(path, "{tenant}") || least == "platform") {
		return
	}
	tenant := m.tenant(m.name("tenant"))
	by := m.person(tenant, auth.Owner)
	if least == "anyone" {
		by = caller{}
	}
	f := m.newFixture(tenant, by, path)
	if o.OperationID == "putOverride" {
		f.path["user_id"] = "another user" // the fixture has an override
	}
	q := f.request(method, path, o)
	if o.OperationID == "putOverride" {
		q.header = map[string]string{"If-None-Match": "*", "Content-Type": "application/json"}
	}
	m.refresh()
	m.capacity(tenant, 0)
	got := m.do(by, q)
	switch {
	case !creates && got.status != success(o):
		m.t.Errorf("%s over capacity answered %d, want %d: %s", o.OperationID, got.status, success(o), got.body)
	case creates && (got.status != http.StatusConflict ||
		read[problem](m.t, got).Type != "urn:sluice:problem:capacity-exceeded"):
		m.t.Errorf("%s over capacity answered %d, want 409 capacity-exceeded: %s", o.OperationID, got.status, got.body)
	}
}

type shownCapacity struct {
	Version int64 `json:"version"`
	Items   []struct {
		Thing     string `json:"thing"`
		Held      int64  `json:"held"`
		Allowed   int64  `json:"allowed"`
		Default   int64  `json:"default"`
		IsDefault bool   `json:"is_default"`
	} `json:"items"`
}

func TestPlatformAdminsSetCapacityAndTenantsSeeIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const capacity = "/api/v1/tenants/acme/capacity"
	admin, viewer := w.platformAdmin(), w.person(w.acme, auth.Viewer)
	w.rule(w.acme)
	first := w.get(viewer, capacity)
	shown := read[shownCapacity](t, first)
	if first.header.Get("ETag") != `"0"` || shown.Version != 0 || len(shown.Items) != len(rules.Things) {
		t.Errorf("the capacity is %s %s", first.header.Get("ETag"), first.body)
	}
	if got := shown.Items[1]; got.Thing != "rules" || got.Held != 1 || got.Allowed != got.Default || !got.IsDefault {
		t.Errorf("the capacity of rules is %+v", got)
	}
	body := map[string]any{"rules": 1, "alerts": 500}
	w.want(w.send(w.person(w.acme, auth.Owner), "PUT", capacity, body, "If-Match", `"0"`), http.StatusForbidden)
	w.want(w.send(admin, "PUT", capacity, body), http.StatusPreconditionRequired)
	set := w.want(w.send(admin, "PUT", capacity, body, "If-Match", `"0"`), http.StatusOK)
	if got := read[shownCapacity](t, set); got.Items[1].Allowed != 1 || got.Items[1].IsDefault ||
		got.Items[5].Allowed != 500 || !got.Items[0].IsDefault {
		t.Errorf("the capacity became %s", set.body)
	}
	lost := w.want(w.send(admin, "PUT", capacity, map[string]any{}, "If-Match", `"0"`), http.StatusPreconditionFailed)
	if lost.header.Get("ETag") != `"1"` {
		t.Errorf("who lost is told the ETag %s", lost.header.Get("ETag"))
	}
	for _, wrong := range []map[string]any{{"rules": -1}, {"rules": 1_000_000_001}} {
		if got := w.want(w.send(admin, "PUT", capacity, wrong, "If-Match", "*"),
			http.StatusBadRequest); !slices.Equal(pointersOf(t, got), []string{"/rules"}) {
			t.Errorf("%v is answered %s", wrong, got.body)
		}
	}
	w.want(w.send(admin, "PUT", capacity, map[string]any{"rule": 1}, "If-Match", "*"), http.StatusBadRequest)
	over := w.want(w.send(admin, "POST", "/api/v1/tenants/acme/rules", map[string]any{
		"key_pattern": "endpoint:/a", "rate_per_second": 1, "burst_capacity": 5,
	}), http.StatusConflict)
	want := "Nothing was changed: the tenant's capacity is 1 rule; it holds 1 and would hold 2. Remove some, or ask " +
		"a platform admin to raise the capacity."
	if got := read[problem](t, over); got.Detail != want || got.Type != "urn:sluice:problem:capacity-exceeded" {
		t.Errorf("a rule too many is answered %s", over.body)
	}
	log := w.get(viewer, "/api/v1/tenants/acme/audit?object_kind=capacity")
	if !strings.Contains(log.body, admin.account.Email) || !strings.Contains(log.body, `"alerts":500`) {
		t.Errorf("the log has %s", log.body)
	}
}

func TestRefusalsByCapacityAreCounted(t *testing.T) {
	t.Parallel()
	var refused []rules.Thing // one request at a time
	w := newWorld(t, func(c *adminapi.Config) {
		c.CapacityRefused = func(thing rules.Thing) { refused = append(refused, thing) }
	})
	owner := w.person(w.acme, auth.Owner)
	w.want(w.send(owner, "POST", "/api/v1/tenants/acme/plans", map[string]any{"name": "one"}), http.StatusCreated)
	w.capacity(w.acme, 0)
	w.want(w.send(owner, "POST", "/api/v1/tenants/acme/plans", map[string]any{"name": "two"}), http.StatusConflict)
	w.want(w.send(owner, "POST", "/api/v1/tenants/acme/plans", map[string]any{"name": "one"}), http.StatusConflict)
	if !slices.Equal(refused, []rules.Thing{rules.ThingPlans}) {
		t.Errorf("counted are %v, want one refusal of plans", refused)
	}
}

func TestADryRunIsRefusedWhereTheImportWouldBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	must(w.store.PutCapacity(w.ctx(), rules.Actor{}, w.acme.ID,
		rules.Exceptions{rules.ThingRules: 1, rules.ThingUsers: 2}, rules.AnyVersion))(t)
	const config = "rules:\n  - {key_pattern: \"endpoint:/a\", rate: 10/second, burst_capacity: 20}\n  - " +
		"{key_pattern: \"endpoint:/b\", rate: 10/second, burst_capacity: 20}\n"
	cells := func(dryRun bool) string {
		cell := `{"key_pattern":"endpoint:/%d","version":0,"rate_per_second":1,"rate_unit":"second","burst_capacity":5}`
		return fmt.Sprintf(`{"dry_run":%t,"cells":[`+cell+","+cell+`]}`, dryRun, 1, 2)
	}
	for _, dryRun := range []bool{true, false} {
		query := fmt.Sprintf("?dry_run=%t", dryRun)
		for want, q := range map[string]request{
			"2 users with a plan of their own; it holds 0 and would hold 3": {
				"POST",
				"/api/v1/tenants/acme/users/import" + query, "user_id,plan\n1,free\n2,free\n3,free\n",
				map[string]string{"Content-Type": "text/csv"},
			},
			"1 rule; it holds 0 and would hold 2": {"POST", "/api/v1/tenants/acme/import" +
				query, config, map[string]string{"Content-Type": "application/yaml"}},
			"is 1 rule; it holds 0 and would hold 2": {
				"POST", "/api/v1/tenants/acme/matrix",
				cells(dryRun), nil,
			},
		} {
			if got := w.want(w.do(by, q), http.StatusConflict); !strings.Contains(read[problem](t, got).Detail, want) {
				t.Errorf("%s (dry run: %t) is answered %s", q.path, dryRun, got.body)
			}
		}
	}
	if rows := w.count("SELECT (SELECT count(*) FROM rate_limit_rule) + (SELECT count(*) FROM " +
		"plan_assignment)"); rows != 0 {
		t.Errorf("%d rows were written", rows)
	}
}

func TestARepeatedRequestTakesOnePlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	must(w.store.PutCapacity(w.ctx(), rules.Actor{}, w.acme.ID, rules.Exceptions{rules.ThingKeys: 1},
		rules.AnyVersion))(t)
	post := func(idempotencyKeyOf, name string, want int) answer {
		t.Helper()
		return w.want(w.send(by, "POST", "/api/v1/tenants/acme/api-keys",
			map[string]any{"name": name, "permissions": []string{"check"}}, "Idempotency-Key", idempotencyKeyOf), want)
	}
	first := read[createdKey](t, post(idempotencyKeyOf, "first", http.StatusCreated))
	again := read[createdKey](t, post(idempotencyKeyOf, "first", http.StatusCreated)) // though the tenant is full
	w.secrets = append(w.secrets, first.Secret)
	if again.Secret != first.Secret {
		t.Error("the repetition is answered another key")
	}
	post("the-second-request", "second", http.StatusConflict)
	must(w.store.PutCapacity(w.ctx(), rules.Actor{}, w.acme.ID, nil, rules.AnyVersion))(t)
	w.secrets = append(w.secrets, read[createdKey](t, post("the-second-request", "second", http.StatusCreated)).Secret)
	if n := w.count("SELECT count(*) FROM api_key"); n != 2 {
		t.Errorf("%d keys were made", n)
	}
}

func TestWhoMayJoinByGroupsSignsInWithoutARoleWhenTheTenantIsFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(w.store.PutCapacity(w.ctx(), rules.Actor{}, w.acme.ID, rules.Exceptions{rules.ThingMembers: 0},
		rules.AnyVersion))(t)
	provider := auth.IdentityProvider{
		Slug: "corp", Name: "Corp", Issuer: "https://corp.example", CreatesAccounts: true, CountsAsTwoFactors: true,
		Grants: []auth.Grant{
			{Group: "staff", Tenant: "acme", Role: auth.Viewer},
			{Group: "staff", Tenant: "other", Role: auth.Viewer},
		},
	}
	identity := auth.Identity{
		Provider: &provider, Subject: "ada", Email: "ada@example.com", EmailVerified: true,
		HasClaim: true, Groups: []string{"staff"},
	}
	entry := must(w.gate.SignInWith(w.ctx(), "req", auth.Digest{1}, identity, auth.Browser{}))(t)
	memberships := must(w.store.Memberships(w.ctx(), entry.Session.Account.ID, "", 10))(t)
	if len(memberships) != 1 || memberships[0].Tenant.Slug != "other" {
		t.Errorf("the memberships are %+v", memberships)
	}
}

func TestATenantAtItsCapacityCostsOthersNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.capacity(w.acme, 0)
	must(w.store.PutCapacity(w.ctx(), rules.Actor{}, w.acme.ID,
		rules.Exceptions{rules.ThingPlans: 1, rules.ThingUsers: 10}, rules.AnyVersion))(t)
	greedy, neighbour := w.person(w.acme, auth.Owner), w.person(w.other, auth.Owner)
	var file strings.Builder
	file.WriteString("user_id,plan\n")
	for n := range 20_000 {
		fmt.Fprintf(&file, "user-%d,free\n", n)
	}
	done := make(chan struct{})
	var loops sync.WaitGroup
	var refused [2]int
	for i, q := range []request{
		{"POST", "/api/v1/tenants/acme/plans", `{"name":"more"}`, nil},
		{"POST", "/api/v1/tenants/acme/users/import", file.String(), map[string]string{"Content-Type": "text/csv"}},
	} {
		loops.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if got := w.do(greedy, q); got.status == http.StatusConflict {
					refused[i]++
				} else if got.status != http.StatusServiceUnavailable && got.status != http.StatusTooManyRequests {
					t.Errorf("the greedy one is answered %d: %s", got.status, got.body)
					return
				}
			}
		})
	}
	var longest time.Duration
	for n := range 40 {
		began := time.Now()
		w.want(w.send(neighbour, "POST", "/api/v1/tenants/other/plans", map[string]any{"name": fmt.Sprint("plan-", n)}),
			http.StatusCreated)
		longest = max(longest, time.Since(began))
	}
	close(done)
	loops.Wait()
	t.Logf("the neighbour waited %s at most, while %d and %d requests were refused", longest, refused[0], refused[1])
	if refused[0] == 0 || refused[1] == 0 {
		t.Errorf("%v requests were refused", refused)
	}
	if left := w.count("SELECT count(*) FROM plan_assignment"); left != 0 {
		t.Errorf("%d users were written", left)
	}
}
