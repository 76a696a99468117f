package adminapi_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/violations"
)

func (s *streaming) rawGet(by caller, path string) (header http.Header, body io.Reader) {
	s.t.Helper()
	q := must(http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.server.URL+path, nil))(s.t)
	q.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	q.AddCookie(&http.Cookie{Name: "sluice_session", Value: by.session})
	got, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = got.Body.Close() })
	if got.StatusCode != http.StatusOK {
		s.t.Fatalf("%s is answered with %s", path, got.Status)
	}
	return got.Header, got.Body
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	s := newStreaming(t)
	by, at := s.person(s.acme, auth.Owner), lately()
	for i := range 40 {
		s.violate(denied(s.acme, at.Add(time.Duration(i)*time.Second), func(*violations.Violation) {}))
	}
	for _, path := range []string{
		"/violations", "/violations/export?format=csv", "/violations/export?format=jsonl",
		"/stats/series",
	} {
		header, body := s.rawGet(by, "/api/v1/tenants/acme"+path)
		if header.Get("Content-Encoding") != "gzip" || !slices.Contains(header.Values("Vary"), "Accept-Encoding") {
			t.Errorf("%s is answered with Content-Encoding %q and Vary %q", path, header.Get("Content-Encoding"),
				header.Values("Vary"))
			continue
		}
		text := string(must(io.ReadAll(must(gzip.NewReader(body))(t)))(t))
		if plain := s.send(by, "GET", "/api/v1/tenants/acme"+path, nil); plain.body != text &&
			!strings.Contains(path, "series") {
			t.Errorf("%s differs when it is compressed: %d bytes, %d plain", path, len(text), len(plain.body))
		}
	}
	for what, path := range map[string]string{"a small answer": "", "the stream": "/violations/tail"} {
		if header, _ := s.rawGet(by, "/api/v1/tenants/acme"+path); header.Get("Content-Encoding") != "" {
			t.Errorf("%s is compressed", what)
		}
	}
}

func TestAnswersWithSecretsAreNotCompressed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	name := strings.Repeat("n", 60)
	created := w.want(w.send(by, "POST", "/api/v1/tenants/acme/api-keys",
		map[string]any{"name": name, "permissions": []string{"check"}}, "Accept-Encoding", "gzip"), http.StatusCreated)
	if created.header.Get("Content-Encoding") != "" ||
		slices.Contains(created.header.Values("Vary"), "Accept-Encoding") {
		t.Errorf("a new key is answered by what compresses: %v", created.header)
	}
}

func TestTheSessionSaysWhereChecksAreAsked(t *testing.T) {
	t.Parallel()
	type session struct {
		CheckURL *string `json:"check_url"`
	}
	for url, want := range map[string]string{"": "<nil>", "https://limits.example.com": "https://limits.example.com"} {
		w := newWorld(t, func(c *adminapi.Config) { c.CheckURL = url })
		got := read[session](t, w.get(w.person(w.acme, auth.Viewer), "/api/v1/session")).CheckURL
		if (got == nil) != (url == "") || got != nil && *got != want {
			t.Errorf("with %q the session says %v, want %s", url, got, want)
		}
	}
}
