package lease

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// recent counts checks by bucket in bounded memory. A counter is of the bucket that came most: others that share it count it
// down before they take it, so a busy bucket among idle ones is noticed.
//
// A tenant changes at most its share of counters that are in use within hotWithin, so that one with very many buckets hides no
// busy bucket of another.
type recent struct {
	seed     maphash.Seed
	counters []atomic.Uint64 // a hash (32 bits), when it began in hotWithin (24 bits), and a count (8 bits)
	changed  []atomic.Uint64 // of each tenant: when it began in hotWithin (24 bits, at 8), and how many (32 bits, at 32)
}

// tallies is how many tenants have a tally of their own. Their numbers are consecutive, so few share one before there are more.
const tallies = 4096

func newRecent(counters int) recent {
	return recent{seed: maphash.MakeSeed(), counters: make([]atomic.Uint64, counters), changed: make([]atomic.Uint64, tallies)}
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
	n, isInUse := was&mostCounted, was&(1<<32-1<<8) == span && was != 0
	switch {
	case was-n == own && n > 0:
		if n == mostCounted {
			return mostCounted
		}
		counter.Store(was + 1)
		return int(n + 1)
	case isInUse && !r.mayChange(key.Tenant, span):
		return 0
	case isInUse && n > 1:
		counter.Store(was - 1)
		return 0
	}
	counter.Store(own | 1)
	return 1
}

// mayChange counts a change of a counter that another bucket has, and reports whether it is within the tenant's share.
func (r *recent) mayChange(tenant rules.TenantID, span uint64) bool {
	tally := &r.changed[uint64(tenant)%tallies]
	was := tally.Load()
	if was&(1<<32-1) != span {
		was = span
	}
	if was>>32 >= uint64(len(r.counters)/leastTenants) {
		return false
	}
	tally.Store(was + 1<<32)
	return true
}
