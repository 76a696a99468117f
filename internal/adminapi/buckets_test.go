package adminapi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

type lossyBuckets struct {
	adminapi.Buckets
	meanwhile func(context.Context) // what happens while they are asked
	lost      bool
}

func (b *lossyBuckets) CreditOnce(
	ctx context.Context, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, isRepeated bool, err error) {
	b.meanwhile(ctx)
	before, after, isRepeated, err = b.Buckets.CreditOnce(ctx, id, key, limit, amount)
	if !b.lost {
		b.lost, err = true, errors.New("the answer was lost")
	}
	return before, after, isRepeated, err
}

func TestACreditWhoseAnswerWasLostIsRepeatedAndGivenOnce(t *testing.T) {
	t.Parallel()
	buckets := &lossyBuckets{}
	w := newWorld(t, func(c *adminapi.Config) { buckets.Buckets, c.Buckets = c.Buckets, buckets })
	by := w.person(w.acme, auth.Editor)
	rule := w.rule(w.acme)
	w.refresh()
	writes := 0
	buckets.meanwhile = func(ctx context.Context) {
		plan := rules.Plan{TenantID: w.acme.ID, Name: fmt.Sprintf("meanwhile-%d", writes)}
		if _, err := w.system().CreatePlan(ctx, plan); err != nil {
			t.Errorf("a write waits for the buckets: %v", err)
		}
		writes++
	}
	credit := func(tokens float64, id string) answer {
		return w.send(by, "POST", "/api/v1/tenants/acme/users/42/buckets/credit",
			map[string]any{"bucket_key": fmt.Sprintf("%d:42", rule.ID), "tokens": tokens}, "Idempotency-Key", id)
	}
	type change struct {
		Before   float64 `json:"tokens_before"`
		After    float64 `json:"tokens_after"`
		Repeated bool    `json:"repeated"`
	}
	const one = "one-credit-for-sure"
	lost := w.want(credit(-4, one), http.StatusServiceUnavailable)
	if !strings.Contains(lost.body, "same Idempotency-Key") {
		t.Errorf("the answer does not say what to do: %s", lost.body)
	}
	for range 2 {
		if got := read[change](t, w.want(credit(-4, one), http.StatusOK)); got != (change{10, 6, true}) {
			t.Errorf("the credit that is repeated answers %+v", got)
		}
	}
	w.want(credit(-3, one), http.StatusUnprocessableEntity)
	w.want(credit(-3, "not a key"), http.StatusBadRequest)
	if got := read[change](t, w.want(credit(-1, "another-credit-0002"), http.StatusOK)); got.Before-got.After != 1 ||
		got.Repeated {
		t.Errorf("another credit answers %+v", got)
	}
	entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{ObjectKind: "bucket"}, auth.LogCursor{}, 10)
	if err != nil || len(entries) != 3 {
		t.Fatalf("the audit log has %d entries, want 3: %v", len(entries), err)
	}
	for i, want := range []string{`"tokens"`, `"repeated"`, `"unknown"`} {
		if !strings.Contains(string(entries[i].After), want) {
			t.Errorf("entry %d is %s, want %s in it", i, entries[i].After, want)
		}
	}
}

func TestAResetWhoseAnswerWasLostIsMadeOnce(t *testing.T) {
	t.Parallel()
	buckets := &lossyBuckets{meanwhile: func(context.Context) {}}
	w := newWorld(t, func(c *adminapi.Config) { buckets.Buckets, c.Buckets = c.Buckets, buckets })
	by := w.person(w.acme, auth.Editor)
	bucket := fmt.Sprintf("%d:42", w.rule(w.acme).ID)
	w.refresh()
	change := func(act string, body map[string]any, id string) answer {
		body["bucket_key"] = bucket
		return w.send(by, "POST", "/api/v1/tenants/acme/users/42/buckets/"+act, body, "Idempotency-Key", id)
	}
	const reset = "one-reset-for-sure"
	w.want(change("reset", map[string]any{}, reset), http.StatusServiceUnavailable)
	w.want(change("credit", map[string]any{"tokens": -5}, "a-credit-meanwhile"), http.StatusOK)
	got := w.want(change("reset", map[string]any{}, reset), http.StatusOK)
	if !strings.Contains(got.body, `"repeated":true`) {
		t.Errorf("the reset is made again: %s", got.body)
	}
}

