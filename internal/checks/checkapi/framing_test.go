package checkapi_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/rules"
)

type framed struct {
	method, target, body string
	// Sluice answers some requests by their headers alone, and net/http reads the headers of some whose body it
	// refuses.
	known bool
}

func readByNetHTTP(stream []byte) (all []framed, refusal error) {
	r := bufio.NewReaderSize(bytes.NewReader(stream), 1<<20)
	for {
		if !skipBlankLines(r) {
			return all, nil
		}
		request, err := http.ReadRequest(r)
		switch {
		case err != nil:
			return all, err
		case request.ProtoMajor != 1:
			return all, errors.New("its server refuses this version")
		case request.ProtoAtLeast(1, 1) && request.Host == "":
			return all, errors.New("its server refuses a request without a host")
		}
		body, err := io.ReadAll(request.Body)
		all = append(all, framed{request.Method, request.RequestURI, string(body), err == nil})
		if err != nil || request.Close {
			return all, err
		}
	}
}

// RFC 9112 section 2.2 asks to ignore blank lines, which net/http refuses.
func skipBlankLines(r *bufio.Reader) bool {
	for {
		switch next, _ := r.Peek(2); {
		case len(next) > 0 && next[0] == '\n':
			_, _ = r.Discard(1)
		case len(next) == 2 && string(next) == "\r\n":
			_, _ = r.Discard(2)
		default:
			return len(next) > 0
		}
	}
}

type sent struct {
	net.Conn
	bytes.Reader
}

func (s *sent) Close() error                     { return nil }
func (s *sent) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s *sent) Write(b []byte) (int, error)      { return len(b), nil }
func (s *sent) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *sent) SetReadDeadline(time.Time) error  { return nil }
func (s *sent) SetWriteDeadline(time.Time) error { return nil }

type reader struct {
	all     []framed
	current *framed // what the handler saw of the request under way
	refused int     // the status of the request that could not be read, or 0
}

func (r *reader) RequestAnswered(_ string, status int, _ time.Duration, _ string) {
	switch {
	case r.current != nil:
		r.all = append(r.all, *r.current)
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge,
		status == http.StatusRequestHeaderFieldsTooLarge:
		r.refused = status
	default:
		r.all = append(r.all, framed{})
	}
	r.current = nil
}

func readBySluice(h *harness, stream []byte) *reader {
	r := &reader{}
	config := h.config
	config.Observer = r
	server := checkapi.NewServer(config)
	server.Capture("/v1/check", func(c *fasthttp.RequestCtx) {
		r.current = &framed{string(c.Method()), string(c.Request.Header.RequestURI()), string(c.PostBody()), true}
	})
	conn := &sent{}
	conn.Reader.Reset(stream)
	server.ServeConn(conn)
	return r
}

// Sluice may refuse more than net/http.
func compareReaders(h *harness, stream []byte) error {
	ours := readBySluice(h, stream)
	theirs, refusal := readByNetHTTP(stream)
	for i, got := range ours.all {
		switch {
		case i >= len(theirs):
			return fmt.Errorf("Sluice reads a request number %d, net/http does not (%w): %+v", i, refusal, got)
		case got.known && got != theirs[i]:
			return fmt.Errorf("request %d is %+v for Sluice and %+v for net/http", i, got, theirs[i])
		}
	}
	return nil
}

