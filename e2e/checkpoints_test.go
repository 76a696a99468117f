package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

func TestALongLimitGoesOnWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{
		"a token bucket":   "rate: 10/day, burst_capacity: 10",
		"a calendar day":   "algorithm: fixed_window, window: day, burst_capacity: 10",
		"a sliding window": "algorithm: sliding_window, window: 24h, burst_capacity: 10",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := devdbtest.Redis(t)
			tn := newTenant(t, `rules: [{key_pattern: "user:{user_id}", `+limit+`, failure_mode: local}]`)
			a := tn.startAPI(t, server.URL())
			ask := func(user, cost int) answer {
				return a.check(t, fmt.Sprintf(`{"user_id":"%d","cost":%d}`, user, cost))
			}
			for user := range 5 {
				if got := ask(user, 5+user); !got.Allowed || got.Degraded {
					t.Fatalf("user %d with Redis: %s", user, got.text)
				}
			}
			server.Kill()
			for user := range 5 {
				if got := ask(user, 5-user); !got.Degraded || got.status != http.StatusOK || *got.Remaining != 0 {
					t.Errorf("user %d, who has %d left: %s", user, 5-user, got.text)
				}
				if got := ask(user, 1); got.status != http.StatusTooManyRequests {
					t.Errorf("user %d, who has none left: %s", user, got.text)
				}
			}
			a.stop(t)
			a = tn.startAPI(t, server.URL())
			for user := range 5 {
				if got := ask(user, 1); got.status != http.StatusTooManyRequests || !got.Degraded {
					t.Errorf("user %d in a process that has not seen Redis: %d %s", user, got.status, got.text)
				}
			}
			if got := ask(99, 10); got.status != http.StatusOK || !got.Degraded {
				t.Errorf("a new user: %d %s", got.status, got.text)
			}
		})
	}
}

func TestALongLimitSurvivesARestartOfSluice(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	inMemory := []string{"SLUICE_BUCKETS=memory"}
	d := startDev(t, dir, inMemory)
	demo := tenant{database: d.database, slug: "demo"}
	const pattern = "user:{user_id}:endpoint:/quiet"
	demo.apply(t, `rules: [{key_pattern: "`+pattern+`", rate: 10/day, burst_capacity: 10}]`)
	left := func(cost int) (remaining float64) {
		d.body = fmt.Sprintf(`{"user_id":"42","endpoint":"/quiet","cost":%d}`, cost)
		got := d.paste(t)
		if got.status != http.StatusOK {
			t.Fatalf("%d %s, want 200", got.status, got.text)
		}
		remaining = -1
		for i := range got.Tiers {
			if got.Tiers[i].KeyPattern == pattern {
				remaining = *got.Tiers[i].Remaining
			}
		}
		return remaining
	}
	eventually(t, patience, "the rule", func() bool { return left(0) >= 0 })
	before := left(3)
	d.stop(t)

	d = startDev(t, dir, inMemory)
	if log := d.stderr.String(); !strings.Contains(log, "restored buckets of long limits") {
		t.Errorf("the log does not name what was restored:\n%s", log)
	}
	if after := left(1); after < before-1 || after > before-0.9 {
		t.Errorf("%v of 10 are left after a restart and one check, and were %v before", after, before)
	}
	d.stop(t)
}
