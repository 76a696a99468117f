package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
)

// ReadBody reads a JSON body of at most limit bytes, or returns a *Problem.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, buf *bytes.Buffer) error {
	if err := RequireJSON(r.Header.Get("Content-Type"), r.Header.Get("Content-Encoding")); err != nil {
		return err
	}
	return ReadFile(w, r, limit, buf)
}

// ReadFile reads a body of at most limit bytes, or returns a *Problem.
func ReadFile(w http.ResponseWriter, r *http.Request, limit int64, buf *bytes.Buffer) error {
	if r.ContentLength > limit {
		return bodyTooLarge(limit)
	}
	body := r.Body
	if r.ContentLength < 0 { // otherwise net/http limits the body
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

// RequireJSON returns a *Problem unless the headers announce JSON, which prevents cross-site requests: browsers
// send other types without asking first.
func RequireJSON(contentType, contentEncoding string) error {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err == nil && mediaType == "application/json" && (contentEncoding == "" || contentEncoding == "identity") {
		return nil
	}
	return WrongMediaType.Problem("Send the body as JSON, uncompressed, with Content-Type: application/json.")
}

func bodyTooLarge(limit int64) *Problem {
	return TooLarge.Problem(fmt.Sprintf("Send at most %d bytes.", limit))
}

// BrokenBody is the answer to a body that ends early or is too slow.
func BrokenBody() *Problem {
	return InvalidRequest.Problem("The body could not be read to its end; send it again.")
}
