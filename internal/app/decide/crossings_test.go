package decide

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/telemetry/metrics"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestMain(m *testing.M) { os.Exit(devdbtest.Main(m).Run()) }

func quotaRow(t *testing.T, id rules.RuleID, change func(*rules.Rule)) rules.Rule {
	t.Helper()
	pattern, err := rules.ParsePattern("user:{user_id}")
	if err != nil {
		t.Fatal(err)
	}
	rule := rules.Rule{
		ID: id, TenantID: 1, Pattern: pattern, Name: fmt.Sprint("quota ", id), Active: true, Burst: 100,
		RateUnit:  rules.PerSecond,
		Algorithm: rules.FixedWindow, Window: rules.Window{Calendar: rules.CalendarMonth, Zone: "Europe/Berlin"},
		NotifyAt: []int{80, 100},
		Mode:     rules.ModeEnforce, Action: rules.ActionLimit, InForceSince: time.Unix(1_700_000_000, 0),
	}
	change(&rule)
	return rule
}

// A client that holds tokens reports checks which a quota limits as well. The report says nothing about the
// quota's window.
func TestReportsOfClientsCrossNoQuota(t *testing.T) {
	t.Parallel()
	tenant := snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: rules.DefaultSettings()}},
		Rules:   []rules.Rule{quotaRow(t, 1, func(*rules.Rule) {})},
	}).Tenant(1)
	sink := &kept{}
	recorder := violations.NewRecorder(sink, violations.Options{})
	lessor := enforce.NewLessor(membucket.New(membucket.Options{}), recording{recorder}, nil,
		func(err error) { t.Error(err) })
	lessor.Lease(t.Context(), tenant, &enforce.LesseeRequest{Holder: "a", Checks: []enforce.LesseeCheck{{
		Check:   enforce.Check{Cost: enforce.Token, Request: rules.Request{UserID: "42"}},
		Allowed: 5, Denied: []enforce.LesseeDenials{{Rule: 1, Count: 1}},
	}}})
	if err := recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(sink.crossings) > 0 {
		t.Errorf("crossings were recorded: %+v", sink.crossings)
	}
	if sink.checks.Allowed != 5 || sink.checks.Denied != 1 {
		t.Errorf("the checks are counted as %+v", sink.checks)
	}
}

func TestCrossingsAreExactWithSeveralProcesses(t *testing.T) {
	t.Parallel()
	for _, store := range []string{config.BucketsInRedis, config.BucketsInPostgres} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			crossExactly(t, store)
		})
	}
}

