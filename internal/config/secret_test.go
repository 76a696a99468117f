package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestConnURLHidesPasswords(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ url, want string }{
		"none":        {"", ""},
		"no password": {"redis://cache:6379/1", "redis://cache:6379/1"},
		"password of a user": {
			"postgres://app:hunter2@db:5432/x?sslmode=require",
			"postgres://app:xxxxx@db:5432/x?sslmode=require",
		},
		"password alone":       {"rediss://:hunter2@cache:6379", "rediss://:xxxxx@cache:6379"},
		"several hosts":        {"postgres://app:hunter2@a:5432,b:5432/x", "postgres://app:xxxxx@a:5432,b:5432/x"},
		"password parameter":   {"postgres://db/x?password=hunter2", "postgres://db/x?password=xxxxx"},
		"sentinel's parameter": {"redis://a?sentinel_password=hunter2", "redis://a?sentinel_password=xxxxx"},
		"several with brackets": {
			"redis://:hunter2@[2001:db8::1]:6379,[2001:db8::2]:6379",
			"redis://:xxxxx@[2001:db8::1]:6379,[2001:db8::2]:6379",
		},
		"a user alone":         {"postgres://app@db/x", "postgres://app@db/x"},
		"other parameters":     {"postgres://db/x?z=1&a=2", "postgres://db/x?z=1&a=2"},
		"broken escape":        {"postgres://app:hunter2%@db/x", "postgres://app:xxxxx@db/x"},
		"unescaped characters": {"postgres://app:hunter2/?#@x@db/x", "postgres://app:xxxxx@db/x"},
		"unreadable parameter": {"postgres://db/x?password=hunter2%", "postgres://db/x?xxxxx"},
		"no URL at all":        {"host=db password=hunter2", "(unreadable URL)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ConnURL(test.url).String(); got != test.want {
				t.Errorf("String() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestNoWayOfPrintingAConfigShowsAPassword(t *testing.T) {
	t.Parallel()
	c := mustParse(t, "api", []string{"--redis-url", "redis://:hunter2@cache:6379", "--log-level", "debug"}, database)
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var texts, lines bytes.Buffer
	slog.New(slog.NewTextHandler(&texts, nil)).Info("starting", "config", c, "redis", c.RedisURL)
	slog.New(slog.NewJSONHandler(&lines, nil)).Info("starting", "config", c, "redis", c.RedisURL)
	for _, printed := range []string{
		fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprintf("%q", c.RedisURL),
		string(encoded), texts.String(), lines.String(),
	} {
		if strings.Contains(printed, "hunter2") {
			t.Errorf("a password in %s", printed)
		}
		if !strings.Contains(printed, "cache:6379") {
			t.Errorf("no host in %s", printed)
		}
	}
	if got := lines.String(); !strings.Contains(got, `"log-level":"debug"`) || strings.Contains(got, "admin-addr") {
		t.Errorf("the log line should show the options of api, and only those: %s", got)
	}
}

func TestLoggerWritesAsConfigured(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		want string
	}{
		"text from info up":  {nil, "level=INFO msg=shown\n"},
		"json from debug up": {[]string{"--log-format=json", "--log-level=debug"}, `"level":"DEBUG","msg":"detail"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			logger := mustParse(t, "api", test.args, database).Logger(&out)
			logger.Debug("detail")
			logger.Info("shown")
			if !strings.Contains(out.String(), test.want) {
				t.Errorf("wrote %q, want %q in it", out.String(), test.want)
			}
			if test.args == nil && strings.Contains(out.String(), "detail") {
				t.Errorf("wrote a debug event at level info: %q", out.String())
			}
		})
	}
}

func TestTheLogIsInUTC(t *testing.T) {
	t.Parallel()
	elsewhere := time.FixedZone("far east", 9*60*60)
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		handler := mustParse(t, "api", []string{"--log-format=" + format}, database).Logger(&out).Handler()
		record := slog.NewRecord(time.Date(2026, 12, 1, 3, 0, 0, 0, elsewhere), slog.LevelInfo, "an event", 0)
		if err := handler.Handle(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "2026-11-30T18:00:00.000Z") &&
			!strings.Contains(out.String(), "2026-11-30T18:00:00Z") {
			t.Errorf("as %s it is %s", format, out.String())
		}
	}
}

func TestAMisplacedOrMisspeltFlagDoesNotShowItsPassword(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"admin -redis-url=redis://:hunter2@cache:6379 serve",
		"admin --redis-url=redis://:hunter2@cache:6379 serve",
		"api -redis-url=redis://:hunter2@cache:6379",
		"api --redisurl=redis://:hunter2@cache:6379",
		"api --redisurl redis://:hunter2@cache:6379",
	} {
		words := strings.Fields(line)
		if _, err := Parse(words[0], words[1:], []string{database}); err == nil ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
