package gateway

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/sluicegate/sluice/internal/rules"
)

// A list that is too short was not written by that many proxies, so nothing to the left of its last entry is proved.
func (m *Mapping) visitor(r *Request) (netip.Addr, error) {
	var a Address
	if m.document.Address != nil {
		a = *m.document.Address
	}
	list := addresses{r.Headers.Values(m.address), m.address == forwarded}
	ip := list.fromEnd(a.TrustedHops)
	switch {
	case ip.IsValid() || a.Short == ShortNobody:
	case a.Short == ShortRefuse:
		return ip, refuse("The header ", m.address, " has no address of the visitor.")
	default:
		ip = list.fromEnd(0)
	}
	return ip, nil
}

const forwarded = "Forwarded"

type addresses struct {
	lines     [][]byte
	forwarded bool
}

// fromEnd counts commas within quotes too: proxies write none, and a quote that a visitor leaves open must not hide the
// proxies' entries.
func (a addresses) fromEnd(hops int) netip.Addr {
	for i := len(a.lines) - 1; i >= 0; i-- {
		for rest, more := a.lines[i], true; more; hops-- {
			entry := rest
			if at := bytes.LastIndexByte(rest, ','); at >= 0 {
				rest, entry = rest[:at], rest[at+1:]
			} else {
				more = false
			}
			if hops == 0 {
				return a.parse(string(entry))
			}
		}
	}
	return netip.Addr{}
}

func (a addresses) parse(entry string) netip.Addr {
	if !a.forwarded {
		return parseAddress(strings.TrimSpace(entry))
	}
	for pair := range strings.SplitSeq(entry, ";") {
		if name, value, _ := strings.Cut(strings.TrimSpace(pair), "="); strings.EqualFold(name, "for") {
			return parseAddress(strings.Trim(value, `"`))
		}
	}
	return netip.Addr{}
}

// parseAddress drops a port and a zone.
func parseAddress(text string) netip.Addr {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return rules.PlainIP(at.Addr())
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		return netip.Addr{}
	}
	return rules.PlainIP(ip)
}
