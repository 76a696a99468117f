package rules

import "net/netip"

// PlainIP normalizes an address for rules and violations: IPv4-mapped IPv6 becomes IPv4, and the zone is dropped.
func PlainIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// PlainNetwork normalizes a network as PlainIP does an address.
func PlainNetwork(network netip.Prefix) netip.Prefix {
	if network.Addr().Is4In6() && network.Bits() >= 96 {
		return netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
	}
	return network
}

// SiteNetwork returns the largest network that providers give to one site: the /24 of an IPv4 address, or the /48 of an
// IPv6 address.
func SiteNetwork(ip netip.Addr) netip.Prefix { return networkOf(ip, 24, 48) }

// CustomerNetwork returns the network of one customer: an IPv4 address, or the /64 of an IPv6 address, since any
// machine may use all addresses of a /64.
func CustomerNetwork(ip netip.Addr) netip.Prefix { return networkOf(ip, 32, 64) }

func networkOf(ip netip.Addr, v4, v6 int) netip.Prefix {
	ip = PlainIP(ip)
	bits := v6
	if ip.Is4() {
		bits = v4
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return network
}
