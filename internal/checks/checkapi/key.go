package checkapi

import (
	"net"
	"net/netip"

	"github.com/valyala/fasthttp"
)

func (s *surface) authorize(c *fasthttp.RequestCtx, r *route) (caller, error) {
	if r.asksForVisitor && hasTwoKeys(&c.Request.Header) {
		return caller{}, errTwoKeys
	}
	by, err := s.callerOf(c, r)
	if err != nil && r.asksForVisitor {
		return caller{}, forVisitor(err)
	}
	return by, err
}

func (s *surface) callerOf(c *fasthttp.RequestCtx, r *route) (caller, error) {
	key, tenant, err := s.Authorize(r.keyLines(&c.Request.Header), r.permission, func() (netip.Addr, []string) {
		peer, ok := c.RemoteAddr().(*net.TCPAddr)
		if !ok {
			return netip.Addr{}, nil
		}
		var forwarded []string
		for _, line := range c.Request.Header.PeekAll("X-Forwarded-For") {
			forwarded = append(forwarded, string(line))
		}
		return peer.AddrPort().Addr(), forwarded
	})
	return caller{tenant, key}, err
}
