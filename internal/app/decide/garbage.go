package decide

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const garbageRoom = 32 << 20 // bytes between garbage collections, however small the live heap

// collectSeldom lets the heap of a small process grow by garbageRoom before it is collected. Go would let it double,
// which with few rules is 4 MB: at 10,000 checks per second that is a collection every 100 ms, and a tenth of the
// throughput (GOGC=100 beside GOGC=1000, eight interleaved rounds of 32 callers on two cores).
var collectSeldom = sync.OnceFunc(func() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		afterEachCollection(100)
	}
})

// afterEachCollection adjusts GOGC, which is share now, to the live heap after each collection.
func afterEachCollection(share int) {
	type sentinel struct{ _ *byte } // unreferenced, so the next collection frees it
	runtime.AddCleanup(&sentinel{}, func(share int) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		wanted := max(100, int(garbageRoom*100/max(1, live[0].Value.Uint64())))
		if wanted > share+share/4 || wanted < share-share/4 { // each change stops the world
			debug.SetGCPercent(wanted)
			share = wanted
		}
		afterEachCollection(share)
	}, share)
}
