package lease

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
	"github.com/sluicegate/sluice/internal/rules"
)

// recent counts checks by bucket in bounded memory; a bucket has one of two adjacent counters. A bucket takes over a
// counter by counting it down, so a busy bucket keeps its own.
//
// Counters are small, because nearly every check of an idle bucket misses the caches here.
//
// A tenant may take over only its share within hotWithin, or its many buckets would hide the busy ones of others.
type recent struct {
	seed maphash.Seed
	// bits 18–31: part of a hash; 8–17: number of the period of hotWithin; 0–7: a count.
	counters []atomic.Uint32
	// by tenant: bits 32–63: number of changes; 8–17: number of the period of hotWithin
	changed []atomic.Uint64
}

const (
	mostCounted = 1<<8 - 1         // how far a counter counts
	spanBits    = (1<<10 - 1) << 8 // of a counter
	hashBits    = 1<<32 - 1<<18    // likewise
)

// tallies: tenant numbers are consecutive, so fewer tenants rarely share one.
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

// count returns the bucket's checks within hotWithin; 0 without a counter, and less after a lost race.
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
