package sluice

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	userAgent     = "sluice-go/" + Version
	maxAnswer     = 8 << 20       // of a thousand decisions with twenty tiers each
	maxRetryAfter = 1_000_000_000 // seconds, 30 years; more may not fit in a Duration
)

// ownTransport has connections for unbatched callers, and closes idle ones before the server does after two minutes,
// because a request on a closing connection is lost. Its dialer leaves HTTP/2 out, which keeps using a connection that
// is silently lost.
func ownTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     30 * time.Second,
		TLSHandshakeTimeout: 5 * time.Second,
		DisableCompression:  true, // the server compresses nothing here
	}
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) (int, http.Header, []byte, *Error) {
	return c.sendInto(ctx, new(bytes.Buffer), method, path, body)
}

func (c *Client) sendInto(
	ctx context.Context, whole *bytes.Buffer, method, path string, body []byte,
) (int, http.Header, []byte, *Error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return 0, nil, nil, &Error{Kind: KindRequest, Err: err}
	}
	request.Header["Authorization"] = []string{"Bearer " + c.config.Key}
	request.Header["User-Agent"] = []string{userAgent}
	if body != nil {
		request.Header["Content-Type"] = []string{"application/json"}
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, nil, interrupted(ctx, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if n := response.ContentLength; n > 0 && n <= maxAnswer {
		whole.Grow(int(n) + bytes.MinRead) // ReadFrom needs free memory to detect the end
	}
	if _, err := whole.ReadFrom(io.LimitReader(response.Body, maxAnswer+1)); err != nil {
		return 0, nil, nil, interrupted(ctx, err)
	}
	answer := whole.Bytes()
	if len(answer) > maxAnswer {
		return 0, nil, nil, &Error{Kind: KindProtocol, Status: response.StatusCode, Detail: "The answer is too long."}
	}
	return response.StatusCode, response.Header, answer, nil
}

func interrupted(ctx context.Context, err error) *Error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		err = context.DeadlineExceeded
	}
	return failure(err)
}

func (c *Client) postCheck(ctx context.Context, q *question) (Decision, *Error) {
	status, header, answer, failed := c.send(ctx, http.MethodPost, "/v1/check", []byte(q.body))
	if failed != nil {
		return Decision{}, failed
	}
	if isJSON(header) {
		if d, ok := decodeDecision(answer, status); ok {
			return d, nil
		}
	}
	failed = problem(status, answer)
	if status == http.StatusTooManyRequests && failed.Type != "" { // reservations are exhausted
		seconds, err := strconv.Atoi(header.Get("Retry-After"))
		if err != nil || seconds < 1 {
			seconds = 1
		}
		seconds = min(seconds, maxRetryAfter)
		kind := failed.Type[strings.LastIndexByte(failed.Type, ':')+1:]
		return Decision{
			Status: status, Reason: strings.ReplaceAll(kind, "-", "_"),
			RetryAfter: time.Duration(seconds) * time.Second, Source: FromServer,
		}, nil
	}
	return Decision{}, failed
}

var errNumberOfResults = errors.New("the batch has another number of results than of checks")

// buffers are reused for answers to batches, at a kilobyte for each check.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

const maxKeptBuffer = 1 << 20

// postBatch sends n checks in a request. at returns each, and the destination of its decision.
func (c *Client) postBatch(ctx context.Context, n int, at func(i int) (*question, *Decision)) *Error {
	size := len(`{"checks":[]}`)
	for i := range n {
		q, _ := at(i)
		size += len(q.body) + 1
	}
	body := append(make([]byte, 0, size), `{"checks":[`...)
	for i := range n {
		if i > 0 {
			body = append(body, ',')
		}
		q, _ := at(i)
		body = append(body, q.body...)
	}
	whole := buffers.Get().(*bytes.Buffer)
	defer func() {
		if whole.Cap() <= maxKeptBuffer {
			whole.Reset()
			buffers.Put(whole)
		}
	}()
	status, header, answer, failed := c.sendInto(ctx, whole, http.MethodPost, "/v1/check/batch", append(body, `]}`...))
	if failed != nil {
		return failed
	}
	if status != http.StatusOK || !isJSON(header) {
		return problem(status, answer)
	}
	decisions, ok := decodeBatch(answer)
	switch {
	case !ok:
		return problem(status, nil)
	case len(decisions) != n:
		return &Error{Kind: KindProtocol, Status: status, Err: errNumberOfResults}
	}
	for i := range decisions {
		_, d := at(i)
		*d = decisions[i]
	}
	return nil
}

func isJSON(header http.Header) bool {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return strings.TrimSpace(kind) == "application/json"
}
