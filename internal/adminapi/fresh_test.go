package adminapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// Operations that give or lengthen access, send a tenant's data to a new address, weaken a sign-in, or end a tenant
// need a fresh session. The lists are written by hand: the test fails for a new operation until somebody decides.
var (
	wantsProof = strings.Fields(`
		changePassword beginSecondFactor turnSecondFactorOff replaceRecoveryCodes linkIdentity unlinkIdentity
		createKey rotateKey keepKey revokeKey
		createServiceKey rotateServiceKey keepServiceKey revokeServiceKey
		changeRole invite resumeTenant deleteTenant
		createAlert rotateAlertSecret
		createAuditWebhook updateAuditWebhook rotateAuditSecret deleteAuditWebhook`)

	wantsProofFor = map[string]struct{ bodies, otherBodies []string }{
		"updateAccount": {
			[]string{`{"platform_admin":true}`, `{"disabled":false}`, `{"proven":true}`},
			[]string{`{"disabled":true}`, `{"platform_admin":false}`},
		},
		"updateTenant": {
			[]string{`{"settings":{"require_second_factor":false}}`},
			[]string{`{"settings":{"fixed_rates":true}}`},
		},
		"updateAlert": {
			[]string{
				`{"url":"https://example.com/elsewhere"}`,
				`{"format":"pagerduty","routing_key":"0123456789abcdef0123456789abcdef"}`,
				`{"format":"email","email":"ada@example.com"}`,
			},
			[]string{`{"threshold":7}`, `{"is_active":false}`},
		},
	}

	// wantsNoProof are the operations that read, take access away, change limits, or prove the caller by the request
	// itself. Handlers ask for revertChange, by the change that it undoes.
	wantsNoProof = strings.Fields(`
		check checkBatch settle report lease getUsage explain authorize
		getHealth getReadiness getDescription getReference getStatus getTenantStatus
		getSession signIn signOut finishSignIn confirmIdentity confirmAtProvider signInByLink getSignInOptions
		startProviderSignIn finishProviderSignIn signOutAtProvider askPasswordReset finishPasswordReset
		listSessions signOutEverywhere endSession updateOwnAccount askAddressProof finishAddressProof
		getSecondFactor turnSecondFactorOn listIdentities listIdentityProviders listOwnSecurityLog
		lookAtInvitation acceptInvitation
		listMail testMail listParkedJobs retryParkedJob deleteParkedJob listPeriodicJobs
		listAccounts getAccount endAccountSessions listPlatformAudit listSecurityLog exportSecurityLog
		listServiceKeys getServiceKey
		listTenants createTenant getTenant listRemovedTenants restoreTenant getCapacity putCapacity suspendTenant
		listPlans createPlan getPlan updatePlan deletePlan
		listRules createRule putRule getRule updateRule deleteRule promoteRule createCandidate compareCandidate
		listScheduledChanges scheduleChange getScheduledChange cancelScheduledChange
		getMatrix saveMatrix listAdapting simulate showEffect
		listReplays startReplay getReplay cancelReplay getRecording explainCheck
		getAuthorizeMapping putAuthorizeMapping deleteAuthorizeMapping tryAuthorizeMapping
		getDescriptorMapping putDescriptorMapping deleteDescriptorMapping tryDescriptorMapping
		listOverrides getOverride putOverride deleteOverride listTenantOverrides
		listUsers findUsers importUsers exportUsers getUser exportUserData eraseUser getErasure assignPlan
		startUsersExport startViolationsExport startAuditExport startUsageExport getExport downloadExport
		getUserStory getUserUsage
		listBuckets resetBucket creditBucket
		listKeys getKey listMembers getMember removeMember listInvitations revokeInvitation
		listAudit exportAudit getAuditEntry revertChange getAuditWebhook testAuditWebhook listTenantSecurityLog
		exportConfig importConfig
		listViolations listCrossings exportViolations tailViolations getViolation
		getSeries getViolationSeries getTop getPresent getBusiest getSummary exportUsage
		listAlerts getAlert deleteAlert previewAlert silenceAlert endSilence testAlert
		listAlertDeliveries retryAlertDelivery`)
)

