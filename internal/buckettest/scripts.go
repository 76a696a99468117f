package buckettest

import (
	"embed"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

//go:embed testdata/*.txt
var scripts embed.FS

// step is a line of a decision script that begins with a time. Figures that the line lacks are NaN.
type step struct {
	line                     string
	act                      string // take, settle or newer
	now                      int64
	cost                     enforce.Tokens
	repeat                   int
	limit                    enforce.Limit
	readAt                   int64
	answered, allowed        bool
	tokens, retryMs, resetMs float64
}

func runScripts(t *testing.T, open func(t *testing.T) Store) {
	files, err := fs.Glob(scripts, "testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("find decision scripts: %d found, %v", len(files), err)
	}
	stored := open(t).Newer != nil
	for _, file := range files {
		text, err := scripts.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		steps, err := parseScript(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name := strings.TrimSuffix(path.Base(file), ".txt")
		if !stored && slices.ContainsFunc(steps, func(s step) bool { return s.act == "newer" }) {
			continue // another release never reads what this store keeps
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replay(t, open(t), steps, func(s Store, now int64, checks []enforce.BucketCheck) []enforce.BucketCheck {
				for i := range checks {
					tryTake(t, s, now, checks[i:i+1])
				}
				return checks
			})
		})
		t.Run(name+" with repeats in one batch", func(t *testing.T) {
			t.Parallel()
			replay(t, open(t), steps, func(s Store, now int64, checks []enforce.BucketCheck) []enforce.BucketCheck {
				tryTake(t, s, now, checks)
				return checks
			})
		})
	}
}

// tryTake takes, and marks the checks that got an answer.
func tryTake(t *testing.T, s Store, now int64, checks []enforce.BucketCheck) {
	err := s.Take(now, checks)
	for i := range checks {
		if err == nil {
			checks[i].Answered = true
		} else if !checks[i].Answered {
			t.Logf("not answered: %v", err)
		}
	}
}

func replay(t *testing.T, s Store, steps []step, check func(Store, int64, []enforce.BucketCheck) []enforce.BucketCheck) {
	bucket := key(1, "42")
	for _, step := range steps {
		switch step.act {
		case "settle":
			settle(t, s, step.now, bucket, step.limit)
			continue
		case "newer":
			s.Newer(bucket)
			continue
		}
		checks := make([]enforce.BucketCheck, step.repeat)
		for i := range checks {
			checks[i] = enforce.BucketCheck{
				Cost: step.cost, ReadAt: step.readAt, Tiers: []enforce.Tier{{Key: bucket, Limit: step.limit}},
			}
		}
		for i, answer := range check(s, step.now, checks) {
			if answer.Allowed != step.allowed || answer.Answered != step.answered {
				t.Fatalf("%s: check %d: answered %t, allowed %t at level %+v",
					step.line, i+1, answer.Answered, answer.Allowed, answer.Tiers[0].Bucket.Level)
			}
		}
		if !step.answered {
			continue
		}
		if err := step.check(checks[step.repeat-1].Tiers[0].Bucket); err != nil {
			t.Errorf("%s: %v", step.line, err)
		}
	}
}

// check compares the line's figures with the bucket after its last check.
func (s step) check(bucket enforce.Bucket) error {
	tokens := (float64(bucket.Level.Micros) + float64(bucket.Level.Fraction)/(1<<32)) / float64(enforce.Token)
	if math.Abs(tokens-s.tokens) > 1e-6 {
		return fmt.Errorf("%v tokens left", tokens)
	}
	wait, _ := bucket.Wait(s.cost)
	if got := milliseconds(wait); !math.IsNaN(s.retryMs) && got != s.retryMs {
		return fmt.Errorf("retry in %v ms", got)
	}
	if got := milliseconds(bucket.TimeToFull()); !math.IsNaN(s.resetMs) && got != s.resetMs {
		return fmt.Errorf("full in %v ms", got)
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return math.Ceil(d.Seconds() * 1000) }

// parseScript reads a decision script; its grammar is in testdata/README.md.
func parseScript(text string) ([]step, error) {
	var steps []step
	var limits []enforce.Limit
	for number, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var err error
		if words[0] == "limit" {
			var l enforce.Limit
			l, err = parseLimit(words[1:])
			limits = append(limits, l)
		} else {
			var s step
			s, err = parseStep(words, limits)
			s.line = fmt.Sprintf("line %d: %s", number+1, strings.TrimSpace(line))
			steps = append(steps, s)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", number+1, line, err)
		}
	}
	return steps, nil
}

func parseLimit(words []string) (enforce.Limit, error) {
	l := enforce.Limit{Since: epoch}
	if len(words) != 2 && (len(words) != 4 || words[2] != "at") {
		return l, fmt.Errorf("want rate=, burst= and perhaps at")
	}
	if _, err := fmt.Sscanf(words[0]+" "+words[1], "rate=%g burst=%d", &l.Rate, &l.Burst); err != nil {
		return l, fmt.Errorf("read rate and burst: %w", err)
	}
	if len(words) == 4 {
		since, err := parseTime(words[3])
		l.Since = since
		return l, err
	}
	return l, nil
}

func parseStep(words []string, limits []enforce.Limit) (step, error) {
	s := step{repeat: 1, tokens: math.NaN(), retryMs: math.NaN(), resetMs: math.NaN()}
	if len(words) < 3 || words[0] != "at" || len(limits) == 0 {
		return s, fmt.Errorf("want at after a limit")
	}
	s.limit = limits[len(limits)-1]
	var err error
	if s.now, err = parseTime(words[1]); err != nil {
		return s, err
	}
	s.act = words[2]
	if (s.act == "settle" || s.act == "newer") && len(words) == 3 {
		return s, nil
	}
	if s.act != "take" || len(words) < 6 {
		return s, fmt.Errorf("want take and ->, or settle, or newer")
	}
	cost, err := strconv.ParseFloat(words[3], 64)
	if err != nil {
		return s, fmt.Errorf("read cost: %w", err)
	}
	s.cost = enforce.Tokens(math.Round(cost * float64(enforce.Token)))
	at := 4
	for ; at+1 < len(words) && words[at] != "->"; at += 2 {
		if words[at] == "read" {
			if s.readAt, err = parseTime(words[at+1]); err != nil {
				return s, err
			}
			continue
		}
		n, err := strconv.Atoi(words[at+1])
		switch {
		case err != nil || n < 1:
			return s, fmt.Errorf("%s needs a number from 1", words[at])
		case words[at] == "x":
			s.repeat = n
		case words[at] == "as" && n <= len(limits):
			s.limit = limits[n-1]
		default:
			return s, fmt.Errorf("no such condition: %s %d", words[at], n)
		}
	}
	return s, s.parseAnswer(words[at:])
}

// parseAnswer reads what is expected: the words from the arrow on.
func (s *step) parseAnswer(words []string) error {
	if len(words) < 2 || words[0] != "->" || !slices.Contains([]string{"allow", "deny", "unanswered"}, words[1]) {
		return fmt.Errorf("want -> allow, -> deny or -> unanswered")
	}
	s.allowed, s.answered = words[1] == "allow", words[1] != "unanswered"
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		figure, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("read %s: %w", word, err)
		}
		switch name {
		case "tokens":
			s.tokens = figure
		case "retry_ms":
			s.retryMs = figure
		case "reset_ms":
			s.resetMs = figure
		default:
			return fmt.Errorf("no such figure: %s", name)
		}
	}
	return nil
}

func parseTime(word string) (int64, error) {
	ms, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return 0, fmt.Errorf("read time: %w", err)
	}
	return epoch + int64(math.Round(ms*1000)), nil
}
