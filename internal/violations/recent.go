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
	// SlotLength is the resolution of recent denials.
	SlotLength = 5 * time.Second
	// PresentTime is the time over which the present rate of denials is measured.
	PresentTime = 10 * time.Second
	// EarlierTime is the time before PresentTime, for comparison.
	EarlierTime = 5 * time.Minute

	// RecentKept is how long slots are kept, with a reserve for late ones. Older ones are summed by the minute.
	RecentKept   = 15 * time.Minute
	slotsPerHour = int64(time.Hour / SlotLength)
	// recentEvery is the longest pause between two writes. By arrival after a slot, all processes have written it.
	recentEvery = time.Second
	arrival     = 2 * time.Second

	// maxRecentCounts bounds a process's counts of a dimension, tenant and slot. A value has one for each rule and
	// mode.
	maxRecentCounts = 500
	recentBytes     = 200
	// recentShards spread the locking.
	recentShards = 4
)

// Present returns the last ten seconds with complete counts.
func Present(now time.Time) (since, until time.Time) {
	until = floor(now.Add(-arrival), SlotLength)
	return until.Add(-PresentTime), until
}

// RecentDenials counts the violations of a value in a slot.
type RecentDenials struct {
	Tenant    rules.TenantID
	Dimension Dimension
	Slot      time.Time // beginning
	Rule      rules.RuleID
	Mode      rules.Mode
	Value     string // "" for checks without one
	// Other is all values without memory of their own and, with rule 0, of all such rules.
	Other  bool
	Denied int64
}

// dimensions are those that recent denials are counted by.
//
//nolint:gochecknoglobals // a constant
var dimensions = [...]Dimension{ByUser, ByIP, ByNetwork, ByEndpoint}

type recentKey struct {
	ruleKey
	slot   int64 // number of slots since the Unix epoch
	shadow bool
	other  bool
	text   string     // a user or an endpoint
	addr   netip.Addr // the first one of a network
}

type tenantSlot struct {
	tenant rules.TenantID
	slot   int64
}

// recentDenials counts one dimension exactly. Too many values and rules are counted together. A count keeps its memory
// until its slot is over, which bounds the sum of a slot's writes.
type recentDenials struct {
	mu     sync.Mutex
	counts map[recentKey]*int64 // unwritten
	kept   map[tenantSlot]int   // how many counts are of known values
	latest int64
	bytes  room
}

type recents [len(dimensions)][recentShards]*recentDenials

func newRecents(maxBytes int) (all recents) {
	for i := range all {
		for j := range all[i] {
			all[i][j] = &recentDenials{
				counts: map[recentKey]*int64{}, kept: map[tenantSlot]int{},
				bytes: newRoom(maxBytes / len(dimensions) / recentShards),
			}
		}
	}
	return all
}

func (all *recents) add(c *Check, t *Tier, now time.Time) {
	key := recentKey{
		ruleKey: ruleKey{c.Tenant, t.Rule.ID}, slot: now.Unix() / int64(SlotLength/time.Second),
		shadow: t.Mode == rules.ModeShadow,
	}
	for i, dimension := range dimensions {
		key.text, key.addr = "", netip.Addr{}
		switch dimension {
		case ByUser:
			key.text = c.Request.UserID
		case ByEndpoint:
			key.text = c.Request.Endpoint
		case ByIP:
			key.addr = rules.PlainIP(c.Request.IP)
		case ByNetwork:
			key.addr = rules.SiteNetwork(rules.PlainIP(c.Request.IP)).Addr()
		}
		all[i][uint64(c.Tenant)%recentShards].add(&key, c.times())
	}
}

func (r *recentDenials) add(key *recentKey, times int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if count, ok := r.counts[*key]; ok {
		*count += times
		return
	}
	r.drop(key.slot)
	at := tenantSlot{key.tenant, key.slot}
	count := times
	if r.kept[at] < maxRecentCounts && r.bytes.take(key.tenant, key.bytes()) {
		r.kept[at]++
		own := *key
		own.text = strings.Clone(key.text) // the caller's may be part of a large request
		r.counts[own] = &count
		return
	}
	others := recentKey{ruleKey: key.ruleKey, slot: key.slot, shadow: key.shadow, other: true}
	if _, ok := r.counts[others]; !ok && !r.bytes.take(key.tenant, others.bytes()) {
		others.rule = 0 // there is one for each slot at most
	}
	if together, ok := r.counts[others]; ok {
		*together += times
		return
	}
	r.counts[others] = &count
}

func (k *recentKey) bytes() int { return recentBytes + len(k.text) }

// drop forgets written counts of past slots. Unwritten ones that are no longer recent are summed by the hour, which
// bounds the memory of a long outage.
func (r *recentDenials) drop(slot int64) {
	if slot <= r.latest {
		return
	}
	r.latest = slot
	for key, count := range r.counts {
		switch isOld := key.slot < slot-int64(RecentKept/SlotLength); {
		case *count == 0 && key.slot < slot:
			delete(r.counts, key)
			r.release(&key)
		case isOld && key.slot%slotsPerHour != 0:
			delete(r.counts, key)
			r.addToHour(key, count)
		}
	}
	for at := range r.kept {
		if at.slot < slot {
			delete(r.kept, at)
		}
	}
}

func (r *recentDenials) addToHour(key recentKey, count *int64) {
	hour := key
	hour.slot -= key.slot % slotsPerHour
	if sum, ok := r.counts[hour]; ok {
		*sum += *count
		r.release(&key)
		return
	}
	r.counts[hour] = count
}

func (r *recentDenials) release(key *recentKey) {
	if key.rule != 0 {
		r.bytes.give(key.tenant, key.bytes())
	}
}

func (all *recents) take(now time.Time) (taken []RecentDenials) {
	slot := now.Unix() / int64(SlotLength/time.Second)
	for i, dimension := range dimensions {
		for _, r := range all[i] {
			r.mu.Lock()
			for key, count := range r.counts {
				if *count > 0 {
					taken = append(taken, key.denials(dimension, *count))
					*count = 0
				}
			}
			r.drop(slot)
			r.mu.Unlock()
		}
	}
	slices.SortFunc(taken, func(a, b RecentDenials) int {
		return cmp.Or(
			cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Dimension, b.Dimension), a.Slot.Compare(b.Slot),
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Value, b.Value),
		)
	})
	return taken
}

func (k *recentKey) denials(dimension Dimension, denied int64) RecentDenials {
	d := RecentDenials{
		Tenant: k.tenant, Dimension: dimension, Slot: time.Unix(k.slot*int64(SlotLength/time.Second), 0).UTC(),
		Rule: k.rule, Mode: rules.ModeEnforce, Value: rules.StoredSubject(k.text), Other: k.other, Denied: denied,
	}
	if k.shadow {
		d.Mode = rules.ModeShadow
	}
	switch {
	case !k.addr.IsValid():
	case dimension == ByNetwork:
		d.Value = rules.SiteNetwork(k.addr).String()
	default:
		d.Value = k.addr.String()
	}
	return d
}
