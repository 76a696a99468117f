package adminapi

import (
	"net/http"
	"net/netip"

	"github.com/sluicegate/sluice/internal/httpapi"
)

// clientIP returns the address of a request's client, or the zero Addr if it is unknown; see httpapi.Client.
func clientIP(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return httpapi.Client(peer.Addr(), r.Header.Values("X-Forwarded-For"), trusted)
}
