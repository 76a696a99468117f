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

// Config has the dependencies of the surface. Access, Buckets, CapacityRefused, CheckTarget, CheckURL, Closing,
// Connections, LeastDownloadRate, Now, ObserveShares, PlainCookies, Providers, RateLimiter, TrustedProxies and UI are
// optional.
type Config struct {
	Stores Stores
	// As returns a Writer in the name of an actor.
	As     func(by rules.Actor) pgstore.Writer
	People auth.Store
	// Access logs who got in and who did not; may be nil.
	Access *auth.AccessLog
	// AccessEvents reads what Access has stored.
	AccessEvents auth.AccessStore
	// Idempotency remembers requests that may be repeated.
	Idempotency auth.IdempotencyStore
	Gate        *auth.Gate
	// Providers are where people can sign in beside their password; nil for none.
	Providers *oidc.Providers
	// Violations are read here; Fleet has the state of the processes that record them.
	Violations violations.Store
	Alerts     violations.AlertStore
	// AuditWebhooks are where audit logs are sent.
	AuditWebhooks auth.AuditWebhookStore
	// CheckTarget returns an error for a URL that webhooks may not be sent to.
	CheckTarget func(ctx context.Context, url string) error
	Fleet       fleet.Store
	// Recorded has recorded checks and replays of them.
	Recorded replay.Reader
	// TrafficBudget is how many bytes of recorded checks a tenant may have.
	TrafficBudget int64
	// Snapshots has the rules in memory, for API keys and users' buckets.
	Snapshots Snapshots
	// KeyUsed is called after each authentication by key; it must not wait.
	KeyUsed func(key *snapshot.Key, at time.Time)
	// Explain answers /explain for the check in a body, by the code of /v1/explain.
	Explain func(ctx context.Context, tenant *snapshot.Tenant, body []byte) ([]byte, error)
	// ExplainCheck is Explain for the check that a gateway's request becomes.
	ExplainCheck func(ctx context.Context, tenant *snapshot.Tenant, check enforce.Check) ([]byte, error)
	// Buckets decide checks; nil if they are in the memory of other processes.
	Buckets Buckets
	// CapacityRefused counts writes beyond a tenant's capacity; may be nil.
	CapacityRefused func(rules.Thing)
	// Connections is how many connections to the database the stores may have; 0 is 20.
	Connections int
	// LeastDownloadRate is how many bytes of a file its reader must take a second, on average; 0 is 64 KiB.
	LeastDownloadRate int64
	// ObserveShares is called once for each semaphore, with a function that counts its use; may be nil.
	ObserveShares func(class string, count func() shares.Count)
	// RateLimiter limits the requests of each tenant, account and network; nil for no limits.
	RateLimiter *RateLimiter
	// Readiness must answer at once, from memory.
	Readiness func() httpapi.Readiness
	// Requests wraps every route. Its Deadline does not apply to exports and imports.
	Requests *httpapi.Requests
	// PlainCookies is for browsers on this machine without TLS: cookies lack the prefix __Host- and Secure. Requests
	// cannot decide it: a proxy may send a loopback address as the Host of requests from anywhere.
	PlainCookies bool
	// TrustedProxies are networks whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// UI answers paths outside of the API; nil for nothing.
	UI http.Handler
	// CheckURL is the address of the check endpoint, for people to copy; "" if it is unknown.
	CheckURL string
	// Version is the program's version.
	Version string
	// Closing is closed when the server begins to stop, which ends streams and pauses; nil for never.
	Closing <-chan struct{}
	// TenantGrace is how long a removed tenant can be restored.
	TenantGrace time.Duration
	// Now is the clock for the expiry of keys and overrides; nil is time.Now.
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
	handler      http.HandlerFunc
}

