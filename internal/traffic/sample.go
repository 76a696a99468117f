package traffic

import (
	"math/bits"
	"net/netip"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// The strata of blocks.
const (
	// Strata is the number of strata. The smallest sample is 1/4^(Strata-1).
	Strata          = 6
	Stopped         = Strata     // the level at which nothing is recorded
	StratumOfSums   = Strata     // costs outside of the sample, which a reader may skip
	StratumOfExtras = Strata + 1 // denied checks outside of the sample
)

// Share returns a sample's share of all users.
func Share(level int) float64 { return 1 / float64(uint64(1)<<(2*min(level, Strata-1))) }

// StratumOfUser returns a user's stratum: the user is in the samples of that level and lower ones.
func StratumOfUser(tenant rules.TenantID, user string) int {
	if user == "" {
		return 0
	}
	return stratum(hashText(start(tenant, 'u'), user))
}

// StratumOfIP is StratumOfUser for an address. An IPv6 network counts as one address, as for limits.
func StratumOfIP(tenant rules.TenantID, ip netip.Addr, settings *rules.Settings) int {
	h, ok := hashIP(start(tenant, 'a'), ip, settings)
	if !ok {
		return 0
	}
	return stratum(h)
}

// StratumOfEndpoint is for checks without user and address, by endpoint and minute.
func StratumOfEndpoint(tenant rules.TenantID, endpoint string, at int64) int {
	return stratum(hashEndpoint(start(tenant, 'e'), endpoint, at))
}

// MaxDraw bounds Draw.Level.
const MaxDraw = 3

// Draw is a random part of the recorded checks: 1/4^Level of the users and, separately, of the addresses. A Seed always
// draws the same ones, whatever sample was recorded.
type Draw struct {
	Level int
	Seed  uint64
}

// Share is the drawn share.
func (d Draw) Share() float64 { return Share(d.Level) }

// HasUser reports whether a user is drawn.
func (d Draw) HasUser(tenant rules.TenantID, user string) bool {
	return d.Level == 0 || stratum(hashText(d.start(tenant, 'U'), user)) >= d.Level
}

// HasIP reports whether an address is drawn.
func (d Draw) HasIP(tenant rules.TenantID, ip netip.Addr, settings *rules.Settings) bool {
	if d.Level == 0 {
		return true
	}
	h, ok := hashIP(d.start(tenant, 'A'), ip, settings)
	return ok && stratum(h) >= d.Level
}

// HasEndpoint reports whether an endpoint and minute is drawn, for checks without user and address.
func (d Draw) HasEndpoint(tenant rules.TenantID, endpoint string, at int64) bool {
	return d.Level == 0 || stratum(hashEndpoint(d.start(tenant, 'E'), endpoint, at)) >= d.Level
}

func (d Draw) start(tenant rules.TenantID, kind byte) uint64 {
	return (start(tenant, kind) ^ d.Seed) * prime
}

func hashText(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * prime
	}
	return h
}

func hashIP(h uint64, ip netip.Addr, settings *rules.Settings) (hash uint64, ok bool) {
	if !ip.IsValid() {
		return 0, false
	}
	ip = rules.PlainIP(ip)
	width := settings.IPv4Prefix
	if ip.Is6() {
		width = settings.IPv6Prefix
	}
	network, err := ip.Prefix(width)
	if err != nil {
		return 0, false
	}
	for _, b := range network.Addr().As16() {
		h = (h ^ uint64(b)) * prime
	}
	return h, true
}

func hashEndpoint(h uint64, endpoint string, at int64) uint64 {
	return hashText((h^uint64(at/time.Minute.Milliseconds()))*prime, endpoint)
}

// The hash is FNV-1a with MurmurHash3's mixer, which spreads it over the leading bits. The hash must not change,
// because blocks of different versions are read together.
const prime = 0x100000001b3

func start(tenant rules.TenantID, kind byte) uint64 {
	return ((0xcbf29ce484222325^uint64(tenant))*prime ^ uint64(kind)) * prime
}

func stratum(h uint64) int {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return min(bits.LeadingZeros64(h)/2, Strata-1)
}

// Usage describes a tenant's recorded checks.
type Usage struct {
	Tenant                     rules.TenantID
	Days                       int   // of retention; 0: recording is off
	Bytes                      int64 // of all blocks
	TodayBytes, YesterdayBytes int64 // of blocks; yesterday's as they would have been without sampling
	Counts
	Oldest, Newest time.Time // of the first and last block; zero: none
	Checks         int64
	Level          int // the highest in the last hour
}

// Budget bounds the stored blocks.
type Budget struct {
	PerTenant, Total int64 // in bytes
}

// Level returns the sample that a tenant records from now on. A day like yesterday fits the day's budget, and the rest
// of today fits today's. all is the size of all tenants' blocks. When the total is used up, a tenant with more than an
// equal share stops.
func (b Budget) Level(u *Usage, all int64, tenants int) int {
	if u.Days < 1 {
		return 0
	}
	perTenant := b.PerTenant
	if all >= b.Total {
		perTenant = min(perTenant, b.Total/int64(max(tenants, 1)))
		if u.Bytes > perTenant {
			return Stopped
		}
	}
	if u.Bytes >= b.PerTenant {
		return Stopped
	}
	day := max(1, perTenant/int64(u.Days))
	level := 0
	for full := u.YesterdayBytes; full > day && level < Strata-1; full /= 4 {
		level++
	}
	// Half of the day's budget is for the first sample, half of the rest for the next.
	for left, used := day, u.TodayBytes; level < Stopped; level++ {
		part := left - left/2
		if used < part {
			break
		}
		used -= part
		left -= part
		if left == 0 {
			return Stopped
		}
	}
	return level
}
