package decide

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/violations"
)

type kept struct {
	rows   []*violations.Violation
	checks violations.Verdicts

	crossings []violations.Crossing
}

func (k *kept) WriteViolations(_ context.Context, batch *violations.Batch) error {
	for i := range batch.Tallies {
		k.rows = append(k.rows, batch.Tallies[i].Details...)
	}
	k.crossings = append(k.crossings, batch.Crossings...)
	for i := range batch.Decisions {
		if d := &batch.Decisions[i]; d.Rule == 0 { // one for each minute, of which there may be two
			k.checks.Allowed += d.Allowed
			k.checks.Denied += d.Denied
			k.checks.Taken += d.Taken
		}
	}
	return nil
}

func TestTheRecorderIsToldWhatTheLimiterDecided(t *testing.T) {
	t.Parallel()
	pattern, err := rules.ParsePattern("user:{user_id}")
	if err != nil {
		t.Fatal(err)
	}
	tenant := snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: rules.DefaultSettings()}},
		Rules: []rules.Rule{{
			ID: 12, TenantID: 1, Pattern: pattern, Active: true, RatePerSecond: 0.5, RateUnit: rules.PerSecond,
			Burst: 2, Version: 3,
			Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit,
		}},
	}).Tenant(1)
	sink := &kept{}
	recorder := violations.NewRecorder(sink, violations.Options{})
	buckets := membucket.New(membucket.Options{Clock: func() int64 { return 0 }})
	limiter := enforce.NewLimiter(buckets, buckets, observers{recording{recorder}}, nil)
	check := enforce.Check{Cost: enforce.Token, Request: rules.Request{
		UserID: "42", Endpoint: "/api", Method: "GET", IP: netip.MustParseAddr("::ffff:203.0.113.9"),
	}}
	checks := []enforce.Check{check, check, check}
	checks[2].Cost *= 2 // one more than there is
	before := time.Now().Add(-time.Millisecond)
	limiter.Decide(t.Context(), tenant, checks, make([]enforce.Decision, len(checks)))
	if err := recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := (violations.Verdicts{Allowed: 2, Denied: 1, Taken: 2}); sink.checks != want {
		t.Errorf("the checks are counted as %+v, want %+v", sink.checks, want)
	}
	if len(sink.rows) != 1 {
		t.Fatalf("the violations are %+v, want one", slices.Collect(slices.Values(sink.rows)))
	}
	got := *sink.rows[0]
	if got.ID.At.Before(before) || got.ID.At.After(time.Now()) || !got.LastAt.Equal(got.ID.At) {
		t.Errorf("it happened at %s", got.ID.At)
	}
	if got.Tokens < 0 || got.Tokens > 500_000 || got.RetryAfter < 3*time.Second || got.RetryAfter > 4*time.Second {
		t.Errorf("the bucket held %d millionths, and the wait is %s", got.Tokens, got.RetryAfter)
	}
	got.ID, got.LastAt, got.Tokens, got.RetryAfter = violations.ID{}, time.Time{}, 0, 0
	want := violations.Violation{
		Tenant: 1, Rule: 12, Subject: "42", Reason: "limit_exceeded", Scope: rules.ScopeUser, Mode: rules.ModeEnforce,
		Pattern: "user:{user_id}", Version: 3, Rate: 0.5, Burst: 2, Algorithm: rules.TokenBucket,
		LimitText: "0.5 per second, bursts to 2", UserID: "42", IP: netip.MustParseAddr("203.0.113.9"),
		Endpoint: "/api", Method: "GET", Cost: 2 * violations.Token, TokensKnown: true, Count: 1,
	}
	if got != want {
		t.Errorf("it is\n%+v, want\n%+v", got, want)
	}
}

func TestTheRecorderCountsWhatClientsDecided(t *testing.T) {
	t.Parallel()
	pattern, err := rules.ParsePattern("user:{user_id}")
	if err != nil {
		t.Fatal(err)
	}
	tenant := snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: rules.DefaultSettings()}},
		Rules: []rules.Rule{{
			ID: 12, TenantID: 1, Pattern: pattern, Active: true, RatePerSecond: 50, RateUnit: rules.PerSecond,
			Burst: 200, Version: 3,
			Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit,
		}},
	}).Tenant(1)
	sink := &kept{}
	recorder := violations.NewRecorder(sink, violations.Options{})
	lessor := enforce.NewLessor(membucket.New(membucket.Options{}), observers{recording{recorder}}, nil,
		func(err error) { t.Error(err) })
	for range 2 {
		lessor.Lease(t.Context(), tenant, &enforce.LesseeRequest{Holder: "a", Checks: []enforce.LesseeCheck{{
			Check:   enforce.Check{Cost: enforce.Token * 3 / 2, Request: rules.Request{UserID: "42", Endpoint: "/api"}},
			Allowed: 100, Denied: []enforce.LesseeDenials{{Rule: 12, Count: 600}},
		}}})
	}
	if err := recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := (violations.Verdicts{Allowed: 200, Denied: 1200, Taken: 300}); sink.checks != want {
		t.Errorf("the checks are counted as %+v, want %+v", sink.checks, want)
	}
	if rows := slices.Collect(slices.Values(sink.rows)); len(rows) == 0 || rows[0].Reason != "limit_exceeded" {
		t.Errorf("the violations are %+v", rows)
	}
	var count int64
	for _, row := range sink.rows {
		count += row.Count
	}
	if count != 1200 {
		t.Errorf("the rows count %d violations, want 1200", count)
	}
	if stats := recorder.Stats(); stats.Recorded != 1200 || stats.Dropped != 0 {
		t.Errorf("the recorder counts %+v", stats)
	}
}

func TestADescriptorsLimitIsInItsViolation(t *testing.T) {
	t.Parallel()
	pattern, err := rules.ParsePattern("user:{user_id}:attr.descriptor:d")
	if err != nil {
		t.Fatal(err)
	}
	tenant := snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: rules.DefaultSettings()}},
		Rules:   []rules.Rule{quotaRow(t, 12, func(r *rules.Rule) { r.Pattern = pattern })},
	}).Tenant(1)
	sink := new(kept)
	recorder := violations.NewRecorder(sink, violations.Options{})
	buckets := membucket.New(membucket.Options{})
	limiter := enforce.NewLimiter(buckets, buckets, observers{recording{recorder}}, nil)
	for _, own := range []enforce.Limit{
		{Burst: 1, Interval: 60_000_000}, {Burst: 1, Interval: 86_400_000_000}, {Interval: 3_600_000_000},
	} {
		own.Kind = rules.KindFixedWindow
		check := enforce.Check{
			Request: rules.Request{UserID: "42", Attributes: []rules.Attribute{{Name: "descriptor", Value: "d"}}},
			Cost:    2 * enforce.Token, OwnLimit: &own,
		}
		limiter.Decide(t.Context(), tenant, []enforce.Check{check}, make([]enforce.Decision, 1))
	}
	if err := recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range sink.rows {
		got = append(got, v.BucketKey()+" "+v.Reason+" "+v.LimitText)
	}
	want := []string{
		"-12:1:60000000:42 cost_exceeds_limit 1 per minute", "-12:1:86400000000:42 cost_exceeds_limit 1 per day",
		"12:42 blocked 0 per hour",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the violations are %q, want %q", got, want)
	}
}
