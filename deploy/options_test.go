package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	variable   = regexp.MustCompile(`\bSLUICE_[A-Z_]*[A-Z]\b`)
	notOptions = map[string]bool{"SLUICE_VERSION": true, "SLUICE_SECRETS": true}
)

func TestEveryOptionThatIsNamedExists(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	options := map[string]bool{}
	for _, match := range regexp.MustCompile("<br>`(SLUICE_[A-Z_]+)`").FindAllStringSubmatch(string(page), -1) {
		options[match[1]] = true
	}
	if len(options) < 20 {
		t.Fatalf("docs/configuration.md lists %d options", len(options))
	}
	named := 0
	for _, folder := range []string{".", "../docs"} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, ".go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, at := range variable.FindAllStringIndex(string(text), -1) {
				name := string(text[at[0]:at[1]])
				if rest := string(text[at[1]:]); strings.HasPrefix(rest, "_") {
					continue
				}
				if named++; !options[name] && !notOptions[name] {
					t.Errorf("%s names %s, which is no option", path, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if named < 50 {
		t.Errorf("only %d names were looked at", named)
	}
}
