package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
	"nginx":      {"200 200 200 429 ", `"status":429`},
	"override":   {`"reason":"migration week"`, `"100 per second, bursts to 500"`},
	"redis-down": {`"degraded":false`, `"degraded":true`, `"redis":"down"`, "→ closed"},
	"size":       {"Sluice: ", "Redis: ", " core-seconds per million checks"},
	"upgrade":    {"plans:", "name: free"},
	"usage": {
		`"name":"monthly"`, `"used":7,`, `"limit_text":"10,000 per month`, `{"items":[]`, "month,kind,user_id,",
		"month,kind,rule_id,",
	},
}

// The commands of each page run as they stand, on a `sluice dev` with a Redis of its own. Only addresses differ, and
// Redis hangs for a shorter time, and a new rule or key has longer to be known.
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
	d := startDev(t, dataDir(t), []string{"SLUICE_REDIS_URL=" + store.URL(), "SLUICE_WEBHOOK_ALLOW=127.0.0.0/8"})
	printed := func(pattern string) string { return d.await(t, &d.stdout, regexp.MustCompile(pattern))[1] }
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	front := reserve(t)
	addresses := strings.NewReplacer(
		"127.0.0.1:8080", strings.TrimSuffix(strings.TrimPrefix(d.url, "http://"), "/v1/check"),
		"127.0.0.1:8081", printed(`(?m)^Admin +http://(\S+) `),
		"127.0.0.1:9090", printed(`(?m)^Metrics +http://(\S+)/metrics$`),
		"127.0.0.1:8000", front.Addr(), "127.0.0.1:3000", app.Listener.Addr().String(),
		"redis://127.0.0.1:6379", store.URL(), "CLIENT PAUSE 10000", "CLIENT PAUSE 3000", "sleep 12", "sleep 5",
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
			script.WriteString("set -euo pipefail\n")
			for _, block := range shellBlock.FindAllSubmatch(text, -1) {
				script.WriteString(string(block[1]) + "\n")
			}
			dir := t.TempDir()
			command := exec.CommandContext(t.Context(), "bash", "-c", addresses.Replace(script.String()))
			command.Dir = dir
			command.Env = []string{
				"PATH=" + binaries + ":" + postgres + ":" + os.Getenv("PATH"),
				"SLUICE=" + checkout, "SLUICE_DATABASE_URL=" + d.database,
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
		})
	}
}
