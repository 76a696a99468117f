package adminapi

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
)

// compressFrom is in bytes; smaller answers fit into a packet anyway.
const compressFrom = 1024

// newCompressor uses the fastest level, because answers are read once.
func newCompressor() (func(http.Handler) http.HandlerFunc, error) {
	compress, err := gzhttp.NewWrapper(
		gzhttp.MinSize(compressFrom), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.EnableZstd(false),
	)
	if err != nil {
		return nil, fmt.Errorf("make the compressor of answers: %w", err)
	}
	return compress, nil
}

// compresses excludes secrets: beside text of an attacker's choice, the length of a compressed answer reveals them byte
// by byte (BREACH). Secrets are in answers to POST, except to explain and simulate. A stream's events must not wait in
// a compressor.
func compresses(rt route, o *operation) bool {
	if rt.method == http.MethodPost {
		return strings.HasSuffix(rt.path, "/explain") || strings.HasSuffix(rt.path, "/simulate")
	}
	return rt.method == http.MethodGet && !o.isStream
}
