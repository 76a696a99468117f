package snapshot

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// fewLengths is up to how many lengths of networks it is cheaper to try each than to look them up.
const fewLengths = 6

// networks finds the lengths of the networks around an address that rules name. They tell which lengths are worth
// a probe: rules may name networks of 33 + 129 lengths, and an address is seldom in more than two or three of them.
type networks struct {
	table *bart.Table[lengthSet] // by network, its own length and those around it; nil if trying all lengths is cheap
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

// lengthsAround returns the lengths of the networks around an address, or all lengths if trying them is cheap.
func (ns networks) lengthsAround(ip netip.Addr) lengthSet {
	if ns.table == nil {
		return allLengths
	}
	lengths, _ := ns.table.Lookup(ip)
	return lengths
}

// lengthSet is a set of lengths of networks, 0 to 128 bits.
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
