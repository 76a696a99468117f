package e2e_test

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// deploy/checks tests the file with a container runtime's parser.
func TestTheCommandsOfTheComposeFile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../deploy/compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image       string
			Command     []string
			Environment map[string]string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(devdbtest.EmptyPostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := server.User.Password()
	elsewhere := strings.NewReplacer(
		"postgres:5432/sluice", server.Host+server.Path, "redis://redis:6379", devdbtest.Redis(t).URL(),
		"/run/secrets/postgres-password", secretFile(t, password))
	begin := func(service string) *process {
		t.Helper()
		s := file.Services[service]
		if len(s.Command) == 0 || !strings.HasPrefix(s.Image, "sluice:") {
			t.Fatalf("the service %s is %+v", service, s)
		}
		env := []string{
			"SLUICE_CHECK_ADDR=127.0.0.1:0", "SLUICE_ADMIN_ADDR=127.0.0.1:0",
			"SLUICE_METRICS_ADDR=127.0.0.1:0", "SLUICE_STORE_BUDGET=5s",
		}
		for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
			env = append(env, name+"="+elsewhere.Replace(s.Environment[name]))
		}
		return spawn(t, env, s.Command[0], s.Command[1:]...)
	}
	if migrate := begin("migrate"); migrate.status(t) != 0 {
		t.Fatal("the migration fails")
	}
	for _, service := range []string{"api-1", "api-2"} {
		p := begin(service)
		addresses := p.await(t, &p.stderr, answeringChecks)
		a := &api{process: p, checks: addresses[1], metrics: addresses[2], client: newClient(t)}
		eventually(t, patience, service+" to be ready on both stores", func() bool {
			state := a.ready(t)
			return state.status == http.StatusOK && state.Database == "up" && state.Redis == "up"
		})
	}
	p := begin("admin")
	p.await(t, &p.stderr, answeringAdmin)
}