// routes lists all operations. x is the generated code that reads parameters and calls the surface's method of the same
// name.
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
		{get, "/healthz", anyone, x.GetHealth},
		{get, "/readyz", anyone, x.GetReadiness},
		{get, v1 + "/openapi.yaml", anyone, x.GetDescription},
		{get, v1 + "/docs", anyone, x.GetReference},

		{get, v1 + "/session", anAccount, x.GetSession},
		{post, v1 + "/session", anyone, x.SignIn},
		{remove, v1 + "/session", anAccount, x.SignOut},
		{post, v1 + "/session/second-factor", anyone, x.FinishSignIn},
		{post, v1 + "/session/confirm", anAccount, x.ConfirmIdentity},
		{post, v1 + "/session/confirm/provider", anAccount, x.ConfirmAtProvider},
		{get, v1 + "/sessions", anAccount, x.ListSessions},
		{remove, v1 + "/sessions", anAccount, x.SignOutEverywhere},
		{remove, v1 + "/sessions/{session_id}", anAccount, x.EndSession},
		{patch, v1 + "/account", anAccount, x.UpdateOwnAccount},
		{put, v1 + "/account/password", anAccount, x.ChangePassword},
		{get, v1 + "/account/second-factor", anAccount, x.GetSecondFactor},
		{post, v1 + "/account/second-factor", anAccount, x.BeginSecondFactor},
		{remove, v1 + "/account/second-factor", anAccount, x.TurnSecondFactorOff},
		{post, v1 + "/account/second-factor/confirm", anAccount, x.TurnSecondFactorOn},
		{post, v1 + "/account/second-factor/recovery-codes", anAccount, x.ReplaceRecoveryCodes},
		{post, v1 + "/invitations/look", anyone, x.LookAtInvitation},
		{post, v1 + "/invitations/accept", anyone, x.AcceptInvitation},
		{get, v1 + "/sign-in", anyone, x.GetSignInOptions},
		{post, v1 + "/session/link", anyone, x.SignInByLink},
		{post, v1 + "/auth/{provider}/start", anyone, x.StartProviderSignIn},
		{get, v1 + "/auth/{provider}/callback", anyone, s.finishProviderSignIn},
		{get, v1 + "/auth/{provider}/sign-out", anyone, s.signOutAtProvider},
		{get, v1 + "/account/identities", anAccount, x.ListIdentities},
		{post, v1 + "/account/identities", anAccount, x.LinkIdentity},
		{post, v1 + "/account/identities/{identity_id}/unlink", anAccount, x.UnlinkIdentity},
		{get, v1 + "/identity-providers", aPlatformAdmin, x.ListIdentityProviders},
		{post, v1 + "/password-reset", anyone, x.AskPasswordReset},
		{post, v1 + "/password-reset/finish", anyone, x.FinishPasswordReset},
		{post, v1 + "/account/proof", anAccount, x.AskAddressProof},
		{post, v1 + "/account/proof/finish", anAccount, x.FinishAddressProof},
		{get, v1 + "/mail", aPlatformAdmin, x.ListMail},
		{post, v1 + "/mail/test", aPlatformAdmin, x.TestMail},
		{get, v1 + "/parked-jobs", aPlatformAdmin, x.ListParkedJobs},
		{post, v1 + "/parked-jobs/{job_id}/retry", aPlatformAdmin, x.RetryParkedJob},
		{remove, v1 + "/parked-jobs/{job_id}", aPlatformAdmin, x.DeleteParkedJob},
		{get, v1 + "/periodic-jobs", aPlatformAdmin, x.ListPeriodicJobs},
		{get, v1 + "/accounts", aPlatformAdmin, x.ListAccounts},
		{get, v1 + "/accounts/{account_id}", aPlatformAdmin, x.GetAccount},
		{patch, v1 + "/accounts/{account_id}", aPlatformAdmin, x.UpdateAccount},
		{remove, v1 + "/accounts/{account_id}/sessions", aPlatformAdmin, x.EndAccountSessions},
		{get, v1 + "/audit", aPlatformAdmin, x.ListPlatformAudit},
		{get, v1 + "/account/security-log", anAccount, x.ListOwnSecurityLog},
		{get, v1 + "/security-log", aPlatformAdmin, x.ListSecurityLog},
		{get, v1 + "/security-log/export", aPlatformAdmin, x.ExportSecurityLog},

		{get, v1 + "/service-keys", aPlatformAdmin, x.ListServiceKeys},
		{post, v1 + "/service-keys", aPlatformAdmin, x.CreateServiceKey},
		{get, v1 + "/service-keys/{key_id}", aPlatformAdmin, x.GetServiceKey},
		{post, v1 + "/service-keys/{key_id}/rotate", aPlatformAdmin, x.RotateServiceKey},
		{post, v1 + "/service-keys/{key_id}/revoke", aPlatformAdmin, x.RevokeServiceKey},
		{post, v1 + "/service-keys/{key_id}/keep", aPlatformAdmin, x.KeepServiceKey},

		{get, v1 + "/tenants", aCaller, x.ListTenants},
		{post, v1 + "/tenants", aPlatformAdmin, x.CreateTenant},
		{get, v1 + "/removed-tenants", aPlatformAdmin, x.ListRemovedTenants},
		{post, v1 + "/removed-tenants/{slug}/restore", aPlatformAdmin, x.RestoreTenant},
		{get, tenant, aViewer, x.GetTenant},
		{patch, tenant, anOwner, x.UpdateTenant},
		{remove, tenant, aPlatformAdmin, x.DeleteTenant},
		{get, tenant + "/capacity", aViewer, x.GetCapacity},
		{put, tenant + "/capacity", aPlatformAdmin, x.PutCapacity},
		{post, tenant + "/suspend", aPlatformAdmin, x.SuspendTenant},
		{post, tenant + "/resume", aPlatformAdmin, x.ResumeTenant},

		{get, tenant + "/plans", aViewer, x.ListPlans},
		{post, tenant + "/plans", anEditor, x.CreatePlan},
		{get, tenant + "/plans/{plan}", aViewer, x.GetPlan},
		{patch, tenant + "/plans/{plan}", anEditor, x.UpdatePlan},
		{remove, tenant + "/plans/{plan}", anEditor, x.DeletePlan},

		{get, tenant + "/rules", aViewer, x.ListRules},
		{post, tenant + "/rules", anEditor, x.CreateRule},
		{put, tenant + "/rules", anEditor, x.PutRule},
		{get, tenant + "/rules/{rule_id}", aViewer, x.GetRule},
		{patch, tenant + "/rules/{rule_id}", anEditor, x.UpdateRule},
		{remove, tenant + "/rules/{rule_id}", anEditor, x.DeleteRule},
		{post, tenant + "/rules/{rule_id}/promote", anEditor, x.PromoteRule},
		{post, tenant + "/rules/{rule_id}/candidate", anEditor, x.CreateCandidate},
		{get, tenant + "/rules/{rule_id}/comparison", aViewer, x.CompareCandidate},
		{get, tenant + "/scheduled-changes", aViewer, x.ListScheduledChanges},
		{post, tenant + "/scheduled-changes", anEditor, x.ScheduleChange},
		{get, tenant + "/scheduled-changes/{change_id}", aViewer, x.GetScheduledChange},
		{post, tenant + "/scheduled-changes/{change_id}/cancel", anEditor, x.CancelScheduledChange},
		{get, tenant + "/matrix", aViewer, x.GetMatrix},
		{post, tenant + "/matrix", anEditor, x.SaveMatrix},
		{get, tenant + "/adapting", aViewer, x.ListAdapting},
		{post, tenant + "/simulate", aViewer, x.Simulate},
		{post, tenant + "/effect", aViewer, x.ShowEffect},
		{get, tenant + "/recording", aViewer, x.GetRecording},
		{get, tenant + "/replays", aViewer, x.ListReplays},
		{post, tenant + "/replays", anEditor, x.StartReplay},
		{get, tenant + "/replays/{replay_id}", aViewer, x.GetReplay},
		{post, tenant + "/replays/{replay_id}/cancel", anEditor, x.CancelReplay},
		{post, tenant + "/explain", aViewer, s.explainCheck},

		{get, tenant + "/gateways/authorize", aViewer, x.GetAuthorizeMapping},
		{put, tenant + "/gateways/authorize", anEditor, x.PutAuthorizeMapping},
		{remove, tenant + "/gateways/authorize", anEditor, x.DeleteAuthorizeMapping},
		{post, tenant + "/gateways/authorize/try", aViewer, s.tryAuthorizeMapping},
		{get, tenant + "/gateways/descriptors", aViewer, x.GetDescriptorMapping},
		{put, tenant + "/gateways/descriptors", anEditor, x.PutDescriptorMapping},
		{remove, tenant + "/gateways/descriptors", anEditor, x.DeleteDescriptorMapping},
		{post, tenant + "/gateways/descriptors/try", aViewer, s.tryDescriptorMapping},

		{get, tenant + "/rules/{rule_id}/overrides", aViewer, x.ListOverrides},
		{get, tenant + "/rules/{rule_id}/overrides/{user_id}", aViewer, x.GetOverride},
		{put, tenant + "/rules/{rule_id}/overrides/{user_id}", anEditor, x.PutOverride},
		{remove, tenant + "/rules/{rule_id}/overrides/{user_id}", anEditor, x.DeleteOverride},

		{get, tenant + "/overrides", aViewer, x.ListTenantOverrides},
		{get, tenant + "/known-users", aViewer, x.FindUsers},
		{get, tenant + "/users", aViewer, x.ListUsers},
		{post, tenant + "/users/import", anEditor, x.ImportUsers},
		{get, tenant + "/users/export", aViewer, x.ExportUsers},
		{post, tenant + "/users/export", aViewer, x.StartUsersExport},
		{get, tenant + "/users/{user_id}", aViewer, x.GetUser},
		{post, tenant + "/users/{user_id}/data", anOwner, x.ExportUserData},
		{post, tenant + "/users/{user_id}/erase", anOwner, x.EraseUser},
		{get, tenant + "/erasures/{receipt_id}", anOwner, x.GetErasure},
		{get, tenant + "/exports/{export_id}", aViewer, x.GetExport},
		{get, tenant + "/exports/{export_id}/file", aViewer, x.DownloadExport},
		{put, tenant + "/users/{user_id}/plan", anEditor, x.AssignPlan},
		{get, tenant + "/users/{user_id}/story", aViewer, x.GetUserStory},
		{get, tenant + "/users/{user_id}/usage", aViewer, x.GetUserUsage},
		{get, tenant + "/users/{user_id}/buckets", aViewer, x.ListBuckets},
		{post, tenant + "/users/{user_id}/buckets/reset", anEditor, x.ResetBucket},
		{post, tenant + "/users/{user_id}/buckets/credit", anEditor, x.CreditBucket},

		{get, tenant + "/api-keys", aViewer, x.ListKeys},
		{post, tenant + "/api-keys", anOwner, x.CreateKey},
		{get, tenant + "/api-keys/{key_id}", aViewer, x.GetKey},
		{post, tenant + "/api-keys/{key_id}/rotate", anOwner, x.RotateKey},
		{post, tenant + "/api-keys/{key_id}/revoke", anOwner, x.RevokeKey},
		{post, tenant + "/api-keys/{key_id}/keep", anOwner, x.KeepKey},

		{get, tenant + "/members", aViewer, x.ListMembers},
		{get, tenant + "/members/{account_id}", aViewer, x.GetMember},
		{patch, tenant + "/members/{account_id}", anOwner, x.ChangeRole},
		{remove, tenant + "/members/{account_id}", anOwner, x.RemoveMember},
		{get, tenant + "/invitations", aViewer, x.ListInvitations},
		{post, tenant + "/invitations", anOwner, x.Invite},
		{remove, tenant + "/invitations/{invitation_id}", anOwner, x.RevokeInvitation},

		{get, tenant + "/violations", aViewer, x.ListViolations},
		{get, tenant + "/violations/export", aViewer, x.ExportViolations},
		{post, tenant + "/violations/export", aViewer, x.StartViolationsExport},
		{get, tenant + "/violations/tail", aViewer, s.tailViolations},
		{get, tenant + "/violations/{violation_id}", aViewer, x.GetViolation},
		{get, tenant + "/crossings", aViewer, x.ListCrossings},
		{get, tenant + "/stats/series", aViewer, x.GetSeries},
		{get, tenant + "/stats/violations", aViewer, x.GetViolationSeries},
		{get, tenant + "/stats/top", aViewer, x.GetTop},
		{get, tenant + "/stats/present", aViewer, x.GetPresent},
		{get, tenant + "/stats/busiest", aViewer, x.GetBusiest},
		{get, tenant + "/stats/summary", aViewer, x.GetSummary},
		{get, tenant + "/usage/export", aViewer, x.ExportUsage},
		{post, tenant + "/usage/export", aViewer, x.StartUsageExport},
		{get, tenant + "/status", aViewer, x.GetTenantStatus},

		{get, tenant + "/alerts", aViewer, x.ListAlerts},
		{post, tenant + "/alerts", anOwner, x.CreateAlert},
		{post, tenant + "/alerts/preview", aViewer, x.PreviewAlert},
		{get, tenant + "/alerts/{alert_id}", aViewer, x.GetAlert},
		{patch, tenant + "/alerts/{alert_id}", anOwner, x.UpdateAlert},
		{remove, tenant + "/alerts/{alert_id}", anOwner, x.DeleteAlert},
		{put, tenant + "/alerts/{alert_id}/silence", anOwner, x.SilenceAlert},
		{remove, tenant + "/alerts/{alert_id}/silence", anOwner, x.EndSilence},
		{post, tenant + "/alerts/{alert_id}/rotate", anOwner, x.RotateAlertSecret},
		{post, tenant + "/alerts/{alert_id}/test", anOwner, x.TestAlert},
		{get, tenant + "/alerts/{alert_id}/deliveries", aViewer, x.ListAlertDeliveries},
		{post, tenant + "/alerts/{alert_id}/deliveries/{delivery_id}/retry", anOwner, x.RetryAlertDelivery},

		{get, tenant + "/audit", aViewer, x.ListAudit},
		{get, tenant + "/audit/export", aViewer, x.ExportAudit},
		{post, tenant + "/audit/export", aViewer, x.StartAuditExport},
		{get, tenant + "/audit/{audit_id}", aViewer, x.GetAuditEntry},
		{get, tenant + "/audit-webhook", aViewer, x.GetAuditWebhook},
		{post, tenant + "/audit-webhook", anOwner, x.CreateAuditWebhook},
		{patch, tenant + "/audit-webhook", anOwner, x.UpdateAuditWebhook},
		{remove, tenant + "/audit-webhook", anOwner, x.DeleteAuditWebhook},
		{post, tenant + "/audit-webhook/rotate", anOwner, x.RotateAuditSecret},
		{post, tenant + "/audit-webhook/test", anOwner, x.TestAuditWebhook},
		{get, tenant + "/security-log", anOwner, x.ListTenantSecurityLog},
		{post, tenant + "/audit/{audit_id}/revert", anEditor, x.RevertChange},
		{get, tenant + "/export", aViewer, x.ExportConfig},
		{post, tenant + "/import", anEditor, x.ImportConfig},

		{get, v1 + "/status", aPlatformAdmin, x.GetStatus},
	}
}

// NewHandler returns the whole surface. Every route must be described in openapi.yaml.
func NewHandler(c Config) (http.Handler, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
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
	// A path is matched as it was sent, so that %2F in a user id is not a slash. Paths are not cleaned, because user
	// ids may be "..".
	router := mux.NewRouter().UseEncodedPath().SkipClean(true)
	for _, r := range s.routes(x) {
		operation, err := describe(description, r.method, r.path, r.least)
		if err != nil {
			return nil, err
		}
		handle := s.requests(r, operation).Route(r.path, s.guard(r, operation))
		if compresses(r.method, r.path) {
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

// beside lets the UI answer paths outside of the API, matched as they were sent, as the router does.
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

func (s *surface) requests(rt route, o *operation) *httpapi.Requests {
	surrounding := *s.Requests
	if o.isLong() || classOf(rt, o) == bulk {
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
