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
	// IsKept: the connection cannot be evicted, but counts in its group.
	IsKept bool
	// IsBusy: the connection goes after the idle ones of its group.
	IsBusy bool
	// Since is the time of its last request, or when it became idle, on a shared clock.
	Since int64
	// left is the size of its group once all before it are evicted.
	left int
}

// Rank returns the connections that can be evicted, first victims first. The largest group loses first, so that no
// caller can evict the connections of others. A group is a tenant's connections, or all anonymous ones, where the
// largest network loses first. Within a tenant or network the longest idle connection goes first.
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
