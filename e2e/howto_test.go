package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

var howTos = map[string][]string{
	"abuse":      {`"value":"mallory"`, `"user_id":"mallory"`, `"expires_at":"2`, `"reason":"blocked"`},
	"alerts":     {`"near_misses":`, `"secret":"whs_`, `sluice_tenant_checks_total{`},
	"algorithm":  {"+ rule user:{user_id} monthly", `"limit":10000,"remaining":9990`},
	"check":      {"200\n200\n429\n", `"reason":"limit_exceeded"`},
	"git":        {`"dry_run":true`, `"dry_run":false`, "+ rule user:{user_id}:endpoint:/api/exports"},
	"kubernetes": {`"allowed":true`, `"limit":20`},
	"language-models": {
		"settled=True", "'usd': 1", "settled: true", "usd: 1 }", `"reason":"limit_exceeded"`, `"share":80`,
	},
	"nginx":      {"200 200 200 429 ", `"status":429`},
	"override":   {`"reason":"migration week"`, `"100 per second, bursts to 500"`},
	"redis-down": {`"degraded":false`, `"degraded":true`, `"redis":"down"`, "→ closed"},
	"size":       {"Sluice: ", "Redis: ", " core-seconds per million checks"},
	"upgrade":    {"plans:", "name: free", `"limit":100,"remaining":60`, `"limit":100,"remaining":20`},
	"usage": {
		`"name":"monthly"`, `"used":7,`, `"limit_text":"10,000 per month`, `{"items":[]`, "month,kind,user_id,",
		"month,kind,rule_id,",
	},
}

