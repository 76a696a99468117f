package snapshot

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// Up to fewLengths, probing all lengths is cheaper than a lookup.
const fewLengths = 6

// networks finds the lengths of the rules' networks around an address: of 33 + 129 possible ones, seldom more than
// three need a probe.
type networks struct {
	// by network, the lengths of it and those around it; nil if probing all lengths is cheap
	table *bart.Table[lengthSet]
}

func newNetworks(prefixes []netip.Prefix) networks {
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) })
	var all lengthSet
	table := &bart.Table[lengthSet]{}
	for _, prefix := range prefixes { // from wide to narrow
		lengths, _ := table.LookupPrefix(prefix)
		lengths.add(prefix.Bits())
		table.Insert(prefix, lengths)
		all.add(prefix.Bits())
	}
	if all.size() <= fewLengths {
		return networks{}
	}
	return networks{table}
}

func (ns networks) lengthsAround(ip netip.Addr) lengthSet {
	if ns.table == nil {
		return allLengths
	}
	lengths, _ := ns.table.Lookup(ip)
	return lengths
}

type lengthSet [3]uint64

var allLengths = lengthSet{^uint64(0), ^uint64(0), ^uint64(0)}

func (s *lengthSet) add(bits int)      { s[bits/64] |= 1 << (bits % 64) }
func (s *lengthSet) has(bits int) bool { return s[bits/64]&(1<<(bits%64)) != 0 }

func (s *lengthSet) size() int {
	size := 0
	for bits := range 129 {
		if s.has(bits) {
			size++
		}
	}
	return size
}
