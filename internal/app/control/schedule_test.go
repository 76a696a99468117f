package control

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestAScheduledChangeThatBeginsAtOnceEndsInTime(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	store, err := pgstore.Open(t.Context(), devdbtest.Postgres(t), log)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, writer := t.Context(), store.As(rules.Actor{Kind: rules.ActorSystem, Name: "test"})
	tenant, err := writer.CreateTenant(ctx, rules.Tenant{Slug: "acme", Name: "Acme", Settings: rules.DefaultSettings()})
	if err != nil {
		t.Fatal(err)
	}
	changes := jobs.New(store, []jobs.Kind{store.ScheduledWork()}, log)
	for _, test := range []struct {
		pattern string
		lasts   time.Duration
		want    rules.ScheduledState
	}{
		{"global", time.Hour, rules.ScheduledInForce},
		{"user:{user_id}", time.Microsecond, rules.ScheduledDone},
	} {
		pattern, err := rules.ParsePattern(test.pattern)
		if err != nil {
			t.Fatal(err)
		}
		rule, err := writer.CreateRule(ctx, rules.Rule{
			TenantID: tenant.ID, Pattern: pattern, RatePerSecond: 1, RateUnit: rules.PerSecond, Burst: 10,
			Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		after := rule
		after.Burst = 20
		change, err := writer.Schedule(ctx, rules.ScheduledChange{
			TenantID: tenant.ID, Lasts: test.lasts,
			Rules: []rules.ScheduledRule{{RuleID: rule.ID, Patch: []byte("{}")}},
		}, []rules.Rule{after})
		if err != nil {
			t.Fatal(err)
		}
		if err := changes.Round(ctx); err != nil {
			t.Fatal(err)
		}
		changes.Wait()
		if change, err = store.ScheduledChange(ctx, tenant.ID, change.ID); err != nil || change.State != test.want {
			t.Errorf("a change for %s is %s, want %s (%v)", test.lasts, change.State, test.want, err)
		}
	}
}
