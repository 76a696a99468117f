package adminapi_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

type fixture struct {
	w        *world
	tenant   rules.Tenant
	caller   caller
	path     map[string]string // parameters
	rule     rules.Rule        // that rule_id names
	liveRule rules.Rule        // beside it
	pending  string            // token of a half sign-in
}

// bodies are those of operations whose example in openapi.yaml would not do: it names things that are
// not there.
var bodies = map[string]func(*fixture) string{
	"signIn": func(f *fixture) string {
		return fmt.Sprintf(`{"email":%q,"password":%q}`, f.w.account(false).Email, password)
	},
	"changePassword": func(f *fixture) string {
		f.w.secrets = append(f.w.secrets, "the next password nobody guesses")
		return fmt.Sprintf(`{"current_password":%q,"new_password":"the next password nobody guesses"}`, password)
	},
	"lookAtInvitation": func(f *fixture) string { return fmt.Sprintf(`{"token":%q}`, f.invitation()) },
	"acceptInvitation": func(f *fixture) string {
		if f.caller.session != "" {
			return fmt.Sprintf(`{"token":%q}`, f.invitationFor(f.caller.account.Email))
		}
		return fmt.Sprintf(`{"token":%q,"name":"Ada","password":%q}`, f.invitation(), password)
	},
	"askPasswordReset": func(f *fixture) string {
		return fmt.Sprintf(`{"email":"%s@example.com"}`,
			f.w.name("forgetful"))
	},
	"finishPasswordReset": func(f *fixture) string {
		return fmt.Sprintf(`{"token":%q,"password":"the next password nobody guesses"}`,
			f.link(f.w.account(false), auth.MailReset))
	},
	"finishSignIn":    func(f *fixture) string { return fmt.Sprintf(`{"code":%q}`, f.w.code(f.half())) },
	"confirmIdentity": func(*fixture) string { return fmt.Sprintf(`{"password":%q}`, password) },
	"turnSecondFactorOn": func(f *fixture) string {
		if f.caller.session == "" {
			return `{"code":"123456"}`
		}
		return fmt.Sprintf(`{"code":%q}`, f.w.code(f.w.beginFactor(f.caller)))
	},
	"finishAddressProof": func(f *fixture) string {
		if f.caller.session == "" {
			return `{"token":"none"}`
		}
		return fmt.Sprintf(`{"token":%q}`, f.link(f.caller.account, auth.MailProof))
	},
	"signInByLink": func(f *fixture) string {
		return fmt.Sprintf(`{"token":%q}`,
			f.link(f.w.account(false), "sign_in"))
	},
	"linkIdentity": func(*fixture) string { return `{"provider":"idp"}` },
	"confirmAtProvider": func(f *fixture) string {
		if f.caller.session != "" {
			f.w.identity(f.caller.account)
		}
		return `{"provider":"idp"}`
	},
	"createTenant": func(f *fixture) string { return fmt.Sprintf(`{"slug":%q,"name":"A"}`, f.w.name("tenant")) },
	"updateTenant": func(*fixture) string { return `{"default_plan":null,"settings":{"retry_jitter_percent":20}}` },
	"createPlan":   func(f *fixture) string { return fmt.Sprintf(`{"name":%q}`, f.w.name("plan")) },
	"createRule": func(f *fixture) string {
		return fmt.Sprintf(`{"key_pattern":"user:%s","rate_per_second":1,"burst_capacity":5}`, f.w.name("user"))
	},
	"putRule": func(f *fixture) string {
		return fmt.Sprintf(`{"key_pattern":%q,"name":%q,"rate":"1/second","burst_capacity":7}`, f.rule.Pattern.String(),
			f.rule.Name)
	},
	"promoteRule": func(f *fixture) string {
		return fmt.Sprintf(`{"into_rule_id":"%d","into_version":%d}`, f.liveRule.ID, f.liveRule.Version)
	},
	"scheduleChange": func(f *fixture) string {
		return fmt.Sprintf(`{"rules":[{"rule_id":"%d","version":%d,"change":{"burst_capacity":7}}],"starts_at":%q}`,
			f.rule.ID, f.rule.Version, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	},
	"createCandidate": func(*fixture) string { return `{"burst_capacity":7}` },
	"saveMatrix": func(f *fixture) string {
		return fmt.Sprintf(`{"cells":[{"rule_id":"%d","version":%d,"burst_capacity":7}]}`, f.rule.ID, f.rule.Version)
	},
	"createAlert": func(f *fixture) string {
		return fmt.Sprintf(
			`{"name":"a","rule_id":"%d","per":"rule","threshold":1,"window_minutes":1,"url":"https://example.com"}`,
			f.rule.ID)
	},
	"previewAlert": func(*fixture) string {
		return `{"rule_id":null,"per":"rule","threshold":1,"window_minutes":1}`
	},
	"silenceAlert": func(*fixture) string {
		return fmt.Sprintf(`{"until":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339))
	},
	"assignPlan": func(*fixture) string { return `{"plan":"free"}` },
	"resetBucket": func(f *fixture) string {
		return fmt.Sprintf(`{"bucket_key":"%d:a/b"}`, f.rule.ID)
	},
	"creditBucket": func(f *fixture) string {
		return fmt.Sprintf(`{"bucket_key":"%d:a/b","tokens":-2.5}`, f.rule.ID)
	},
	"invite": func(f *fixture) string {
		return fmt.Sprintf(`{"email":"%s@example.com","role":"editor"}`, f.w.name("guest"))
	},
	"eraseUser":   func(*fixture) string { return `{"confirm":"a/b"}` },
	"importUsers": func(*fixture) string { return "user_id,plan\n77,free\n" },
	"importConfig": func(*fixture) string {
		return "rules:\n  - {key_pattern: \"endpoint:/import\", rate: 10/second, burst_capacity: 20}\n"
	},
}

func (f *fixture) half() (secret string) {
	by := f.w.signedIn(f.w.account(false))
	secret = f.w.turnFactorOn(by)
	f.w.exec("UPDATE second_factor SET last_step = 0") // the code may be that which turned it on
	_, err := f.w.gate.SignIn(f.w.ctx(), by.account.Email, password, auth.Browser{})
	var pending auth.SecondFactorError
	if !errors.As(err, &pending) {
		f.w.t.Fatalf("the first step ends with %v", err)
	}
	f.w.secrets = append(f.w.secrets, pending.Token)
	f.pending = pending.Token
	return secret
}

func (f *fixture) link(account auth.Account, purpose auth.MailKind) string {
	var random [32]byte
	_, _ = rand.Read(random[:])
	token := base64.RawURLEncoding.EncodeToString(random[:])
	if err := f.w.store.CreateMailedLink(f.w.ctx(), account.ID, purpose, sha256.Sum256([]byte(token)),
		time.Now().Add(time.Hour)); err != nil {
		f.w.t.Fatal(err)
	}
	f.w.secrets = append(f.w.secrets, token)
	return token
}

func (f *fixture) invitation() string { return f.invitationFor(f.w.name("guest") + "@example.com") }

func (f *fixture) invitationFor(email string) string {
	by := rules.Actor{Kind: rules.ActorSystem, Name: "test"}
	tenant := f.tenant
	if email == f.caller.account.Email { // who may be a member already
		tenant = f.w.tenant(f.w.name("tenant"))
	}
	invitation, token, err := auth.NewGate(f.w.store, auth.Options{}).Invite(f.w.ctx(), by,
		auth.Invitation{TenantID: tenant.ID, Email: email, Role: auth.Viewer})
	if err != nil {
		f.w.t.Fatal(err)
	}
	f.path["invitation_id"] = fmt.Sprint(invitation.ID)
	f.w.secrets = append(f.w.secrets, token)
	return token
}

func (w *world) newFixture(tenant rules.Tenant, by caller, template string) *fixture {
	w.t.Helper()
	f := &fixture{
		w: w, tenant: tenant, caller: by,
		path: map[string]string{"tenant": tenant.Slug, "user_id": "a/b", "provider": "idp", "identity_id": "0"},
	}
	needs := func(name string) bool { return strings.Contains(template, "{"+name+"}") }
	pattern := must(rules.ParsePattern("user:{user_id}:endpoint:/" + w.name("e")))(w.t)
	beside := func(r *rules.Rule) { r.Pattern = pattern }
	live := func(r *rules.Rule) { r.Pattern, r.Mode = pattern, rules.ModeEnforce }
	switch {
	case needs("rule_id"), strings.HasSuffix(template, "/matrix"), strings.HasSuffix(template, "/rules"):
		f.rule, f.liveRule = w.rule(tenant, beside), w.rule(tenant, live)
		f.path["rule_id"] = fmt.Sprint(fmt.Sprint(f.rule.ID))
		if strings.HasSuffix(template, "/candidate") {
			f.path["rule_id"] = fmt.Sprint(fmt.Sprint(f.liveRule.ID))
		}
		if strings.HasSuffix(template, "/comparison") {
			f.path["rule_id"] = fmt.Sprint(w.candidate(f.liveRule, 5).ID)
		}
		if needs("user_id") {
			must(w.system().PutOverride(w.ctx(), rules.Override{
				TenantID: tenant.ID, RuleID: f.rule.ID, UserID: "a/b", RatePerSecond: 2, RateUnit: rules.PerSecond,
				Burst: 5, Reason: "test",
			}, rules.NoneStored))(w.t)
		}
	case strings.Contains(template, "/buckets/"):
		f.rule = w.rule(tenant, func(r *rules.Rule) { r.Plan = w.plan(tenant) })
		w.refresh()
	case needs("alert_id"), strings.HasSuffix(template, "/alerts"):
		f.rule = w.rule(tenant, beside)
		alert := w.alert(f.rule)
		f.path["alert_id"] = fmt.Sprint(alert.ID)
		if needs("delivery_id") {
			f.path["delivery_id"] = fmt.Sprint(must(w.store.TestAlert(w.ctx(), tenant.ID, alert.ID))(w.t).ID)
		}
	case strings.Contains(template, "/scheduled-changes"):
		w.exec("UPDATE scheduled_change SET state = 'canceled', due_at = NULL") // so that no bound is reached
		f.rule = w.rule(tenant, beside)
		if needs("change_id") {
			f.path["change_id"] = fmt.Sprint(w.schedule(f.rule).ID)
		}
	case strings.Contains(template, "/replays"):
		w.exec("UPDATE replay SET state = 'canceled'") // so that no bound is reached
		if needs("replay_id") {
			f.path["replay_id"] = fmt.Sprint(w.replay(tenant).ID)
		}
	case strings.HasSuffix(template, "/export"), strings.HasSuffix(template, "/data"):
		w.exec("UPDATE export SET finished_at = now() WHERE finished_at IS NULL") // so that no bound is reached
	case needs("receipt_id"):
		f.path["receipt_id"] = must(w.system().EraseUser(w.ctx(), tenant.ID, w.name("erased")))(w.t).ID
	case needs("job_id"):
		f.path["job_id"] = fmt.Sprint(w.parkedJob(tenant))
	case needs("violation_id"):
		f.path["violation_id"] = w.violate(denied(tenant, time.Now()))[0].ID.String()
	case needs("slug"):
		removed := w.tenant(w.name("removed"))
		w.suspend(&removed)
		if err := w.system().RemoveTenant(w.ctx(), removed.ID, rules.AnyVersion); err != nil {
			w.t.Fatal(err)
		}
		f.path["slug"] = removed.Slug
	case needs("plan"):
		f.path["plan"] = w.plan(tenant)
	case strings.HasPrefix(template, "/api/v1/service-keys"):
		f.path["key_id"], _ = w.newServiceKey(auth.PermissionRead)
		if strings.HasSuffix(template, "/keep") { // its creator has left
			w.exec("UPDATE service_key SET created_by_kind = 'account', created_by_id = '0' WHERE key_id = $1",
				f.path["key_id"])
		}
	case needs("key_id"):
		f.path["key_id"], _ = w.key(tenant, auth.PermissionCheck)
		if strings.HasSuffix(template, "/keep") { // its creator has left
			w.exec("UPDATE api_key SET created_by_kind = 'account', created_by_id = '0' WHERE key_id = $1",
				f.path["key_id"])
		}
	case needs("audit_id"):
		name := w.plan(tenant)
		entries, _, err := w.store.Audit(w.ctx(), tenant.ID, auth.AuditFilter{ObjectKind: "plan", ObjectID: name},
			auth.LogCursor{}, 1)
		f.path["audit_id"] = fmt.Sprint(must(entries, err)(w.t)[0].ID)
	case needs("invitation_id"):
		f.invitation()
	case needs("session_id"):
		f.path["session_id"] = "0"
		if by.account.ID != 0 {
			_, id := w.session(by.account)
			f.path["session_id"] = fmt.Sprint(id)
		}
	case needs("identity_id") && by.account.ID != 0:
		f.path["identity_id"] = fmt.Sprint(w.identity(by.account))
	case needs("account_id"):
		account := w.account(false)
		w.member(tenant, account, auth.Viewer)
		f.path["account_id"] = fmt.Sprint(account.ID)
	}
	return f
}

func (f *fixture) request(method, template string, o *openapi3.Operation) request {
	if (o.OperationID == "turnSecondFactorOff" || o.OperationID == "replaceRecoveryCodes") && f.caller.session != "" {
		f.w.turnFactorOn(f.caller)
	}
	if strings.Contains(template, "/audit-webhook") {
		f.w.auditWebhook(f.tenant, o.OperationID != "createAuditWebhook")
	}
	if strings.Contains(template, "{export_id}") { // each caller has its own
		f.path["export_id"] = fmt.Sprint(f.w.exportOf(f.tenant, f.caller))
	}
	q := request{method: method, path: template, header: map[string]string{}}
	for name, value := range f.path {
		q.path = strings.ReplaceAll(q.path, "{"+name+"}", url.PathEscape(value))
	}
	for _, parameter := range o.Parameters {
		switch {
		case parameter.Value.In == "header" && parameter.Value.Name == "If-Match":
			q.header["If-Match"] = "*"
		case parameter.Value.In == "query" && parameter.Value.Required:
			q.path += fmt.Sprintf("?%s=%v", parameter.Value.Name, parameter.Value.Example)
		}
	}
	if o.RequestBody == nil {
		return q
	}
	for mediaType, content := range o.RequestBody.Value.Content {
		q.header["Content-Type"] = mediaType
		if body := bodies[o.OperationID]; body != nil {
			q.body = body(f)
		} else {
			q.body = string(must(jsonOf(content.Example))(f.w.t))
		}
	}
	if f.pending != "" {
		q.header["Cookie"] = "sluice_pending=" + f.pending
	}
	return q
}

var who = map[string]func(*world) caller{
	"nobody":         func(*world) caller { return caller{} },
	"viewer":         func(w *world) caller { return w.memberOfBoth(auth.Viewer) },
	"editor":         func(w *world) caller { return w.memberOfBoth(auth.Editor) },
	"owner":          func(w *world) caller { return w.memberOfBoth(auth.Owner) },
	"platform":       (*world).platformAdmin,
	"stranger":       func(w *world) caller { return w.person(w.other, auth.Owner) },
	"without factor": func(w *world) caller { return w.person(w.strict, auth.Owner) },
	"unproven": func(w *world) caller {
		invitation := auth.Invitation{TenantID: w.acme.ID, Email: w.name("una") + "@example.com", Role: auth.Owner}
		_, token, err := auth.NewGate(w.store, auth.Options{}).Invite(w.ctx(), rules.Actor{Kind: rules.ActorSystem},
			invitation)
		if err != nil {
			w.t.Fatal(err)
		}
		joined := must(w.store.AcceptAsNew(w.ctx(), rules.Actor{}, sha256.Sum256([]byte(token)),
			auth.Account{Email: invitation.Email}, passwordHash()))(w.t)
		return w.signedIn(joined.Account)
	},
	"ended session": func(w *world) caller {
		by := w.memberOfBoth(auth.Owner)
		if err := w.store.EndSession(w.ctx(), by.account.ID, by.sessionID); err != nil {
			w.t.Fatal(err)
		}
		return by
	},
}

// permissionsOf are the valid API keys of the matrix, beside those for the check endpoint only. Names begin with the
// tenant of the key: acme's without one, and all tenants for a service key.
var permissionsOf = func() map[string][]auth.Permission {
	all := map[string][]auth.Permission{
		"key":                    {auth.PermissionManage},
		"key of closed":          {auth.PermissionManage},
		"key of strict":          {auth.PermissionManage},
		"key of other":           {auth.PermissionManage},
		"key to read":            {auth.PermissionRead},
		"key for rules":          {auth.PermissionRules},
		"key for keys and users": {auth.PermissionKeys, auth.PermissionUsers},
		"service key":            auth.ServicePermissions,
	}
	for _, one := range auth.ServicePermissions {
		all["service key for "+string(one)] = []auth.Permission{one}
	}
	return all
}()

// keys are the API keys of the matrix, made once because a process learns of new ones by polling.
func keys(w *world) map[string]caller {
	made := map[string]caller{
		"key for checks":     w.keyOf(w.acme, auth.PermissionCheck, auth.PermissionExplain),
		"key from elsewhere": w.keyFrom("198.51.100.0/24"),
		"revoked key":        w.revokedKey(),
		"wrong secret":       {key: w.keyOf(w.acme, auth.PermissionManage).key + "0"},
		"key of no product":  {key: "slk_nobody_0123456789abcdef0123456789abcdef"},
		"no service key":     {key: "slk_svc0123456789abcdef_0123456789abcdef0123456789abcdef"},
	}
	for name, permissions := range permissionsOf {
		switch {
		case strings.HasPrefix(name, "service key"):
			made[name] = w.serviceKey(permissions...)
		case name == "key of closed":
			made[name] = w.keyOf(w.closed, permissions...)
		case name == "key of strict":
			made[name] = w.keyOf(w.strict, permissions...)
		case name == "key of other":
			made[name] = w.keyOf(w.other, permissions...)
		default:
			made[name] = w.keyOf(w.acme, permissions...)
		}
	}
	return made
}

func (w *world) memberOfBoth(role auth.Role) caller {
	by := w.person(w.acme, role)
	w.member(w.closed, by.account, role)
	return by
}

func (w *world) keyOf(tenant rules.Tenant, permissions ...auth.Permission) caller {
	_, token := w.key(tenant, permissions...)
	return caller{key: token}
}

func (w *world) keyFrom(networks ...string) caller {
	token, id, digest := auth.NewKeyToken()
	allowed, _ := auth.ParseNetworks(networks)
	must(w.system().CreateKey(w.ctx(), auth.NamedKey{
		Key: auth.Key{
			ID: id, TenantID: w.acme.ID, Digest: digest,
			Permissions: []auth.Permission{auth.PermissionManage}, Networks: allowed,
		},
		Name: w.name("key"),
	}))(w.t)
	w.secrets = append(w.secrets, token)
	return caller{key: token}
}

func (w *world) serviceKey(permissions ...auth.Permission) caller {
	_, token := w.newServiceKey(permissions...)
	return caller{key: token}
}

func (w *world) newServiceKey(permissions ...auth.Permission) (id, token string) {
	token, id, digest := auth.NewServiceKeyToken()
	must(w.system().CreateKey(w.ctx(), auth.NamedKey{
		Key: auth.Key{ID: id, Digest: digest, Permissions: permissions}, Name: w.name("key"),
	}))(w.t)
	w.secrets = append(w.secrets, token)
	return id, token
}

func (w *world) revokedKey() caller {
	id, token := w.key(w.acme, auth.PermissionManage)
	if err := w.system().RevokeKey(w.ctx(), w.acme.ID, id, rules.AnyVersion); err != nil {
		w.t.Fatal(err)
	}
	return caller{key: token}
}

func refusal(who, method string, o *openapi3.Operation, hasTenant, isSuspended bool) int {
	least, _ := o.Extensions["x-least-role"].(string)
	ranks := map[string]int{"viewer": 1, "editor": 2, "owner": 3, "platform": 4, "stranger": 3, "unproven": 3}
	switch {
	case least == "anyone":
		return 0
	case slices.Contains([]string{
		"nobody", "ended session", "revoked key", "wrong secret", "key of no product",
		"no service key",
	}, who):
		return http.StatusUnauthorized
	case strings.Contains(who, "key"):
		return refusalOfKey(who, method, least, o, hasTenant, isSuspended)
	case isSuspended && (who == "without factor" || who == "unproven"): // they are members of one tenant only
		return http.StatusNotFound
	case who == "without factor" && (hasTenant || least == "platform"):
		return http.StatusForbidden
	case who == "platform" || !hasTenant && (least == "account" || least == "caller"):
		return 0
	case hasTenant && who == "stranger":
		return http.StatusNotFound
	case isSuspended && least != "viewer", ranks[who] < ranks[least]:
		return http.StatusForbidden
	}
	return 0
}

// gives are the permissions of what a request of the matrix gives to somebody else, as a key or a role. A key gives no
// more than it has.
var gives = map[string][]auth.Permission{
	"createServiceKey": {auth.PermissionTenants, auth.PermissionRules, auth.PermissionUsers, auth.PermissionSettings},
	"rotateServiceKey": {auth.PermissionRead},
	"invite":           {auth.PermissionRead, auth.PermissionRules, auth.PermissionUsers}, // an editor's
	"changeRole":       {auth.PermissionRead, auth.PermissionRules, auth.PermissionUsers},
}

// refusalOfKey is refusal for an API key, computed from permissionsOf and not by auth, which is tested.
func refusalOfKey(who, method, least string, o *openapi3.Operation, hasTenant, isSuspended bool) int {
	needed, _ := o.Extensions["x-permission"].(string)
	isService, has := strings.HasPrefix(who, "service"),
		func(one auth.Permission) bool { return slices.Contains(permissionsOf[who], one) }
	isOf := map[bool]bool{true: who == "key of closed", false: who != "key of closed" &&
		who != "key of other"}[isSuspended]
	reads := method == http.MethodGet || least == "viewer"
	if o.OperationID == "revertChange" { // of a plan
		needed = "rules"
	}
	isManage := has(auth.PermissionManage) && (needed == "read" || needed == "rules" || needed == "users")
	isWeaker := slices.ContainsFunc(gives[o.OperationID], func(one auth.Permission) bool { return !has(one) })
	switch {
	case permissionsOf[who] == nil || needed == "":
		return http.StatusForbidden
	case hasTenant && !isService && !isOf:
		return http.StatusNotFound
	case isWeaker, !isService && (isSuspended || least == "platform"):
		return http.StatusForbidden
	case needed == "any" || isManage || has(auth.Permission(needed)) || reads &&
		(has(auth.PermissionRead) || has(auth.PermissionManage)):
		return 0
	}
	return http.StatusForbidden
}

func success(o *openapi3.Operation) int {
	for _, status := range []int{
		http.StatusOK, http.StatusCreated, http.StatusNoContent, http.StatusSeeOther, http.StatusAccepted,
	} {
		if o.Responses.Status(status) != nil {
			return status
		}
	}
	return 0
}

func eachOperation(description *openapi3.T, visit func(method, path string, o *openapi3.Operation)) {
	for _, path := range slices.Sorted(maps.Keys(description.Paths.Map())) {
		for method, o := range description.Paths.Value(path).Operations() {
			if !slices.Contains(o.Tags, "check") {
				visit(method, path, o)
			}
		}
	}
}

func TestEveryOperationAnswersEveryCallerAsDescribed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tenant := range []rules.Tenant{w.acme, w.closed, w.strict} { // the fixtures of one tenant are many
		must(w.store.PutCapacity(w.ctx(), rules.Actor{}, tenant.ID,
			rules.Exceptions{
				rules.ThingAlerts: 1e6, rules.ThingMembers: 1e6, rules.ThingPlans: 1e6,
				rules.ThingKeys: 1e6,
			}, rules.AnyVersion))(t)
	}
	m := matrix{world: w, callers: map[string]caller{}}
	maps.Copy(m.callers, keys(w))
	for name, newCaller := range who {
		m.callers[name] = newCaller(w)
	}
	w.refresh()
	eachOperation(w.description, func(method, path string, o *openapi3.Operation) {
		fixtures := map[string]*fixture{} // that no request changes, by tenant
		for _, name := range slices.Sorted(maps.Keys(m.callers)) {
			own := w.acme
			if name == "without factor" || name == "key of strict" {
				own = w.strict
			}
			m.ask(method, path, o, name, own, fixtures)
			if strings.Contains(path, "{tenant}") {
				m.ask(method, path, o, name, w.closed, fixtures)
			}
		}
		m.askOverCapacity(method, path, o)
	})
	t.Logf("%d requests", len(w.answers))
	w.wantNoSecrets()
}

type matrix struct {
	*world
	callers map[string]caller
}

func (m *matrix) ask(method, path string, o *openapi3.Operation, name string, tenant rules.Tenant,
	fixtures map[string]*fixture,
) {
	least, _ := o.Extensions["x-least-role"].(string)
	hasTenant, isSuspended := strings.Contains(path, "{tenant}"), tenant.Suspended
	by := m.callers[name]
	if least == "anyone" && name == "ended session" {
		by = caller{} // who comes back later has no other way in
	}
	want := refusal(name, method, o, hasTenant, isSuspended)
	if name == "unproven" && o.OperationID == "acceptInvitation" { // to another tenant
		want = http.StatusConflict
	}
	f := fixtures[tenant.Slug]
	if want == 0 {
		want = success(o)
		if method != http.MethodGet {
			f = nil
			if newCaller := who[name]; newCaller != nil && by.session != "" {
				by = newCaller(m.world)
			}
			if least == "platform" && hasTenant { // these would leave nothing to the others
				tenant = m.tenant(m.name("tenant"))
				if o.OperationID == "deleteTenant" {
					m.suspend(&tenant)
				}
			}
		}
	}
	if f == nil {
		f = m.newFixture(tenant, by, path)
		if method == http.MethodGet || want >= 400 {
			fixtures[tenant.Slug] = f
		}
	}
	f.caller = by
	got := m.do(by, f.request(method, path, o))
	if got.status != want {
		m.t.Errorf("%s by %s (suspended: %v) answered %d, want %d: %s", o.OperationID, name, isSuspended, got.status,
			want, got.body)
	}
}

func TestAnotherTenantsThingsDoNotExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	eachOperation(w.description, func(method, path string, o *openapi3.Operation) {
		names := strings.Count(path, "{")
		if !strings.Contains(path, "{tenant}") || names < 2 || names == 2 && strings.Contains(path, "{user_id}") {
			return
		}
		q := w.newFixture(w.other, by, path).request(method, path, o)
		q.path = strings.Replace(q.path, "/tenants/other/", "/tenants/acme/", 1)
		if got := w.do(by, q); got.status != http.StatusNotFound {
			t.Errorf("%s answered %d, want 404: %s", o.OperationID, got.status, got.body)
		}
	})
	theirs := w.rule(w.other)
	w.refresh()
	cells := fmt.Sprintf(`{"cells":[{"rule_id":"%d","version":1,"remove":true}]}`, theirs.ID)
	w.want(w.do(by, request{"POST", "/api/v1/tenants/acme/matrix", cells, nil}), http.StatusPreconditionFailed)
	for name, q := range map[string]request{
		"a bucket": {
			"POST", "/api/v1/tenants/acme/users/42/buckets/reset",
			fmt.Sprintf(`{"bucket_key":"%d:42"}`, theirs.ID), nil,
		},
		"a rule to promote into": {
			"POST", fmt.Sprintf("/api/v1/tenants/acme/rules/%d/promote", w.rule(w.acme).ID),
			fmt.Sprintf(`{"into_rule_id":"%d","into_version":1}`, theirs.ID),
			map[string]string{"If-Match": "*"},
		},
		"a plan to be on": {
			"PUT", "/api/v1/tenants/acme/users/42/plan",
			fmt.Sprintf(`{"plan":%q}`, w.plan(w.other)),
			map[string]string{"If-Match": "*"},
		},
		"a plan to be the default": {
			"PATCH", "/api/v1/tenants/acme",
			fmt.Sprintf(`{"default_plan":%q}`, w.plan(w.other)),
			map[string]string{"If-Match": "*"},
		},
	} {
		if got := w.do(by, q); got.status != http.StatusBadRequest {
			t.Errorf("another tenant's %s is answered %d, want 400: %s", name, got.status, got.body)
		}
	}
}
