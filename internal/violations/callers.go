package violations

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// callerSample is a power of two: one check in so many is counted, as so many.
	callerSample = 4
	// callerSeen bounds the values that a process counts of a tenant in PresentTime. A caller of 1 % of the checks is
	// among the first 500 in 99 of 100 times.
	callerSeen = 500
	// A process writes the callersWritten users and networks with the most checks, if these are callerLeast and
	// 1/callerPart of the tenant's.
	callerLeast    = 10
	callerPart     = 50
	callersWritten = 8

	// CallersBefore is the time before PresentTime, for comparison.
	CallersBefore = time.Hour
	// CallersKept is how long callers are kept, with a reserve for late ones.
	CallersKept = CallersBefore + 15*time.Minute

	// Approximate memory of a value without its text, of a tenant, and of a count to be written.
	callerBytes      = 200
	callerCountBytes = 200
)

// BusyTime returns the last ten seconds whose callers have arrived.
func BusyTime(now time.Time) (since, until time.Time) {
	until = floor(now.Add(-arrival), PresentTime)
	return until.Add(-PresentTime), until
}

// CallerCount estimates the checks of a caller, a user or a network, in PresentTime.
type CallerCount struct {
	Tenant    rules.TenantID
	Dimension Dimension // "" for all callers
	Slot      time.Time // beginning
	Value     string
	Checks    int64
}

// callers counts some tenants' checks by user and network, from a sample, so that an allowed check costs little more.
type callers struct {
	mu      sync.Mutex
	tenants map[rules.TenantID]*tenantCallers
	bytes   room
	ended   []CallerCount // of ended slots, to be written
	most    int           // bound of ended
}

type tenantCallers struct {
	slot   int64 // number of PresentTimes since the Unix epoch
	checks int64 // of all callers
	seen   map[callerKey]*int64
	users  int // among seen
	bytes  int
}

type callerKey struct { // or, by its first address, a network
	user    string
	network netip.Addr
}

type allCallers [recentShards]*callers

func newCallers(maxBytes int) (all allCallers) {
	for i := range all {
		part := maxBytes / recentShards / 2
		all[i] = &callers{
			tenants: map[rules.TenantID]*tenantCallers{}, bytes: newRoom(part), most: part / callerCountBytes,
		}
	}
	return all
}

func callerSlot(now time.Time) int64 { return now.Unix() / int64(PresentTime/time.Second) }

// add counts a check of a slot that has ended in the present one.
func (all *allCallers) add(c *Check, slot, checks int64) {
	s := all[uint64(c.Tenant)%recentShards]
	network := rules.SiteNetwork(c.Request.IP).Addr()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[c.Tenant]
	if t == nil || t.slot < slot {
		if t != nil {
			s.end(c.Tenant, t)
		}
		if !s.bytes.take(c.Tenant, callerBytes) {
			return
		}
		t = &tenantCallers{slot: slot, seen: map[callerKey]*int64{}, bytes: callerBytes}
		s.tenants[c.Tenant] = t
	}
	t.checks += checks
	if c.Request.UserID != "" {
		s.count(c.Tenant, t, callerKey{user: c.Request.UserID}, checks)
	}
	if network.IsValid() {
		s.count(c.Tenant, t, callerKey{network: network}, checks)
	}
}

func (s *callers) count(tenant rules.TenantID, t *tenantCallers, key callerKey, checks int64) {
	if count, ok := t.seen[key]; ok {
		*count += checks
		return
	}
	same := t.users
	if key.network.IsValid() {
		same = len(t.seen) - t.users
	}
	bytes := callerBytes + len(key.user)
	if same >= callerSeen || !s.bytes.take(tenant, bytes) {
		return
	}
	t.bytes += bytes
	if !key.network.IsValid() {
		t.users++
	}
	key.user = strings.Clone(key.user) // the caller's may be part of a large request
	first := checks                    // of its own, so that only a new value allocates
	t.seen[key] = &first
}

// end chooses the written callers of a tenant's slot. While the store is away for long, the oldest slots are dropped.
func (s *callers) end(tenant rules.TenantID, t *tenantCallers) {
	delete(s.tenants, tenant)
	s.bytes.give(tenant, t.bytes)
	at := time.Unix(t.slot*int64(PresentTime/time.Second), 0).UTC()
	var users, networks []CallerCount
	if t.checks >= callerLeast {
		s.ended = append(s.ended, CallerCount{Tenant: tenant, Slot: at, Checks: t.checks})
	}
	for key, checks := range t.seen {
		if *checks < callerLeast || *checks < t.checks/callerPart {
			continue
		}
		count := CallerCount{Tenant: tenant, Slot: at, Checks: *checks}
		if key.network.IsValid() {
			count.Dimension, count.Value = ByNetwork, rules.SiteNetwork(key.network).String()
			networks = append(networks, count)
		} else {
			count.Dimension, count.Value = ByUser, rules.StoredSubject(key.user)
			users = append(users, count)
		}
	}
	for _, found := range [][]CallerCount{users, networks} {
		slices.SortFunc(found, func(a, b CallerCount) int { return cmp.Compare(b.Checks, a.Checks) })
		s.ended = append(s.ended, found[:min(len(found), callersWritten)]...)
	}
	if len(s.ended) > s.most {
		s.ended = slices.Clone(s.ended[len(s.ended)-s.most/2:])
	}
}

func (all *allCallers) take(now time.Time) (taken []CallerCount) {
	for _, s := range all {
		s.mu.Lock()
		for tenant, t := range s.tenants {
			if t.slot < callerSlot(now) {
				s.end(tenant, t)
			}
		}
		taken = append(taken, s.ended...)
		s.ended = nil
		s.mu.Unlock()
	}
	slices.SortFunc(taken, func(a, b CallerCount) int {
		return cmp.Or(
			cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Dimension, b.Dimension), a.Slot.Compare(b.Slot),
			cmp.Compare(a.Value, b.Value),
		)
	})
	return taken
}
