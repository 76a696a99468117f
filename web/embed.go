// Package web is the built UI, and the handler that serves it.
//
// The UI is a program in the browser that uses nothing but the admin API under /api/v1: this package
// knows no data and no session. `make run` and the release build put the built files into dist, which
// is embedded; a binary built without them answers with a page that says how to build the UI, and
// everything else works.
//
// Every address that names no file is a screen, whose path the UI itself reads, and is answered with
// index.html; what begins with /api/ or /assets/ is not, so that a wrong address there is a 404 and
// never a page. Files under /assets/ carry a hash of their content in their name and are cached for
// ever; the others are asked for each time, by ETag. Files that were compressed when the UI was built
// are sent compressed, and unpacked for the rare client that does not accept gzip.
//
// The content security policy allows scripts and data of this origin alone, and nobody may frame the
// UI. index.html has one inline script, which runs before the first paint; the policy names its hash.
// Inline styles are allowed, because the component library positions menus with them.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/httpapi"
)

//go:embed all:dist
var embedded embed.FS

var inlineScript = regexp.MustCompile(`(?s)<script>(.*?)</script>`)

// contentSecurityPolicy allows the page's inline scripts and no others.
func contentSecurityPolicy(page []byte) string {
	scripts := "'self'"
	for _, script := range inlineScript.FindAllSubmatch(page, -1) {
		sum := sha256.Sum256(script[1])
		scripts += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + scripts + "; style-src 'self' 'unsafe-inline'; " +
		"img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
}

const notBuilt = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Sluice</title>
<style>body { font: 16px/1.5 system-ui; max-width: 36rem; margin: 20vh auto; padding: 0 1rem }</style>
<h1>The UI is not in this binary</h1>
<p>It was built without it. With Node 20.19 or later, <code>make run</code> builds the UI and starts
everything; <code>npm ci &amp;&amp; npm run build</code> in the folder <code>web</code> followed by
<code>go build</code> makes a binary that has it.</p>
<p>The admin API answers all the same, at <code>/api/v1</code>.</p>
</html>
`

// Handler serves the embedded UI.
func Handler(log *slog.Logger) (http.Handler, error) {
	dist, err := fs.Sub(embedded, "dist")
	if err != nil {
		return nil, fmt.Errorf("open the embedded UI: %w", err)
	}
	return newHandler(dist, log)
}

type file struct {
	body        []byte
	gzip        []byte // nil: it was not compressed
	contentType string
	etag        string // of the body; that of the compressed one has a suffix
	immutable   bool
}

type handler struct {
	files map[string]*file // by path, without the leading slash
	index *file            // nil: the UI is not built
	csp   string
	log   *slog.Logger
}

func newHandler(dist fs.FS, log *slog.Logger) (*handler, error) {
	h := &handler{files: map[string]*file{}, log: log}
	err := fs.WalkDir(dist, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir // what the build notes for tests
			}
			return nil
		case entry.IsDir():
			return nil
		}
		f, err := read(dist, name)
		h.files[strings.TrimSuffix(name, ".gz")] = f
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the built UI: %w", err)
	}
	h.index = h.files["index.html"]
	h.csp = contentSecurityPolicy(nil)
	if h.index != nil {
		h.csp = contentSecurityPolicy(h.index.body)
	}
	return h, nil
}

func read(dist fs.FS, name string) (*file, error) {
	body, err := fs.ReadFile(dist, name)
	if err != nil {
		return nil, err
	}
	f := &file{immutable: strings.HasPrefix(name, "assets/")}
	name, isCompressed := strings.CutSuffix(name, ".gz")
	if isCompressed {
		f.gzip = body
		if body, err = decompress(body); err != nil {
			return nil, fmt.Errorf("decompress %s: %w", name, err)
		}
	}
	sum := sha256.Sum256(body)
	f.body, f.contentType, f.etag = body, contentType(name), hex.EncodeToString(sum[:12])
	return f, nil
}

func decompress(compressed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r) // which checks the checksum, so that there is nothing to close
}

// contentType does not ask the machine's own tables, which differ, for what the UI is made of.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	}
	if known := mime.TypeByExtension(path.Ext(name)); known != "" {
		return known
	}
	return "application/octet-stream"
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", h.csp)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		httpapi.WriteError(w, r, h.log, httpapi.WrongMethod.Problem("Pages and their files are only read."))
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	f, ok := h.files[name]
	switch {
	case ok:
		f.serve(w, r)
	case strings.HasPrefix(name, "api/") || strings.HasPrefix(name, "assets/"):
		httpapi.WriteError(w, r, h.log,
			httpapi.NotFound.Problem("Check the path; the API is described at /api/v1/docs."))
	case h.index == nil:
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(notBuilt)) // a caller that went away needs no answer
	default:
		h.index.serve(w, r)
	}
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", f.contentType)
	header.Set("Cache-Control", "no-cache")
	if f.immutable {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	body, etag := f.body, `"`+f.etag+`"`
	if f.gzip != nil {
		header.Add("Vary", "Accept-Encoding")
		if accepts(r.Header.Get("Accept-Encoding"), "gzip") {
			header.Set("Content-Encoding", "gzip")
			body, etag = f.gzip, `"`+f.etag+`-gzip"`
		}
	}
	header.Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		header.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(body) // a caller that went away needs no answer
}

// accepts reports whether an Accept-Encoding header names a coding with a weight above 0. The weights of
// two codings are not compared, which RFC 9110 section 12.5.3 leaves to the server.
func accepts(header, coding string) bool {
	for item := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(item, ";")
		if strings.EqualFold(strings.TrimSpace(name), coding) {
			q, weighted := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			value, err := strconv.ParseFloat(q, 64)
			return !weighted || err == nil && value > 0
		}
	}
	return false
}
