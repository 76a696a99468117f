package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/oidc"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/shares"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

// Config has the dependencies of the surface. Nil and zero turn optional ones off.
type Config struct {
	Stores       Stores
	As           func(by rules.Actor) pgstore.Writer
	People       auth.Store
	Access       *auth.AccessLog
	AccessEvents auth.AccessStore
	Idempotency  auth.IdempotencyStore
	Gate         *auth.Gate
	// Providers are where people sign in beside their password.
	Providers     *oidc.Providers
	Violations    violations.Store
	Alerts        violations.AlertStore
	AuditWebhooks auth.AuditWebhookStore
	// CheckTarget returns an error for a URL that webhooks may not be sent to.
	CheckTarget func(ctx context.Context, url string) error
	// Fleet has the state of the processes that record violations.
	Fleet         fleet.Store
	Recorded      replay.Reader
	TrafficBudget int64
	Snapshots     Snapshots
	// KeyUsed must not wait.
	KeyUsed func(key *snapshot.Key, at time.Time)
	// Explain answers for the check in a body, ExplainCheck for that of a gateway's request.
	Explain      func(ctx context.Context, tenant *snapshot.Tenant, body []byte) ([]byte, error)
	ExplainCheck func(ctx context.Context, tenant *snapshot.Tenant, check enforce.Check) ([]byte, error)
	// Buckets is nil if they are in the memory of other processes.
	Buckets         Buckets
	CapacityRefused func(rules.Thing)
	// Connections is the size of the stores' pool; 0 is 20.
	Connections int
	// LeastDownloadRate is what a file's reader must take on average, in bytes a second; 0 is 64 KiB.
	LeastDownloadRate int64
	// ObserveShares is called once for each semaphore.
	ObserveShares func(class string, count func() shares.Count)
	RateLimiter   *RateLimiter
	// Readiness must answer at once, from memory.
	Readiness func() httpapi.Readiness
	// Requests wraps every route. Its Deadline does not apply to files and streams.
	Requests *httpapi.Requests
	// PlainCookies is for browsers on this machine without TLS. A request cannot decide it: a proxy may send any Host.
	PlainCookies bool
	// TrustedProxies are networks whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	UI             http.Handler
	// CheckURL is the address of the check endpoint, for people to copy.
	CheckURL string
	Version  string
	// Closing is closed when the server begins to stop, which ends streams and pauses.
	Closing <-chan struct{}
	// TenantGrace is how long a removed tenant can be restored.
	TenantGrace time.Duration
	// Now is the clock for expiry; nil is time.Now.
	Now func() time.Time
}

// Snapshots has the latest rules in memory, or nil before the first load.
type Snapshots interface {
	Snapshot() *snapshot.Snapshot
}

// Stores reads tenants and their objects.
type Stores interface {
	rules.Reader
	ruleset.Reader
	rules.UserRecords
	rules.ExportReader
	rules.CapacityStore
	rules.JobReader
	traffic.MonthReader
	auth.KeyReader
	auth.AuditLog
	adapt.Reader
}

// Buckets are token buckets that people inspect and change.
type Buckets interface {
	enforce.Buckets
	enforce.Creditor
}

type route struct {
	method, path string
	least        access
	class        class
	handler      http.HandlerFunc
}

