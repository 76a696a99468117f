package ruleset_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func TestTheRulesOfThePagesAreValid(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)\n```yaml\n(rules:.*?\n)```\n").FindAllSubmatch(text, -1) {
			shown++
			_, err := ruleset.Decode(bytes.NewReader(block[1]), filepath.Base(page), []string{"free"})
			if err != nil {
				t.Errorf("%v\n%s", err, block[1])
			}
		}
	}
	if shown < 6 {
		t.Errorf("only %d blocks of rules were found", shown)
	}
}
