package adminapi

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
)

// compressFrom is the least size of a compressed answer, in bytes. Smaller ones fit into a packet anyway.
const compressFrom = 1024

// newCompressor returns middleware that compresses answers for callers that accept gzip, at the fastest level, because
// answers are read once.
func newCompressor() (func(http.Handler) http.HandlerFunc, error) {
	compress, err := gzhttp.NewWrapper(
		gzhttp.MinSize(compressFrom), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.EnableZstd(false),
	)
	if err != nil {
		return nil, fmt.Errorf("make the compressor of answers: %w", err)
	}
	return compress, nil
}

// compresses reports whether a route's answers may be compressed. The length of a compressed answer reveals repeated
// text, so a secret beside text of an attacker's choice can be guessed byte by byte (BREACH). Secrets are shown only in
// answers to POST, when they are created, so of the POSTs only explain and simulate, whose answers are large, are
// compressed. The tail is not compressed, because its events must not wait in a compressor.
func compresses(method, path string) bool {
	if method == http.MethodPost {
		return strings.HasSuffix(path, "/explain") || strings.HasSuffix(path, "/simulate")
	}
	return method == http.MethodGet && !strings.HasSuffix(path, "/tail")
}
