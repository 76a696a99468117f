package checkapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// BenchmarkCheck is the whole way of one check but the network: HTTP, the key, JSON, four tiers in memory, the answer
// and its headers.
func BenchmarkCheck(b *testing.B) {
	for _, outcome := range []struct {
		name  string
		burst int64
		want  int
	}{{"allowed", rules.MaxBurst, 200}, {"denied", 1, 429}} {
		b.Run(outcome.name, func(b *testing.B) {
			settings := rules.DefaultSettings()
			settings.RetryJitterPercent = 20
			h := newHarness(b, settings,
				limit(b, 1, "user:{user_id}", 1, outcome.burst), limit(b, 2, "endpoint:/api/*", 1, outcome.burst),
				limit(b, 3, "global", 1, outcome.burst), limit(b, 4, "ip:{ip}", 1, outcome.burst))
			ask := asker(b, h.config, "")
			last := 0
			b.ReportAllocs()
			for b.Loop() {
				last = ask()
			}
			if last != outcome.want {
				b.Fatalf("the last answer is %d, want %d", last, outcome.want)
			}
		})
	}
}

// asker returns a function that asks one check of a server, without a network, and returns the status. header is a
// line.
func asker(tb testing.TB, config checkapi.Config, header string) func() int {
	tb.Helper()
	const body = `{"user_id":"42","endpoint":"/api/search","method":"GET","ip":"203.0.113.9","attributes":{"org":"acme"}}`
	request := fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: sluice\r\nContent-Type: %s\r\nAuthorization: Bearer "+
		"%s\r\n%s"+
		"Content-Length: %d\r\n\r\n%s", jsonType, fullKey, header, len(body), body)
	server, sent := checkapi.NewServer(config), strings.NewReader(request)
	reader, writer := bufio.NewReader(sent), bufio.NewWriter(io.Discard)
	c := new(fasthttp.RequestCtx)
	c.Init(&fasthttp.Request{}, nil, nil)
	return func() int {
		sent.Reset(request)
		reader.Reset(sent)
		c.Response.Reset()
		c.ResetUserValues() // releases the memory, as the server does after an answer
		if err := c.Request.Read(reader); err != nil {
			tb.Fatal(err)
		}
		server.Handle(c)
		if err := c.Response.Write(writer); err != nil {
			tb.Fatal(err)
		}
		return c.Response.StatusCode()
	}
}

// replay is a connection that asks the same n times, at once, and is its own listener.
type replay struct {
	net.Conn
	request  string
	n        int
	accepted bool
	done     chan struct{}
}

func (r *replay) Accept() (net.Conn, error) {
	if !r.accepted {
		r.accepted = true
		return r, nil
	}
	<-r.done
	return nil, net.ErrClosed
}

func (r *replay) Read(b []byte) (int, error) {
	if r.n--; r.n < 0 {
		return 0, io.EOF
	}
	return copy(b, r.request), nil
}

func (r *replay) Write(b []byte) (int, error)      { return len(b), nil }
func (r *replay) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)} }
func (r *replay) LocalAddr() net.Addr              { return r.RemoteAddr() }
func (r *replay) Addr() net.Addr                   { return r.RemoteAddr() }
func (r *replay) SetReadDeadline(time.Time) error  { return nil }
func (r *replay) SetWriteDeadline(time.Time) error { return nil }

func (r *replay) Close() error {
	select {
	case <-r.done:
	default:
		close(r.done)
	}
	return nil
}

func BenchmarkConnection(b *testing.B) {
	h := newHarness(b, rules.DefaultSettings(), limit(b, 1, "user:{user_id}", 1, rules.MaxBurst))
	r := &replay{
		request: requestTo("/v1/check",
			`{"user_id":"42","endpoint":"/api/search","method":"GET","ip":"203.0.113.9"}`), n: b.N,
		done: make(chan struct{}),
	}
	b.ReportAllocs()
	b.ResetTimer()
	go func() { _ = checkapi.NewServer(h.config).Serve(r) }()
	<-r.done
	b.StopTimer()
	if h.decided != b.N {
		b.Fatalf("%d of %d checks were decided", h.decided, b.N)
	}
}
