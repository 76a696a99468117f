package app

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/store/redisbucket"
)

func TestReadinessNamesTheNodesThatAreDown(t *testing.T) {
	t.Parallel()
	b, err := OpenBuckets(t.Context(), config.Config{RedisURL: "redis://127.0.0.1:1,127.0.0.1:2"},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if word, _ := b.State(); word != "down" {
		t.Errorf("before the first ping Redis is %s", word)
	}
	for _, test := range []struct {
		first, second redisbucket.State
		word          string
		down          []string
	}{
		{redisbucket.Up, redisbucket.Up, "up", nil},
		{redisbucket.Up, redisbucket.Down, "partial", []string{"10.0.0.2:6379"}},
		{redisbucket.Down, redisbucket.Down, "down", nil},
	} {
		b.health.Store(&health{nodes: []redisbucket.Node{
			{Addr: "10.0.0.1:6379", State: test.first}, {Addr: "10.0.0.2:6379", State: test.second},
		}})
		word, down := b.State()
		if word != test.word || !slices.Equal(down, test.down) {
			t.Errorf("%s and %s: %s, down %v; want %s, %v", test.first, test.second, word, down, test.word, test.down)
		}
		warned := strings.Contains(strings.Join(b.warnings(), "\n"), "10.0.0.2:6379")
		if warned != (test.down != nil) {
			t.Errorf("%s and %s: the warnings are %q", test.first, test.second, b.warnings())
		}
	}
}
