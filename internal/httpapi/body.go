package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
)

// ReadBody reads a JSON body of at most limit bytes into buf, which it empties first. It answers
// a *Problem if the body is larger or does not say that it is JSON.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, buf *bytes.Buffer) error {
	if !isJSON(r.Header) {
		return WrongMediaType.Problem("Send the body as JSON, uncompressed, with Content-Type: application/json.")
	}
	return ReadFile(w, r, limit, buf)
}

// ReadFile reads a body of any kind, of at most limit bytes, into buf, which it empties first. It answers
// a *Problem if the body is larger, and if it ends early or comes too slowly: that is the caller's doing
// and no failure here.
func ReadFile(w http.ResponseWriter, r *http.Request, limit int64, buf *bytes.Buffer) error {
	if r.ContentLength > limit {
		return bodyTooLarge(limit)
	}
	body := r.Body
	if r.ContentLength < 0 { // else net/http itself ends it there
		body = http.MaxBytesReader(w, body, limit)
	}
	buf.Reset()
	if _, err := buf.ReadFrom(body); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return bodyTooLarge(limit)
		}
		return InvalidRequest.Problem("The body could not be read to its end; send it again.")
	}
	return nil
}

// isJSON requires the media type even where only JSON could be meant: a browser sends other types
// across sites without asking first, and this one it does not.
func isJSON(h http.Header) bool {
	if encoding := h.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return false
	}
	contentType := h.Get("Content-Type")
	if contentType == "application/json" { // nearly every caller; parsing allocates
		return true
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/json"
}

func bodyTooLarge(limit int64) *Problem {
	return TooLarge.Problem(fmt.Sprintf("Send at most %d bytes.", limit))
}
