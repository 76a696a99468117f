package adminapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/api"
	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/oidc"
	"github.com/sluicegate/sluice/internal/oidc/oidctest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/store/redisbucket"
	"github.com/sluicegate/sluice/internal/telemetry/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(devdbtest.Main(m)) }

const (
	password = "a password nobody would guess"
	loopback = "http://127.0.0.1:8081"
	// patience bounds what is quick unless the machine is busy.
	patience = time.Minute
)

// passwordHash is the hash of every account's password, made once because hashing is slow.
var passwordHash = sync.OnceValue(func() string { return auth.HashPassword(password) })

var description = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromData(api.Description)
})

// world is the whole surface on a database and a Redis of its own. The tenants acme and other own the same objects,
// closed is suspended, and strict requires a second factor. Requests sent through do are validated against
// openapi.yaml.
type world struct {
	t           testing.TB
	handler     http.Handler
	description *openapi3.T
	url         string // of the database
	store       *pgstore.Store
	gate        *auth.Gate
	watcher     *snapshot.Watcher
	buckets     *redisbucket.Store
	metrics     *metrics.Metrics
	access      *auth.AccessLog
	provider    *oidctest.Provider
	log         lockedBuffer

	acme, other, closed, strict rules.Tenant

	made    int      // to name things by
	secrets []string // of whatever was made

	answering sync.Mutex
	answers   []answer
}

type answer struct {
	operation string
	status    int
	header    http.Header
	body      string
}

type lockedBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.Buffer.Write(p)
}

var founded []rules.Tenant

