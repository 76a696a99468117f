package devdbtest

import (
	"testing"

	"github.com/sluicegate/sluice/internal/devdb"
)

// Redis starts a redis-server for this test (about 30 ms), and kills it at the test's end.
func Redis(tb testing.TB) *devdb.Redis {
	tb.Helper()
	r, err := devdb.StartRedis(tb.Context(), tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Kill)
	return r
}
