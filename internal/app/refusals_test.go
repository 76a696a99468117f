package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/store/redisbucket"
)

type safeLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p) //nolint:wrapcheck // never fails
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestARedisThatAnswersPingsAndRefusesScriptsIsNamed(t *testing.T) {
	t.Parallel()
	tier := enforce.Tier{
		Key: enforce.Key{Tenant: 1, Rule: 1, Subject: "42"}, Limit: enforce.Limit{Rate: 100, Burst: 100},
	}
	for name, test := range map[string]struct {
		refuse []any // a command
		login  string
		want   string
	}{
		"a command": {
			[]any{"acl", "setuser", "t", "on", ">pw", "~*", "&*", "+@all", "-time"}, "t:pw@", "ACL LOG",
		},
		"keys":   {[]any{"acl", "setuser", "t", "on", ">pw", "~other:*", "&*", "+@all"}, "t:pw@", "access"},
		"memory": {[]any{"config", "set", "maxmemory", "1"}, "", "raise Redis's maxmemory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := devdbtest.Redis(t)
			options, err := redis.ParseURL(server.URL())
			if err != nil {
				t.Fatal(err)
			}
			admin := redis.NewClient(options)
			defer func() { _ = admin.Close() }()
			if err := admin.Do(t.Context(), test.refuse...).Err(); err != nil {
				t.Fatal(err)
			}
			var log safeLog
			b, err := OpenBuckets(t.Context(), config.Config{
				RedisURL: config.ConnURL("redis://" + test.login + server.Addr()), StoreBudget: 10 * time.Second,
			}, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			ctx, stop := context.WithCancel(t.Context())
			var watching sync.WaitGroup
			watching.Go(func() { b.watch(ctx) })
			defer watching.Wait()
			defer stop()
			deadline := time.Now().Add(time.Minute)
			for !strings.Contains(strings.Join(b.warnings(), "\n"), test.want) {
				_ = b.redis.Take(t.Context(), []enforce.BucketCheck{{Cost: enforce.Token, Tiers: []enforce.Tier{tier}}})
				if time.Now().After(deadline) {
					t.Fatalf("the warnings are %q; want one with %q", b.warnings(), test.want)
				}
			}
			if text := log.String(); strings.Count(text, "refuses the scripts of checks") != 1 ||
				!strings.Contains(text, test.want) {
				t.Errorf("the log is\n%s", text)
			}
			if b.redis.RefusedScripts() == 0 {
				t.Error("no refused script is counted")
			}
		})
	}
}

func TestRefusalsAreLoggedOnceAMinuteByNodeAndKind(t *testing.T) {
	t.Parallel()
	var log safeLog
	b := &Buckets{log: slog.New(slog.NewTextHandler(&log, nil))}
	began, logged := time.Now(), map[string]time.Time{}
	for second := range 100 { // one look a second
		at := began.Add(time.Duration(second) * time.Second)
		b.logRefusals(logged, []redisbucket.Refusal{
			{Addr: "one:1", Kind: "OOM", Err: errors.New("OOM command not allowed"), At: at},
			{Addr: "one:1", Kind: "READONLY", Err: errors.New("READONLY You can't write"), At: at},
			{Addr: "two:2", Kind: "OOM", Err: errors.New("OOM command not allowed"), At: at},
		})
	}
	for _, line := range []string{"node=one:1 kind=OOM", "node=one:1 kind=READONLY", "node=two:2 kind=OOM"} {
		if n := strings.Count(log.String(), line); n != 2 {
			t.Errorf("in 100 s %s is logged %d times, want 2", line, n)
		}
	}
}

func TestAPingsErrorIsLoggedAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	var log safeLog
	b := &Buckets{log: slog.New(slog.NewTextHandler(&log, nil))}
	var last []redisbucket.Node
	for _, err := range []error{
		context.DeadlineExceeded, errors.New("read 127.0.0.1:40001: reset"), errors.New("read 127.0.0.1:40002: reset"),
		refusal("WRONGPASS invalid"), refusal("WRONGPASS invalid"), nil, nil,
	} {
		now := []redisbucket.Node{{Addr: "one:1", State: redisbucket.Down, Err: err}}
		if err == nil {
			now[0].State = redisbucket.Up
		}
		b.logPings(last, now)
		last = now
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "deadline") || !strings.Contains(lines[1], "WRONGPASS") ||
		!strings.Contains(lines[2], "answers pings again") {
		t.Errorf("the log is\n%s", log.String())
	}
}

func TestMistakesAboutSentinelsAreNamed(t *testing.T) {
	t.Parallel()
	group, err := devdb.StartRedisGroup(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Kill)
	sentinel := group.Sentinel.Addr()
	for want, url := range map[string]string{
		"know no master of the name":              sentinel + "/another",
		"SLUICE_REDIS_SENTINEL_PASSWORD":          sentinel + "/main?sentinel_user=nobody&sentinel_password=x",
		"is no sentinel":                          group.Master.Addr() + "/main",
		"no sentinel in SLUICE_REDIS_URL answers": "127.0.0.1:1/main",
		"SLUICE_REDIS_PASSWORD":                   "nobody:x@" + sentinel + "/main",
	} {
		b, err := OpenBuckets(t.Context(), config.Config{
			RedisURL: config.ConnURL("redis+sentinel://" + url), StoreBudget: 10 * time.Second,
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		got := explainRedis(b.redis.Ping(t.Context())[0].Err)
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("%s: %v, want %q", url, got, want)
		}
		_ = b.Close()
	}
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}
