package decide

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/checks/door"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/telemetry/metrics"
	"github.com/sluicegate/sluice/internal/violations"
)

// BenchmarkCheck is a check of four tiers without the network. A thousand tenants with a hundred thousand rules
// take turns.
func BenchmarkCheck(b *testing.B) {
	for _, tenants := range []int{1, 1000} {
		b.Run(fmt.Sprint(tenants, " tenants"), func(b *testing.B) {
			p := newPath(b, tenants, 100)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				p.run(b, n)
				n++
			}
			if got := p.ctx.Response.StatusCode(); got != http.StatusOK {
				b.Fatalf("the last answer is %d, want 200", got)
			}
		})
	}
}

type path struct {
	server   *checkapi.Server
	snapshot *snapshot.Snapshot
	requests []string
	sent     strings.Reader
	reader   *bufio.Reader
	writer   *bufio.Writer
	ctx      fasthttp.RequestCtx
}

func (p *path) Snapshot() *snapshot.Snapshot { return p.snapshot }

type written struct{}

func (written) WriteViolations(context.Context, *violations.Batch) error { return nil }

func newPath(b *testing.B, tenants, rulesEach int) *path {
	b.Helper()
	p := &path{}
	var rows snapshot.Rows
	for tenant := range rules.TenantID(tenants) {
		rows.Tenants = append(rows.Tenants, rules.Tenant{
			ID: tenant + 1, Slug: fmt.Sprint("t", tenant), Settings: rules.DefaultSettings(),
		})
		rows.Keys = append(rows.Keys, auth.Key{
			ID: fmt.Sprint("k", tenant), TenantID: tenant + 1, Digest: auth.DigestSecret("secret"),
			Permissions: []auth.Permission{auth.PermissionCheck},
		})
		for n := range rulesEach {
			pattern, err := rules.ParsePattern(patternOf(n))
			if err != nil {
				b.Fatal(err)
			}
			rows.Rules = append(rows.Rules, rules.Rule{
				ID: rules.RuleID(int(tenant)*rulesEach + n + 1), TenantID: tenant + 1, Pattern: pattern, Active: true,
				RatePerSecond: rules.MaxRate, Burst: rules.MaxBurst, Mode: rules.ModeEnforce, Action: rules.ActionLimit,
			})
		}
	}
	p.snapshot = snapshot.New(rows)
	log := slog.New(slog.DiscardHandler)
	m := metrics.New("bench", "bench")
	recorder := violations.NewRecorder(written{}, violations.Options{})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { recorder.Run(ctx, time.Second); close(done) }()
	b.Cleanup(func() { cancel(); <-done })
	store := membucket.New(membucket.Options{})
	observer := observers{m.Decisions("memory"), recording{recorder}, m.Violations()}
	p.server = checkapi.NewServer(checkapi.Config{
		Config: door.Config{
			Snapshots: p, Log: log, Observer: m.Requests("check"), KeyUsed: snapshot.NewKeyUses(nil, log).Note,
		},
		Limiter: enforce.NewLimiter(store, store, observer, nil),
	})
	for i := range 20_000 {
		body := fmt.Sprintf(`{"user_id":"%d","endpoint":"/api/%d","method":"GET","ip":"10.0.%d.%d"}`, i, i%20, i>>8,
			i&255)
		p.requests = append(p.requests,
			fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: sluice\r\nContent-Type: application/json\r\n"+
				"Authorization: Bearer slk_k%d_secret\r\nContent-Length: %d\r\n\r\n%s", i%tenants, len(body), body))
	}
	p.reader, p.writer = bufio.NewReader(&p.sent), bufio.NewWriter(io.Discard)
	p.ctx.Init(&fasthttp.Request{}, nil, nil)
	return p
}

func patternOf(n int) string {
	if n < 4 {
		return []string{"user:{user_id}", "endpoint:{endpoint}", "global", "ip:{ip}"}[n]
	}
	return fmt.Sprintf([]string{
		"user:someone-%d", "ip:192.168.%d.0/24", "user:{user_id}:endpoint:/other/%d", "endpoint:POST /v%d/*",
	}[n%4], n)
}

func (p *path) run(b *testing.B, i int) {
	p.sent.Reset(p.requests[i%len(p.requests)])
	p.reader.Reset(&p.sent)
	p.ctx.Response.Reset()
	if err := p.ctx.Request.Read(p.reader); err != nil {
		b.Fatal(err)
	}
	p.server.Handle(&p.ctx)
	p.ctx.ResetUserValues()
	if err := p.ctx.Response.Write(p.writer); err != nil {
		b.Fatal(err)
	}
}
