package checkapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestARecordSaysWhatWasChargedAndIsChargedOnce(t *testing.T) {
	t.Parallel()
	places := limit(t, 13, "global", 0, 1)
	places.Algorithm, places.MaxHold = rules.Concurrency, time.Minute
	h := newHarness(t, rules.DefaultSettings(), limit(t, 12, "user:{user_id}", 0.001, 10), places)
	answer := func(recorded, remaining, charged, reset string) string {
		whole, _, _ := strings.Cut(remaining, ".")
		return `{"allowed":true,"plan":"free","violated_tier":null,"violated_rule":null,"violated_rule_id":null,` +
			`"reason":null,"retry_after_ms":0,"limit":10,"remaining":` + whole + `,"reset_after_ms":` + reset +
			`,"recorded":` + recorded + `,"degraded":false,"tiers":[{"rule_id":12,"name":"","scope":"user",` +
			`"key_pattern":"user:{user_id}","mode":"enforce","allowed":true,"limit":10,"remaining":` + remaining +
			`,"retry_after_ms":0,"reset_after_ms":` + reset + `,"window_ms":10000000,"more_after_ms":`
	}
	record := func(body, recorded, remaining, charged, reset string) {
		t.Helper()
		w := h.postAs(recordKey, "/v1/check", body)
		want := answer(recorded, remaining, charged, reset)
		if w.Code != 200 || !strings.HasPrefix(w.Body.String(), want) ||
			!strings.HasSuffix(w.Body.String(), `,"charged":`+charged+`}]}`) {
			t.Errorf("answered %d\n     %s\nwant %s…\"charged\":%s", w.Code, w.Body, want, charged)
		}
	}
	const id = `,"record_id":"0123456789abcdef"}`
	record(`{"user_id":"42","cost":2.5,"record":true}`, "true", "7.5", "2.5", "2500000")
	record(`{"user_id":"42","cost":9,"record":true`+id, "true", "0", "9", "11500000")
	record(`{"user_id":"42","cost":3,"record":true`+id, "false", "0", "0", "11500000")
	h.wantStatus(h.post("/v1/check", `{"user_id":"42"}`), 429)
	w := h.postAs(recordKey, "/v1/check/batch", `{"checks":[{"user_id":"7","cost":4,"record":true},{"user_id":"7"}]}`)
	if got := w.Body.String(); !strings.Contains(got, `"remaining":6,`) || !strings.Contains(got, `"remaining":5,`) ||
		strings.Count(got, `"recorded":true`) != 1 || strings.Count(got, `"charged":4`) != 1 {
		t.Errorf("a batch is answered %s", got)
	}
}

func TestARecordNeedsItsCostAndAPermission(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 12, "user:{user_id}", 0.001, 10))
	for body, mistake := range map[string]string{
		`{"record":true}`:                                          "without cost",
		`{"record":true,"cost":1,"reserve":true}`:                  "reserve",
		`{"record":true,"cost":1,"reserve_for":60}`:                "reserve",
		`{"record":1,"cost":1}`:                                    "true or false",
		`{"cost":1,"record_id":"0123456789abcdef"}`:                "record true",
		`{"cost":1,"record":true,"record_id":"too short"}`:         "16 to 255",
		`{"cost":1,"record":true,"record_id":"0123456789\tabcde"}`: "16 to 255",
	} {
		if w := h.postAs(recordKey, "/v1/check", body); w.Code != 400 || !strings.Contains(w.Body.String(), mistake) {
			t.Errorf("%s is answered %d %s", body, w.Code, w.Body)
		}
		batch := `{"checks":[{},` + body + `]}`
		if w := h.postAs(recordKey, "/v1/check/batch", batch); w.Code != 400 ||
			!strings.Contains(w.Body.String(), `"/checks/1`) {
			t.Errorf("%s is answered %d %s", batch, w.Code, w.Body)
		}
	}
	const record = `{"user_id":"42","cost":1,"record":true}`
	if w := h.post("/v1/explain", record); w.Code != 400 || !strings.Contains(w.Body.String(), "/record") {
		t.Errorf("an explanation is answered %d %s", w.Code, w.Body)
	}
	for path, body := range map[string]string{
		"/v1/check": record, "/v1/check/batch": `{"checks":[{"user_id":"42"},` + record + `]}`,
	} {
		if w := h.post(path, body); w.Code != 403 || !strings.Contains(w.Body.String(), "permission report") {
			t.Errorf("%s without the permission is answered %d %s", path, w.Code, w.Body)
		}
	}
	if w := h.post("/v1/check", `{"user_id":"42","cost":0}`); !strings.Contains(w.Body.String(), `"remaining":10,`) {
		t.Errorf("a refused record or batch took something: %s", w.Body)
	}
}

func TestARecordWithoutTheStoreIs503(t *testing.T) {
	t.Parallel()
	open := limit(t, 12, "user:{user_id}", 0.001, 10)
	open.FailureMode = rules.FailOpen
	h := newHarness(t, rules.DefaultSettings(), open)
	h.storeErr = errStoreDown
	w := h.postAs(recordKey, "/v1/check", `{"user_id":"42","cost":1,"record":true}`)
	if w.Code != 503 || !strings.Contains(w.Body.String(), "urn:sluice:problem:unavailable") ||
		w.Header().Get("Retry-After") != "1" {
		t.Errorf("answered %d %s %s", w.Code, w.Header(), w.Body)
	}
	w = h.postAs(recordKey, "/v1/check/batch", `{"checks":[{"user_id":"42","cost":1,"record":true},{"user_id":"42"}]}`)
	if got := w.Body.String(); !strings.Contains(got, `{"status":503,"allowed":false`) ||
		!strings.Contains(got, `"recorded":false`) || !strings.Contains(got, `{"status":200,`) {
		t.Errorf("a batch is answered %s", got)
	}
}
