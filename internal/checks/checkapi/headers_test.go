package checkapi_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// The rule allows 1 per 100 seconds, so that a second check waits 100 s and hundredths of a percent of
// jitter show as up to 50 different answers.
func jitterRule(t testing.TB) []rules.Rule {
	return []rules.Rule{limit(t, 1, "user:{user_id}", 0.01, 1), limit(t, 2, "ip:{ip}", 0.01, 1)}
}

func (h *harness) denied(body string) int {
	h.t.Helper()
	h.post("/v1/check", body)
	w := h.post("/v1/check", body)
	if !strings.Contains(w.Body.String(), `"retry_after_ms":100000,"limit"`) {
		h.t.Fatalf("%s is answered %d %s, want a wait of 100000 ms without jitter", body, w.Code, w.Body)
	}
	after, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil {
		h.t.Fatal(err)
	}
	return after
}

func TestJitterStaysWithinTheTenantsSettingAndSpreads(t *testing.T) {
	t.Parallel()
	for _, percent := range []int{0, 1, 20, 50} {
		t.Run(fmt.Sprintf("of %d percent", percent), func(t *testing.T) {
			t.Parallel()
			settings := rules.DefaultSettings()
			settings.RetryJitterPercent = percent
			h := newHarness(t, settings, jitterRule(t)...)
			seen := map[int]int{}
			for user := range 400 {
				seen[h.denied(fmt.Sprintf(`{"user_id":%d}`, user))]++
			}
			for after := range seen {
				if after < 100 || after > 100+percent {
					t.Errorf("Retry-After is %d, want 100 to %d", after, 100+percent)
				}
			}
			// Each second gets about 400/percent of 400 evenly spread users.
			if want := max(1, percent*9/10); len(seen) < want {
				t.Errorf("neighbouring users got %d different answers %v, want at least %d", len(seen), seen, want)
			}
		})
	}
}

func TestJitterIsTheSameInEveryProcess(t *testing.T) {
	t.Parallel()
	settings := rules.DefaultSettings()
	settings.RetryJitterPercent = 50
	// Worked out apart: 100 s × (1 + n/10000), n being the first 8 bytes of SHA-256 over the tenant's
	// id in 8 bytes and "user:42", modulo 5001. A later version must answer the same.
	for body, want := range map[string]int{
		`{"user_id":"42"}`:                     112,
		`{"user_id":42}`:                       112,
		`{"user_id":"42","ip":"203.0.113.9"}`:  112,
		`{"user_id":"43"}`:                     134,
		`{"ip":"203.0.113.9"}`:                 112,
		`{"ip":"::ffff:203.0.113.9"}`:          112,
		`{"user_id":"203.0.113.9"}`:            124,
		`{"ip":"2001:db8::1","endpoint":"/a"}`: 136,
	} {
		h := newHarness(t, settings, jitterRule(t)...)
		if got := h.denied(body); got != want {
			t.Errorf("%s: Retry-After is %d, want %d", body, got, want)
		}
	}
}

func TestRetryAfterAndTheBodysWaitAreEachEnough(t *testing.T) {
	t.Parallel()
	settings := rules.DefaultSettings()
	settings.RetryJitterPercent = 50
	for name, rate := range map[string]float64{
		"fast": 1000, "one per second": 1, "one per minute": 1.0 / 60, "a third per second": 1.0 / 3,
		"one per day": 1.0 / 86400, "uneven": 0.7310585,
	} {
		for _, by := range []string{"header", "body"} {
			t.Run(name+" by the "+by, func(t *testing.T) {
				t.Parallel()
				h := newHarness(t, settings, limit(t, 1, "user:{user_id}", rate, 3))
				h.post("/v1/check", `{"user_id":"x","cost":2.7}`)
				h.now = h.now.Add(123457 * time.Microsecond)
				h.post("/v1/check", `{"user_id":"x","cost":0.4}`)
				for range 5 {
					w := h.post("/v1/check", `{"user_id":"x","cost":3}`)
					if w.Code == 200 {
						continue
					}
					wait := time.Duration(number(t, w.Body.String(), `"retry_after_ms":`)) * time.Millisecond
					if by == "header" {
						seconds := number(t, w.Header().Get("Retry-After"), "")
						if item := number(t, header(w, "RateLimit"), `;t=`); item > seconds {
							t.Errorf("Retry-After %d is before t=%d", seconds, item)
						}
						wait = time.Duration(seconds) * time.Second
					}
					h.now = h.now.Add(wait)
					if w = h.post("/v1/check", `{"user_id":"x","cost":3}`); w.Code != 200 {
						t.Fatalf("after waiting %v the answer is %d %s", wait, w.Code, w.Body)
					}
				}
			})
		}
	}
}

