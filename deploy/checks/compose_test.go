package checks

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"
)

// compose reads the compose file as docker compose does: by its schema, with variables, merges and references
// resolved.
func compose(t *testing.T, environment ...string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../compose/compose.yaml"}, cli.WithEnv(environment))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(t.Context())
}

// e2e starts the same commands without containers.
func TestTheComposeFileIsOne(t *testing.T) {
	t.Parallel()
	if _, err := compose(t); err == nil || !strings.Contains(err.Error(), "SLUICE_VERSION") {
		t.Errorf("without a version: %v, want one that asks for SLUICE_VERSION", err)
	}
	project, err := compose(t, "SLUICE_VERSION=v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	published := map[string]string{}
	for name, service := range project.Services {
		ours := service.Image == "sluice:v1.2.3"
		if ours && (!service.ReadOnly || service.User != "65532:65532" || !slices.Contains(service.CapDrop, "ALL") ||
			len(service.Secrets) != 1) {
			t.Errorf("%s is not confined: %+v", name, service)
		}
		if !ours && !strings.Contains(service.Image, ":") {
			t.Errorf("%s has no version: %s", name, service.Image)
		}
		for _, port := range service.Ports {
			if other := published[port.Published]; other != "" {
				t.Errorf("%s and %s publish port %s", name, other, port.Published)
			}
			published[port.Published] = name
		}
		for _, volume := range service.Volumes {
			if volume.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(volume.Source); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
	}
	if len(project.Services) != 8 || len(published) != 5 {
		t.Errorf("there are %d services that publish %v", len(project.Services), published)
	}
	if file := project.Secrets["postgres-password"].File; filepath.Base(file) != "postgres-password" {
		t.Errorf("the password is in %q", file)
	}
}

func TestPrometheusScrapesTheServicesOfTheComposeFile(t *testing.T) {
	t.Parallel()
	project, err := compose(t, "SLUICE_VERSION=v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	mounted := map[string]string{}
	for _, volume := range project.Services["prometheus"].Volumes {
		mounted[volume.Target] = volume.Source
	}
	text, err := os.ReadFile(mounted["/etc/prometheus/prometheus.yml"])
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Rules   []string `json:"rule_files"`
		Scrapes []struct {
			Static []struct{ Targets []string } `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	for _, file := range read.Rules {
		if mounted[file] == "" {
			t.Errorf("the rules %s are not mounted", file)
		}
	}
	targets := 0
	for _, scrape := range read.Scrapes {
		for _, static := range scrape.Static {
			for _, target := range static.Targets {
				host, _, _ := strings.Cut(target, ":")
				if _, ok := project.Services[host]; !ok {
					t.Errorf("it scrapes %s, and there is no such service", target)
				}
				targets++
			}
		}
	}
	if targets != 3 {
		t.Errorf("it scrapes %d targets, want 3", targets)
	}
}
