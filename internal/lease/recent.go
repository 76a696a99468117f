package lease

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/sluicegate/sluice/internal/enforce"
)

// recent counts checks by bucket in bounded memory. A counter is of the bucket that came most: others that share it count it
// down before they take it, so a busy bucket among idle ones is noticed.
type recent struct {
	seed     maphash.Seed
	counters []atomic.Uint64 // a hash (32 bits), when it began in hotWithin (24 bits), and a count (8 bits)
}

func newRecent(counters int) recent {
	return recent{seed: maphash.MakeSeed(), counters: make([]atomic.Uint64, counters)}
}

// mostCounted is how far a counter counts.
const mostCounted = 1<<8 - 1

// count counts a check, and returns how many of the bucket came within hotWithin, this one included, if it has the counter. A lost
// race loses a count.
func (r *recent) count(key enforce.Key, now Instant) int {
	hash := maphash.Comparable(r.seed, key)
	counter := &r.counters[hash%uint64(len(r.counters))]
	span := uint64(now.Mono/int64(hotWithin)) & (1<<24 - 1) << 8
	own := hash&^(1<<32-1) | span
	was := counter.Load()
	switch n := was & mostCounted; {
	case was-n == own:
		if n == mostCounted {
			return mostCounted
		}
		counter.Store(was + 1)
		return int(n + 1)
	case n > 1 && was&(1<<32-1<<8) == span:
		counter.Store(was - 1)
		return 0
	}
	counter.Store(own | 1)
	return 1
}
