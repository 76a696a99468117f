package adminapi

import (
	"net/http"
	"net/netip"

	"github.com/sluicegate/sluice/internal/httpapi"
)

func clientIP(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return httpapi.Client(peer.Addr(), r.Header.Values("X-Forwarded-For"), trusted)
}