func newWorld(t testing.TB, change ...func(*adminapi.Config)) *world {
	t.Helper()
	w := &world{t: t}
	log := slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.url = devdbtest.Prepared(t, "world", func(url string) {
		w.store = must(pgstore.Open(t.Context(), url, log))(t)
		defer w.store.Close()
		w.acme, w.other, w.closed = w.tenant("acme"), w.tenant("other"), w.tenant("closed")
		w.suspend(&w.closed)
		w.strict = w.tenant("strict")
		w.strict.Settings.RequireSecondFactor = true
		w.strict = must(w.system().UpdateTenant(w.ctx(), w.strict))(t)
		founded = []rules.Tenant{w.acme, w.other, w.closed, w.strict}
	})
	w.acme, w.other, w.closed, w.strict = founded[0], founded[1], founded[2], founded[3]
	w.store = must(pgstore.Open(t.Context(), w.url, log))(t)
	t.Cleanup(w.store.Close)
	client := redis.NewUniversalClient(must(redisbucket.Options(devdbtest.Redis(t).URL(), patience))(t))
	t.Cleanup(func() { _ = client.Close() })
	buckets := redisbucket.New(client, patience)
	w.buckets = buckets
	w.watcher = snapshot.NewWatcher(w.store,
		snapshot.WatcherOptions{PollInterval: time.Second, RereadInterval: time.Minute, Logger: log})
	vault := must(auth.NewVault("c2l4dGVlbiBieXRlcyBhbmQgc2l4dGVlbiBtb3JlISE="))(t)
	w.store.SealWith(vault)
	w.gate = auth.NewGate(w.store, auth.Options{Mail: true, Vault: vault})
	w.metrics = metrics.New("test", "test")
	w.description = must(description())(t)
	limiter := enforce.NewLimiter(buckets, membucket.New(membucket.Options{}), w.metrics.Decisions("redis"), nil)
	w.access = auth.NewAccessLog(w.store, log, time.Now)
	config := adminapi.Config{
		Access: w.access, AccessEvents: w.store,
		Stores: w.store, As: w.store.As,
		People: w.store, Idempotency: w.store, Gate: w.gate, Violations: w.store, Alerts: w.store,
		AuditWebhooks: w.store,
		Fleet:         w.store, Recorded: w.store, TrafficBudget: 1 << 20, Version: "test", Snapshots: w.watcher,
		Buckets: buckets,
		KeyUsed: func(*snapshot.Key, time.Time) {}, PlainCookies: true,
		CheckTarget: func(_ context.Context, url string) error {
			if strings.Contains(url, "//10.") {
				return errors.New("not public")
			}
			return nil
		},
		Explain: func(ctx context.Context, tenant *snapshot.Tenant, body []byte) ([]byte, error) {
			return checkjson.Explain(ctx, limiter, body, tenant, time.Now())
		},
		ExplainCheck: func(ctx context.Context, tenant *snapshot.Tenant, check enforce.Check) ([]byte, error) {
			return checkjson.ExplainCheck(ctx, limiter, check, tenant, time.Now())
		},
		Readiness: func() httpapi.Readiness {
			return httpapi.Readiness{Open: true, RulesLoaded: true, Database: "up", Redis: "up"}
		},
		Requests: &httpapi.Requests{Log: log, Observer: w.metrics.Requests("admin"), Deadline: 20 * time.Second},
	}
	w.provider = oidctest.Start(t)
	config.Providers = must(oidc.New([]oidc.Settings{w.provider.Settings("idp")},
		oidc.Options{URL: func() string { return loopback }}))(t)
	for _, f := range change {
		f(&config)
	}
	w.handler = must(adminapi.NewHandler(config))(t)
	w.refresh()
	return w
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func (w *world) system() pgstore.Writer {
	return w.store.As(rules.Actor{Kind: rules.ActorSystem, Name: "test"})
}

func (w *world) ctx() context.Context { return w.t.Context() }

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	connection := must(pgx.Connect(w.ctx(), w.url))(w.t)
	defer func() { _ = connection.Close(context.WithoutCancel(w.ctx())) }()
	if _, err := connection.Exec(w.ctx(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) count(sql string) (n int) {
	w.t.Helper()
	connection := must(pgx.Connect(w.ctx(), w.url))(w.t)
	defer func() { _ = connection.Close(context.WithoutCancel(w.ctx())) }()
	if err := connection.QueryRow(w.ctx(), sql).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) work(kinds ...jobs.Kind) {
	w.t.Helper()
	w.exec("UPDATE job SET next_run_at = now() WHERE state = 'waiting' AND lease_ends_at IS NULL")
	w.round(kinds...)
}

func (w *world) round(kinds ...jobs.Kind) {
	w.t.Helper()
	runner := jobs.New(w.store, kinds, slog.New(slog.NewTextHandler(&w.log, nil)))
	if err := runner.Round(w.ctx()); err != nil {
		w.t.Fatal(err)
	}
	runner.Wait()
}

func (w *world) refresh() {
	w.t.Helper()
	if err := w.watcher.Refresh(w.ctx()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) name(what string) string {
	w.made++
	return fmt.Sprintf("%s-%d", what, w.made)
}

func (w *world) tenant(slug string) rules.Tenant {
	w.t.Helper()
	return must(w.system().CreateTenant(w.ctx(), rules.Tenant{
		Slug: slug, Name: slug, DefaultPlan: "free", Settings: rules.DefaultSettings(),
	}))(w.t)
}

func (w *world) suspend(tenant *rules.Tenant) {
	w.t.Helper()
	tenant.Suspended = true
	*tenant = must(w.system().UpdateTenant(w.ctx(), *tenant))(w.t)
}

func (w *world) rule(tenant rules.Tenant, change ...func(*rules.Rule)) rules.Rule {
	w.t.Helper()
	rule := rules.Rule{
		TenantID: tenant.ID, Name: w.name("rule"), Pattern: must(rules.ParsePattern("user:{user_id}"))(w.t),
		RatePerSecond: 1, RateUnit: rules.PerSecond, Burst: 10, Algorithm: rules.TokenBucket, Mode: rules.ModeShadow,
		Action: rules.ActionLimit, Active: true,
	}
	for _, f := range change {
		f(&rule)
	}
	// A pattern takes 64 rules of a plan, and tests make more.
	return must(w.system().CreateRule(w.ctx(), rule))(w.t)
}

func (w *world) plan(tenant rules.Tenant) string {
	w.t.Helper()
	return must(w.system().CreatePlan(w.ctx(), rules.Plan{TenantID: tenant.ID, Name: w.name("plan")}))(w.t).Name
}

func (w *world) key(tenant rules.Tenant, permissions ...auth.Permission) (id, token string) {
	w.t.Helper()
	token, id, digest := auth.NewKeyToken()
	must(w.system().CreateKey(w.ctx(), auth.NamedKey{
		Key:  auth.Key{ID: id, TenantID: tenant.ID, Digest: digest, Permissions: permissions},
		Name: w.name("key"),
	}))(w.t)
	w.secrets = append(w.secrets, token)
	return id, token
}

func (w *world) account(isPlatformAdmin bool) auth.Account {
	w.t.Helper()
	return must(w.store.CreateAccount(w.ctx(), rules.Actor{Kind: rules.ActorSystem, Name: "test"}, auth.Account{
		Email: w.name("person") + "@example.com", Name: "Somebody", PlatformAdmin: isPlatformAdmin,
	}, passwordHash()))(w.t)
}

func (w *world) member(tenant rules.Tenant, account auth.Account, role auth.Role) {
	w.t.Helper()
	must(w.store.AddMember(w.ctx(), rules.Actor{Kind: rules.ActorSystem}, tenant.ID, account.ID, role))(w.t)
}

func (w *world) session(account auth.Account) (token string, id int64) {
	w.t.Helper()
	var random [32]byte
	_, _ = rand.Read(random[:])
	token = base64.RawURLEncoding.EncodeToString(random[:])
	session := must(w.store.CreateSession(w.ctx(), auth.NewSession{
		Session: auth.Session{Account: account, SecondFactor: true}, Token: sha256.Sum256([]byte(token)),
		PasswordHash: passwordHash(),
	}, auth.Live{}))(w.t)
	w.secrets = append(w.secrets, token)
	return token, session.ID
}

type caller struct {
	account      auth.Account
	session, key string // tokens
	sessionID    int64
}

func (w *world) person(tenant rules.Tenant, role auth.Role) caller {
	w.t.Helper()
	account := w.account(false)
	w.member(tenant, account, role)
	return w.signedIn(account)
}

func (w *world) signedIn(account auth.Account) caller {
	w.t.Helper()
	token, id := w.session(account)
	return caller{account: account, session: token, sessionID: id}
}

func (w *world) platformAdmin() caller { return w.signedIn(w.account(true)) }
