package metrics

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func described(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	descs := make(chan *prometheus.Desc)
	go func() {
		everything().registry.Describe(descs)
		close(descs)
	}()
	for desc := range descs {
		if match := regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(desc.String()); match != nil {
			names[match[1]] = true
		}
	}
	return names
}

func TestEveryMetricThatDashboardsAlertsAndPagesNameExists(t *testing.T) {
	t.Parallel()
	exists := described(t)
	var files []string
	for _, pattern := range []string{
		"../../../deploy/chart/files/*.yaml",
		"../../../deploy/chart/files/dashboards/*.json", "../../../docs/*.md",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	seen := 0
	besides := []string{"sluice_app", "sluice_owner", "sluice_tenant", "sluice_session", "sluice_down", "sluice_status"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bsluice_[a-z_]+[a-z]\b`).FindAllString(string(text), -1) {
			seen++
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !exists[name] && !exists[base] && !slices.Contains(besides, name) {
				t.Errorf("%s names %s, which is no metric", filepath.Base(file), name)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d names were looked at", seen)
	}
}

var alertName = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)

func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	alerts, err := os.ReadFile("../../../deploy/chart/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	names := alertName.FindAllStringSubmatch(string(alerts), -1)
	for _, match := range names {
		if !strings.Contains(string(page), "\n## "+match[1]+"\n") {
			t.Errorf("docs/runbooks.md has no section %s", match[1])
		}
		if !strings.Contains(string(alerts), "runbooks.md#"+strings.ToLower(match[1])+"\n") {
			t.Errorf("%s does not name its section", match[1])
		}
	}
	if sections := strings.Count(string(page), "\n## "); sections != len(names) || len(names) < 10 {
		t.Errorf("there are %d runbooks for %d alerts", sections, len(names))
	}
}
