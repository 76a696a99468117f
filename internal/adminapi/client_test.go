package adminapi

import (
	"net/http"
	"net/netip"
	"testing"
)

func TestTheClientIsWhoTheLastUntrustedAddressNames(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for name, tc := range map[string]struct {
		peer      string
		forwarded []string
		want      string
	}{
		"no proxy":                        {"203.0.113.9:4711", nil, "203.0.113.9"},
		"a client that writes the header": {"203.0.113.9:4711", []string{"198.51.100.1"}, "203.0.113.9"},
		"a proxy":                         {"10.0.0.1:4711", []string{"203.0.113.9"}, "203.0.113.9"},
		"a proxy behind another":          {"10.0.0.1:4711", []string{"203.0.113.9, 10.2.3.4"}, "203.0.113.9"},
		"two headers":                     {"10.0.0.1:4711", []string{"203.0.113.9", "10.2.3.4"}, "203.0.113.9"},
		"a client behind a proxy that lies": {
			"10.0.0.1:4711",
			[]string{"198.51.100.1, 203.0.113.9"},
			"203.0.113.9",
		},
		"a lie that is no address":              {"10.0.0.1:4711", []string{"me, 203.0.113.9"}, "203.0.113.9"},
		"a proxy that says nothing":             {"10.0.0.1:4711", nil, "10.0.0.1"},
		"a proxy that does not know":            {"10.0.0.1:4711", []string{"203.0.113.9, unknown"}, "10.0.0.1"},
		"all proxies":                           {"10.0.0.1:4711", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		"a port":                                {"10.0.0.1:4711", []string{"203.0.113.9:80"}, "203.0.113.9"},
		"IPv6 with a port":                      {"[2001:db8::1]:4711", []string{"[2001:db9::9]:80"}, "2001:db9::9"},
		"IPv6":                                  {"[2001:db8::1]:4711", []string{"2001:db9::9"}, "2001:db9::9"},
		"a zone, which means nothing elsewhere": {"10.0.0.1:4711", []string{"fe80::1%eth0"}, "fe80::1"},
		"IPv4 in IPv6": {
			"[::ffff:10.0.0.1]:4711",
			[]string{"::ffff:203.0.113.9"},
			"203.0.113.9",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &http.Request{RemoteAddr: tc.peer, Header: http.Header{"X-Forwarded-For": tc.forwarded}}
			if got := clientIP(r, trusted); got != netip.MustParseAddr(tc.want) {
				t.Errorf("it comes from %s, want %s", got, tc.want)
			}
		})
	}
}

func TestWithoutTrustedProxiesTheHeaderIsNotRead(t *testing.T) {
	t.Parallel()
	r := &http.Request{RemoteAddr: "10.0.0.1:4711", Header: http.Header{"X-Forwarded-For": {"203.0.113.9"}}}
	if got := clientIP(r, nil); got != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("it comes from %s, want the peer", got)
	}
	if got := clientIP(&http.Request{RemoteAddr: "@"}, nil); got.IsValid() {
		t.Errorf("a peer without an address comes from %s", got)
	}
}
