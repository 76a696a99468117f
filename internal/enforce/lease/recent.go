package lease

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
	"github.com/sluicegate/sluice/internal/rules"
)

// recent counts checks by bucket in bounded memory. A bucket has one of two adjacent counters. To take over a counter,
// a bucket must first count it down, one per check, so a busy bucket keeps its counter.
//
// Counters are small and adjacent because nearly every check of an idle bucket misses the processor's caches here.
//
// A tenant may take over only its share of used counters within hotWithin. Otherwise a tenant with very many buckets
// would hide the busy buckets of others.
type recent struct {
	seed maphash.Seed
	// bits 18 to 31: part of a hash; 8 to 17: the number of the period of hotWithin; 0 to 7: a count. The length is a
	// power of two.
	counters []atomic.Uint32
	// of each tenant, bits 32 to 63: the number of changes; 8 to 17: the number of the period of hotWithin
	changed []atomic.Uint64
}

const (
	mostCounted = 1<<8 - 1         // how far a counter counts
	spanBits    = (1<<10 - 1) << 8 // of a counter
	hashBits    = 1<<32 - 1<<18    // likewise
)

// tallies is the number of tenants with a tally of their own. Tenant numbers are consecutive, so fewer tenants rarely
// share one.
const tallies = 4096

func newRecent(counters int) recent {
	return recent{
		seed: maphash.MakeSeed(), counters: make([]atomic.Uint32, counters),
		changed: make([]atomic.Uint64, tallies),
	}
}

func (r *recent) hash(key *enforce.Key) uint64 {
	hash := maphash.String(r.seed,
		key.Subject) ^ uint64(key.Rule)*0x9e3779b97f4a7c15 ^ uint64(key.Tenant)*0xc2b2ae3d27d4eb4f
	hash *= 0xff51afd7ed558ccd
	return hash ^ hash>>32
}

// count counts a check, and returns the bucket's count within hotWithin; 0 if it has no counter. A lost race loses a
// count.
func (r *recent) count(key *enforce.Key, now lend.Instant) int {
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

// mayChange counts a takeover of another bucket's counter, and reports whether it is within the tenant's share.
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