// routes has all operations. x reads parameters and calls the surface's method of the same name.
func (s *surface) routes(x *openapi.ServerInterfaceWrapper) []route {
	const (
		v1     = "/api/v1"
		tenant = v1 + "/tenants/{tenant}"
		get    = http.MethodGet
		post   = http.MethodPost
		put    = http.MethodPut
		patch  = http.MethodPatch
		remove = http.MethodDelete
	)
	return []route{
		{get, "/healthz", anyone, light, x.GetHealth},
		{get, "/readyz", anyone, light, x.GetReadiness},
		{get, v1 + "/openapi.yaml", anyone, light, x.GetDescription},
		{get, v1 + "/docs", anyone, light, x.GetReference},

		{get, v1 + "/session", anAccount, light, x.GetSession},
		{post, v1 + "/session", anyone, light, x.SignIn},
		{remove, v1 + "/session", anAccount, light, x.SignOut},
		{post, v1 + "/session/second-factor", anyone, light, x.FinishSignIn},
		{post, v1 + "/session/confirm", anAccount, light, x.ConfirmIdentity},
		{post, v1 + "/session/confirm/provider", anAccount, light, x.ConfirmAtProvider},
		{get, v1 + "/sessions", anAccount, light, x.ListSessions},
		{remove, v1 + "/sessions", anAccount, light, x.SignOutEverywhere},
		{remove, v1 + "/sessions/{session_id}", anAccount, light, x.EndSession},
		{patch, v1 + "/account", anAccount, light, x.UpdateOwnAccount},
		{put, v1 + "/account/password", anAccount, light, x.ChangePassword},
		{get, v1 + "/account/second-factor", anAccount, light, x.GetSecondFactor},
		{post, v1 + "/account/second-factor", anAccount, light, x.BeginSecondFactor},
		{remove, v1 + "/account/second-factor", anAccount, light, x.TurnSecondFactorOff},
		{post, v1 + "/account/second-factor/confirm", anAccount, light, x.TurnSecondFactorOn},
		{post, v1 + "/account/second-factor/recovery-codes", anAccount, light, x.ReplaceRecoveryCodes},
		{post, v1 + "/invitations/look", anyone, light, x.LookAtInvitation},
		{post, v1 + "/invitations/accept", anyone, light, x.AcceptInvitation},
		{get, v1 + "/sign-in", anyone, light, x.GetSignInOptions},
		{post, v1 + "/session/link", anyone, light, x.SignInByLink},
		{post, v1 + "/auth/{provider}/start", anyone, light, x.StartProviderSignIn},
		{get, v1 + "/auth/{provider}/callback", anyone, light, s.finishProviderSignIn},
		{get, v1 + "/auth/{provider}/sign-out", anyone, light, s.signOutAtProvider},
		{get, v1 + "/account/identities", anAccount, light, x.ListIdentities},
		{post, v1 + "/account/identities", anAccount, light, x.LinkIdentity},
		{post, v1 + "/account/identities/{identity_id}/unlink", anAccount, light, x.UnlinkIdentity},
		{get, v1 + "/identity-providers", aPlatformAdmin, light, x.ListIdentityProviders},
		{post, v1 + "/password-reset", anyone, light, x.AskPasswordReset},
		{post, v1 + "/password-reset/finish", anyone, light, x.FinishPasswordReset},
		{post, v1 + "/account/proof", anAccount, light, x.AskAddressProof},
		{post, v1 + "/account/proof/finish", anAccount, light, x.FinishAddressProof},
		{get, v1 + "/mail", aPlatformAdmin, light, x.ListMail},
		{post, v1 + "/mail/test", aPlatformAdmin, light, x.TestMail},
		{get, v1 + "/parked-jobs", aPlatformAdmin, light, x.ListParkedJobs},
		{post, v1 + "/parked-jobs/{job_id}/retry", aPlatformAdmin, light, x.RetryParkedJob},
		{remove, v1 + "/parked-jobs/{job_id}", aPlatformAdmin, light, x.DeleteParkedJob},
		{get, v1 + "/periodic-jobs", aPlatformAdmin, light, x.ListPeriodicJobs},
		{get, v1 + "/accounts", aPlatformAdmin, light, x.ListAccounts},
		{get, v1 + "/accounts/{account_id}", aPlatformAdmin, light, x.GetAccount},
		{patch, v1 + "/accounts/{account_id}", aPlatformAdmin, light, x.UpdateAccount},
		{remove, v1 + "/accounts/{account_id}/sessions", aPlatformAdmin, light, x.EndAccountSessions},
		{get, v1 + "/audit", aPlatformAdmin, light, x.ListPlatformAudit},
		{get, v1 + "/account/security-log", anAccount, light, x.ListOwnSecurityLog},
		{get, v1 + "/security-log", aPlatformAdmin, light, x.ListSecurityLog},
		{get, v1 + "/security-log/export", aPlatformAdmin, bulk, x.ExportSecurityLog},

		{get, v1 + "/service-keys", aPlatformAdmin, light, x.ListServiceKeys},
		{post, v1 + "/service-keys", aPlatformAdmin, light, x.CreateServiceKey},
		{get, v1 + "/service-keys/{key_id}", aPlatformAdmin, light, x.GetServiceKey},
		{post, v1 + "/service-keys/{key_id}/rotate", aPlatformAdmin, light, x.RotateServiceKey},
		{post, v1 + "/service-keys/{key_id}/revoke", aPlatformAdmin, light, x.RevokeServiceKey},
		{post, v1 + "/service-keys/{key_id}/keep", aPlatformAdmin, light, x.KeepServiceKey},

		{get, v1 + "/tenants", aCaller, light, x.ListTenants},
		{post, v1 + "/tenants", aPlatformAdmin, light, x.CreateTenant},
		{get, v1 + "/removed-tenants", aPlatformAdmin, light, x.ListRemovedTenants},
		{post, v1 + "/removed-tenants/{slug}/restore", aPlatformAdmin, light, x.RestoreTenant},
		{get, tenant, aViewer, light, x.GetTenant},
		{patch, tenant, anOwner, light, x.UpdateTenant},
		{remove, tenant, aPlatformAdmin, light, x.DeleteTenant},
		{get, tenant + "/capacity", aViewer, light, x.GetCapacity},
		{put, tenant + "/capacity", aPlatformAdmin, light, x.PutCapacity},
		{post, tenant + "/suspend", aPlatformAdmin, light, x.SuspendTenant},
		{post, tenant + "/resume", aPlatformAdmin, light, x.ResumeTenant},

		{get, tenant + "/plans", aViewer, light, x.ListPlans},
		{post, tenant + "/plans", anEditor, light, x.CreatePlan},
		{get, tenant + "/plans/{plan}", aViewer, light, x.GetPlan},
		{patch, tenant + "/plans/{plan}", anEditor, light, x.UpdatePlan},
		{remove, tenant + "/plans/{plan}", anEditor, light, x.DeletePlan},

		{get, tenant + "/rules", aViewer, light, x.ListRules},
		{post, tenant + "/rules", anEditor, light, x.CreateRule},
		{put, tenant + "/rules", anEditor, light, x.PutRule},
		{get, tenant + "/rules/{rule_id}", aViewer, light, x.GetRule},
		{patch, tenant + "/rules/{rule_id}", anEditor, light, x.UpdateRule},
		{remove, tenant + "/rules/{rule_id}", anEditor, light, x.DeleteRule},
		{post, tenant + "/rules/{rule_id}/promote", anEditor, light, x.PromoteRule},
		{post, tenant + "/rules/{rule_id}/candidate", anEditor, light, x.CreateCandidate},
		{get, tenant + "/rules/{rule_id}/comparison", aViewer, light, x.CompareCandidate},
		{get, tenant + "/scheduled-changes", aViewer, light, x.ListScheduledChanges},
		{post, tenant + "/scheduled-changes", anEditor, light, x.ScheduleChange},
		{get, tenant + "/scheduled-changes/{change_id}", aViewer, light, x.GetScheduledChange},
		{post, tenant + "/scheduled-changes/{change_id}/cancel", anEditor, light, x.CancelScheduledChange},
		{get, tenant + "/matrix", aViewer, light, x.GetMatrix},
		{post, tenant + "/matrix", anEditor, light, x.SaveMatrix},
		{get, tenant + "/adapting", aViewer, light, x.ListAdapting},
		{post, tenant + "/simulate", aViewer, heavy, x.Simulate},
		{post, tenant + "/effect", aViewer, heavy, x.ShowEffect},
		{get, tenant + "/recording", aViewer, light, x.GetRecording},
		{get, tenant + "/replays", aViewer, light, x.ListReplays},
		{post, tenant + "/replays", anEditor, heavy, x.StartReplay},
		{get, tenant + "/replays/{replay_id}", aViewer, light, x.GetReplay},
		{post, tenant + "/replays/{replay_id}/cancel", anEditor, light, x.CancelReplay},
		{post, tenant + "/explain", aViewer, light, s.asJSON(s.explain)},

		{get, tenant + "/gateways/authorize", aViewer, light, x.GetAuthorizeMapping},
		{put, tenant + "/gateways/authorize", anEditor, light, x.PutAuthorizeMapping},
		{remove, tenant + "/gateways/authorize", anEditor, light, x.DeleteAuthorizeMapping},
		{post, tenant + "/gateways/authorize/try", aViewer, light, s.asJSON(s.tryAuthorizeMapping)},
		{get, tenant + "/gateways/descriptors", aViewer, light, x.GetDescriptorMapping},
		{put, tenant + "/gateways/descriptors", anEditor, light, x.PutDescriptorMapping},
		{remove, tenant + "/gateways/descriptors", anEditor, light, x.DeleteDescriptorMapping},
		{post, tenant + "/gateways/descriptors/try", aViewer, light, s.asJSON(s.tryDescriptorMapping)},

		{get, tenant + "/rules/{rule_id}/overrides", aViewer, light, x.ListOverrides},
		{get, tenant + "/rules/{rule_id}/overrides/{user_id}", aViewer, light, x.GetOverride},
		{put, tenant + "/rules/{rule_id}/overrides/{user_id}", anEditor, light, x.PutOverride},
		{remove, tenant + "/rules/{rule_id}/overrides/{user_id}", anEditor, light, x.DeleteOverride},

		{get, tenant + "/overrides", aViewer, light, x.ListTenantOverrides},
		{get, tenant + "/known-users", aViewer, light, x.FindUsers},
		{get, tenant + "/users", aViewer, light, x.ListUsers},
		{post, tenant + "/users/import", anEditor, bulk, x.ImportUsers},
		{get, tenant + "/users/export", aViewer, bulk, x.ExportUsers},
		{post, tenant + "/users/export", aViewer, heavy, x.StartUsersExport},
		{get, tenant + "/users/{user_id}", aViewer, light, x.GetUser},
		{post, tenant + "/users/{user_id}/data", anOwner, heavy, x.ExportUserData},
		{post, tenant + "/users/{user_id}/erase", anOwner, light, x.EraseUser},
		{get, tenant + "/erasures/{receipt_id}", anOwner, light, x.GetErasure},
		{get, tenant + "/exports/{export_id}", aViewer, light, x.GetExport},
		{get, tenant + "/exports/{export_id}/file", aViewer, bulk, x.DownloadExport},
		{put, tenant + "/users/{user_id}/plan", anEditor, light, x.AssignPlan},
		{get, tenant + "/users/{user_id}/story", aViewer, light, x.GetUserStory},
		{get, tenant + "/users/{user_id}/usage", aViewer, light, x.GetUserUsage},
		{get, tenant + "/users/{user_id}/buckets", aViewer, light, x.ListBuckets},
		{post, tenant + "/users/{user_id}/buckets/reset", anEditor, light, x.ResetBucket},
		{post, tenant + "/users/{user_id}/buckets/credit", anEditor, light, x.CreditBucket},

		{get, tenant + "/api-keys", aViewer, light, x.ListKeys},
		{post, tenant + "/api-keys", anOwner, light, x.CreateKey},
		{get, tenant + "/api-keys/{key_id}", aViewer, light, x.GetKey},
		{post, tenant + "/api-keys/{key_id}/rotate", anOwner, light, x.RotateKey},
		{post, tenant + "/api-keys/{key_id}/revoke", anOwner, light, x.RevokeKey},
		{post, tenant + "/api-keys/{key_id}/keep", anOwner, light, x.KeepKey},

		{get, tenant + "/members", aViewer, light, x.ListMembers},
		{get, tenant + "/members/{account_id}", aViewer, light, x.GetMember},
		{patch, tenant + "/members/{account_id}", anOwner, light, x.ChangeRole},
		{remove, tenant + "/members/{account_id}", anOwner, light, x.RemoveMember},
		{get, tenant + "/invitations", aViewer, light, x.ListInvitations},
		{post, tenant + "/invitations", anOwner, light, x.Invite},
		{remove, tenant + "/invitations/{invitation_id}", anOwner, light, x.RevokeInvitation},

		{get, tenant + "/violations", aViewer, heavy, x.ListViolations},
		{get, tenant + "/violations/export", aViewer, bulk, x.ExportViolations},
		{post, tenant + "/violations/export", aViewer, heavy, x.StartViolationsExport},
		{get, tenant + "/violations/tail", aViewer, light, s.tailViolations},
		{get, tenant + "/violations/{violation_id}", aViewer, light, x.GetViolation},
		{get, tenant + "/crossings", aViewer, light, x.ListCrossings},
		{get, tenant + "/stats/series", aViewer, heavy, x.GetSeries},
		{get, tenant + "/stats/violations", aViewer, heavy, x.GetViolationSeries},
		{get, tenant + "/stats/top", aViewer, heavy, x.GetTop},
		{get, tenant + "/stats/present", aViewer, heavy, x.GetPresent},
		{get, tenant + "/stats/busiest", aViewer, heavy, x.GetBusiest},
		{get, tenant + "/stats/summary", aViewer, heavy, x.GetSummary},
		{get, tenant + "/usage/export", aViewer, bulk, x.ExportUsage},
		{post, tenant + "/usage/export", aViewer, heavy, x.StartUsageExport},
		{get, tenant + "/status", aViewer, light, x.GetTenantStatus},

		{get, tenant + "/alerts", aViewer, light, x.ListAlerts},
		{post, tenant + "/alerts", anOwner, light, x.CreateAlert},
		{post, tenant + "/alerts/preview", aViewer, light, x.PreviewAlert},
		{get, tenant + "/alerts/{alert_id}", aViewer, light, x.GetAlert},
		{patch, tenant + "/alerts/{alert_id}", anOwner, light, x.UpdateAlert},
		{remove, tenant + "/alerts/{alert_id}", anOwner, light, x.DeleteAlert},
		{put, tenant + "/alerts/{alert_id}/silence", anOwner, light, x.SilenceAlert},
		{remove, tenant + "/alerts/{alert_id}/silence", anOwner, light, x.EndSilence},
		{post, tenant + "/alerts/{alert_id}/rotate", anOwner, light, x.RotateAlertSecret},
		{post, tenant + "/alerts/{alert_id}/test", anOwner, light, x.TestAlert},
		{get, tenant + "/alerts/{alert_id}/deliveries", aViewer, light, x.ListAlertDeliveries},
		{post, tenant + "/alerts/{alert_id}/deliveries/{delivery_id}/retry", anOwner, light, x.RetryAlertDelivery},

		{get, tenant + "/audit", aViewer, light, x.ListAudit},
		{get, tenant + "/audit/export", aViewer, bulk, x.ExportAudit},
		{post, tenant + "/audit/export", aViewer, heavy, x.StartAuditExport},
		{get, tenant + "/audit/{audit_id}", aViewer, light, x.GetAuditEntry},
		{get, tenant + "/audit-webhook", aViewer, light, x.GetAuditWebhook},
		{post, tenant + "/audit-webhook", anOwner, light, x.CreateAuditWebhook},
		{patch, tenant + "/audit-webhook", anOwner, light, x.UpdateAuditWebhook},
		{remove, tenant + "/audit-webhook", anOwner, light, x.DeleteAuditWebhook},
		{post, tenant + "/audit-webhook/rotate", anOwner, light, x.RotateAuditSecret},
		{post, tenant + "/audit-webhook/test", anOwner, light, x.TestAuditWebhook},
		{get, tenant + "/security-log", anOwner, light, x.ListTenantSecurityLog},
		{post, tenant + "/audit/{audit_id}/revert", anEditor, light, x.RevertChange},
		{get, tenant + "/export", aViewer, bulk, x.ExportConfig},
		{post, tenant + "/import", anEditor, bulk, x.ImportConfig},

		{get, v1 + "/status", aPlatformAdmin, light, x.GetStatus},
	}
}

