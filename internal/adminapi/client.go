package adminapi

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluicegate/sluice/internal/rules"
)

// clientIP returns the address of a request's client, or the zero Addr if it is unknown. It is the peer's, unless the
// peer is a trusted proxy. Each proxy appends its own peer's address to X-Forwarded-For, so the last address that is no
// trusted proxy is the client. What stands before it may be forged.
func clientIP(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	client := rules.PlainIP(peer.Addr())
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(forwarded) {
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
		return rules.PlainIP(withPort.Addr()), true
	}
	addr, err := netip.ParseAddr(text)
	return rules.PlainIP(addr), err == nil
}
