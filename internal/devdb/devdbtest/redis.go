package devdbtest

import (
	"testing"

	"github.com/sluicegate/sluice/internal/devdb"
)

// Redis returns a redis-server for this test alone, and kills it when the test ends. It costs about
// 30 ms. The server's own methods stop, freeze and restart it.
func Redis(tb testing.TB) *devdb.Redis {
	tb.Helper()
	r, err := devdb.StartRedis(tb.Context(), tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Kill)
	return r
}
