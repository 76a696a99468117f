package decide

import (
	"math"
	"testing"
)

func TestCheckConnectionsLeaveFilesForTheRest(t *testing.T) {
	t.Parallel()
	for files, want := range map[uint64]int{256: 128, 1024: 512, 20_000: 19_488, math.MaxUint64: 1 << 30} {
		if got := connectionsWithin(files); got != want {
			t.Errorf("with %d files there can be %d connections, want %d", files, got, want)
		}
	}
}
