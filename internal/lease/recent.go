package lease

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/sluicegate/sluice/internal/enforce"
)

// recent counts checks by bucket in bounded memory. Buckets that share a counter push each other out, so a busy one may be
// noticed late, and an idle one never is.
type recent struct {
	seed     maphash.Seed
	counters [1 << 12]atomic.Uint64 // a hash (32 bits), when it began in hotWithin (24 bits), and a count (8 bits)
}

func (r *recent) init() { r.seed = maphash.MakeSeed() }

// count counts a check, and reports whether the bucket is hot.
func (r *recent) count(key enforce.Key, now Instant) bool {
	hash := maphash.Comparable(r.seed, key)
	counter := &r.counters[hash%uint64(len(r.counters))]
	began := hash&^(1<<32-1) | uint64(now.Mono/int64(hotWithin))&(1<<24-1)<<8
	was := counter.Load()
	if was&^0xff != began {
		counter.Store(began | 1) // a lost race loses a count
		return false
	}
	if was&0xff >= hotAfter-1 {
		return true
	}
	counter.Store(was + 1)
	return false
}
