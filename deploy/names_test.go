package deploy

import (
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the names in force into all files")

// names.json has one switch: either everything is installed from the checkout, or everything from where it is
// published.
func TestPackagesAndImagesAreNamedAsTheyAreInstalled(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("names.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Published bool
		Names     []struct{ Checkout, Published string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, path := range handWritten(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := string(text)
		for _, n := range file.Names {
			other, force := n.Published, n.Checkout
			if file.Published {
				other, force = n.Checkout, n.Published
			}
			want = strings.ReplaceAll(want, other, force)
			named[force] = named[force] || strings.Contains(want, force)
		}
		if want == string(text) {
			continue
		}
		if !*update {
			t.Errorf("%s names what deploy/names.json does not say; make generate writes it", path)
		} else if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Error(err)
		}
	}
	if len(named) != len(file.Names) {
		t.Fatalf("%d names are different, of %d", len(named), len(file.Names))
	}
	for name, found := range named {
		if !found {
			t.Errorf("no file has %q", name)
		}
	}
}

// handWritten walks the folder, because a copy of the project need not be a checkout.
func handWritten(t *testing.T) (paths []string) {
	t.Helper()
	built := []string{"node_modules", "dist", "test-results", "screenshots"}
	kinds := []string{".md", ".ts", ".py", ".go", ".yaml"}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir():
			if slices.Contains(built, name) || strings.HasPrefix(name, ".") && name != ".." {
				return fs.SkipDir
			}
		case entry.Type().IsRegular() && slices.Contains(kinds, filepath.Ext(path)):
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