func TestABucketShowsWhatItHasLent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	rule := w.rule(w.acme) // a burst of 10
	w.refresh()
	type bucket struct {
		Key    string  `json:"bucket_key"`
		Tokens float64 `json:"tokens"`
		Burst  float64 `json:"burst_capacity"`
		Lent   *struct {
			Tokens    float64 `json:"tokens"`
			Processes int     `json:"processes"`
		} `json:"lent"`
	}
	const path = "/api/v1/tenants/acme/users/42/buckets"
	look := func() bucket {
		t.Helper()
		items := read[struct{ Items []bucket }](t, w.get(by, path)).Items
		if len(items) != 1 {
			t.Fatalf("the user has %d buckets", len(items))
		}
		return items[0]
	}
	if got := look(); got.Lent != nil || got.Tokens != 10 {
		t.Errorf("a bucket that has lent nothing: %+v", got)
	}
	key := enforce.Key{Tenant: w.acme.ID, Rule: rule.ID, Subject: "42"}
	type change struct {
		After float64 `json:"tokens_after"`
	}
	deadline := time.Now().Add(patience)
	for { // until all of it happens while the tokens are lent, which is for a second
		for range 2 {
			leases := []enforce.Lease{{
				Key: key, Limit: enforce.Limit{Rate: 1, Burst: 10},
				Ask: enforce.Ask{Want: 2 * enforce.Token},
			}}
			if err := w.buckets.Lease(w.ctx(), leases); err != nil {
				t.Fatal(err)
			}
		}
		w.want(w.send(by, "POST", path+"/credit", map[string]any{"bucket_key": key.Text(), "tokens": -3}),
			http.StatusOK)
		reset := read[change](t, w.want(w.send(by, "POST", path+"/reset", map[string]any{"bucket_key": key.Text()}),
			http.StatusOK))
		credit := read[change](t, w.want(w.send(by, "POST", path+"/credit",
			map[string]any{"bucket_key": key.Text(), "tokens": 5}), http.StatusOK))
		got := look()
		if got.Lent != nil && got.Lent.Tokens == 4 && got.Lent.Processes == 2 {
			if reset.After != 6 || credit.After != 6 || got.Tokens != 6 {
				t.Errorf("beside 4 of 10 lent tokens the bucket is refilled to %v, credited to %v, and shown with "+
					"%v; want 6", reset.After, credit.After, got.Tokens)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the bucket never showed 4 tokens lent to 2 processes: %+v, %+v", got, got.Lent)
		}
	}
}

func TestABucketOfADescriptorsLimitIsShownAndReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	rule := w.rule(w.acme, func(r *rules.Rule) {
		r.Pattern = must(rules.ParsePattern("user:{user_id}:attr.descriptor:user_id"))(t)
		r.Mode = rules.ModeEnforce
	})
	w.refresh()
	limit := enforce.Limit{Kind: rules.KindFixedWindow, Burst: 5, Interval: (365 * 24 * time.Hour).Microseconds()}
	match := rules.Match{Rule: &rule, Limit: limit, IsOwn: true, Subject: "42"}
	key := enforce.KeyOf(&w.acme, &match)
	used := []enforce.BucketCheck{{Cost: 4 * enforce.Token, Tiers: []enforce.Tier{{Key: key, Limit: limit}}}}
	if err := w.buckets.Take(w.ctx(), used); err != nil {
		t.Fatal(err)
	}
	recorder := violations.NewRecorder(w.store, violations.Options{Logger: slog.New(slog.DiscardHandler)})
	recorder.Record(time.Now(), &violations.Check{
		Tenant: w.acme.ID, Request: &rules.Request{UserID: "42"}, Cost: violations.Token, Tiers: []violations.Tier{{
			Rule: &rule, Mode: rules.ModeEnforce, Subject: "42", Reason: "limit_exceeded", Limit: limit, IsOwn: true,
			BucketRead: true,
		}},
	})
	if err := recorder.Flush(w.ctx()); err != nil {
		t.Fatal(err)
	}
	type bucket struct {
		Key        string  `json:"bucket_key"`
		Tokens     float64 `json:"tokens"`
		Limit      string  `json:"limit_text"`
		Algorithm  string  `json:"algorithm"`
		Overridden bool    `json:"overridden"`
	}
	const path = "/api/v1/tenants/acme/users/42/buckets"
	own := func() bucket {
		t.Helper()
		items := read[struct{ Items []bucket }](t, w.get(by, path)).Items
		if len(items) != 2 {
			t.Fatalf("the user has the buckets %+v, want the rule's and the descriptor's", items)
		}
		return items[1]
	}
	want := bucket{key.Text(), 1, "5 per 365 days", "fixed_window", false}
	if got := own(); got != want {
		t.Errorf("the bucket is %+v, want %+v", got, want)
	}
	w.want(w.send(by, "POST", path+"/reset", map[string]any{"bucket_key": key.Text()}), http.StatusOK)
	if got := own(); got.Tokens != 5 {
		t.Errorf("after a reset it is %+v", got)
	}
	for _, wrong := range []string{"-12:5:42", "-0:5:60000000:42", strings.Replace(key.Text(), ":5:", ":05:", 1)} {
		w.want(w.send(by, "POST", path+"/reset", map[string]any{"bucket_key": wrong}), http.StatusBadRequest)
	}
}
