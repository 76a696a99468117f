package httpapi

import (
	"net/netip"
	"slices"
	"strings"
)

// Client returns the address of a request's client, or the zero Addr. Each proxy appends its peer's address to
// X-Forwarded-For, so the client is the last address that is not a trusted proxy; earlier ones may be forged.
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

func forwardedAddr(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return plain(withPort.Addr()), true
	}
	addr, err := netip.ParseAddr(text)
	return plain(addr), err == nil
}

func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }
