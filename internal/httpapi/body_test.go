package httpapi_test

import (
	"bytes"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/httpapi"
)

func TestBodiesMustBeJSONAndWithinTheLimit(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		contentType, encoding string
		length                int
		unknownLength         bool
		status                int // 0: accepted
	}{
		"as long as allowed":   {contentType: "application/json", length: 10},
		"with a charset":       {contentType: "application/json; charset=utf-8", length: 1},
		"with an odd spelling": {contentType: "Application/JSON ;charset=utf-8", length: 1},
		"one byte too long":    {contentType: "application/json", length: 11, status: 413},
		"too long without saying so": {
			contentType: "application/json", length: 11, unknownLength: true,
			status: 413,
		},
		"without a media type":            {length: 1, status: 415},
		"as a form":                       {contentType: "application/x-www-form-urlencoded", length: 1, status: 415},
		"as text, like a cross-site form": {contentType: "text/plain", length: 1, status: 415},
		"compressed":                      {contentType: "application/json", encoding: "gzip", length: 1, status: 415},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := strings.Repeat("1", test.length)
			r := httptest.NewRequest("POST", "/", io.Reader(strings.NewReader(body)))
			if test.unknownLength {
				r.ContentLength = -1
			}
			r.Header.Set("Content-Type", test.contentType)
			r.Header.Set("Content-Encoding", test.encoding)
			buf := bytes.NewBufferString("left over")
			err := httpapi.ReadBody(httptest.NewRecorder(), r, 10, buf)
			var problem *httpapi.Problem
			switch {
			case test.status == 0 && (err != nil || buf.String() != body):
				t.Errorf("read %q, %v; want %q", buf, err, body)
			case test.status != 0 && (!errors.As(err, &problem) || problem.Status != test.status):
				t.Errorf("answered %v, want status %d", err, test.status)
			}
		})
	}
}

func TestABodyThatBreaksOffIsTheCallersProblem(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader("{"), brokenReader{}))
	r.Header.Set("Content-Type", "application/json")
	var problem *httpapi.Problem
	if err := httpapi.ReadBody(httptest.NewRecorder(), r, 10, new(bytes.Buffer)); !errors.As(err, &problem) ||
		problem.Status != 400 {
		t.Errorf("answered %v, want status 400", err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