// NewHandler returns the whole surface. Every route must be described in openapi.yaml.
func NewHandler(c Config) (http.Handler, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.LeastDownloadRate = cmp.Or(c.LeastDownloadRate, leastRate)
	description, err := readDescription()
	if err != nil {
		return nil, err
	}
	if check := c.CheckTarget; check != nil {
		c.CheckTarget = func(ctx context.Context, url string) error { // name servers may be slow
			return requestOf(ctx).slot.Away(ctx, func() error { return check(ctx, url) })
		}
	}
	s := &surface{
		Config: c, started: c.Now(), origins: http.NewCrossOriginProtection(),
		semaphores: newSemaphores(cmp.Or(c.Connections, usualConnections)),
	}
	if c.ObserveShares != nil {
		s.observe(c.ObserveShares)
	}
	compress, err := newCompressor()
	if err != nil {
		return nil, err
	}
	x := &openapi.ServerInterfaceWrapper{
		Handler: openapi.NewStrictHandlerWithOptions(s, nil, openapi.StrictHTTPServerOptions{
			RequestErrorHandlerFunc:  s.handlerFailed,
			ResponseErrorHandlerFunc: s.handlerFailed,
		}),
		ErrorHandlerFunc: s.handlerFailed,
	}
	// A path is matched as sent, so that %2F in a user id is not a slash and ".." is a user id.
	router := mux.NewRouter().UseEncodedPath().SkipClean(true)
	for _, r := range s.routes(x) {
		operation, err := describe(description, r.method, r.path, r.least)
		if err != nil {
			return nil, err
		}
		handle := s.requests(operation).Route(r.path, s.guard(r, operation))
		if compresses(r, operation) {
			handle = compress(handle)
		}
		methods := []string{r.method}
		if r.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		router.Handle(r.path, decodePath(handle)).Methods(methods...)
	}
	httpapi.AnswerUnmatched(router, c.Requests)
	return s.beside(s.secure(router)), nil
}

