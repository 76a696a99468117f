package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	sluice "github.com/sluicegate/sluice/client"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// TestABudgetOfTokensAndMoneyIsDecidedWithRequests has one rule of each charge on Redis.
func TestABudgetOfTokensAndMoneyIsDecidedWithRequests(t *testing.T) {
	t.Parallel()
	redis := devdbtest.Redis(t)
	tn := newTenant(t, `rules:
  - {key_pattern: "user:{user_id}", rate: 1/day, burst_capacity: 5}
  - {key_pattern: "user:{user_id}", meter: input_tokens, rate: 10/day, burst_capacity: 1000}
  - {key_pattern: "user:{user_id}", meter: usd, charge: after, algorithm: fixed_window, window: month, burst_capacity: 2}
`)
	api := tn.startAPI(t, redis.URL())
	a := tn.startAdmin(t, redis.URL())

	got := api.want(t, `{"user_id":"42","costs":{"input_tokens":600,"usd":1.25}}`, http.StatusOK)
	if *got.Limit != 5 || *got.Remaining != 4 {
		t.Errorf("the top level is %d of %d, want requests: 4 of 5", *got.Remaining, *got.Limit)
	}
	for _, part := range []string{
		`"name":"input_tokens"`, `"meter":"input_tokens","mode":"enforce","allowed":true,"limit":1000,"remaining":400`,
		`"meter":"usd","mode":"enforce","allowed":true,"limit":2,"remaining":0.75,`, `"charged":1.25}`,
	} {
		if !strings.Contains(got.text, part) {
			t.Errorf("the answer lacks %s: %s", part, got.text)
		}
	}
	policy := got.header.Get("RateLimit-Policy")
	if strings.Count(policy, ";qu=") != 2 || !strings.Contains(policy, `;qu="input_tokens"`) {
		t.Errorf("RateLimit-Policy is %s, want units of two meters", policy)
	}
	api.want(t, `{"user_id":"42","costs":{"input_tokens":600}}`, http.StatusTooManyRequests)
	api.want(t, `{"user_id":"42","costs":{"input_tokens":400,"usd":9}}`, http.StatusOK) // charged after: 0.75 fit
	got = api.want(t, `{"user_id":"42"}`, http.StatusTooManyRequests)
	if *got.Reason != "limit_exceeded" || !strings.Contains(got.text, `"charged":0}`) || *got.Limit != 2 {
		t.Errorf("without money left it is answered %s", got.text)
	}
	if usage := a.want(t, http.StatusOK, http.MethodPost, "/explain",
		`{"user_id":"43","costs":{"gpu_seconds":1}}`); !strings.Contains(usage, `"unmatched_meters":["gpu_seconds"]`) ||
		!strings.Contains(usage, "counts input_tokens, the check has no cost of it") {
		t.Errorf("the explanation is %s", usage)
	}
	eventually(t, patience, "the violation with its cost", func() bool {
		_, listed, err := a.ask(http.MethodGet, "/violations?user_id=42", "")
		return err == nil && strings.Contains(listed, `"cost":600,`) &&
			strings.Contains(listed, "10 input tokens per day, bursts to 1,000")
	})
	a.want(t, http.StatusBadRequest, http.MethodPost, "/rules",
		`{"key_pattern":"global","meter":"USD","rate_per_second":1,"burst_capacity":1}`)
	a.want(t, http.StatusBadRequest, http.MethodPost, "/rules",
		`{"key_pattern":"global","charge":"after","algorithm":"leaky_bucket","rate_per_second":1,"burst_capacity":1}`)
	made := a.want(t, http.StatusCreated, http.MethodPost, "/rules",
		`{"key_pattern":"global","meter":"usd","rate_per_second":1,"burst_capacity":1}`)
	if !strings.Contains(made, `"name":"usd"`) || !strings.Contains(made, `"limit_text":"1 USD per second, bursts to 1"`) {
		t.Errorf("the new rule is %s", made)
	}
	a.stop(t)
}

// TestTheGoClientSettlesCostsOfAllMeters estimates tokens, settles one reservation and cancels another.
func TestTheGoClientSettlesCostsOfAllMeters(t *testing.T) {
	t.Parallel()
	a := newTenant(t, `rules:
  - {key_pattern: "user:{user_id}", rate: 1/day, burst_capacity: 5}
  - {key_pattern: "user:{user_id}", meter: input_tokens, rate: 10/day, burst_capacity: 1000}
`).startAPI(t, devdbtest.Redis(t).URL())
	client := a.newSDK(t, sluice.Config{})
	check := sluice.Check{UserID: "42", Costs: map[string]float64{"input_tokens": 1}}
	// One of each is taken first: a full bucket could not take back what it has refilled meanwhile.
	if d, err := client.Check(t.Context(), check); err != nil || !d.Allowed {
		t.Fatalf("decided %+v, %v", d, err)
	}
	check.Costs["input_tokens"] = 600
	reserve := func() string {
		t.Helper()
		d, err := client.Reserve(t.Context(), check, 0)
		if err != nil || !d.Allowed || len(d.Tiers) != 2 || d.Tiers[1].Meter != "input_tokens" || d.Remaining != 3 {
			t.Fatalf("reserved %+v, %v", d, err)
		}
		return d.Reservation
	}
	if s, err := client.Cancel(t.Context(), reserve()); err != nil || !s.Settled || s.Charged != 0 ||
		s.Costs["input_tokens"] != 0 {
		t.Errorf("canceled as %+v, %v", s, err)
	}
	s, err := client.SettleCosts(t.Context(), reserve(), map[string]float64{"input_tokens": 100.5})
	if err != nil || !s.Settled || s.Charged != 1 || s.Costs["input_tokens"] != 100.5 {
		t.Errorf("settled as %+v, %v", s, err)
	}
	check.Costs["input_tokens"] = 898.5
	if d, err := client.Check(t.Context(), check); err != nil || !d.Allowed || d.Tiers[1].Remaining >= 1 {
		t.Errorf("the rest is decided as %+v, %v", d, err)
	}
	if d, err := client.Check(t.Context(), check); err != nil || d.Allowed || d.Reason != "limit_exceeded" {
		t.Errorf("beyond it is decided as %+v, %v", d, err)
	}
}
