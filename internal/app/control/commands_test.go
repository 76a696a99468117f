package control

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func TestAFolderStandsForItsFilesAndThoseOfItsSubfolders(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	// Kubernetes mounts a ConfigMap as links into a folder whose name begins with dots.
	for _, name := range []string{"..2027_01_31/a.yaml", "team/b.yml", "team/deep/c.yaml", "team/README.md"} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"..data": "..2027_01_31", "a.yaml": "..data/a.yaml"} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(folder string) (names []string) {
		t.Helper()
		files, err := readFiles([]string{folder}, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name, err := filepath.Rel(folder, file.Name)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name+" "+string(file.Data))
		}
		return names
	}
	want := []string{"a.yaml ..2027_01_31/a.yaml", "team/b.yml team/b.yml", "team/deep/c.yaml team/deep/c.yaml"}
	if got := read(folder); !slices.Equal(got, want) {
		t.Errorf("the files are %q, want %q", got, want)
	}
	if got := read(filepath.Join(folder, "..data")); !slices.Equal(got, []string{"a.yaml ..2027_01_31/a.yaml"}) {
		t.Errorf("the files of a link to a folder are %q", got)
	}
}

func TestAChangeNamesRulesThatNoDescriptorMeets(t *testing.T) {
	t.Parallel()
	rule := func(text string) rules.Rule {
		t.Helper()
		pattern, err := rules.ParsePattern(text)
		if err != nil {
			t.Fatal(err)
		}
		return rules.Rule{Pattern: pattern, Active: true}
	}
	mapping := func(document string) []rules.Gateway {
		return []rules.Gateway{{Kind: rules.GatewayDescriptors, Document: document}}
	}
	const a, b = "attr.descriptor:a:attr.domain:d", "attr.descriptor:b:attr.domain:d"
	current := ruleset.Config{
		Rules: []rules.Rule{rule(a), rule(b)}, Gateways: mapping(`{"domains":{"d":{"templates":[["a"],["b"]]}}}`),
	}
	for name, test := range map[string]struct {
		desired ruleset.Config
		prune   bool
		want    string
	}{
		"nothing":    {ruleset.Config{}, false, ""},
		"a template": {ruleset.Config{Gateways: mapping(`{"domains":{"d":{"templates":[["a"]]}}}`)}, false, b},
		"its rule too": {
			ruleset.Config{Rules: current.Rules[:1], Gateways: mapping(`{"domains":{"d":{"templates":[["a"]]}}}`)}, true, "",
		},
	} {
		var got []string
		for _, note := range unmet("acme", current, test.desired, test.prune) {
			got = append(got, note.Field)
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("without %s: %q are met by nothing, want %q", name, text, test.want)
		}
	}
}
