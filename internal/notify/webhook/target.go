package webhook

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const lookupTimeout = 2 * time.Second // somebody waits for the form that they sent

// CheckTarget returns ErrForbidden if the URL's host has only addresses that are not public. A name that does not
// resolve passes, because Send judges each address again.
func (s *Sender) CheckTarget(ctx context.Context, target string) error {
	at, err := url.Parse(target)
	if err != nil {
		return fmt.Errorf("read the URL: %w", err)
	}
	if ip, err := netip.ParseAddr(at.Hostname()); err == nil {
		return s.options.judge(ip)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, err := s.options.Lookup(ctx, "ip", at.Hostname())
	if err != nil {
		return nil
	}
	isAllowed := func(ip netip.Addr) bool { return s.options.judge(ip) == nil }
	if len(addresses) > 0 && !slices.ContainsFunc(addresses, isAllowed) {
		return ErrForbidden
	}
	return nil
}

func (o *Options) judgeDial(address string) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	return o.judge(target.Addr())
}

// reserved are networks that are not for public hosts and that netip has no method for: RFC 6890 and its IANA
// registry.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("100.64.0.0/10"),   // shared by customers of a provider
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation, like the next two
	netip.MustParsePrefix("198.51.100.0/24"), //
	netip.MustParsePrefix("203.0.113.0/24"),  //
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, and broadcast
	netip.MustParsePrefix("::/96"),           // IPv4 inside IPv6, deprecated
	netip.MustParsePrefix("64:ff9b::/96"),    // IPv4 behind a translator, which may lead into a private network
	netip.MustParsePrefix("64:ff9b:1::/48"),  //
	netip.MustParsePrefix("100::/64"),        // discard
	netip.MustParsePrefix("2001::/23"),       // protocol assignments, Teredo among them
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("2002::/16"),       // 6to4, which holds IPv4
	netip.MustParsePrefix("fec0::/10"),       // site-local, deprecated
}

func (o *Options) judge(ip netip.Addr) error {
	ip = rules.PlainIP(ip)
	within := func(networks []netip.Prefix) bool {
		return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip) })
	}
	if within(o.Allow) {
		return nil
	}
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || within(reserved) {
		return ErrForbidden // naming the address would reveal what a private name resolves to
	}
	return nil
}
