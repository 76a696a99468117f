package rules

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"slices"
)

// build groups the active rules into shapes and files them.
func (x *index) build() {
	groups := shapeGroups{}
	var aspects []aspect
	var prefixes []netip.Prefix
	for _, rule := range x.rules {
		if !rule.Active {
			continue
		}
		aspects = x.aspects(rule, aspects[:0])
		groups.add(rule, aspects)
		for _, s := range rule.Pattern.segments {
			if s.Prefix.IsValid() {
				prefixes = append(prefixes, s.Prefix)
			}
		}
	}
	x.networks = newNetworks(prefixes)
	x.thinOut(groups)
	x.sieve = newSieve(len(x.rules))
	for _, g := range groups {
		name := g.fileName()
		s := g.shape()
		for hash := range s.rules {
			x.sieve.add(hash)
		}
		x.files[name] = append(x.files[name], s)
	}
}

// thinOut takes the rules of the shapes that a file has no room for out of their groups, and puts
// each into the group of its least common aspect alone. Every other aspect would make its hash
// chain longer.
func (x *index) thinOut(groups shapeGroups) {
	rare := groups.surplus()
	if len(rare) == 0 {
		return
	}
	common := map[aspect]int{}
	var aspects []aspect
	for _, rule := range rare {
		aspects = x.aspects(rule, aspects[:0])
		for _, a := range aspects {
			common[a]++
		}
	}
	for _, rule := range rare {
		aspects = x.aspects(rule, aspects[:0])
		least := slices.MinFunc(aspects, func(a, b aspect) int {
			// Of two that are as common, the one that asks for a value is met by fewer requests.
			return cmp.Or(cmp.Compare(common[a], common[b]), -cmp.Compare(min(a.value, 1), min(b.value, 1)))
		})
		groups.add(rule, []aspect{least})
	}
}

// shapeGroup is a shape in the making.
type shapeGroup struct {
	terms  []term
	rules  []*Rule
	hashes []uint64 // of the rules' values
}

// shapeGroups are the groups by their terms, written as a string.
type shapeGroups map[string]*shapeGroup

func (gs shapeGroups) add(rule *Rule, aspects []aspect) {
	var buf [512]byte
	key := buf[:0]
	hash := uint64(0)
	for _, a := range aspects {
		key = append(key, byte(a.kind))
		key = binary.BigEndian.AppendUint16(key, uint16(a.length))
		key = append(key, a.attribute...)
		key = append(key, 0)
		if a.kind.hasValue() {
			hash = combine(hash, a.value)
		}
	}
	g := gs[string(key)]
	if g == nil {
		g = &shapeGroup{}
		for _, a := range aspects {
			g.terms = append(g.terms, a.term)
		}
		gs[string(key)] = g
	}
	g.rules = append(g.rules, rule)
	g.hashes = append(g.hashes, hash)
}

// surplus removes the groups that are more than their file has room for, those with the fewest
// rules, and returns their rules. Groups of a single term stay: there is nothing to take from them.
func (gs shapeGroups) surplus() (rare []*Rule) {
	files := map[string][]string{}
	for key, g := range gs {
		if len(g.terms) > 1 {
			files[g.fileName()] = append(files[g.fileName()], key)
		}
	}
	for _, keys := range files {
		if len(keys) <= shapesPerFile {
			continue
		}
		slices.SortFunc(keys, func(a, b string) int {
			return cmp.Or(-cmp.Compare(len(gs[a].rules), len(gs[b].rules)), cmp.Compare(a, b))
		})
		for _, key := range keys[shapesPerFile:] {
			rare = append(rare, gs[key].rules...)
			delete(gs, key)
		}
	}
	return rare
}

func (g *shapeGroup) fileName() string {
	if len(g.terms) == 0 {
		return ""
	}
	return g.terms[0].attribute
}

func (g *shapeGroup) shape() shape {
	s := shape{bits: -1}
	for _, t := range g.terms {
		s.needs |= t.kind.set()
		switch t.kind {
		case endpointsBelow:
			s.path = t.length
		case ipv4Network, ipv6Network:
			s.bits = t.length
		}
		if t.kind.hasValue() {
			s.terms = append(s.terms, t)
		}
	}
	if len(s.terms) == 0 {
		s.all = g.rules
		return s
	}
	s.rules = make(map[uint64]link, len(g.rules))
	for i, rule := range g.rules {
		first := link{rule: rule}
		if others, ok := s.rules[g.hashes[i]]; ok {
			first.next = new(others)
		}
		s.rules[g.hashes[i]] = first
	}
	return s
}

// aspect is one term of a rule with the hash of the rule's value for it, which is 0 if any value
// will do.
type aspect struct {
	term
	value uint64
}

// aspects appends all that the rule asks of a request, attributes first: they name its file.
func (x *index) aspects(rule *Rule, dst []aspect) []aspect {
	segments := rule.Pattern.segments
	for i := range segments {
		if segments[i].Field == FieldAttribute {
			dst = append(dst, x.attributeAspect(&segments[i]))
		}
	}
	for i := range segments {
		switch segments[i].Field {
		case FieldUser:
			dst = append(dst, x.userAspect(&segments[i]))
		case FieldEndpoint:
			dst = x.endpointAspects(&segments[i], dst)
		case FieldIP:
			dst = append(dst, x.ipAspect(&segments[i]))
		case FieldAttribute, FieldGlobal:
		}
	}
	if rule.Plan != "" {
		dst = append(dst, x.aspect(onePlan, rule.Plan))
	}
	return dst
}

func (x *index) aspect(kind termKind, value string) aspect {
	return aspect{term: term{kind: kind}, value: maphash.String(x.seed, value)}
}

func (x *index) attributeAspect(s *Segment) aspect {
	if s.Placeholder {
		return aspect{term: term{kind: anyAttribute, attribute: s.Attribute}}
	}
	a := x.aspect(oneAttribute, s.Value)
	a.attribute = s.Attribute
	return a
}

func (x *index) userAspect(s *Segment) aspect {
	if s.Placeholder {
		return aspect{term: term{kind: anyUser}}
	}
	return x.aspect(oneUser, s.Value)
}

func (x *index) endpointAspects(s *Segment, dst []aspect) []aspect {
	if s.Method != "" {
		dst = append(dst, x.aspect(oneMethod, s.Method))
	}
	if s.Placeholder {
		return append(dst, aspect{term: term{kind: anyEndpoint}})
	}
	a := x.aspect(oneEndpoint, s.Value)
	if s.Below {
		a.kind, a.length = endpointsBelow, len(s.Value)
	}
	return append(dst, a)
}

func (x *index) ipAspect(s *Segment) aspect {
	if s.Placeholder {
		return aspect{term: term{kind: anyIP}}
	}
	bits := s.Prefix.Bits()
	a := aspect{term: term{kind: ipv6Network, length: bits}, value: x.network(s.Prefix.Addr(), bits)}
	if s.Prefix.Addr().Is4() {
		a.kind = ipv4Network
	}
	return a
}