func crossExactly(t *testing.T, kind string) {
	const processes, callers, users, each = 4, 4, 5, 12 // each caller asks so many checks, twice, for each user: 384
	url := devdbtest.Postgres(t)
	cfg := config.Config{Buckets: kind, DatabaseURL: config.ConnURL(url), StoreBudget: 20 * time.Second}
	if kind == config.BucketsInRedis {
		cfg.RedisURL = config.ConnURL(devdbtest.Redis(t).URL())
	}
	log := slog.New(slog.DiscardHandler)
	rows := snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: rules.DefaultSettings()}},
		Rules: []rules.Rule{
			quotaRow(t, 1, func(*rules.Rule) {}),
			quotaRow(t, 2, func(r *rules.Rule) { r.Mode, r.Burst = rules.ModeShadow, 50 }),
			quotaRow(t, 3, func(r *rules.Rule) { r.Burst, r.NotifyAt = 1000, nil }),
			quotaRow(t, 4, func(r *rules.Rule) { r.Burst = 1000 }), // never reached
		},
		Overrides: []rules.Override{{
			TenantID: 1, RuleID: 1, UserID: "0", Burst: 200, Reason: "contract",
			InForceSince: time.Unix(1_700_000_001, 0),
		}},
	}
	tenant := snapshot.New(rows).Tenant(1)

	ctx, end := context.WithCancel(t.Context())
	var asking, running sync.WaitGroup
	for range processes {
		sink, err := pgstore.Open(t.Context(), url, log)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sink.Close)
		buckets, err := app.OpenBuckets(t.Context(), cfg, log)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = buckets.Close() })
		recorder := violations.NewRecorder(sink, violations.Options{FlushInterval: 10 * time.Millisecond})
		running.Go(func() { recorder.Run(ctx, time.Minute) })
		observer := observers{metrics.New("test", "test").Decisions("test"), recording{recorder}}
		limiter := enforce.NewLimiter(buckets.Shared(), buckets.Local, observer, time.Now)
		for range callers {
			asking.Go(func() {
				for range each {
					for user := range users {
						check := enforce.Check{Cost: enforce.Token, Request: rules.Request{UserID: fmt.Sprint(user)}}
						limiter.Decide(t.Context(), tenant, []enforce.Check{check, check}, make([]enforce.Decision, 2))
					}
				}
			})
		}
	}
	asking.Wait()
	end()
	running.Wait()

	reader, err := pgstore.Open(t.Context(), url, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	stored, err := reader.Crossings(t.Context(), 1, violations.CrossingFilter{}, violations.CrossingPlace{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for i := range stored {
		c := &stored[i]
		got[fmt.Sprintf("rule %d (%s), user %s, %d of %d", c.Rule, c.Mode, c.UserID, c.Share,
			c.Burst)] += c.Used.Float()
	}
	want := map[string]float64{}
	for user := range users {
		burst := 100
		if user == 0 {
			burst = 200
		}
		for _, share := range []int{80, 100} {
			want[fmt.Sprintf("rule 1 (enforce), user %d, %d of %d", user, share, burst)] = float64(burst * share / 100)
			want[fmt.Sprintf("rule 2 (shadow), user %d, %d of 50", user, share)] = float64(50 * share / 100)
		}
	}
	for name, used := range want {
		if got[name] != used {
			t.Errorf("%s: noted at %g, want %g", name, got[name], used)
		}
		delete(got, name)
	}
	if len(got) > 0 || len(stored) != len(want) {
		t.Errorf("%d crossings, want %d; beside them %v", len(stored), len(want), got)
	}
}

func TestASettlementCrosses(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{config.BucketsInRedis, config.BucketsInMemory, config.BucketsInPostgres} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cfg := config.Config{Buckets: kind, StoreBudget: 20 * time.Second, LocalBuckets: 1000}
			switch kind {
			case config.BucketsInRedis:
				cfg.RedisURL = config.ConnURL(devdbtest.Redis(t).URL())
			case config.BucketsInPostgres:
				cfg.DatabaseURL = config.ConnURL(devdbtest.Postgres(t))
			}
			buckets, err := app.OpenBuckets(t.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = buckets.Close() })
			sink := &kept{}
			recorder := violations.NewRecorder(sink, violations.Options{})
			limiter := enforce.NewLimiter(buckets.Shared(), buckets.Local, observers{recording{recorder}}, time.Now)
			tenant := snapshot.New(snapshot.Rows{
				Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: rules.DefaultSettings()}},
				Rules:   []rules.Rule{quotaRow(t, 1, func(*rules.Rule) {})},
			}).Tenant(1)
			check := enforce.Check{
				Cost: 10 * enforce.Token, Request: rules.Request{UserID: "42"}, Reserve: true,
				Key: "k",
			}
			decisions := make([]enforce.Decision, 1)
			limiter.Decide(t.Context(), tenant, []enforce.Check{check}, decisions)
			settled, err := limiter.SettleReservation(t.Context(), tenant, decisions[0].Reservation,
				enforce.Settlement{Cost: 85 * enforce.Token, HasCost: true, Key: "k"})
			if err != nil || !settled.Found {
				t.Fatalf("settled %+v, %v", settled, err)
			}
			if err := recorder.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(sink.crossings) != 1 || sink.crossings[0].Share != 80 ||
				sink.crossings[0].Used != 85*violations.Token {
				t.Errorf("noted %+v, want 80 %% at 85", sink.crossings)
			}
		})
	}
}

func TestWhatDoesNotCross(t *testing.T) {
	t.Parallel()
	sink := &kept{}
	recorder := violations.NewRecorder(sink, violations.Options{})
	buckets, err := app.OpenBuckets(t.Context(), config.Config{Buckets: config.BucketsInMemory, LocalBuckets: 1000},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = buckets.Close() })
	away := &lostStore{ReservingBuckets: buckets.Shared()}
	limiter := enforce.NewLimiter(away, buckets.Local, observers{recording{recorder}}, time.Now)
	tenant := snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: rules.DefaultSettings()}},
		Rules: []rules.Rule{
			quotaRow(t, 1, func(*rules.Rule) {}),
			quotaRow(t, 2, func(r *rules.Rule) { r.Burst, r.NotifyAt = 20, nil }),
		},
	}).Tenant(1)
	ask := func(cost enforce.Tokens, user string) {
		checks := []enforce.Check{{Cost: cost * enforce.Token, Request: rules.Request{UserID: user}}}
		limiter.Decide(t.Context(), tenant, checks, make([]enforce.Decision, 1))
	}
	ask(85, "42") // denied by the other rule
	ask(20, "42")
	ask(20, "42") // likewise
	limiter.Explain(t.Context(), tenant, &enforce.Check{Cost: 85 * enforce.Token, Request: rules.Request{UserID: "7"}})
	away.isAway = true
	tenant = snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: rules.DefaultSettings()}},
		Rules:   []rules.Rule{quotaRow(t, 1, func(r *rules.Rule) { r.FailureMode = rules.FailLocal })},
	}).Tenant(1)
	ask(85, "degraded") // only this process knows
	if err := recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(sink.crossings) > 0 {
		t.Errorf("noted %+v, want nothing", sink.crossings)
	}
	away.isAway = false
	ask(80, "42")
	if err := recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(sink.crossings) != 2 {
		t.Errorf("a check that takes the rest noted %+v, want both shares", sink.crossings)
	}
}

type lostStore struct {
	enforce.ReservingBuckets
	isAway bool
}

func (s *lostStore) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	if s.isAway {
		return context.DeadlineExceeded
	}
	return s.ReservingBuckets.Take(ctx, checks)
}
