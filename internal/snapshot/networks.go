package snapshot

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
)

// fewLengths is up to how many lengths of networks it is cheaper to try each than to search.
const fewLengths = 6

// networks are the networks that rules name, by address and then from wide to narrow. They tell
// which lengths are worth a probe: rules may name networks of 33 + 129 lengths, and an address is
// seldom in more than two or three of them.
type networks []network

type network struct {
	prefix netip.Prefix
	around int // the index of the narrowest network around this one; -1 if there is none
}

func newNetworks(prefixes []netip.Prefix) networks {
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	prefixes = slices.Compact(prefixes)
	var lengths lengthSet
	ns := make(networks, len(prefixes))
	around := -1
	for i, prefix := range prefixes {
		for around >= 0 && !ns[around].prefix.Contains(prefix.Addr()) {
			around = ns[around].around
		}
		ns[i] = network{prefix, around}
		around = i
		lengths.add(prefix.Bits())
	}
	if lengths.size() <= fewLengths {
		return nil
	}
	return ns
}

// lengthsAround returns the lengths of the networks around an address, or all lengths if trying
// them is cheap.
//
// Networks never overlap by halves, so every network around the address is also around the last
// network that begins at or before the address, or is that network.
func (ns networks) lengthsAround(ip netip.Addr) lengthSet {
	if ns == nil {
		return allLengths
	}
	var lengths lengthSet
	last := sort.Search(len(ns), func(i int) bool { return ns[i].prefix.Addr().Compare(ip) > 0 }) - 1
	for ; last >= 0; last = ns[last].around {
		if ns[last].prefix.Contains(ip) {
			lengths.add(ns[last].prefix.Bits())
		}
	}
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
