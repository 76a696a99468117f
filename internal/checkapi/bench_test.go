package checkapi_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
)

// BenchmarkCheck is the whole way of one check but the network: routing, the key, JSON, four tiers
// in memory, the answer and its headers.
func BenchmarkCheck(b *testing.B) {
	for _, outcome := range []struct {
		name  string
		burst int64
		want  int
	}{{"allowed", rules.MaxBurst, 200}, {"denied", 1, 429}} {
		b.Run(outcome.name, func(b *testing.B) {
			settings := rules.DefaultSettings()
			settings.RetryJitterPercent = 20
			h := newHarness(b, settings,
				limit(b, 1, "user:{user_id}", 1, outcome.burst), limit(b, 2, "endpoint:/api/*", 1, outcome.burst),
				limit(b, 3, "global", 1, outcome.burst), limit(b, 4, "ip:{ip}", 1, outcome.burst))
			body := []byte(`{"user_id":"42","endpoint":"/api/search","method":"GET","ip":"203.0.113.9","attributes":{"org":"acme"}}`)
			reader := bytes.NewReader(body)
			r := httptest.NewRequest("POST", "/v1/check", nil)
			r.Header.Set("Content-Type", jsonType)
			r.Header.Set("Authorization", "Bearer "+fullKey)
			r.Body, r.ContentLength = io.NopCloser(reader), int64(len(body))
			w := &discard{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				reader.Reset(body)
				clear(w.header)
				h.handler.ServeHTTP(w, r)
			}
			if w.status != outcome.want {
				b.Fatalf("the last answer is %d, want %d", w.status, outcome.want)
			}
		})
	}
}

// discard is an answer that nobody reads.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
