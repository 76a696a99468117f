package checkapi

import (
	"bytes"
	"net/http"

	"github.com/valyala/fasthttp"
)

// pathOf decodes and cleans nothing, because a second spelling of a path may evade a proxy's rules.
func pathOf(h *fasthttp.RequestHeader) []byte {
	path, _ := splitTarget(h.RequestURI())
	return path
}

func splitTarget(target []byte) (path, query []byte) {
	path, query, _ = bytes.Cut(target, []byte("?"))
	for _, scheme := range []string{"http://", "https://"} {
		if len(path) >= len(scheme) && bytes.EqualFold(path[:len(scheme)], []byte(scheme)) {
			rest := path[len(scheme):]
			return rest[max(0, bytes.IndexByte(rest, '/')):], query
		}
	}
	return path, query
}

// checkFraming refuses a request that another HTTP parser might understand differently, because fasthttp accepts folded
// lines, spaces within names, and unknown encodings. A proxy that parses these differently would see the next request
// begin elsewhere (request smuggling).
func checkFraming(h *fasthttp.RequestHeader) (last bool, err error) {
	version := string(h.Protocol())
	plain := version == "HTTP/1.1" || version == "HTTP/1.0"
	fields, length, chunked := 0, false, false
	for line := range bytes.Lines(h.RawHeaders()) {
		if line[0] == '\r' || line[0] == '\n' {
			break // the blank line that ends the headers
		}
		fields++
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.ContainsAny(name, " \t"):
			plain = false
		case bytes.EqualFold(name, []byte("Content-Length")):
			length = true
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
			plain = plain && bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked"))
		case bytes.EqualFold(name, []byte("Trailer")):
			fields += bytes.Count(value, []byte(",")) // fasthttp keeps a slice for each name
		case bytes.EqualFold(name, []byte("Connection")):
			for option := range bytes.SplitSeq(value, []byte(",")) {
				last = last || bytes.EqualFold(bytes.TrimSpace(option), []byte("close"))
			}
		}
	}
	switch {
	case !plain || length && chunked:
		return true, badHTTP()
	case fields > maxFields:
		return true, headersTooLarge() // fasthttp would keep memory for as many
	}
	return last, nil
}

// methodOf: callers must not make up log values.
func methodOf(h *fasthttp.RequestHeader) string {
	switch method := string(h.Method()); method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return method
	}
	return "another"
}
