package buckettest

import (
	"embed"
	"errors"
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
	"github.com/sluicegate/sluice/internal/rules"
)

//go:embed testdata/*.txt
var scripts embed.FS

type step struct {
	line                     string
	act                      string // take, edit or newer
	now                      int64
	cost                     enforce.Tokens
	repeat                   int
	limit                    enforce.Limit
	readAt                   int64
	noDelay, look            bool
	answered, allowed        bool
	tokens, retryMs, resetMs float64
	delayMs                  float64
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

func replay(t *testing.T, s Store, steps []step,
	check func(Store, int64, []enforce.BucketCheck) []enforce.BucketCheck,
) {
	bucket := key(1, "42")
	holders := byte(0)
	for _, step := range steps {
		switch step.act {
		case "edit":
			applyEdit(t, s, step.now, bucket, step.limit)
			continue
		case "newer":
			s.Newer(bucket)
			continue
		}
		holders++
		checks := make([]enforce.BucketCheck, step.repeat)
		for i := range checks {
			checks[i] = enforce.BucketCheck{
				Holder: enforce.Holder{holders, byte(i), 1}, Cost: step.cost, ReadAt: step.readAt,
				NoDelay: step.noDelay, Look: step.look, Tiers: []enforce.Tier{{Key: bucket, Limit: step.limit}},
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
		if err := step.check(&checks[step.repeat-1]); err != nil {
			t.Errorf("%s: %v", step.line, err)
		}
	}
}

func (s step) check(answer *enforce.BucketCheck) error {
	tier := &answer.Tiers[0]
	level := tier.Bucket.Level
	tokens := (float64(level.Micros) + float64(level.Fraction)/(1<<32)) / float64(enforce.Token)
	if math.Abs(tokens-s.tokens) > 1e-6 {
		return fmt.Errorf("%v tokens left", tokens)
	}
	wait, _ := tier.Wait(answer)
	for _, figure := range []struct {
		name      string
		got, want float64
	}{
		{"retry in", milliseconds(wait), s.retryMs},
		{"full in", milliseconds(tier.TimeToFull()), s.resetMs},
		{"delayed by", milliseconds(tier.Delay()), s.delayMs},
	} {
		if !math.IsNaN(figure.want) && figure.got != figure.want {
			return fmt.Errorf("%s %v ms", figure.name, figure.got)
		}
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return math.Ceil(d.Seconds() * 1000) }

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
	rule := rules.Rule{Algorithm: rules.TokenBucket, Action: rules.ActionLimit}
	since := epoch
	for i, word := range words {
		name, value, found := strings.Cut(word, "=")
		var err error
		switch {
		case i == 0 && !found:
			rule.Algorithm = rules.Algorithm(word)
		case name == "rate":
			rule.RatePerSecond, err = strconv.ParseFloat(value, 64)
		case name == "burst":
			rule.Burst, err = strconv.ParseInt(value, 10, 64)
		case name == "window":
			window := rule.Window
			rule.Window, err = rules.ParseWindow(value)
			rule.Window.Zone, rule.Window.StartDay = window.Zone, window.StartDay
		case name == "zone":
			rule.Window.Zone = value
		case name == "start":
			rule.Window.StartDay, err = strconv.Atoi(value)
		case name == "every":
			rule.RefillInterval, err = rules.ParseDuration(value)
		case name == "hold":
			rule.MaxHold, err = rules.ParseDuration(value)
		case word == "at" && i+2 == len(words):
			since, err = parseTime(words[i+1])
		case i > 0 && words[i-1] == "at":
		default:
			err = errors.New("no such option")
		}
		if err != nil {
			return enforce.Limit{}, fmt.Errorf("read %s: %w", word, err)
		}
	}
	limit := rule.Limit()
	limit.Since = since
	for _, wrong := range rule.Validate(nil) {
		if wrong.Field != "key_pattern" && wrong.Field != "mode" && wrong.Field != "rate_unit" {
			return limit, fmt.Errorf("%s %s", wrong.Field, wrong.Message)
		}
	}
	return limit, nil
}

func parseStep(words []string, limits []enforce.Limit) (step, error) {
	s := step{repeat: 1, tokens: math.NaN(), retryMs: math.NaN(), resetMs: math.NaN(), delayMs: math.NaN()}
	if len(words) < 3 || words[0] != "at" || len(limits) == 0 {
		return s, fmt.Errorf("want at after a limit")
	}
	s.limit = limits[len(limits)-1]
	var err error
	if s.now, err = parseTime(words[1]); err != nil {
		return s, err
	}
	s.act = words[2]
	if (s.act == "edit" || s.act == "newer") && len(words) == 3 {
		return s, nil
	}
	if s.act != "take" || len(words) < 6 {
		return s, fmt.Errorf("want take and ->, or edit, or newer")
	}
	cost, err := strconv.ParseFloat(words[3], 64)
	if err != nil {
		return s, fmt.Errorf("read cost: %w", err)
	}
	s.cost = enforce.Tokens(math.Round(cost * float64(enforce.Token)))
	at := 4
	for ; at+1 < len(words) && words[at] != "->"; at += 2 {
		if words[at] == "nodelay" || words[at] == "look" {
			s.noDelay, s.look = s.noDelay || words[at] == "nodelay", s.look || words[at] == "look"
			at--
			continue
		}
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
		case "delay_ms":
			s.delayMs = figure
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
