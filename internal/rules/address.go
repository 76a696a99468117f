package rules

import "net/netip"

// PlainIP returns an address in the one form that rules compare and violations keep: IPv4 inside IPv6 is IPv4, and
// there is no zone.
func PlainIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// PlainNetwork returns a network in that form.
func PlainNetwork(network netip.Prefix) netip.Prefix {
	if network.Addr().Is4In6() && network.Bits() >= 96 {
		return netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
	}
	return network
}

// SiteNetwork returns what a provider gives to one site at most: the /24 of an IPv4 address, or the /48 of an IPv6 address.
// It is the zero Prefix for no address.
func SiteNetwork(ip netip.Addr) netip.Prefix { return networkOf(ip, 24, 48) }

// CustomerNetwork returns what one customer of a provider usually has: an IPv4 address, or the /64 of an IPv6 address,
// in which any machine may take as many addresses as it likes. It is the zero Prefix for no address.
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
