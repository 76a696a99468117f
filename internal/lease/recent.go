package lease

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// recent counts checks by bucket in bounded memory. A bucket has one of two counters that are side by side. They are of the buckets
// that came most: others that share them count one down before they take it, so a busy bucket among idle ones is noticed.
//
// Nearly all checks of idle buckets come here, and each finds its counters out of the processor's caches. So the counters are small,
// and a check visits one place.
//
// A tenant changes at most its share of counters that are in use within hotWithin, so that one with very many buckets hides no
// busy bucket of another.
type recent struct {
	seed     maphash.Seed
	counters []atomic.Uint32 // part of a hash (14 bits, at 18), when it began in hotWithin (10 bits, at 8), and a count; a power of two
	changed  []atomic.Uint64 // of each tenant: when it began in hotWithin (10 bits, at 8), and how many (32 bits, at 32)
}

const (
	mostCounted = 1<<8 - 1         // how far a counter counts
	spanBits    = (1<<10 - 1) << 8 // of a counter
	hashBits    = 1<<32 - 1<<18    // likewise
)

// tallies is how many tenants have a tally of their own. Their numbers are consecutive, so few share one before there are more.
const tallies = 4096

func newRecent(counters int) recent {
	return recent{seed: maphash.MakeSeed(), counters: make([]atomic.Uint32, counters), changed: make([]atomic.Uint64, tallies)}
}

// hash returns a hash of a key. Its shard follows from the rest.
func (r *recent) hash(key *enforce.Key) uint64 {
	hash := maphash.String(r.seed, key.Subject) ^ uint64(key.Rule)*0x9e3779b97f4a7c15 ^ uint64(key.Tenant)*0xc2b2ae3d27d4eb4f
	hash *= 0xff51afd7ed558ccd
	return hash ^ hash>>32
}

// count counts a check, and returns how many of the bucket came within hotWithin, this one included, if it has a counter. A lost
// race loses a count.
func (r *recent) count(key *enforce.Key, now Instant) int {
	hash := r.hash(key)
	at := hash & uint64(len(r.counters)-2)
	span := uint32(now.Mono/int64(hotWithin)) << 8 & spanBits
	own := uint32(hash>>32)&hashBits | span
	var other *atomic.Uint32 // that is not used, or else counted least
	least := uint32(mostCounted + 1)
	for i := range uint64(2) {
		counter := &r.counters[at+i]
		was := counter.Load()
		n := was & mostCounted
		switch isInUse := was&spanBits == span && n > 0; {
		case isInUse && was-n == own:
			if n < mostCounted {
				counter.Store(was + 1)
			}
			return int(min(n+1, mostCounted))
		case !isInUse:
			n = 0
		}
		if n < least {
			other, least = counter, n
		}
	}
	switch {
	case least == 0:
	case !r.mayChange(key.Tenant, span):
		return 0
	case least > 1:
		other.Store(other.Load() - 1)
		return 0
	}
	other.Store(own | 1)
	return 1
}

// mayChange counts a change of a counter that another bucket has, and reports whether it is within the tenant's share.
func (r *recent) mayChange(tenant rules.TenantID, span32 uint32) bool {
	span := uint64(span32)
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
