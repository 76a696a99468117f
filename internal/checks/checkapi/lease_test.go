package checkapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/internal/rules"
)

const leaseKey = "slk_lease_" + secret

type leased struct {
	Checks []struct {
		How     string
		Buckets []int
	}
	Buckets []struct {
		Bucket string
		Grant  *struct {
			Amount, Level, Out float64
			Slot, Epoch        int64
		}
	}
}

func (h *harness) lease(body string) leased {
	h.t.Helper()
	w := h.postAs(leaseKey, "/v1/leases", body)
	var answer leased
	if w.Code != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &answer) != nil {
		h.t.Fatalf("answered %d %s", w.Code, w.Body)
	}
	wantDescribed(h.t, w)
	return answer
}

func wantDescribed(t testing.TB, w *httptest.ResponseRecorder) {
	t.Helper()
	var body any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	described := describe(t).Paths.Value("/v1/leases").Post.Responses.Status(w.Code)
	if err := described.Value.Content.Get(header(w, "Content-Type")).Schema.Value.VisitJSON(body,
		openapi3.MultiErrors()); err != nil {
		t.Errorf("%s is not as openapi.yaml says: %v", w.Body, err)
	}
}

func TestAClientLeasesSpendsAndGivesBack(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 100, 100))
	const checks = `"checks":[{"check":{"user_id":"42"}%s}]`
	got := h.lease(`{"holder":"a",` + fmt.Sprintf(checks, "") + `}`)
	if len(got.Buckets) != 1 || got.Buckets[0].Bucket != "1:42" || got.Buckets[0].Grant != nil ||
		got.Checks[0].How != "lease" {
		t.Fatalf("a client that is new is answered %+v", got)
	}
	got = h.lease(`{"holder":"a",` + fmt.Sprintf(checks, "") + `,"buckets":[{"bucket":"1:42","want":20}]}`)
	grant := got.Buckets[0].Grant
	if grant == nil || grant.Amount != 20 || grant.Level != 80 || grant.Out != 20 {
		t.Fatalf("20 tokens of 100 are answered %+v", grant)
	}
	got = h.lease(`{"holder":"a",` + fmt.Sprintf(checks, `,"allowed":15,"denied":[{"rule_id":1,"count":2}]`) +
		fmt.Sprintf(
			`,"buckets":[{"bucket":"1:42","epoch":%d,"presence":%d,"want":0,"returns":[{"slot":%[2]d,"spent":15,"back":5}]}]}`, grant.Epoch, grant.Slot))
	if got.Buckets[0].Grant != nil || h.decided != 17 {
		t.Errorf("giving back is answered %+v, and %d checks were counted", got.Buckets[0].Grant, h.decided)
	}
	w := h.post("/v1/check", `{"user_id":"42","cost":85}`)
	if w.Code != http.StatusOK {
		t.Errorf("85 tokens are left, but a check of them is answered %d %s", w.Code, w.Body)
	}
}

