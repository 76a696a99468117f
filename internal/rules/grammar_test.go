package rules

import (
	"cmp"
	"encoding/json"
	"os"
	"testing"
	"time"
)

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
	InvalidRates     []string `json:"invalid_rates"`
	Durations        []spanCase
	InvalidDurations []struct{ Text, Error string } `json:"invalid_durations"`
	Spoken           []struct {
		Ms            int64
		Says, Exactly string // Exactly is "" where it is Says
	}
	Windows        []spanCase
	InvalidWindows []struct{ Text, Error string } `json:"invalid_windows"`
	Limits         []struct {
		Algorithm      Algorithm
		Rate           string
		Burst          int64
		Window         string
		WindowZone     string `json:"window_zone"`
		WindowStartDay int    `json:"window_start_day"`
		RefillInterval string `json:"refill_interval"`
		MaxHold        string `json:"max_hold"`
		Describes      string
	}
}

type spanCase struct {
	Text, Prints string // Prints is "" where it is Text
	Seconds      int64
	Calendar     CalendarUnit
}

func (c spanCase) prints() string { return cmp.Or(c.Prints, c.Text) }

func readGrammar(t *testing.T) (cases grammar) {
	t.Helper()
	file, err := os.ReadFile("testdata/grammar.json")
	if err == nil {
		err = json.Unmarshal(file, &cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

func TestGrammar(t *testing.T) {
	t.Parallel()
	cases := readGrammar(t)
	for _, c := range cases.Patterns {
		p, err := ParsePattern(c.Text)
		want := c.Prints
		if want == "" {
			want = c.Text
		}
		if err != nil || p.String() != want || p.Scope() != c.Scope || p.SplitsByUser() != c.SplitsByUser {
			t.Errorf("%s is %s of scope %s, splits by user: %v, error %v; want %+v", c.Text, p, p.Scope(),
				p.SplitsByUser(), err, c)
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
		rule := Rule{Algorithm: TokenBucket, RatePerSecond: perSecond, RateUnit: unit, Burst: c.Burst}
		if text := rule.DescribeLimit(); text != c.Limit {
			t.Errorf("%s is described as %q, want %q", c.Text, text, c.Limit)
		}
	}
	for _, text := range cases.InvalidRates {
		if perSecond, unit, err := ParseRate(text); err == nil {
			t.Errorf("%q is read as %v per %s, want an error", text, perSecond, unit)
		}
	}
}

func TestGrammarOfDurationsAndWindows(t *testing.T) {
	t.Parallel()
	cases := readGrammar(t)
	for _, c := range cases.Durations {
		d, err := ParseDuration(c.Text)
		if err != nil || d != time.Duration(c.Seconds)*time.Second || FormatDuration(d) != c.prints() {
			t.Errorf("%s is read as %s and written as %s, error %v; want %+v", c.Text, d, FormatDuration(d), err, c)
		}
	}
	for _, c := range cases.InvalidDurations {
		if d, err := ParseDuration(c.Text); err == nil || err.Error() != c.Error {
			t.Errorf("%q is read as %s, error\n%v\nwant\n%s", c.Text, d, err, c.Error)
		}
	}
	for _, c := range cases.Windows {
		w, err := ParseWindow(c.Text)
		if want := (Window{Length: time.Duration(c.Seconds) * time.Second, Calendar: c.Calendar}); err != nil ||
			w != want || w.String() != c.prints() {
			t.Errorf("%s is read as %+v and written as %s, error %v; want %+v", c.Text, w, w, err, c)
		}
	}
	for _, c := range cases.InvalidWindows {
		if w, err := ParseWindow(c.Text); err == nil || err.Error() != c.Error {
			t.Errorf("%q is read as %+v, error\n%v\nwant\n%s", c.Text, w, err, c.Error)
		}
	}
}

// The UI also formats measured durations, with decimals; limits are whole seconds.
func TestDurationsAreDescribedAsPeopleSayThem(t *testing.T) {
	t.Parallel()
	for _, c := range readGrammar(t).Spoken {
		d := time.Duration(c.Ms) * time.Millisecond
		if d < time.Second || d%time.Second != 0 {
			continue
		}
		if text, want := DescribeDuration(d), cmp.Or(c.Exactly, c.Says); text != want {
			t.Errorf("%s is described as %q, want %q", d, text, want)
		}
	}
}

func TestLimitsAreDescribedAsPeopleSayThem(t *testing.T) {
	t.Parallel()
	for _, c := range readGrammar(t).Limits {
		rule := Rule{
			Pattern: must(ParsePattern("global"))(t), Action: ActionLimit, Mode: ModeEnforce, RateUnit: PerSecond,
			Algorithm: c.Algorithm, Burst: c.Burst,
		}
		if c.Rate != "" {
			var err error
			if rule.RatePerSecond, rule.RateUnit, err = ParseRate(c.Rate); err != nil {
				t.Fatal(err)
			}
		}
		if c.Window != "" {
			rule.Window = must(ParseWindow(c.Window))(t)
		}
		rule.Window.Zone, rule.Window.StartDay = c.WindowZone, c.WindowStartDay
		if c.RefillInterval != "" {
			rule.RefillInterval = must(ParseDuration(c.RefillInterval))(t)
		}
		if c.MaxHold != "" {
			rule.MaxHold = must(ParseDuration(c.MaxHold))(t)
		}
		if text := rule.DescribeLimit(); text != c.Describes {
			t.Errorf("%+v is described as %q", c, text)
		}
		if errs := rule.Validate(nil); len(errs) > 0 {
			t.Errorf("%+v is refused: %v", c, errs)
		}
	}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