func TestEachOperationIsDecidedToWantAFreshSessionOrNot(t *testing.T) {
	t.Parallel()
	undecided := slices.Concat(wantsProof, wantsNoProof)
	for name := range wantsProofFor {
		undecided = append(undecided, name)
	}
	for _, item := range must(description())(t).Paths.Map() {
		for _, o := range item.Operations() {
			at := slices.Index(undecided, o.OperationID)
			if at < 0 {
				t.Errorf("%s is in none of the lists, or in two; decide whether it wants a fresh session",
					o.OperationID)
				continue
			}
			undecided = slices.Delete(undecided, at, at+1)
			mark := o.Extensions["x-fresh-proof"]
			_, isPartial := mark.(map[string]any)
			_, wantsPartial := wantsProofFor[o.OperationID]
			if (mark == "always") != slices.Contains(wantsProof, o.OperationID) || isPartial != wantsPartial {
				t.Errorf("%s has x-fresh-proof: %v, which is not what its list says", o.OperationID, mark)
			}
		}
	}
	if len(undecided) > 0 {
		t.Errorf("%v are in two lists, or no operations", undecided)
	}
}

func TestDangerousOperationsWantAFreshSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	eachOperation(w.description, func(method, path string, o *openapi3.Operation) {
		partial, isPartial := wantsProofFor[o.OperationID]
		if !isPartial && !slices.Contains(wantsProof, o.OperationID) {
			return
		}
		by := w.platformAdmin()
		begin := func(by caller) request {
			tenant := w.tenant(w.name("tenant"))
			if o.OperationID == "deleteTenant" {
				w.suspend(&tenant)
			}
			return w.newFixture(tenant, by, path).request(method, path, o)
		}
		q := begin(by)
		if !isPartial {
			partial.bodies = []string{q.body}
		}
		for _, q.body = range partial.bodies {
			w.stale(by)
			before := w.auditEntries()
			w.wantKind(w.do(by, q), http.StatusForbidden, "fresh-proof-required")
			if after := w.auditEntries(); after != before {
				t.Errorf("%s was carried out", o.OperationID)
			}
		}
		for _, body := range partial.otherBodies {
			calm := begin(by)
			calm.body = body
			w.want(w.do(by, calm), success(o))
		}
		if err := w.store.ConfirmSession(w.ctx(), by.sessionID); err != nil {
			t.Fatal(err)
		}
		q.body = partial.bodies[0]
		w.want(w.do(by, q), success(o))
		if o.Extensions["x-permission"] != nil && !isPartial { // keys are not asked
			w.want(w.do(w.serviceKey(auth.ServicePermissions...), begin(caller{})), success(o))
		}
	})
}

func TestUndoingWhatTookAccessAwayWantsAFreshSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.platformAdmin()
	key, _ := w.key(w.acme, auth.PermissionCheck)
	w.suspend(&w.acme)
	w.stale(by)
	for kind, id := range map[string]string{"api_key": key, "tenant": ""} {
		entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{ObjectKind: kind, ObjectID: id},
			auth.LogCursor{}, 1)
		path := fmt.Sprintf("/api/v1/tenants/acme/audit/%d/revert", must(entries, err)(t)[0].ID)
		w.wantKind(w.send(by, "POST", path, nil), http.StatusForbidden, "fresh-proof-required")
	}
}

