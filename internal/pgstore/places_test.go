package pgstore_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// TestRequestsLeaveConnectionsToTheProgram holds the connections that requests may have: 12 of 20, beside 4 for lookups.
func TestRequestsLeaveConnectionsToTheProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	account := must(w.CreateAccount(t.Context(), tester, auth.Account{Email: "a@example.com", Name: "A"}, "hash"))(t)
	var tenants []rules.TenantID
	for i := range 5 {
		made := must(w.CreateTenant(t.Context(), rules.Tenant{
			Slug: fmt.Sprintf("tenant-%d", i), Name: "T", DefaultPlan: "free", Settings: rules.DefaultSettings(),
		}))(t)
		tenants = append(tenants, made.ID)
	}
	for _, class := range []string{"read", "heavy", "write", "bulk"} {
		w.LimitClass(class, time.Hour) // who holds a connection keeps it until the end, however slow the machine is
	}
	watching, holding := connect(t, w.url), connect(t, w.url)
	locked := must(holding.Begin(t.Context()))(t)
	must(locked.Exec(t.Context(), "LOCK TABLE audit_event, rate_limit_violation, plan_assignment IN ACCESS EXCLUSIVE MODE"))(t)
	requests, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for i, tenant := range tenants {
		for j := range 4 {
			ctx := shares.With(requests, shares.Caller{Tenant: tenant, Account: fmt.Sprintf("%d-%d", i, j)})
			group.Go(func() { _, _ = w.AuditEntry(ctx, tenant, 1) })
			group.Go(func() { _, _, _ = w.Audit(ctx, tenant, auth.AuditFilter{}, auth.AuditCursor{}, 1) })
			group.Go(func() { _, _ = w.CreatePlan(ctx, rules.Plan{TenantID: tenant, Name: fmt.Sprintf("plan-%d", j)}) })
			group.Go(func() { _, _ = w.AssignAll(ctx, tenant, onPlan("free", "1")) })
		}
	}
	held := 0
	for deadline := time.Now().Add(time.Minute); held < 10 && time.Now().Before(deadline); {
		err := watching.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&held)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Read(t.Context(), w.revisions(t), func(snapshot.Rows) error { return nil }); err != nil {
		t.Errorf("the Watcher cannot read with %d connections held: %v", held, err)
	}
	if _, _, err := w.PasswordOf(t.Context(), account.Email, ""); err != nil {
		t.Errorf("nobody can sign in: %v", err)
	}
	session := auth.NewSession{Session: auth.Session{Account: account}, Token: sha256.Sum256([]byte("token")), PasswordHash: "hash"}
	if _, err := w.CreateSession(t.Context(), session, auth.Live{}); err != nil {
		t.Errorf("nobody can sign in: %v", err)
	}
	if held < 10 || held > 12 {
		t.Errorf("requests hold %d connections, want at most 12", held)
	}
}

// TestRequestsAreIdentifiedBesideSlowReads lets the reads of two tenants hold all places that reads have.
func TestRequestsAreIdentifiedBesideSlowReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	account := must(w.CreateAccount(t.Context(), tester, auth.Account{Email: "a@example.com", Name: "A"}, "hash"))(t)
	must(w.AddMember(t.Context(), tester, w.ours.ID, account.ID, auth.Viewer))(t)
	session := auth.NewSession{Session: auth.Session{Account: account}, Token: sha256.Sum256([]byte("token")), PasswordHash: "hash"}
	must(w.CreateSession(t.Context(), session, auth.Live{}))(t)
	for _, class := range []string{"read", "heavy", "write", "bulk"} {
		w.LimitClass(class, time.Hour) // who holds a connection keeps it until the end, however slow the machine is
	}
	watching, holding := connect(t, w.url), connect(t, w.url)
	locked := must(holding.Begin(t.Context()))(t)
	must(locked.Exec(t.Context(), "LOCK TABLE audit_event IN ACCESS EXCLUSIVE MODE"))(t)
	requests, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for i := range 8 {
		ctx := shares.With(requests, shares.Caller{Tenant: rules.TenantID(1000 + i%2), Account: fmt.Sprint(i)})
		group.Go(func() { _, _ = w.AuditEntry(ctx, w.ours.ID, 1) })
	}
	held := 0
	for deadline := time.Now().Add(time.Minute); held < 4 && time.Now().Before(deadline); {
		err := watching.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&held)
		if err != nil {
			t.Fatal(err)
		}
	}
	if held != 4 {
		t.Fatalf("%d connections are held, want 4", held)
	}
	ctx, end := context.WithTimeout(shares.With(t.Context(), shares.Caller{Account: "a credential"}), time.Minute)
	defer end()
	if _, err := w.SessionOf(ctx, session.Token, auth.Live{}, auth.LookedAt); err != nil {
		t.Errorf("find the session: %v", err)
	}
	if _, err := w.Key(ctx, w.ours.ID, "missing"); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("find the key: %v", err)
	}
	if _, err := w.TenantBySlug(ctx, w.ours.Slug); err != nil {
		t.Errorf("find the tenant: %v", err)
	}
	if role, err := w.RoleIn(ctx, w.ours.ID, account.ID); err != nil || role != auth.Viewer {
		t.Errorf("the role is %q, %v", role, err)
	}
}

// TestAWriteOfADatabaseThatFellSilentSaysSo holds back all that the store sends.
func TestAWriteOfADatabaseThatFellSilentSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var silent atomic.Bool
	end := make(chan struct{})
	defer close(end)
	proxied := behindProxy(t, runtimeOf(t, w.url)+"&pool_max_conns=2", func() (sent, received func()) {
		return func() {
			if silent.Load() {
				<-end
			}
		}, func() {}
	})
	store := must(pgstore.Open(t.Context(), proxied, slog.New(slog.DiscardHandler)))(t)
	defer store.Close()
	create := func(name string) error {
		return second(store.As(tester).CreatePlan(t.Context(), rules.Plan{TenantID: w.ours.ID, Name: name}))
	}
	store.LimitClass("write", 30*time.Second)
	if err := create("heard"); err != nil {
		t.Fatal(err)
	}
	store.LimitClass("write", time.Second)
	silent.Store(true)
	if err := create("not heard"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rules.ErrBeingWritten) {
		t.Errorf("the answer is %v", err)
	}
}

// TestAWriteThatWaitedForAnotherSaysSo lets another process, which is a transaction here, hold the tenant.
func TestAWriteThatWaitedForAnotherSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := must(connect(t, w.url).Begin(t.Context()))(t)
	must(other.Exec(t.Context(), "SELECT FROM tenant WHERE tenant_id = $1 FOR UPDATE", w.ours.ID))(t)
	w.LimitClass("write", 10*time.Second) // long enough to get to the row on a busy machine
	errs := make(chan error)
	for i := range 2 { // one of which waits for the row, and the other for that one
		go func() {
			_, err := w.CreatePlan(t.Context(), rules.Plan{TenantID: w.ours.ID, Name: fmt.Sprintf("plan-%d", i)})
			errs <- err
		}()
	}
	for range 2 {
		err := <-errs
		wantError(t, err, rules.ErrBeingWritten)
		if errors.Is(err, rules.ErrAway) {
			t.Errorf("the database is taken to be away: %v", err)
		}
	}
}
