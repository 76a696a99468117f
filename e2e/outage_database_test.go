package e2e_test

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// privatePostgres is a server that a test may stop, behind an address that stays.
type privatePostgres struct {
	dir     string
	server  *devdb.Postgres
	proxy   *proxy
	address string // of its one database, by way of the proxy
}

func startPostgres(t *testing.T) *privatePostgres {
	t.Helper()
	// As root, the server runs as another user, whom the parent of t.TempDir lets nowhere.
	dir, err := os.MkdirTemp("", "sluice-e2e-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &privatePostgres{dir: dir}
	p.start(t)
	t.Cleanup(func() { p.server.Kill() })
	address, err := p.server.CreateDatabase(t.Context(), "sluice")
	if err != nil {
		t.Fatal(err)
	}
	p.proxy = newProxy(t, hostOf(t, address))
	p.address = p.proxy.url(t, address)
	return p
}

func (p *privatePostgres) start(t *testing.T) {
	t.Helper()
	var err error
	// A throwaway server may forget its last commits when it crashes.
	if p.server, err = devdb.StartPostgres(t.Context(), p.dir, devdb.PostgresOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestADatabaseOutageLeavesTheRulesInForce(t *testing.T) {
	t.Parallel()
	lasts := 3 * time.Second
	// underWay is how long after an outage began a poll may end whose answers were on the way by then.
	const underWay = time.Second
	if *soak {
		lasts = time.Minute
	}
	outages := map[string]struct {
		begin, end func(*testing.T, *privatePostgres)
	}{
		"a server that crashed": {
			func(_ *testing.T, p *privatePostgres) { p.server.Kill() },
			func(t *testing.T, p *privatePostgres) {
				p.start(t)
				p.proxy.moveTo(hostOf(t, p.server.URL("sluice")))
			},
		},
		"a server that answers nothing": {
			func(_ *testing.T, p *privatePostgres) { p.proxy.silent.Store(true) },
			func(_ *testing.T, p *privatePostgres) { p.proxy.silent.Store(false) },
		},
	}
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			postgres := startPostgres(t)
			admin(t, postgres.address, "migrate")
			// A long limit would deny if the database went away before it was asked about the tenant.
			const user = `{key_pattern: "user:{user_id}", rate: 4/hour, burst_capacity: 2}`
			tn := newTenantIn(t, postgres.address, `
plans: [{name: pro}]
rules: [`+user+`, {key_pattern: "endpoint:/internal/*", action: block}]`)
			a := tn.startAPI(t, devdbtest.Redis(t).URL())
			before := a.standing(t)

			outage.begin(t, postgres)
			began := time.Now()
			a.want(t, `{"user_id":"42"}`, http.StatusOK)
			a.want(t, `{"user_id":"42"}`, http.StatusOK)
			a.want(t, `{"user_id":"42"}`, http.StatusTooManyRequests)
			a.wantUnmoved(t, before, lasts)
			a.wantAge(t, time.Since(began)-underWay)

			outage.end(t, postgres)
			eventually(t, patience, "the database to be up again", func() bool { return a.ready(t).Database == "up" })
			eventually(t, changesArriveIn, "the rules to be as new as ever", func() bool {
				return a.metric(t, "sluice_snapshot_age_seconds") <= changesArriveIn.Seconds()
			})
			tn.apply(t, `rules: [{key_pattern: "user:{user_id}", rate: 4/hour, burst_capacity: 3}]`)
			eventually(t, changesArriveIn, "a change after the outage", func() bool {
				return *a.check(t, `{"user_id":"42","cost":0}`).Limit == 3
			})
		})
	}
}

func (a *api) standing(t *testing.T) (answers [4]string) {
	t.Helper()
	for i, body := range [len(answers)]string{
		`{"user_id":"7","cost":0}`, `{"endpoint":"/internal/users"}`, `{"user_id":"7","plan":"pro","cost":0}`,
		`{"plan":"gold"}`,
	} {
		got, err := a.try(body)
		if err != nil {
			t.Fatal(err)
		}
		answers[i] = got.text
		if i == len(answers)-1 {
			answers[i] = http.StatusText(got.status) // the text has the request's own id
		}
	}
	return answers
}

func (a *api) wantUnmoved(t *testing.T, before [4]string, lasts time.Duration) {
	t.Helper()
	end := time.Now().Add(lasts)
	eventually(t, lasts+patience, "readiness to say that the database is down", func() bool {
		if now := a.standing(t); now != before {
			t.Fatalf("the answers are\n%q, and were before the outage\n%q", now, before)
		}
		state := a.ready(t)
		if state.status != http.StatusOK {
			t.Fatalf("readyz answers %d during the outage, want 200", state.status)
		}
		return state.Database == "down" && time.Now().After(end)
	})
}

func (a *api) wantAge(t *testing.T, least time.Duration) {
	t.Helper()
	for _, addr := range []string{a.checks, a.metrics} {
		if age := a.readyAt(t, addr).AgeMS; age == nil || time.Duration(*age)*time.Millisecond < least {
			t.Errorf("readyz at %s says that the rules are %v ms old, want at least %s", addr, age, least)
		}
	}
	if age := a.metric(t, "sluice_snapshot_age_seconds"); age < least.Seconds() {
		t.Errorf("sluice_snapshot_age_seconds is %g, want at least %g", age, least.Seconds())
	}
}