// t is the wait of a caller that spent r: at 0.1 per second a whole token takes 10 s, and 4 s after the first take 6 s
// are left.
func TestRateLimitSaysWhenThereIsMore(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 9, "global", 0.1, 3))
	for _, step := range []struct {
		after time.Duration
		cost  string
		want  string
	}{
		{0, "0", `"global-9";r=3;t=0`},
		{0, "1", `"global-9";r=2;t=10`},
		{4 * time.Second, "0", `"global-9";r=2;t=6`},
		{100 * time.Millisecond, "0", `"global-9";r=2;t=6`},
		{0, "2.41", `"global-9";r=0;t=10`},
		{0, "2", `"global-9";r=0;t=20`}, // denied: its own wait
		{0, "4", `"global-9";r=0;t=10`}, // never: the next whole token
		{time.Hour, "0", `"global-9";r=3;t=0`},
	} {
		h.now = h.now.Add(step.after)
		w := h.post("/v1/check", `{"cost":`+step.cost+`}`)
		if got := header(w, "RateLimit"); got != step.want {
			t.Errorf("after %v at cost %s RateLimit is %s, want %s", step.after, step.cost, got, step.want)
		}
		if got := header(w, "RateLimit-Policy"); got != `"global-9";q=3;w=30` {
			t.Errorf("RateLimit-Policy is %s", got)
		}
	}
}

// TestHeadersOfTheGatewaysExample has the gateway limiter's figures: burst 200 at 100 per second. Retry-After is the
// deficit divided by the rate, rounded up, and with jitter up to half as much again.
func TestHeadersOfTheGatewaysExample(t *testing.T) {
	t.Parallel()
	for _, percent := range []int{0, 50} {
		settings := rules.DefaultSettings()
		settings.RetryJitterPercent = percent
		h := newHarness(t, settings, limit(t, 9, "user:{user_id}", 100, 200))
		ask := func(cost string) (limit, retryAfter string) {
			w := h.post("/v1/check", `{"user_id":"per-org","cost":`+cost+`}`)
			return header(w, "RateLimit"), w.Header().Get("Retry-After")
		}
		if limit, retry := ask("113"); limit != `"user-9";r=87;t=1` || retry != "" {
			t.Errorf("113 of 200 are answered %s and Retry-After %q", limit, retry)
		}
		_, _ = ask("87")
		for cost, wait := range map[string]float64{"1": 0.01, "100": 1, "113": 1.13, "200": 2} {
			_, retry := ask(cost)
			got, err := strconv.ParseFloat(retry, 64)
			if most := math.Ceil(wait * (1 + float64(percent)/100)); err != nil || got < math.Ceil(wait) || got > most {
				t.Errorf("with %d %% jitter a cost of %s is told Retry-After %q, want %g to %g", percent, cost, retry,
					math.Ceil(wait), most)
			}
		}
	}
}

func number(t *testing.T, text, mark string) int {
	t.Helper()
	_, after, found := strings.Cut(text, mark)
	end := len(after) - len(strings.TrimLeft(after, "0123456789"))
	n, err := strconv.Atoi(after[:end])
	if !found || err != nil {
		t.Fatalf("no number behind %q in %q", mark, text)
	}
	return n
}
