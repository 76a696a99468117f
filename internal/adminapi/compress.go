package adminapi

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
)

// compressFrom is the size in bytes from which on answers are compressed. Smaller ones fit into a packet anyway.
const compressFrom = 1024

// newCompressor returns what compresses the answers of a route for callers that accept gzip. It works at the fastest
// level, because answers are read once.
func newCompressor() (func(http.Handler) http.HandlerFunc, error) {
	compress, err := gzhttp.NewWrapper(
		gzhttp.MinSize(compressFrom), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.EnableZstd(false),
	)
	if err != nil {
		return nil, fmt.Errorf("make the compressor of answers: %w", err)
	}
	return compress, nil
}

// compresses says whether a route's answers may be compressed. The length of a compressed answer tells an eavesdropper
// which text occurs in it twice; where a secret stands beside text that an attacker chose, that gives the secret away,
// byte by byte (BREACH). So answers with secrets are never compressed: those are all to POST, since keys, signing
// secrets and invitations are shown only when they are made. Of the other POSTs, explain and simulate have large
// answers. The tail is not compressed, because its events must not wait in a compressor.
func compresses(method, path string) bool {
	if method == http.MethodPost {
		return strings.HasSuffix(path, "/explain") || strings.HasSuffix(path, "/simulate")
	}
	return method == http.MethodGet && !strings.HasSuffix(path, "/tail")
}
