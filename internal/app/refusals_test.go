package app

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
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
		})
	}
}
