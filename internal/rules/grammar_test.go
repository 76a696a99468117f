package rules

import (
	"encoding/json"
	"os"
	"testing"
)

// grammar is testdata/grammar.json: what patterns and rates mean here and in the UI, whose tests read the file too.
type grammar struct {
	Patterns []struct {
		Text, Prints string // Prints is "" where it is Text
		Scope        Scope
		SplitsByUser bool `json:"splits_by_user"`
	}
	InvalidPatterns []struct{ Text, Error string } `json:"invalid_patterns"`
	Rates           []struct {
		Text      string
		PerSecond float64 `json:"per_second"`
		Unit      RateUnit
		Burst     int64
		Limit     string
	}
	InvalidRates []string `json:"invalid_rates"`
}

func TestGrammar(t *testing.T) {
	t.Parallel()
	var cases grammar
	file, err := os.ReadFile("testdata/grammar.json")
	if err == nil {
		err = json.Unmarshal(file, &cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases.Patterns {
		p, err := ParsePattern(c.Text)
		want := c.Prints
		if want == "" {
			want = c.Text
		}
		if err != nil || p.String() != want || p.Scope() != c.Scope || p.SplitsByUser() != c.SplitsByUser {
			t.Errorf("%s is %s of scope %s, splits by user: %v, error %v; want %+v", c.Text, p, p.Scope(), p.SplitsByUser(), err, c)
		}
	}
	for _, c := range cases.InvalidPatterns {
		if p, err := ParsePattern(c.Text); err == nil || err.Error() != c.Error {
			t.Errorf("%q is %s, error\n%v\nwant\n%s", c.Text, p, err, c.Error)
		}
	}
	for _, c := range cases.Rates {
		perSecond, unit, err := ParseRate(c.Text)
		if err != nil || perSecond != c.PerSecond || unit != c.Unit {
			t.Errorf("%s is read as %v per %s, %v; want %+v", c.Text, perSecond, unit, err, c)
		}
		if text := FormatRate(perSecond, unit); text != c.Text {
			t.Errorf("%s is written as %s", c.Text, text)
		}
		if text := DescribeLimit(perSecond, unit, c.Burst); text != c.Limit {
			t.Errorf("%s is described as %q, want %q", c.Text, text, c.Limit)
		}
	}
	for _, text := range cases.InvalidRates {
		if perSecond, unit, err := ParseRate(text); err == nil {
			t.Errorf("%q is read as %v per %s, want an error", text, perSecond, unit)
		}
	}
}
