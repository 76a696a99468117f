package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

func TestTheSwitchForBadDaysIsInForceWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	redis := devdbtest.Redis(t)
	tn := newTenant(t, `rules:
  - {key_pattern: "user:{user_id}", rate: 1/day, burst_capacity: 1}
  - {key_pattern: "user:mallory", action: block}
`)
	api := tn.startAPI(t, redis.URL())
	a := tn.startAdmin(t, redis.URL())
	a.want(t, http.StatusForbidden, http.MethodPatch, "", `{"enforcement":"shadow"}`) // keys are editors
	a.signIn(t, tn.database)
	answered := func(user string, status int, mode string) func() bool {
		return func() bool {
			got := api.check(t, fmt.Sprintf(`{"user_id":%q}`, user))
			return got.status == status && got.Tiers[0].Mode == mode
		}
	}
	users := []string{"42", "mallory"}
	for _, user := range users {
		eventually(t, propagation, "the second check to be denied",
			answered(user, http.StatusTooManyRequests, "enforce"))
	}
	a.want(t, http.StatusOK, http.MethodPatch, "", `{"enforcement":"shadow"}`)
	for _, user := range users {
		eventually(t, propagation, "checks to pass in shadow", answered(user, http.StatusOK, "shadow"))
	}
	if got := api.check(t, `{"user_id":"42"}`); got.Limit != nil || got.header.Get("RateLimit") != "" ||
		got.Tiers[0].Allowed {
		t.Errorf("in shadow a check is answered %s with the headers %v, want a tier that reports, and no limit",
			got.text, got.header)
	}
	if n := api.metric(t, "sluice_snapshot_tenants_in_shadow"); n != 1 {
		t.Errorf("%g tenants are in shadow, says the metric, want 1", n)
	}
	eventually(t, patience, "the violations to say shadow", func() bool {
		_, listed, err := a.ask(http.MethodGet, "/violations?user_id=42&mode=shadow", "")
		return err == nil && strings.Contains(listed, `"reason":"limit_exceeded"`)
	})

	if printed := admin(t, tn.database, "set-enforcement", "--tenant", tn.slug, "--enforcement",
		"on"); printed != "on\n" {
		t.Errorf("set-enforcement printed %q, want on", printed)
	}
	for _, user := range users {
		eventually(t, propagation, "checks to be denied again", answered(user, http.StatusTooManyRequests, "enforce"))
	}
	log := a.want(t, http.StatusOK, http.MethodGet, "/audit?object_kind=tenant&object_id=acme&limit=2", "")
	for _, who := range []string{"ada@example.com", "set-enforcement"} {
		if !strings.Contains(log, who) {
			t.Errorf("the audit log does not name %s: %s", who, log)
		}
	}
	a.stop(t)
}
