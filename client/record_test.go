package sluice

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

func TestARecordIsSentAgainOnlyWithAnID(t *testing.T) {
	t.Parallel()
	const (
		id       = "0123456789abcdef"
		recorded = `{"allowed":true,"recorded":true,"tiers":[{"rule_id":12,"charged":2.5},{"rule_id":13,"charged":0}]}`
		away     = `{"type":"urn:sluice:problem:unavailable","title":"away"}`
		full     = `{"type":"urn:sluice:problem:record-ids-exhausted","title":"full"}`
	)
	type answer struct {
		status int // 0 ends the connection
		body   string
	}
	for name, c := range map[string]struct {
		id      string
		answers []answer
		sent    int
		status  int // of the error; -1 for none
	}{
		"an answer":                  {id, []answer{{200, recorded}}, 1, -1},
		"503, and then an answer":    {id, []answer{{503, away}, {200, recorded}}, 2, -1},
		"a lost answer, and another": {id, []answer{{0, ""}, {503, away}, {200, recorded}}, 3, -1},
		"503 again and again":        {id, []answer{{503, away}, {503, away}, {503, away}, {503, away}}, 3, 503},
		"too many ids":               {id, []answer{{429, full}, {200, recorded}}, 1, 429},
		"503 without an id":          {"", []answer{{503, away}, {200, recorded}}, 1, 503},
		"a lost answer without one":  {"", []answer{{0, ""}, {200, recorded}}, 1, 0},
		"a server without records":   {id, []answer{{200, `{"allowed":true,"tiers":[]}`}}, 1, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			want := `{"user_id":"42","cost":2.5,"record":true`
			if c.id != "" {
				want += `,"record_id":"` + c.id + `"`
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, _ := io.ReadAll(r.Body); string(body) != want+"}" || r.URL.Path != "/v1/check" {
					t.Errorf("got %s %s", r.URL.Path, body)
				}
				next := c.answers[sent.Add(1)-1]
				if next.status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(next.status)
				_, _ = io.WriteString(w, next.body)
			}))
			defer server.Close()
			limits, err := New(Config{URL: server.URL, Key: "slk_1_2"})
			if err != nil {
				t.Fatal(err)
			}
			defer limits.Close()
			got, err := limits.Record(t.Context(), Check{UserID: "42", Cost: 7}, 2.5, c.id)
			var failed *Error
			switch {
			case c.status < 0:
				if err != nil || !got.Recorded || !maps.Equal(got.Charged, map[int64]float64{12: 2.5}) {
					t.Errorf("recorded as %+v, %v", got, err)
				}
			case !errors.As(err, &failed) || failed.Status != c.status:
				t.Errorf("recorded as %+v, %v, want an error with the status %d", got, err, c.status)
			}
			if sent.Load() != int64(c.sent) {
				t.Errorf("sent %d times, want %d", sent.Load(), c.sent)
			}
		})
	}
}