// @ stands for the headers of a check without its length, and | for the end of a line.
var framings = map[string]struct {
	stream string
	read   int // by Sluice, before it refuses or ends
	refuse int // the status of the request after those; 0 if there is none
}{
	"one": {"POST /v1/check HTTP/1.1|@Content-Length: 2||{}", 1, 0},
	"two": {"POST /v1/check HTTP/1.1|@Content-Length: 2||{}POST /v1/check?x " +
		"HTTP/1.1|@Content-Length: 3||{ }", 2, 0},
	"no body": {"POST /v1/check HTTP/1.1|@|POST /v1/check HTTP/1.1|@Content-Length: 0||", 2, 0},
	"chunks": {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||1|{|1;x=y|}|0||POST " +
		"/v1/check HTTP/1.1|@|", 2, 0},
	"chunks and a trailer": {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||2|{}|0|X: y||POST " +
		"/v1/check HTTP/1.1|@|", 2, 0},
	"blank lines between": {"||POST /v1/check HTTP/1.1|@||POST /v1/check HTTP/1.1|@|", 2, 0},
	"a body that is passed over": {"GET /healthz HTTP/1.1|Host: a|Content-Length: 4||GET POST /v1/check " +
		"HTTP/1.1|@|", 2, 0},
	"a body of nobody": {"POST /v1/check HTTP/1.1|Host: a|Content-Length: 4||GET POST /v1/check " +
		"HTTP/1.1|@|", 2, 0},
	"chunks of nobody": {"POST /v1/check HTTP/1.1|Host: a|Transfer-Encoding: chunked||2|{}|0||POST " +
		"/v1/check HTTP/1.1|@|", 1, 0},
	"HTTP/1.0": {
		"POST /v1/check HTTP/1.0|@Content-Length: 2||{}POST /v1/check HTTP/1.0|@|", 1,
		0,
	},
	"HTTP/1.0 kept": {"POST /v1/check HTTP/1.0|@Connection: keep-alive|Content-Length: 2||{}POST " +
		"/v1/check HTTP/1.0|@|", 2, 0},
	"HTTP/1.0 in chunks": {"POST /v1/check HTTP/1.0|@Transfer-Encoding: chunked||2|{}|0||", 0, 400},
	"the end":            {"POST /v1/check HTTP/1.1|@Connection: close||POST /v1/check HTTP/1.1|@|", 1, 0},
	"a length and chunks": {"POST /v1/check HTTP/1.1|@Content-Length: 4|Transfer-Encoding: " +
		"chunked||0||GET / HTTP/1.1|Host: a||", 0, 400},
	"chunks and a length": {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked|Content-Length: " +
		"4||0||GET / HTTP/1.1|Host: a||", 0, 400},
	"two lengths":                 {"POST /v1/check HTTP/1.1|@Content-Length: 2|Content-Length: 3||{}", 0, 400},
	"one length twice":            {"POST /v1/check HTTP/1.1|@Content-Length: 2|Content-Length: 2||{}", 0, 400},
	"a list of lengths":           {"POST /v1/check HTTP/1.1|@Content-Length: 2, 2||{}", 0, 400},
	"a length with a sign":        {"POST /v1/check HTTP/1.1|@Content-Length: +2||{}", 0, 400},
	"a length in hex":             {"POST /v1/check HTTP/1.1|@Content-Length: 0x2||{}", 0, 400},
	"no length":                   {"POST /v1/check HTTP/1.1|@Content-Length:||{}", 0, 400},
	"a length with an underscore": {"POST /v1/check HTTP/1.1|@Content_Length: 2||{}", 1, 400},
	"a length beyond 64 bits":     {"POST /v1/check HTTP/1.1|@Content-Length: 18446744073709551618||{}", 0, 400},
	"two encodings": {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked|Transfer-Encoding: " +
		"chunked||0||", 0, 400},
	"an encoding of two":              {"POST /v1/check HTTP/1.1|@Transfer-Encoding: gzip, chunked||0||", 0, 400},
	"the identity":                    {"POST /v1/check HTTP/1.1|@Transfer-Encoding: identity||0||", 0, 400},
	"an encoding with a tab":          {"POST /v1/check HTTP/1.1|@Transfer-Encoding:\tchunked||0||", 1, 0},
	"an encoding with a vertical tab": {"POST /v1/check HTTP/1.1|@Transfer-Encoding: \vchunked||0||", 0, 400},
	"an encoding in quotes":           {"POST /v1/check HTTP/1.1|@Transfer-Encoding: \"chunked\"||0||", 0, 400},
	"a space before the colon":        {"POST /v1/check HTTP/1.1|@Content-Length : 2||{}", 0, 400},
	"a space before the name":         {"POST /v1/check HTTP/1.1| Content-Length: 2|@|{}", 0, 400},
	"a space in the name":             {"POST /v1/check HTTP/1.1|@Content Length: 2||{}", 0, 400},
	"a folded line":                   {"POST /v1/check HTTP/1.1|@X: a| Content-Length: 2||{}", 0, 400},
	"a folded encoding":               {"POST /v1/check HTTP/1.1|@Transfer-Encoding:| chunked||0||", 0, 400},
	"a bare CR in a value":            {"POST /v1/check HTTP/1.1|@X: a\rContent-Length: 2||{}", 0, 400},
	"a bare CR in the request line":   {"POST /v1/check\r HTTP/1.1|@|", 0, 400},
	"a bare LF in the headers":        {"POST /v1/check HTTP/1.1|@X: a\nContent-Length: 2||{}", 1, 0},
	"bare LFs":                        {"POST /v1/check HTTP/1.1\nHost: a\n\nPOST /v1/check HTTP/1.1|@|", 2, 0},
	"NUL in a value":                  {"POST /v1/check HTTP/1.1|@X: a\x00b||", 0, 400},
	"NUL in a name":                   {"POST /v1/check HTTP/1.1|@X\x00: a||", 0, 400},
	"no name":                         {"POST /v1/check HTTP/1.1|@: a||", 0, 400},
	"no colon":                        {"POST /v1/check HTTP/1.1|@X||", 0, 400},
	"a chunk without a size":          {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked|||{}|0||", 0, 400},
	"a chunk of a negative size":      {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||-2|{}|0||", 0, 400},
	"a chunk with 0x":                 {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||0x2|{}|0||", 0, 400},
	"a chunk of a huge size": {
		"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||10000000000000002|{}|0||",
		0, 400,
	},
	"a chunk that is longer": {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||1|{}|0||", 0, 400},
	"a chunk ended by LF":    {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||2\n{}|0||", 0, 400},
	"LF in an extension":     {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||2;\n{}|0||", 0, 400},
	"CR in an extension":     {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||2;\r1|{}|0||", 0, 400},
	"a chunk with a space":   {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||2 |{}|0||", 1, 0},
	"chunks without an end":  {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||2|{}|", 0, 400},
	"a trailer that is a length": {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||2|{}|0|Content-Length: " +
		"9||", 0, 400},
	"a trailer with a space":         {"POST /v1/check HTTP/1.1|@Transfer-Encoding: chunked||2|{}|0|X : 9||", 1, 0},
	"a version of one digit":         {"POST /v1/check HTTP/1|@|", 0, 400},
	"a version to come":              {"POST /v1/check HTTP/1.2|@|", 0, 400},
	"HTTP/0.9":                       {"GET /healthz|", 0, 400},
	"HTTP in lower case":             {"POST /v1/check http/1.1|@|", 0, 400},
	"two spaces":                     {"POST  /v1/check HTTP/1.1|@|", 0, 400},
	"a space in the path":            {"POST /v1/check /x HTTP/1.1|@|", 0, 400},
	"a tab for a space":              {"POST\t/v1/check\tHTTP/1.1|@|", 0, 400},
	"a space at the end of the line": {"POST /v1/check HTTP/1.1 |@|", 0, 400},
	"a method that is none":          {"PO(ST /v1/check HTTP/1.1|@|", 0, 400},
	"no method":                      {" /v1/check HTTP/1.1|@|", 0, 400},
	"no host":                        {"GET /healthz HTTP/1.1|X: y||", 0, 400},
	"two hosts":                      {"GET /healthz HTTP/1.1|Host: a|Host: b||", 0, 400},
	"a path with a bad escape":       {"GET /%zz HTTP/1.1|Host: a||", 0, 400},
	"a bad escape, and another":      {"GET /%zz HTTP/1.1|Host: a||GET /healthz HTTP/1.1|Host: a||", 0, 400},
	"a URL with a bad host":          {"POST http://[::1/v1/check HTTP/1.1|@|", 0, 400},
	"an authority":                   {"CONNECT a:80 HTTP/1.1|Host: a||", 1, 0},
	"everything":                     {"OPTIONS * HTTP/1.1|Host: a||", 1, 0},
	"another protocol":               {"PRI * HTTP/2.0||SM||", 0, 400},
	"an upgrade": {"GET /healthz HTTP/1.1|Host: a|Connection: Upgrade|Upgrade: h2c||GET " +
		"/healthz HTTP/1.1|Host: a||", 2, 0},
	"a wait for the body": {"POST /v1/check HTTP/1.1|@Expect: 100-continue|Content-Length: 2||{}POST " +
		"/v1/check HTTP/1.1|@|", 2, 0},
}

func (h *harness) stream(text string) []byte {
	text = strings.ReplaceAll(text, "@", "Host: a|"+strings.ReplaceAll(withKey, "\r\n", "|"))
	return []byte(strings.ReplaceAll(text, "|", "\r\n"))
}

// A proxy in front of Sluice, for which net/http stands, must see the same requests in the same bytes.
func TestRequestsAreFramedAsNetHTTPFramesThem(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	for name, test := range framings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream := h.stream(test.stream)
			if err := compareReaders(h, stream); err != nil {
				t.Error(err)
			}
			if got := readBySluice(h, stream); len(got.all) != test.read || got.refused != test.refuse {
				t.Errorf("read %+v, then refused with %d; want %d, then %d", got.all, got.refused, test.read,
					test.refuse)
			}
		})
	}
}

func FuzzFraming(f *testing.F) {
	for _, seed := range framings {
		f.Add([]byte(seed.stream))
	}
	h := newHarness(f, rules.DefaultSettings())
	f.Fuzz(func(t *testing.T, stream []byte) {
		if err := compareReaders(h, h.stream(string(stream))); err != nil {
			t.Error(err)
		}
	})
}
