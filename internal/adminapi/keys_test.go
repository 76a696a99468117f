package adminapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

type shownKey struct {
	KeyID     string   `json:"key_id"`
	Networks  []string `json:"networks"`
	CreatedBy *struct {
		Kind, ID, Name string
	} `json:"created_by"`
	CreatorLeft bool `json:"creator_left"`
}

type createdKey struct {
	Key    shownKey `json:"key"`
	Secret string   `json:"secret"`
}

// forPeople are the paths and operations that no key may call, and why; docs/admin-api.md says it to readers. Whoever
// adds one decides whether automation needs it.
var forPeople = map[string]string{
	"/api/v1/session":            "a key has no session",
	"/api/v1/sessions":           "a key has no session",
	"/api/v1/account":            "a key has no account",
	"/api/v1/invitations/look":   "the link is the credential",
	"/api/v1/invitations/accept": "the link is the credential",
	"keepKey":                    "somebody answers for a leaver's key, which may be the very key that asks",
	"keepServiceKey":             "as keepKey",
	"createAuditWebhook":         "who watches the keys is not theirs to choose",
	"updateAuditWebhook":         "as createAuditWebhook",
	"rotateAuditSecret":          "as createAuditWebhook",
	"deleteAuditWebhook":         "as createAuditWebhook",
}

func TestAutomationCanDoWhatPeopleCan(t *testing.T) {
	t.Parallel()
	eachOperation(must(description())(t), func(method, path string, o *openapi3.Operation) {
		permission, _ := o.Extensions["x-permission"].(string)
		least := o.Extensions["x-least-role"]
		isForPeople := slices.ContainsFunc(slices.Collect(maps.Keys(forPeople)), func(place string) bool {
			return o.OperationID == place || path == place || strings.HasPrefix(path, place+"/")
		})
		isPublic := least == "anyone" && !isForPeople
		if (permission == "") != (isForPeople || isPublic) {
			t.Errorf("%s %s has the permission %q; give it one, or list it with a reason", method, path, permission)
		}
		if permission != "" && permission != "any" && !slices.Contains(auth.Permissions, auth.Permission(permission)) {
			t.Errorf("%s %s needs the unknown permission %q", method, path, permission)
		}
	})
}

func TestAKeyIsUsedFromItsNetworksOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(
			"192.0.2.0/24")}
	})
	owner := w.person(w.acme, auth.Owner)
	made := read[createdKey](t, w.want(w.send(owner, "POST", "/api/v1/tenants/acme/api-keys", map[string]any{
		"name": "ci", "permissions": []string{"read"}, "networks": []string{"203.0.113.7", "2001:db8::/32"},
	}), http.StatusCreated))
	w.secrets = append(w.secrets, made.Secret)
	if !slices.Equal(made.Key.Networks, []string{"203.0.113.7/32", "2001:db8::/32"}) {
		t.Errorf("the networks are %v", made.Key.Networks)
	}
	w.refresh()
	by := caller{key: made.Secret}
	for forwarded, want := range map[string]int{
		"203.0.113.7": 200, "6.6.6.6, 203.0.113.7": 200, "2001:db8::1": 200, "203.0.113.7, 203.0.113.8": 403,
		"203.0.113.8": 403, "": 403,
	} {
		got := w.send(by, "GET", "/api/v1/tenants/acme/rules", nil, "X-Forwarded-For", forwarded)
		if got.status != want {
			t.Errorf("from %q it is answered %d, want %d: %s", forwarded, got.status, want, got.body)
		}
	}
	wrong := w.want(w.send(owner, "POST", "/api/v1/tenants/acme/api-keys", map[string]any{
		"name": "ci", "permissions": []string{"read"}, "networks": []string{"10.0.0.0/8", "home"},
	}), http.StatusBadRequest)
	if got := pointersOf(t, wrong); !slices.Equal(got, []string{"/networks/1"}) {
		t.Errorf("errors point at %v", got)
	}
}

func TestAKeyMakesNobodyMightierThanItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keeper := w.keyOf(w.acme, auth.PermissionKeys, auth.PermissionMembers, auth.PermissionRead)
	service := w.serviceKey(auth.PermissionKeys, auth.PermissionAccounts)
	strong, _ := w.key(w.acme, auth.PermissionRules)
	strongService, _ := w.newServiceKey(auth.PermissionTenants)
	viewer := w.account(false)
	w.member(w.acme, viewer, auth.Viewer)
	w.refresh()
	newKey := func(permissions ...string) map[string]any {
		return map[string]any{"name": "x", "permissions": permissions}
	}
	until := func(end time.Time, body map[string]any) map[string]any {
		body["expires_at"] = end
		return body
	}
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	brief, briefID := w.keyUntil(end, auth.PermissionKeys)
	_, longer := w.keyUntil(end.Add(time.Hour), auth.PermissionCheck)
	const keys = "/api/v1/tenants/acme/api-keys"
	rotate := func(id string, body map[string]any) request {
		body["grace_seconds"] = 0
		return w.json("POST", keys+"/"+id+"/rotate", body)
	}
	w.refresh()
	account := formatID(viewer.ID)
	tests := []struct {
		name string
		by   caller
		send request
		want int
	}{
		{"a key for a service", keeper, w.json("POST", "/api/v1/tenants/acme/api-keys", newKey("check")), 201},
		{
			"a key of its own permissions", keeper,
			w.json("POST", "/api/v1/tenants/acme/api-keys", newKey("read", "members")), 201,
		},
		{"a key of another permission", keeper, w.json("POST", "/api/v1/tenants/acme/api-keys", newKey("rules")), 403},
		{"a key that may all", keeper, w.json("POST", "/api/v1/tenants/acme/api-keys", newKey("manage")), 403},
		{
			"the secret of a stronger key", keeper,
			w.json("POST", "/api/v1/tenants/acme/api-keys/"+strong+"/rotate", map[string]any{"grace_seconds": 0}), 403,
		},
		{"a key that lives as long", brief, w.json("POST", keys, until(end, newKey("check"))), 201},
		{"a key that lives longer", brief, w.json("POST", keys, until(end.Add(time.Second), newKey("check"))), 403},
		{"a key without an end", brief, w.json("POST", keys, newKey("check")), 403},
		{"a key without an end, by one without", keeper, w.json("POST", keys, newKey("check")), 201},
		{"the secret of a key that lives longer", brief, rotate(longer, map[string]any{}), 403},
		{"the secret of such a key, for as long", brief, rotate(longer, until(end, map[string]any{})), 201},
		{"a longer life for itself", brief, rotate(briefID, until(end.Add(time.Second), map[string]any{})), 403},
		{"another secret for itself", brief, rotate(briefID, map[string]any{}), 201},
		{"a viewer", keeper, w.json("POST", "/api/v1/tenants/acme/invitations",
			map[string]any{"email": "v@example.com", "role": "viewer"}), 201},
		{"an editor", keeper, w.json("POST", "/api/v1/tenants/acme/invitations",
			map[string]any{"email": "e@example.com", "role": "editor"}), 403},
		{
			"an owner", keeper, w.json("PATCH", "/api/v1/tenants/acme/members/"+account,
				map[string]any{"role": "owner"}),
			403,
		},
		{"a stronger service key", service, w.json("POST", "/api/v1/service-keys", newKey("tenants")), 403},
		{
			"the secret of a stronger service key", service,
			w.json("POST", "/api/v1/service-keys/"+strongService+"/rotate", map[string]any{"grace_seconds": 0}), 403,
		},
		{"a platform admin", service, w.json("PATCH", "/api/v1/accounts/"+account,
			map[string]any{"platform_admin": true}), 403},
		{
			"a service key with a tenant's permission", w.platformAdmin(),
			w.json("POST", "/api/v1/service-keys", newKey("check")), 400,
		},
		{
			"a tenant's key with the platform's permission", w.person(w.acme, auth.Owner),
			w.json("POST", "/api/v1/tenants/acme/api-keys", newKey("tenants")), 400,
		},
	}
	for _, test := range tests {
		if got := w.do(test.by, test.send); got.status != test.want {
			t.Errorf("%s is answered %d, want %d: %s", test.name, got.status, test.want, got.body)
		}
	}
}

func (w *world) keyUntil(end time.Time, permissions ...auth.Permission) (by caller, id string) {
	token, id, digest := auth.NewKeyToken()
	must(w.system().CreateKey(w.ctx(), auth.NamedKey{
		Key:  auth.Key{ID: id, TenantID: w.acme.ID, Digest: digest, Permissions: permissions, ExpiresAt: end},
		Name: w.name("key"),
	}))(w.t)
	w.secrets = append(w.secrets, token)
	return caller{key: token}, id
}

func TestKeysSayWhoMadeThemAndWhetherThatPersonHasLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, second := w.person(w.acme, auth.Owner), w.person(w.acme, auth.Owner)
	admin := w.platformAdmin()
	create := func(by caller) shownKey {
		made := read[createdKey](t, w.want(w.send(by, "POST", "/api/v1/tenants/acme/api-keys",
			map[string]any{"name": "ci", "permissions": []string{"check"}}), http.StatusCreated))
		w.secrets = append(w.secrets, made.Secret)
		if made.Key.CreatedBy == nil || made.Key.CreatedBy.Kind != "account" ||
			made.Key.CreatedBy.Name != by.account.Email || made.Key.CreatorLeft {
			t.Fatalf("a new key shows %+v", made.Key)
		}
		return made.Key
	}
	theirs, admins := create(second), create(admin)
	left := func(key shownKey) bool {
		return read[shownKey](t, w.get(owner, "/api/v1/tenants/acme/api-keys/"+key.KeyID)).CreatorLeft
	}
	w.want(w.send(owner, "DELETE", "/api/v1/tenants/acme/members/"+formatID(second.account.ID), nil, "If-Match", "*"),
		http.StatusNoContent)
	if !left(theirs) || left(admins) {
		t.Errorf("after a removal the creators left: %v, %v", left(theirs), left(admins))
	}
	account := must(w.store.Account(w.ctx(), admin.account.ID))(t)
	account.DisabledAt = account.CreatedAt
	w.platformAdmin() // who stays
	must(w.store.UpdateAccount(w.ctx(), rules.Actor{Kind: rules.ActorSystem}, account))(t)
	if !left(admins) {
		t.Error("a disabled account has not left")
	}
}

