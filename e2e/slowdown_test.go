package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// TestAnEditThatSlowsReachesABucketThatNobodyAsksFor empties a bucket which refills within a second and would be
// forgotten ten seconds later, then edits the rule so that the bucket fills for a hundred days.
func TestAnEditThatSlowsReachesABucketThatNobodyAsksFor(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	tn := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 100/second, burst_capacity: 100}\n")
	api := tn.startAPI(t, server.URL())
	a := tn.startAdmin(t, server.URL())
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	store := redis.NewClient(options)
	defer store.Close()
	rule := fmt.Sprintf("/rules/%d", a.rules(t).Items[0].RuleID)

	// The bucket earns 100 tokens a second until the edit, so a slow machine has to begin again with another user.
	check, key := "", ""
	var taken time.Time
	for user := 1; ; user++ {
		check = fmt.Sprintf(`{"user_id":"%d","cost":100}`, user)
		taken = time.Now()
		api.want(t, check, http.StatusOK)
		a.want(t, http.StatusOK, http.MethodPatch, rule, `{"rate_per_second":0.000011574074074074073,"rate_unit":"day"}`)
		if time.Since(taken) < 900*time.Millisecond {
			keys := store.Keys(t.Context(), fmt.Sprintf("{s*}*:%d", user)).Val()
			if len(keys) != 1 {
				t.Fatalf("the bucket's key is none of %q", keys)
			}
			key = keys[0]
			break
		}
		if user == 10 {
			t.Skip("the machine is too slow to edit a rule while a bucket refills within a second")
		}
		a.want(t, http.StatusOK, http.MethodPatch, rule, `{"rate_per_second":100,"rate_unit":"second"}`)
		eventually(t, propagation, "the fast limit to be back", func() bool {
			got := api.check(t, fmt.Sprintf(`{"user_id":"%d","cost":100}`, 100+user))
			return got.status == http.StatusOK && got.ResetAfterMS != nil && *got.ResetAfterMS < 2000
		})
	}

	// Nobody asks for the bucket until its key has a new expiry.
	eventually(t, 10*time.Second, "a long expiry of the bucket's key", func() bool {
		ttl := store.PTTL(t.Context(), key).Val()
		if ttl < 0 {
			t.Fatalf("the bucket was forgotten %v after it was emptied", time.Since(taken))
		}
		return ttl > 24*time.Hour
	})
	t.Logf("the key has a long expiry %v after the bucket was emptied", time.Since(taken))
	if got := api.check(t, check); got.status != http.StatusTooManyRequests || got.Degraded {
		t.Errorf("after the edit a cost of 100 is answered %s, want a denial", got.text)
	}
	if unsettled := api.metric(t, "sluice_unsettled_edits_total"); unsettled != 0 {
		t.Errorf("%g edits are unsettled", unsettled)
	}
	a.stop(t)
}