func TestAnAPIKeyLoosensNoSecurity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owners, all := w.keyOf(w.acme, auth.TenantPermissions...), w.serviceKey(auth.ServicePermissions...)
	strict := w.keyOf(w.strict, auth.PermissionSettings)
	member, disabled := w.account(false), w.account(false)
	w.member(w.acme, member, auth.Viewer)
	disabled.DisabledAt = disabled.CreatedAt
	disabled = must(w.store.UpdateAccount(w.ctx(), rules.Actor{Kind: rules.ActorSystem}, disabled))(t)
	left, _ := w.key(w.acme, auth.PermissionCheck)
	w.exec("UPDATE api_key SET created_by_kind = 'account', created_by_id = '0' WHERE key_id = $1", left)
	leftService, _ := w.newServiceKey(auth.PermissionRead)
	w.exec("UPDATE service_key SET created_by_kind = 'account', created_by_id = '0' WHERE key_id = $1", leftService)
	rotated, _ := w.key(w.acme, auth.PermissionCheck)
	w.auditWebhook(w.acme, true)
	w.refresh()
	w.want(w.do(owners, w.json("POST", "/api/v1/tenants/acme/api-keys/"+rotated+"/rotate",
		map[string]any{"grace_seconds": 3600})), http.StatusCreated)
	entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{ObjectKind: "api_key", ObjectID: rotated},
		auth.LogCursor{}, 1)
	undo := fmt.Sprintf("/api/v1/tenants/acme/audit/%d/revert", must(entries, err)(t)[0].ID)
	const acme = "/api/v1/tenants/acme"
	optional := map[string]any{"settings": map[string]any{"require_second_factor": false}}
	webhook := map[string]any{"url": "https://example.com/elsewhere"}
	tests := map[string]struct {
		by   caller
		send request
	}{
		"an optional second factor":                  {strict, w.json("PATCH", "/api/v1/tenants/strict", optional)},
		"an optional second factor, by the platform": {all, w.json("PATCH", "/api/v1/tenants/strict", optional)},
		"an owner": {
			owners,
			w.json("PATCH", acme+"/members/"+formatID(member.ID), map[string]any{"role": "owner"}),
		},
		"an owner, by the platform": {
			all,
			w.json("PATCH", acme+"/members/"+formatID(member.ID), map[string]any{"role": "owner"}),
		},
		"an owner who is to come": {
			owners,
			w.json("POST", acme+"/invitations", map[string]any{"email": "o@example.com", "role": "owner"}),
		},
		"an owner to come, by the platform": {
			all,
			w.json("POST", acme+"/invitations", map[string]any{"email": "o@example.com", "role": "owner"}),
		},
		"a platform admin": {
			all,
			w.json("PATCH", "/api/v1/accounts/"+formatID(member.ID), map[string]any{"platform_admin": true}),
		},
		"an account that was disabled": {
			all,
			w.json("PATCH", "/api/v1/accounts/"+formatID(disabled.ID), map[string]any{"disabled": false}),
		},
		"a proof of an address": {
			all,
			w.json("PATCH", "/api/v1/accounts/"+formatID(member.ID), map[string]any{"proven": true}),
		},
		"a leaver's key":                  {owners, w.json("POST", acme+"/api-keys/"+left+"/keep", nil)},
		"a leaver's service key":          {all, w.json("POST", "/api/v1/service-keys/"+leftService+"/keep", nil)},
		"a key's former expiry":           {owners, w.json("POST", undo, nil)},
		"another place for the audit log": {owners, w.json("PATCH", acme+"/audit-webhook", webhook)},
		"the signature of the audit log":  {owners, w.json("POST", acme+"/audit-webhook/rotate", nil)},
		"no copy of the audit log":        {owners, w.json("DELETE", acme+"/audit-webhook", nil)},
		"a first copy of the audit log":   {all, w.json("POST", "/api/v1/tenants/other/audit-webhook", webhook)},
	}
	for name, test := range tests {
		if test.send.body == "null" {
			test.send.body = ""
		}
		before := w.auditEntries()
		w.wantKind(w.do(test.by, test.send), http.StatusForbidden, "forbidden")
		if w.auditEntries() != before {
			t.Errorf("a key gave %s", name)
		}
	}
	w.want(w.do(all, w.json("PATCH", "/api/v1/tenants/other",
		map[string]any{"settings": map[string]any{"require_second_factor": true}})), http.StatusOK)
	w.want(w.do(all, w.json("PATCH", "/api/v1/accounts/"+formatID(member.ID), map[string]any{"disabled": true})),
		http.StatusOK)
}
