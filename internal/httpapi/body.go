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
	if err := RequireJSON(r.Header.Get("Content-Type"), r.Header.Get("Content-Encoding")); err != nil {
		return err
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
		return BrokenBody()
	}
	return nil
}

// RequireJSON answers a *Problem unless these headers say that a body is JSON. They must even where only JSON
// could be meant: a browser sends other types across sites without asking first, and this one it does not.
func RequireJSON(contentType, contentEncoding string) error {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err == nil && mediaType == "application/json" && (contentEncoding == "" || contentEncoding == "identity") {
		return nil
	}
	return WrongMediaType.Problem("Send the body as JSON, uncompressed, with Content-Type: application/json.")
}

// bodyTooLarge is the answer to a body of more bytes than these.
func bodyTooLarge(limit int64) *Problem {
	return TooLarge.Problem(fmt.Sprintf("Send at most %d bytes.", limit))
}

// BrokenBody is the answer to a body that ends early or comes too slowly.
func BrokenBody() *Problem {
	return InvalidRequest.Problem("The body could not be read to its end; send it again.")
}
