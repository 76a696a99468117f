package e2e_test

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

var shellBlock = regexp.MustCompile("(?s)\n```sh\n(.*?)\n```\n")

// The commands run as they stand, in one shell, from top to bottom.
func TestTheCommandsOfTheProductionPage(t *testing.T) {
	t.Parallel()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	blocks := shellBlock.FindAllSubmatch(page, -1)
	for _, block := range blocks {
		script.WriteString(string(block[1]) + "\n")
	}
	if len(blocks) < 8 {
		t.Fatalf("the page has %d blocks of commands", len(blocks))
	}
	checks, scrapes := reserve(t), reserve(t)
	text := strings.NewReplacer("127.0.0.1:18080", checks.Addr(), "127.0.0.1:19090",
		scrapes.Addr()).Replace(script.String())

	// Roles belong to a whole server, so this one is the page's alone.
	folder, err := os.MkdirTemp("", "sluice-test-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	server, err := devdb.StartPostgres(t.Context(), folder, devdb.PostgresOptions{Throwaway: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	create := func(name string) string {
		t.Helper()
		at, err := server.CreateDatabase(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	owner, restored := create("sluice"), create("restored")
	app, err := url.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}
	app.User = url.UserPassword("sluice_app", "choose-one")
	store := devdbtest.Redis(t)
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "bash", "-c", text)
	command.Dir = dir
	command.Env = []string{
		"PATH=" + binaries + ":" + os.Getenv("PATH"), "OWNER_URL=" + owner, "APP_URL=" + app.String(),
		"RESTORE_URL=" + restored, "REDIS_URL=" + store.URL(),
	}
	output, err := command.CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "api.log"))
		t.Fatalf("%v\n%s\napi wrote:\n%s", err, output, log)
	}
	for _, want := range []string{
		`"status":"ready"`, `"status":"ok","version":`, `"allowed":true`, `"limit":20`,
		"sluice_checks_total{",
	} {
		if !strings.Contains(string(output), want) {
			t.Errorf("the commands print no %s:\n%s", want, output)
		}
	}
	if n := strings.Count(string(output), `key_pattern: user:{user_id}`); n != 2 {
		t.Errorf("%d exports have the rule, want the one before the backup and the one after it was restored:\n%s", n,
			output)
	}

	key, err := os.ReadFile(filepath.Join(dir, "secrets", "acme-key"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(restored)
	if err != nil {
		t.Fatal(err)
	}
	at.User = app.User
	a := tenant{at.String(), "acme", strings.TrimSpace(string(key))}.startAPI(t,
		strings.Replace(store.URL(), "redis://", "redis://sluice:choose-another@", 1))
	if got := a.check(t, `{"user_id":"43"}`); !got.Allowed || got.Degraded {
		t.Errorf("a check by the restored rules is answered %d %s", got.status, got.text)
	}
	if got := a.ready(t); got.Redis != "up" {
		t.Errorf("a user with the rights of the page finds Redis %s", got.Redis)
	}
	if before, after := audited(t, owner), audited(t, restored); before != after || before == 0 {
		t.Errorf("the audit log had %d entries and has %d", before, after)
	}
}

func audited(t *testing.T, database string) (entries int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM audit_event").Scan(&entries); err != nil {
		t.Fatal(err)
	}
	return entries
}
