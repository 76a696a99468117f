package app

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// garbageRoom is how much a process may allocate between two garbage collections, in bytes, however
// little of its memory is in use.
const garbageRoom = 32 << 20

// collectSeldom lets the heap of a small process grow by garbageRoom before it is collected. Go would let
// it double, which with few rules in memory is 4 MB: at 10,000 checks per second that is a collection
// every 100 ms, and a tenth of the throughput (GOGC=100 beside GOGC=1000, eight interleaved rounds of 32
// callers on two cores). A process with much in memory collects when that has doubled, as ever. Whoever
// sets GOGC or GOMEMLIMIT knows better.
var collectSeldom = sync.OnceFunc(func() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		afterEachCollection(100)
	}
})

// afterEachCollection sets the share by which the heap may grow anew when a collection has found out
// how much is in use. The share is what is set now.
func afterEachCollection(share int) {
	type sentinel struct{ _ *byte } // nothing refers to it, so the next collection frees it
	runtime.AddCleanup(&sentinel{}, func(share int) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		wanted := max(100, int(garbageRoom*100/max(1, live[0].Value.Uint64())))
		if wanted > share+share/4 || wanted < share-share/4 { // setting it stops the world for a moment
			debug.SetGCPercent(wanted)
			share = wanted
		}
		afterEachCollection(share)
	}, share)
}
