package control

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
