package door

import (
	"cmp"
	"net"
	"net/netip"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

// Connection is an open connection to rank.
type Connection[C any] struct {
	Conn    C
	Tenant  rules.TenantID // 0 for an anonymous one
	Network netip.Prefix
	// IsKept: it counts in its group, but cannot be evicted.
	IsKept bool
	IsBusy bool
	// Since is the time of the last request, on a shared clock.
	Since int64
	left  int
}

// Rank returns the connections that can be evicted, first victims first. The largest group, a tenant's or all anonymous
// ones, loses first, so that no caller can evict the connections of others. Within it the longest idle goes first; of
// anonymous ones, those of the largest network.
func Rank[C any](open []Connection[C]) []Connection[C] {
	tenants, networks := map[rules.TenantID][]Connection[C]{}, map[netip.Prefix][]Connection[C]{}
	count := 0
	for i := range open {
		if c := &open[i]; c.Tenant != 0 {
			tenants[c.Tenant] = append(tenants[c.Tenant], *c)
		} else {
			count++
			networks[c.Network] = append(networks[c.Network], *c)
		}
	}
	anonymous := rankGroups(networks)
	for i := range anonymous { // they are one group
		anonymous[i].left = count - i
	}
	all := append(rankGroups(tenants), anonymous...)
	slices.SortStableFunc(all, largestFirst)
	return all
}

func rankGroups[K comparable, C any](groups map[K][]Connection[C]) (all []Connection[C]) {
	for _, group := range groups {
		size := len(group)
		group = slices.DeleteFunc(group, func(c Connection[C]) bool { return c.IsKept })
		slices.SortFunc(group, idleFirst)
		for i := range group {
			group[i].left = size - i
		}
		all = append(all, group...)
	}
	slices.SortFunc(all, largestFirst)
	return all
}

func largestFirst[C any](a, b Connection[C]) int {
	return cmp.Or(cmp.Compare(b.left, a.left), idleFirst(a, b))
}

func idleFirst[C any](a, b Connection[C]) int {
	switch {
	case a.IsBusy == b.IsBusy:
		return cmp.Compare(a.Since, b.Since)
	case a.IsBusy:
		return 1
	}
	return -1
}

// NetworkOf returns the network of a connection's other end, or the zero Prefix.
func NetworkOf(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return rules.CustomerNetwork(tcp.AddrPort().Addr())
}
