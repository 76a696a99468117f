package deploy

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
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
	listed, err := exec.Command("git", "-c", "safe.directory=*", "-C", "..", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard", "*.md", "*.ts", "*.py", "*.go", "*.yaml").Output()
	if err != nil {
		t.Fatalf("list the files: %v", err)
	}
	named := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		path := filepath.Join("..", name)
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
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
			t.Errorf("%s names what deploy/names.json does not say; make generate writes it", name)
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
