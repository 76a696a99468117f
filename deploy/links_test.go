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
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ (.+)$`)
	codeBlock    = regexp.MustCompile("(?s)\n```.*?\n```")
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		text := notInAnchors.ReplaceAllString(strings.ToLower(match[1]), "")
		all[strings.ReplaceAll(text, " ", "-")] = true
	}
	return all
}

func TestEveryLinkBetweenPagesLeadsSomewhere(t *testing.T) {
	t.Parallel()
	var pages []string
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		if err == nil && entry.IsDir() && (name == "node_modules" || strings.HasPrefix(name, ".") && len(name) > 2) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range markdownLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(match[1], "://") || strings.HasPrefix(match[1], "mailto:") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(match[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			to, err := os.ReadFile(target)
			if _, missing := os.Stat(target); missing != nil {
				t.Errorf("%s links to %s, which does not exist", page, match[1])
			} else if anchor != "" && (err != nil || !anchors(string(to))[anchor]) {
				t.Errorf("%s links to %s, which has no such heading", page, match[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were looked at", links)
	}
}
