package httpapi

import (
	"net/netip"
	"slices"
	"strings"
)

// Client returns the address of a request's client, or the zero Addr if it is unknown. It is the peer's, unless the peer is
// a trusted proxy. Each proxy appends its own peer's address to X-Forwarded-For, so the last address that is no trusted
// proxy is the client. What stands before it may be forged.
func Client(peer netip.Addr, forwarded []string, trusted []netip.Prefix) netip.Addr {
	client := plain(peer)
	for _, text := range slices.Backward(strings.Split(strings.Join(forwarded, ","), ",")) {
		isProxy := slices.ContainsFunc(trusted, func(network netip.Prefix) bool { return network.Contains(client) })
		before, ok := forwardedAddr(text)
		if !isProxy || !ok {
			break
		}
		client = before
	}
	return client
}

// forwardedAddr reads one address of X-Forwarded-For. Some proxies append a port.
func forwardedAddr(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return plain(withPort.Addr()), true
	}
	addr, err := netip.ParseAddr(text)
	return plain(addr), err == nil
}

func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }
