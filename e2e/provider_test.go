package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// contract calls operations by their names in api/openapi.yaml, and holds both sides to it.
type contract struct {
	*adminServer
	description *openapi3.T
}

type object = map[string]any

type answered struct {
	status int
	etag   string
	body   object
}

func readContract(t *testing.T, a *adminServer) *contract {
	t.Helper()
	description, err := openapi3.NewLoader().LoadFromFile("../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return &contract{a, description}
}

func (c *contract) find(t *testing.T, name string) (method, path string, o *openapi3.Operation) {
	t.Helper()
	for path, item := range c.description.Paths.Map() {
		for method, o := range item.Operations() {
			if o.OperationID == name {
				return method, path, o
			}
		}
	}
	t.Fatalf("the contract has no operation %s", name)
	return "", "", nil
}

func (c *contract) call(t *testing.T, name string, parameters map[string]string, body object, headers ...string,
) answered {
	t.Helper()
	method, path, o := c.find(t, name)
	for parameter, value := range parameters {
		path = strings.ReplaceAll(path, "{"+parameter+"}", url.PathEscape(value))
	}
	if cursor := parameters["cursor"]; cursor != "" {
		path += "?cursor=" + url.QueryEscape(cursor)
	}
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body)
		var sent any
		_ = json.Unmarshal(text, &sent)
		if err := o.RequestBody.Value.Content.Get("application/json").Schema.Value.VisitJSON(sent); err != nil {
			t.Fatalf("the contract refuses the body of %s: %v", name, err)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.addr+path,
		bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if o.Parameters.GetByInAndName("header", headers[i]) != nil {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w, err := c.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	text, err = io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	response := o.Responses.Status(w.StatusCode)
	if response == nil {
		t.Fatalf("%s answers %d, which the contract does not have: %s", name, w.StatusCode, text)
	}
	got := answered{status: w.StatusCode, etag: w.Header.Get("ETag")}
	if len(text) == 0 {
		return got
	}
	if err := json.Unmarshal(text, &got.body); err != nil {
		t.Fatalf("%s answers %s", name, text)
	}
	for mediaType, content := range response.Value.Content {
		if strings.HasPrefix(w.Header.Get("Content-Type"), mediaType) {
			if err := content.Schema.Value.VisitJSON(any(got.body)); err != nil {
				t.Errorf("%s answers what the contract refuses: %v", name, err)
			}
		}
	}
	return got
}

func (c *contract) want(t *testing.T, name string, parameters map[string]string, body object, headers ...string,
) answered {
	t.Helper()
	got := c.call(t, name, parameters, body, headers...)
	if got.status >= 300 {
		t.Fatalf("%s is answered %d: %v", name, got.status, got.body)
	}
	return got
}

type resource struct {
	create, read, update, destroy string
	list                          string // finds an existing object by natural; "" if natural is its address
	natural                       []string
	id                            string // the parameter of its address, as answers name it
	address                       map[string]string
	wanted                        object
	drift                         object   // what somebody else changes
	fixed                         []string // attributes that another resource replaces, or that no answer shows
}

func text(id any) string {
	if number, ok := id.(float64); ok {
		return fmt.Sprintf("%.0f", number)
	}
	return fmt.Sprint(id)
}

func (r *resource) plan(stored object) (differing []string) {
	for name, value := range r.wanted {
		if slices.Contains(r.fixed, name) {
			continue
		}
		encoded, _ := json.Marshal(value)
		var wanted any
		_ = json.Unmarshal(encoded, &wanted)
		if !isWithin(wanted, stored[name]) {
			differing = append(differing, name)
		}
	}
	slices.Sort(differing)
	return differing
}

// isWithin allows an object more than is wanted, because settings are wanted in part.
func isWithin(wanted, stored any) bool {
	parts, ok := wanted.(object)
	if !ok {
		return reflect.DeepEqual(wanted, stored)
	}
	whole, _ := stored.(object)
	for name, value := range parts {
		if !isWithin(value, whole[name]) {
			return false
		}
	}
	return true
}

func TestAProviderManagesEverythingByTheContractAlone(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, "rules: []\n")
	a := tn.startAdmin(t, devdbtest.Redis(t).URL())
	a.key = serviceKey(t, a, tn.database)
	a.session = nil
	c := readContract(t, a)
	address := map[string]string{"tenant": "globex", "plan": "pro", "user_id": "a b/c"}
	rule := resource{
		create: "putRule", read: "getRule", update: "putRule", destroy: "deleteRule", list: "listRules",
		natural: []string{"key_pattern", "plan", "name"}, id: "rule_id",
	}
	perMinute, monthly := rule, rule
	perMinute.wanted = object{"key_pattern": "user:{user_id}", "plan": "pro", "rate": "1000/day", "burst_capacity": 50}
	perMinute.drift = object{"key_pattern": "user:{user_id}", "plan": "pro", "rate": "7/minute", "burst_capacity": 50}
	monthly.wanted = object{
		"key_pattern": "user:{user_id}", "name": "tokens", "meter": "input_tokens", "algorithm": "fixed_window",
		"window": "month", "window_zone": "Europe/Berlin", "burst_capacity": 1000000, "charge": "after",
		"failure_mode": "closed", "notify_at": []int{80, 100}, "description": "the monthly budget",
	}
	monthly.drift = maps.Clone(monthly.wanted)
	monthly.drift["notify_at"], monthly.drift["is_active"] = []int{90}, false
	monthly.wanted["is_active"] = true
	resources := []*resource{
		{
			create: "createTenant", read: "getTenant", update: "updateTenant", destroy: "deleteTenant",
			wanted: object{
				"slug": "globex", "name": "Globex", "settings": object{"failure_mode": "closed", "record_days": 3},
			},
			drift: object{"settings": object{"record_days": 0}},
			fixed: []string{"slug"},
		},
		{
			create: "createPlan", read: "getPlan", update: "updatePlan", destroy: "deletePlan",
			wanted: object{"name": "pro", "description": "paid"}, drift: object{"description": "by hand"},
			fixed: []string{"name"},
		},
		&monthly, &perMinute,
		{
			create: "putOverride", read: "getOverride", update: "putOverride", destroy: "deleteOverride",
			wanted: object{
				"rate": "5/minute", "burst_capacity": 9, "reason": "a trial", "expires_at": "2099-01-31T00:00:00Z",
			},
			drift: object{"rate": "6/minute", "burst_capacity": 9, "reason": "by hand"},
		},
		{
			create: "createKey", read: "getKey", destroy: "revokeKey", list: "listKeys",
			natural: []string{"name"}, id: "key_id",
			wanted: object{
				"name": "gateway", "permissions": []string{"check", "explain"}, "networks": []string{"10.0.0.0/8"},
				"expires_at": "2099-01-31T00:00:00Z",
			},
		},
		{
			create: "createAlert", read: "getAlert", update: "updateAlert", destroy: "deleteAlert", list: "listAlerts",
			natural: []string{"name"}, id: "alert_id",
			wanted: object{
				"name": "denials", "rule_id": nil, "per": "rule", "threshold": 100, "window_minutes": 5,
				"format": "webhook", "url": "https://1.1.1.1/hook", "is_active": true,
			},
			drift: object{"threshold": 7, "is_active": false},
			fixed: []string{"url"}, // as shown it lacks what may be secret
		},
		{
			create: "invite", read: "getMember", update: "changeRole", destroy: "removeMember", list: "listMembers",
			natural: []string{"email"}, id: "account_id",
			wanted: object{"email": "bo@example.com", "role": "viewer"},
			drift:  object{"role": "editor"},
			fixed:  []string{"email"},
		},
	}
	for _, r := range resources {
		r.address = address
		made := c.want(t, r.create, address, r.wanted, "If-None-Match", "*").body
		if token, ok := made["token"].(string); ok { // an invitation becomes a member when it is accepted
			c.want(t, "acceptInvitation", nil,
				object{"token": token, "name": "Bo", "password": "a password nobody guesses"})
			address[r.id] = c.ids(t, r)[0]
		}
		for _, wrapped := range []string{"key", "alert"} { // beside their secrets
			if inner, ok := made[wrapped].(object); ok {
				made = inner
			}
		}
		if id, ok := made[r.id]; ok {
			address[r.id] = text(id)
		}
		r.address = maps.Clone(address)
		if differing := r.plan(c.read(t, r).body); len(differing) > 0 {
			t.Errorf("%s: what was just made differs in %v: %v", r.create, differing, made)
		}
		if r.update != "" {
			c.putRight(t, r)
		}
		if r.list != "" && !slices.Contains(c.ids(t, r), r.address[r.id]) {
			t.Errorf("%s: it is not found by %v", r.create, r.natural)
		}
	}
	for _, r := range slices.Backward(resources) {
		if r.create == "createTenant" {
			c.want(t, "suspendTenant", r.address, nil, "If-Match", "*")
		}
		c.want(t, r.destroy, r.address, nil, "If-Match", "*")
		gone := c.call(t, r.read, r.address, nil)
		if gone.status != http.StatusNotFound && gone.body["revoked_at"] == nil { // a revoked key stays on record
			t.Errorf("%s: afterwards it is answered %d: %v", r.destroy, gone.status, gone.body)
		}
	}
}

func (c *contract) read(t *testing.T, r *resource) answered {
	t.Helper()
	return c.want(t, r.read, r.address, nil)
}

// putRight lets somebody else change the object, sees it in the plan and applies the wanted state.
func (c *contract) putRight(t *testing.T, r *resource) {
	t.Helper()
	before := c.read(t, r)
	c.want(t, r.update, r.address, r.drift, "If-Match", before.etag)
	drifted := c.read(t, r)
	if len(r.plan(drifted.body)) == 0 {
		t.Errorf("%s: a change by somebody else is not seen", r.create)
	}
	wanted := maps.Clone(r.wanted)
	if r.update != r.create {
		maps.DeleteFunc(wanted, func(name string, _ any) bool { return slices.Contains(r.fixed, name) })
	}
	late := c.call(t, r.update, r.address, wanted, "If-Match", before.etag)
	if late.status != http.StatusPreconditionFailed || late.body["type"] != "urn:sluice:problem:precondition-failed" {
		t.Errorf("%s: over somebody else's change it is answered %d: %v", r.update, late.status, late.body)
	}
	c.want(t, r.update, r.address, wanted, "If-Match", drifted.etag)
	if differing := r.plan(c.read(t, r).body); len(differing) > 0 {
		t.Errorf("%s: put right, it differs in %v", r.create, differing)
	}
}

func (c *contract) ids(t *testing.T, r *resource) (found []string) {
	t.Helper()
	at := maps.Clone(r.address)
	for {
		page := c.want(t, r.list, at, nil)
		for _, item := range page.body["items"].([]any) {
			isOne := true
			for _, name := range r.natural {
				wanted, ok := r.wanted[name]
				stored := item.(object)[name]
				isOne = isOne && (ok && stored == wanted || !ok && (stored == nil || stored == ""))
			}
			if isOne {
				found = append(found, text(item.(object)[r.id]))
			}
		}
		next, more := page.body["next_cursor"].(string)
		if !more {
			return found
		}
		at["cursor"] = next
	}
}

func serviceKey(t *testing.T, a *adminServer, database string) string {
	t.Helper()
	a.signIn(t, database)
	body := `{"name":"terraform","permissions":["tenants","manage","settings","keys","members","alerts"]}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.addr+"/api/v1/service-keys",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.AddCookie(a.session)
	w, err := a.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	var made struct{ Secret string }
	text, _ := io.ReadAll(w.Body)
	if err := json.Unmarshal(text, &made); err != nil || w.StatusCode != http.StatusCreated {
		t.Fatalf("a service key is answered %d: %s", w.StatusCode, text)
	}
	return made.Secret
}