// beside matches paths as they were sent, as the router does.
func (s *surface) beside(own http.Handler) http.Handler {
	if s.UI == nil {
		return own
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		if strings.HasPrefix(path, "/api/") || path == "/healthz" || path == "/readyz" {
			own.ServeHTTP(w, r)
			return
		}
		s.UI.ServeHTTP(w, r)
	})
}

func decodePath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		vars := mux.Vars(r)
		for name, value := range vars {
			decoded, err := url.PathUnescape(value)
			if err != nil { // cannot happen: net/http refuses such a path
				decoded = value
			}
			vars[name] = decoded
		}
		next.ServeHTTP(w, r)
	})
}

func pathParams(r *http.Request) map[string]string { return mux.Vars(r) }

func (s *surface) requests(o *operation) *httpapi.Requests {
	surrounding := *s.Requests
	if o.isLong() {
		surrounding.Deadline = 0
	}
	return &surrounding
}

type surface struct {
	Config
	started time.Time
	origins *http.CrossOriginProtection
	semaphores
	verified verified
}

var _ openapi.StrictServerInterface = (*surface)(nil)

func location(format string, names ...any) string {
	for i, name := range names {
		names[i] = url.PathEscape(fmt.Sprint(name))
	}
	return fmt.Sprintf("/api/v1/"+format, names...)
}
