package e2e_test

import (
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// The web UI shows this code; its own tests write the files.
func TestTheGoCodeThatTheUIShowsRuns(t *testing.T) {
	t.Parallel()
	a := newTenant(t, `plans: [{name: free}, {name: pro}]
rules:
  - {key_pattern: "user:42:endpoint:/api/reports", rate: 1/day, burst_capacity: 1}
  - {key_pattern: "user:{user_id}:attr.org:{attr.org}", plan: pro, rate: 1/day, burst_capacity: 10}
`).startAPI(t, devdbtest.Redis(t).URL())
	run := func(name, want string) {
		t.Helper()
		shown, err := os.ReadFile("../clients/testdata/snippets/" + name + ".go")
		if err != nil {
			t.Fatal(err)
		}
		if formatted, err := format.Source(shown); err != nil || string(formatted) != string(shown) {
			t.Errorf("%s.go is not formatted as gofmt does: %v", name, err)
		}
		code := strings.Replace(string(shown), "http://127.0.0.1:8080", "http://"+a.checks, 1)
		code = strings.Replace(code, "\t\tKey:", "\t\tTimeout: 30e9,\n\t\tKey:", 1)
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), "go", "run", file)
		command.Dir, command.Env = "..", append(os.Environ(), "CGO_ENABLED=0", "SLUICE_KEY="+a.key)
		output, err := command.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(output), want) {
			t.Errorf("%s.go prints %q, %v, want %q", name, output, err, want)
		}
	}
	run("plain", "allowed\n")
	run("plain", "denied, wait ")
	run("every", "allowed\n")

	text, err := os.ReadFile("../clients/testdata/snippets/every.json")
	if err != nil {
		t.Fatal(err)
	}
	var check map[string]any
	if err := json.Unmarshal(text, &check); err != nil {
		t.Fatal(err)
	}
	check["cost"] = 0
	look, err := json.Marshal(check)
	if err != nil {
		t.Fatal(err)
	}
	answer := a.check(t, string(look))
	if left := answer.remaining(t, "user:{user_id}:attr.org:{attr.org}"); left < 7.49 || left > 7.6 {
		t.Errorf("%v tokens are left, want 7.5", left)
	}
}
