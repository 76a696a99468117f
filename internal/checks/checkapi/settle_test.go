package checkapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

func reservationOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var answer struct{ Reservation string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 {
		t.Fatalf("answered %d %s: %v", w.Code, w.Body, err)
	}
	return answer.Reservation
}

func TestAReservationIsSettledAndThenGone(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 12, "user:{user_id}", 0.001, 50))
	id := reservationOf(t, h.post("/v1/check", `{"user_id":"42","cost":10,"reserve":true,"reserve_for":60}`))
	if len(id) != 22 {
		t.Fatalf("the reservation is %q", id)
	}
	settle := `{"reservation":"` + id + `","cost":2.5}`
	h.want(h.post("/v1/settle", settle), 200, `{"settled":true,"charged":2.5}`)
	h.want(h.post("/v1/settle", settle), 200, `{"settled":false}`)
	if w := h.post("/v1/check", `{"user_id":"42","cost":0}`); !strings.Contains(w.Body.String(), `"remaining":47.5`) {
		t.Errorf("afterwards: %s", w.Body)
	}
	if again := reservationOf(t, h.post("/v1/check", `{"user_id":"42"}`)); again != "" {
		t.Errorf("a check that does not reserve has the reservation %s", again)
	}
	id = reservationOf(t, h.post("/v1/check", `{"user_id":"42","reserve":true,"reserve_for":60}`))
	h.want(h.post("/v1/settle", `{"reservation":"`+id+`","extend":true}`), 200, `{"settled":false,"extended":true}`)
	h.now = h.now.Add(time.Minute)
	h.want(h.post("/v1/settle", `{"reservation":"`+id+`","extend":true}`), 200, `{"settled":false,"extended":false}`)
}

func TestACheckThatMeetsAConcurrencyRuleReserves(t *testing.T) {
	t.Parallel()
	places := limit(t, 12, "user:{user_id}", 0, 1)
	places.Algorithm, places.MaxHold = rules.Concurrency, time.Minute
	h := newHarness(t, rules.DefaultSettings(), places)
	id := reservationOf(t, h.post("/v1/check", `{"user_id":"42"}`))
	w := h.post("/v1/check", `{"user_id":"42"}`)
	h.want(w, 429,
		`{"allowed":false,"plan":"free","violated_tier":"user","violated_rule":"user:{user_id}","violated_rule_id":12,`+
			`"reason":"concurrency_exceeded","retry_after_ms":1000,"limit":1,"remaining":0,`+
			`"reset_after_ms":null,"degraded":false,`+
			`"tiers":[{"rule_id":12,"name":"","scope":"user","key_pattern":"user:{user_id}","mode":"enforce",`+
			`"allowed":false,"limit":1,"remaining":0,"retry_after_ms":1000,"reset_after_ms":null}]}`)
	h.wantHeaders(w, map[string]string{"Retry-After": "1", "X-Sluice-Reason": "concurrency_exceeded"})
	h.want(h.post("/v1/settle", `{"reservation":"`+id+`"}`), 200, `{"settled":true,"charged":1}`)
	w = h.post("/v1/check", `{"user_id":"42"}`)
	if reservationOf(t, w) == "" || w.Header().Get("RateLimit") != "" ||
		!strings.Contains(w.Body.String(), `"limit":null,"remaining":null`) {
		t.Errorf("an allowed check says of its places: %v %s", w.Header(), w.Body)
	}
}

func TestAQueueTellsHowLongToWait(t *testing.T) {
	t.Parallel()
	queue := limit(t, 12, "user:{user_id}", 10, 3)
	queue.Algorithm = rules.LeakyBucket
	h := newHarness(t, rules.DefaultSettings(), queue)
	for _, want := range []string{
		`"reset_after_ms":100,"degraded"`, `"delay_ms":100,"degraded"`,
		`"delay_ms":200,"degraded"`, `"limit_exceeded"`,
	} {
		if w := h.post("/v1/check", `{"user_id":"42"}`); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s lacks %s", w.Body, want)
		}
	}
}

func TestSettlementsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 12, "user:{user_id}", 1, 50))
	const id = "AAAAAAAAAAAAAAAAAAAAAA"
	for body, pointer := range map[string]string{
		`{}`:                                     "/reservation",
		`{"reservation":"x"}`:                    "/reservation",
		`{"reservation":"` + id + `","cost":-1}`: "/cost",
		`{"reservation":"` + id + `","cost":"1"}`:                  "/cost",
		`{"reservation":"` + id + `","extend":1}`:                  "/extend",
		`{"reservation":"` + id + `","cancel":true,"extend":true}`: "/extend",
		`{"reservation":"` + id + `","settle":true}`:               "/settle",
	} {
		h.wantRefused(h.post("/v1/settle", body), pointer)
	}
	for body, pointer := range map[string]string{
		`{"reserve":1}`:                        "/reserve",
		`{"reserve":true,"reserve_for":0}`:     "/reserve_for",
		`{"reserve":true,"reserve_for":1.5}`:   "/reserve_for",
		`{"reserve":true,"reserve_for":86401}`: "/reserve_for",
	} {
		h.wantRefused(h.post("/v1/check", body), pointer)
	}
}

func TestOnlyItsTenantSettlesAndOnlyItsKeyGivesBack(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 12, "user:{user_id}", 1, 50))
	id := reservationOf(t, h.post("/v1/check", `{"user_id":"42","cost":10,"reserve":true}`))
	if w := h.postAs("slk_other_"+secret, "/v1/settle",
		`{"reservation":"`+id+`","cost":0}`); w.Body.String() != `{"settled":false}` {
		t.Errorf("another tenant's settlement: %d %s", w.Code, w.Body)
	}
	h.wantStatus(h.postAs("slk_check_"+secret, "/v1/settle", `{"reservation":"`+id+`","cost":0}`), 403)
	h.storeErr = errStoreDown
	h.wantStatus(h.post("/v1/settle", `{"reservation":"AAAAAAAAAAAAAAAAAAAAAA"}`), 503)
	h.storeErr = nil
	h.want(h.post("/v1/settle", `{"reservation":"`+id+`","cost":0}`), 200, `{"settled":true,"charged":0}`)
}