// The commands run as they stand, on a `sluice dev` with a Redis of its own. Only addresses differ, and times that
// are short for a busy machine.
func TestTheCommandsOfTheHowTos(t *testing.T) {
	t.Parallel()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../docs/howto/*.md")
	if err != nil || len(pages) != len(howTos) {
		t.Fatalf("%v: the pages are %v, and %d are known", err, pages, len(howTos))
	}
	store := devdbtest.Redis(t)
	d := startDev(t, dataDir(t), []string{
		"SLUICE_REDIS_URL=" + store.URL(), "SLUICE_WEBHOOK_ALLOW=127.0.0.0/8",
		"SLUICE_STORE_BUDGET=250ms", // redis-down.md pauses Redis, and its next check is degraded
	})
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	printed := func(pattern string) string { return d.await(t, &d.stdout, regexp.MustCompile(pattern))[1] }
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for token := range 500 { // as a provider of language models
			_, _ = fmt.Fprintln(w, token)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer app.Close()
	front, moved, movedMetrics := reserve(t), reserve(t), reserve(t)
	addresses := strings.NewReplacer(
		"127.0.0.1:8080", strings.TrimSuffix(strings.TrimPrefix(d.url, "http://"), "/v1/check"),
		"127.0.0.1:8081", printed(`(?m)^Admin +http://(\S+) `),
		"127.0.0.1:9090", printed(`(?m)^Metrics +http://(\S+)/metrics$`),
		"127.0.0.1:8000", front.Addr(), "127.0.0.1:3000", app.Listener.Addr().String(),
		"redis://127.0.0.1:6380", devdbtest.Redis(t).URL(), "127.0.0.1:8090", moved.Addr(), "127.0.0.1:9091",
		movedMetrics.Addr(),
		`abcdef")`, `abcdef", timeout=30)`, `abcdef' });`, `abcdef', timeout: 30_000 });`,
		"redis://127.0.0.1:6379", store.URL(), "CLIENT PAUSE 10000", "CLIENT PAUSE 20000",
		"sleep 12", `for i in $(seq 60); do if sh check.sh | grep '"degraded":false'; then break; fi; sleep 1; done`,
		"sleep 2", "sleep 6",
		// The pods' programs run here; deploy/checks renders the page's values.
		"kubectl -n limits exec -i deploy/limits-sluice-admin -- ", "",
		"kubectl -n limits exec deploy/limits-sluice-admin -- ", "")

	postgres, err := devdb.PostgresPrograms(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkout := t.TempDir()
	example := filepath.Join("deploy", "examples", "nginx", "sluice.conf")
	text, err := os.ReadFile(filepath.Join("..", example))
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(checkout, example)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(addresses.Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, page := range pages { // one after the other: they share the tenant, and one of them lets Redis hang
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			if lines := strings.Count(string(text), "\n"); lines > 60 {
				t.Errorf("the page has %d lines", lines)
			}
			var script strings.Builder
			script.WriteString("set -euo pipefail\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n")
			for _, block := range shellBlock.FindAllSubmatch(text, -1) {
				script.WriteString(string(block[1]) + "\n")
			}
			dir := t.TempDir()
			if name == "language-models" {
				installClients(t, repository, dir)
			}
			command := exec.CommandContext(t.Context(), "bash", "-c", addresses.Replace(script.String()))
			command.Dir = dir
			command.Env = []string{
				"PATH=" + dir + ":" + binaries + ":" + postgres + ":" + os.Getenv("PATH"),
				"SLUICE=" + checkout, "SLUICE_DATABASE_URL=" + d.database,
				"PYTHONPATH=" + filepath.Join(repository, "clients", "python", "src"),
			}
			output, err := command.CombinedOutput()
			if pid, _ := os.ReadFile(filepath.Join(dir, "nginx.pid")); len(pid) > 0 {
				defer func() { _ = exec.Command("kill", strings.TrimSpace(string(pid))).Run() }()
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			for _, want := range howTos[name] {
				if !strings.Contains(string(output), want) {
					t.Errorf("the commands print no %s:\n%s", want, output)
				}
			}
			if name == "language-models" {
				key := exec.CommandContext(t.Context(), filepath.Join(binaries, "admin"), "create-key",
					"--tenant", "demo", "--name", "envoy", "--permissions", "check,report")
				key.Env = command.Env
				secret, err := key.Output()
				if err != nil {
					t.Fatal(err)
				}
				useUpBudget(t, newEnvoy(t, printed(`(?m)^gRPC +(\S+) `), strings.TrimSpace(string(secret)),
					insecure.NewCredentials()), string(text))
			}
		})
	}
}

func installClients(t *testing.T, repository, dir string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "scripts/install.sh", "python")
	command.Dir = repository
	python, err := command.Output()
	if err != nil {
		t.Fatal("install what the Python client's tests need: make test/python", err)
	}
	if err := os.Symlink(strings.TrimSpace(string(python)), filepath.Join(dir, "python3")); err != nil {
		t.Fatal(err)
	}
	client := filepath.Join(dir, "node_modules", "@sluicegate", "client")
	script := `make --no-print-directory -C ../.. clients/typescript/node_modules/.package-lock.json
node_modules/.bin/tsc --outDir "$0/dist" && cp package.json "$0"`
	command = exec.CommandContext(t.Context(), "bash", "-euc", script, client)
	command.Dir = filepath.Join(repository, "clients", "typescript")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("build the TypeScript client: %v\n%s", err, output)
	}
}

// useUpBudget replays the requests of Envoy with the page's configuration: each asks with 0 hits and, if it
// passes, reports its tokens.
func useUpBudget(t *testing.T, e envoy, page string) {
	t.Helper()
	var config struct {
		Limits []map[string]any `yaml:"rate_limits"`
	}
	_, block, _ := strings.Cut(page, "\n    rate_limits:")
	if err := yaml.Unmarshal([]byte("rate_limits:"+strings.ReplaceAll(block, "\n    ", "\n")), &config); err != nil ||
		len(config.Limits) != 2 {
		t.Fatalf("%d limits are configured: %v", len(config.Limits), err)
	}
	for i := range config.Limits {
		var limit route.RateLimit
		text, err := json.Marshal(config.Limits[i])
		if err == nil {
			err = protojson.Unmarshal(text, &limit)
		}
		if err != nil || limit.ValidateAll() != nil || limit.GetApplyOnStreamDone() != (i == 1) {
			t.Errorf("limit %d is %v: %v", i, &limit, err)
		}
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+e.key)
	ask := func(hits uint64, model string) rls.RateLimitResponse_Code {
		answer, err := e.ShouldRateLimit(ctx,
			&rls.RateLimitRequest{Domain: "ai", Descriptors: []*common.RateLimitDescriptor{{
				Entries: []*common.RateLimitDescriptor_Entry{
					{Key: "team", Value: "search"}, {Key: "model", Value: model},
				},
				HitsAddend: wrapperspb.UInt64(hits),
			}}})
		if err != nil {
			t.Log(err)
		}
		return answer.GetOverallCode()
	}
	eventually(t, patience, "the new key", func() bool { return ask(0, "large") == rls.RateLimitResponse_OK })
	passed := 0
	for range 100 {
		if ask(0, "large") == rls.RateLimitResponse_OK {
			passed++
			if ask(400_000, "large") != rls.RateLimitResponse_OK {
				t.Error("a report is denied")
			}
		}
	}
	if passed != 3 || ask(0, "small") != rls.RateLimitResponse_OK {
		t.Errorf("%d of 100 requests of 400,000 tokens passed, want 3 of a budget of a million", passed)
	}
}