func TestAServiceKeyRunsATenantFromItsCreationToItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.serviceKey(auth.ServicePermissions...)
	w.want(w.send(by, "POST", "/api/v1/tenants", map[string]any{"slug": "new", "name": "New"}), http.StatusCreated)
	w.want(w.send(by, "POST", "/api/v1/tenants/new/plans", map[string]any{"name": "free"}), http.StatusCreated)
	w.want(w.send(by, "PATCH", "/api/v1/tenants/new", map[string]any{"default_plan": "free"}, "If-Match", "*"),
		http.StatusOK)
	made := w.want(w.send(by, "POST", "/api/v1/tenants/new/api-keys",
		map[string]any{"name": "gateway", "permissions": []string{"check"}}), http.StatusCreated)
	w.secrets = append(w.secrets, read[createdKey](t, made).Secret)
	w.want(w.send(by, "POST", "/api/v1/tenants/new/invitations",
		map[string]any{"email": "o@example.com", "role": "editor"}), http.StatusCreated)
	w.want(w.send(by, "POST", "/api/v1/tenants/new/suspend", nil, "If-Match", "*"), http.StatusOK)
	w.want(w.send(by, "POST", "/api/v1/tenants/new/resume", nil, "If-Match", "*"), http.StatusOK)
	w.want(w.send(by, "POST", "/api/v1/tenants/new/suspend", nil, "If-Match", "*"), http.StatusOK)
	w.want(w.send(by, "DELETE", "/api/v1/tenants/new", nil, "If-Match", "*"), http.StatusNoContent)
	log := w.get(w.platformAdmin(), "/api/v1/audit")
	if !strings.Contains(log.body, `"kind":"api_key"`) || !strings.Contains(log.body, `"kind":"service_key"`) {
		t.Errorf("the platform's log lacks the key's acts, or its creation: %s", log.body)
	}
}

func TestAKeyThatReadsMayTryAChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reader, checker := w.keyOf(w.acme, auth.PermissionRead), w.keyOf(w.acme, auth.PermissionCheck)
	rule := w.rule(w.acme)
	w.refresh()
	matrix := func(isDryRun bool) map[string]any {
		return map[string]any{
			"dry_run": isDryRun,
			"cells":   []any{map[string]any{"rule_id": fmt.Sprint(rule.ID), "version": 1, "burst_capacity": 9}},
		}
	}
	for name, send := range map[string]func(by caller, isDryRun bool) answer{
		"a file": func(by caller, isDryRun bool) answer {
			return w.do(by, request{
				"POST", fmt.Sprintf("/api/v1/tenants/acme/import?dry_run=%t", isDryRun),
				"rules:\n  - {key_pattern: global, rate: 7/minute, burst_capacity: 7}\n",
				map[string]string{"Content-Type": "application/yaml"},
			})
		},
		"users": func(by caller, isDryRun bool) answer {
			return w.do(by, request{
				"POST", fmt.Sprintf("/api/v1/tenants/acme/users/import?dry_run=%t", isDryRun), "user_id,plan\n42,\n",
				map[string]string{"Content-Type": "text/csv"},
			})
		},
		"the matrix": func(by caller, isDryRun bool) answer {
			return w.send(by, "POST", "/api/v1/tenants/acme/matrix", matrix(isDryRun))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := send(reader, true); got.status != http.StatusOK {
				t.Errorf("a dry run is answered %d: %s", got.status, got.body)
			}
			if got := send(reader, false); got.status != http.StatusForbidden {
				t.Errorf("a change is answered %d: %s", got.status, got.body)
			}
			if got := send(checker, true); got.status != http.StatusForbidden {
				t.Errorf("without read a dry run is answered %d: %s", got.status, got.body)
			}
		})
	}
	body := matrix(false)
	delete(body, "dry_run")
	w.want(w.send(reader, "POST", "/api/v1/tenants/acme/matrix", body), http.StatusForbidden)
	w.want(w.send(reader, "POST", "/api/v1/tenants/acme/matrix?dry_run=true", body), http.StatusBadRequest)
	if got := must(w.store.Rule(w.ctx(), w.acme.ID, rule.ID))(t); got.Version != 1 {
		t.Errorf("the rule was changed: %+v", got)
	}
}
