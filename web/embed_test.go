package web

import (
	"bytes"
	"compress/gzip"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

var built = fstest.MapFS{
	".gitkeep":            {},
	".vite/manifest.json": {Data: []byte(`{}`)},
	"index.html": {Data: []byte(
		"<!doctype html><title>Sluice</title><script>start()</script><script src=\"/a.js\"></script>")},
	"favicon.svg":            {Data: []byte("<svg/>")},
	"assets/index-abc.js.gz": {Data: compressed("plain script")},
}

func compressed(text string) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(text)) // to memory
	_ = w.Close()
	return packed.Bytes()
}

func get(t *testing.T, h http.Handler, method, path string, headers map[string]string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func testHandler(t *testing.T, files fstest.MapFS) http.Handler {
	t.Helper()
	h, err := newHandler(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	h := testHandler(t, built)
	tests := []struct {
		name, method, path string
		headers            map[string]string
		status             int
		body               string // what it contains
		want               map[string]string
	}{
		{
			name: "the root is the UI", method: "GET", path: "/", status: 200, body: "<title>Sluice",
			want: map[string]string{"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-cache"},
		},
		{
			name: "a screen's address is the UI", method: "GET", path: "/t/acme/rules/12", status: 200,
			body: "<title>Sluice",
		},
		{
			name: "a user id that looks like a file is still a screen", method: "GET", path: "/t/acme/users/a.js",
			status: 200, body: "<title>Sluice",
		},
		{
			name: "an asset is cached for ever", method: "GET", path: "/assets/index-abc.js", status: 200,
			body: "plain script",
			want: map[string]string{
				"Content-Type":     "text/javascript; charset=utf-8",
				"Cache-Control":    "public, max-age=31536000, immutable",
				"Content-Encoding": "", "Vary": "Accept-Encoding",
			},
		},
		{
			name: "an asset is compressed for whoever accepts that", method: "GET", path: "/assets/index-abc.js",
			status:  200,
			headers: map[string]string{"Accept-Encoding": "deflate, gzip"}, body: string(compressed("plain script")),
			want: map[string]string{
				"Content-Encoding": "gzip",
				"Content-Length":   strconv.Itoa(len(compressed("plain script"))),
			},
		},
		{
			name: "gzip with weight 0 is a refusal", method: "GET", path: "/assets/index-abc.js", status: 200,
			headers: map[string]string{"Accept-Encoding": "gzip;q=0"}, body: "plain script",
		},
		{
			name: "an asset that is gone is no page", method: "GET", path: "/assets/index-old.js", status: 404,
			body: "problem:not-found",
		},
		{
			name: "an unknown API path is no page", method: "GET", path: "/api/v1/nothing", status: 404,
			body: "problem:not-found",
		},
		{
			name: "the compressed twin is no file of its own", method: "GET", path: "/assets/index-abc.js.gz",
			status: 404,
			body:   "problem:not-found",
		},
		{
			name: "what the build notes is not served", method: "GET", path: "/.vite/manifest.json", status: 200,
			body: "<title>Sluice",
		},
		{
			name: "writing is refused", method: "POST", path: "/", status: 405, body: "problem:method-not-allowed",
			want: map[string]string{"Allow": "GET, HEAD"},
		},
		{
			name: "HEAD has no body", method: "HEAD", path: "/", status: 200,
			want: map[string]string{"Content-Length": "89"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := get(t, h, test.method, test.path, test.headers)
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.body) {
				t.Errorf("got %d %q, want %d with %q", w.Code, w.Body, test.status, test.body)
			}
			if test.method == "HEAD" && w.Body.Len() > 0 {
				t.Errorf("got a body of %d bytes", w.Body.Len())
			}
			for name, value := range test.want {
				if got := w.Header().Get(name); got != value {
					t.Errorf("%s: got %q, want %q", name, got, value)
				}
			}
		})
	}
}

func TestWhatIsAlreadyThereIsNotSentAgain(t *testing.T) {
	t.Parallel()
	h := testHandler(t, built)
	for _, encoding := range []string{"", "gzip"} {
		first := get(t, h, "GET", "/assets/index-abc.js", map[string]string{"Accept-Encoding": encoding})
		again := get(t, h, "GET", "/assets/index-abc.js", map[string]string{
			"Accept-Encoding": encoding, "If-None-Match": first.Header().Get("ETag"),
		})
		if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("with encoding %q: got %d and %d bytes, want 304 and none", encoding, again.Code, again.Body.Len())
		}
	}
	plain := get(t, h, "GET", "/assets/index-abc.js", nil).Header().Get("ETag")
	compressed := get(t, h, "GET", "/assets/index-abc.js",
		map[string]string{"Accept-Encoding": "gzip"}).Header().Get("ETag")
	if plain == compressed {
		t.Errorf("two representations have one ETag %s", plain)
	}
}

func TestEveryAnswerIsGuarded(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/assets/index-abc.js", "/assets/gone.js"} {
		header := get(t, testHandler(t, built), "GET", path, nil).Header()
		policy := header.Get("Content-Security-Policy")
		for _, part := range []string{
			"default-src 'none'",
			"script-src 'self' 'sha256-DIm7WJS6ZKDYe5qFLPy+h4JFI9Bol5QmYC57mt3Fb00=';", // of start()
			"frame-ancestors 'none'",
		} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %q", path, policy, part)
			}
		}
		if got := header.Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s: X-Content-Type-Options is %q", path, got)
		}
	}
}

func TestABinaryWithoutTheUISaysHowToBuildIt(t *testing.T) {
	t.Parallel()
	w := get(t, testHandler(t, fstest.MapFS{".gitkeep": {}}), "GET", "/t/acme/plans", nil)
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "npm run build") {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}

func TestTheEmbeddedFilesCanBeServed(t *testing.T) {
	t.Parallel()
	h, err := Handler(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	// Built or not, which depends on the checkout, the answer is a page.
	if w := get(t, h, "GET", "/", nil); !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}
