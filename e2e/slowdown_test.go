package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// The bucket refills within two minutes and would be forgotten then; after the edit it fills for a hundred days.
func TestAnEditThatSlowsReachesABucketThatNobodyAsksFor(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	tn := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1/second, burst_capacity: 100}\n")
	api := tn.startAPI(t, server.URL())
	a := tn.startAdmin(t, server.URL())
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	store := redis.NewClient(options)
	defer store.Close()
	rule := fmt.Sprintf("/rules/%d", a.rules(t).Items[0].RuleID)

	const check = `{"user_id":"42","cost":100}`
	taken := time.Now()
	api.want(t, check, http.StatusOK)
	keys := store.Keys(t.Context(), "{s*}*:42").Val()
	if len(keys) != 1 {
		t.Fatalf("want one key for the bucket, found %q", keys)
	}
	if ttl := store.PTTL(t.Context(), keys[0]).Val(); ttl > 2*time.Minute {
		t.Fatalf("before the edit the key expires in %v", ttl)
	}
	a.want(t, http.StatusOK, http.MethodPatch, rule, `{"rate_per_second":0.000011574074074074073,"rate_unit":"day"}`)

	eventually(t, 10*time.Second, "a long expiry of the bucket's key", func() bool {
		ttl := store.PTTL(t.Context(), keys[0]).Val()
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
