package checkapi_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/checkapi"
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
			const body = `{"user_id":"42","endpoint":"/api/search","method":"GET","ip":"203.0.113.9","attributes":{"org":"acme"}}`
			request := fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: sluice\r\nContent-Type: %s\r\nAuthorization: Bearer %s\r\n"+
				"Content-Length: %d\r\n\r\n%s", jsonType, fullKey, len(body), body)
			server, sent := checkapi.NewServer(h.config), strings.NewReader(request)
			reader, writer := bufio.NewReader(sent), bufio.NewWriter(io.Discard)
			var c fasthttp.RequestCtx
			c.Init(&fasthttp.Request{}, nil, nil)
			b.ReportAllocs()
			for b.Loop() {
				sent.Reset(request)
				reader.Reset(sent)
				c.Response.Reset()
				if err := c.Request.Read(reader); err != nil {
					b.Fatal(err)
				}
				server.Handle(&c)
				if err := c.Response.Write(writer); err != nil {
					b.Fatal(err)
				}
			}
			if got := c.Response.StatusCode(); got != outcome.want {
				b.Fatalf("the last answer is %d, want %d", got, outcome.want)
			}
		})
	}
}
