package rules_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestPatternsHaveTheWordsOfTheUI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/pattern-words.json")
	var words map[string]string
	if err == nil {
		err = json.Unmarshal(text, &words)
	}
	if err != nil || len(words) < 10 {
		t.Fatalf("%d patterns: %v", len(words), err)
	}
	for text, want := range words {
		pattern, err := rules.ParsePattern(text)
		if got := pattern.Words(); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", text, got, err, want)
		}
	}
}