// TestWrongLeasesChangeNothing: the report that stands beside the mistake is not counted either.
func TestWrongLeasesChangeNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ body, pointer string }{
		"no holder":           {`{"checks":[{"check":{"user_id":"42"},"allowed":1}]}`, "/holder"},
		"a strange holder":    {`{"holder":"a b"}`, "/holder"},
		"a negative amount":   {`{"holder":"a",GOOD,"buckets":[{"bucket":"1:42","want":-1}]}`, "/buckets/0/want"},
		"an amount too large": {`{"holder":"a",GOOD,"buckets":[{"bucket":"1:42","want":1e10}]}`, "/buckets/0/want"},
		"no number":           {`{"holder":"a",GOOD,"buckets":[{"bucket":"1:42","want":"NaN"}]}`, "/buckets/0/want"},
		"an infinite amount":  {`{"holder":"a",GOOD,"buckets":[{"bucket":"1:42","held":1e999}]}`, "/buckets/0/held"},
		"too many " +
			"decimals": {
			`{"holder":"a",GOOD,"buckets":[{"bucket":"1:42","returns":[{"slot":1,"back":0.0000001}]}]}`,
			"/buckets/0/returns/0/back",
		},
		"a negative slot": {
			`{"holder":"a",GOOD,"buckets":[{"bucket":"1:42","returns":[{"slot":-1}]}]}`,
			"/buckets/0/returns/0/slot",
		},
		"a negative " +
			"count": {
			`{"holder":"a","checks":[{"check":{"user_id":"42"},"allowed":1},{"check":{},"allowed":-1}]}`,
			"/checks/1/allowed",
		},
		"a count of " +
			"cost": {`{"holder":"a","checks":[{"check":{"user_id":"42"},"allowed":1},{"check":{"cost":1e9},"allowed":1001}]}`, "/checks/1/allowed"},
		"a bucket twice": {
			`{"holder":"a",GOOD,"buckets":[{"bucket":"1:42"},{"bucket":"1:42"}]}`,
			"/buckets/1/bucket",
		},
		"a strange bucket": {`{"holder":"a",GOOD,"buckets":[{"bucket":"x"}]}`, "/buckets/0/bucket"},
		"no bucket":        {`{"holder":"a",GOOD,"buckets":[{"want":1}]}`, "/buckets/0/bucket"},
		"a reservation": {
			`{"holder":"a","checks":[{"check":{"reserve":true},"allowed":1}]}`,
			"/checks/0/check/reserve",
		},
		"an unknown " +
			"plan": {
			`{"holder":"a","checks":[{"check":{"user_id":"42"},"allowed":1},{"check":{"plan":"gold"}}]}`,
			"/checks/1/check/plan",
		},
		"an unknown field": {`{"holder":"a",GOOD,"spend":1}`, "/spend"},
		"too many checks": {`{"holder":"a","checks":[` + strings.Repeat(`{"check":{},"allowed":1},`, 1000) +
			`{"check":{}}]}`, "/checks"},
		"too many returns": {
			`{"holder":"a",GOOD,"buckets":[{"bucket":"1:42","returns":[{},{},{},{},{},{},{}]}]}`,
			"/buckets/0/returns",
		},
		"what is no object":    {`{"holder":"a","checks":[1]}`, "/checks/0"},
		"a check that is none": {`{"holder":"a","checks":[{"allowed":1}]}`, "/checks/0/check"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 100, 100))
			body := strings.Replace(test.body, "GOOD", `"checks":[{"check":{"user_id":"42"},"allowed":1}]`, 1)
			w := h.postAs(leaseKey, "/v1/leases", body)
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"pointer":"`+test.pointer+`"`) {
				t.Errorf("answered %d %s, want 400 with %s", w.Code, w.Body, test.pointer)
			}
			if h.decided != 0 || h.store.Len() != 0 {
				t.Errorf("%d checks were counted, and there are %d buckets", h.decided, h.store.Len())
			}
		})
	}
}

func TestLeasesNeedThePermissionLease(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 100, 100))
	for key, status := range map[string]int{
		leaseKey: 200, fullKey: 403, "": 401, "slk_suspended_" + secret: 403,
		"slk_revoked_" + secret: 401,
	} {
		if w := h.postAs(key, "/v1/leases", `{"holder":"a"}`); w.Code != status {
			t.Errorf("with the key %q: %d %s", key, w.Code, w.Body)
		}
	}
	if w := h.postAs(leaseKey, "/v1/check", `{}`); w.Code != http.StatusForbidden {
		t.Errorf("a key that only leases may check: %d", w.Code)
	}
}

// TestABucketOfNoRuleIsIgnored: a client can neither make buckets up nor reach those of another tenant.
func TestABucketOfNoRuleIsIgnored(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 100, 100))
	got := h.lease(
		`{"holder":"a","buckets":[{"bucket":"1:43","want":50},{"bucket":"77:42","want":50,"returns":[{"slot":1,"back":9}]}]}`)
	if len(got.Buckets) != 0 || h.store.Len() != 0 {
		t.Errorf("answered %+v, and there are %d buckets", got, h.store.Len())
	}
}

func TestALongRequestForLeasesIs413(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	if w := h.postAs(leaseKey, "/v1/leases",
		`{"holder":"`+strings.Repeat("a", 1<<20)+`"}`); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("answered %d", w.Code)
	}
}

// TestLeaseVectors replays what clients send, as clients' own tests do, and wants the answers that they are tested
// with.
func TestLeaseVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../clients/testdata/leases.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Steps []struct {
			AdvanceMS int `json:"advance_ms"`
			Request   json.RawMessage
			Answer    any
		}
	}
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors.Steps) < 4 {
		t.Fatalf("%d steps were read: %v", len(vectors.Steps), err)
	}
	h := newHarness(t, rules.DefaultSettings(), limit(t, 12, "user:{user_id}", 100, 100))
	for i, step := range vectors.Steps {
		h.now = h.now.Add(time.Duration(step.AdvanceMS) * time.Millisecond)
		w := h.postAs(leaseKey, "/v1/leases", string(step.Request))
		var got any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || !reflect.DeepEqual(got, step.Answer) {
			t.Errorf("step %d is answered %d %s", i, w.Code, w.Body)
		}
	}
}
