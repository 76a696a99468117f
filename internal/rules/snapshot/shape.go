package snapshot

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

func (x *index) build() {
	groups := shapeGroups{}
	var aspects []aspect
	var prefixes []netip.Prefix
	for _, rule := range x.rules {
		if !rule.Active || len(rule.Pattern.Segments()) == 0 {
			continue
		}
		aspects = x.aspects(rule, aspects[:0])
		groups.add(rule, aspects, allCertain(aspects))
		for _, s := range rule.Pattern.Segments() {
			if s.Prefix.IsValid() {
				prefixes = append(prefixes, s.Prefix)
			}
		}
	}
	x.networks = newNetworks(prefixes)
	x.thinOut(groups)
	x.file(groups)
}

// Shapes without values, and their candidates, come first, because nearly every check visits them.
func (x *index) file(groups shapeGroups) {
	x.files = map[string][]shape{}
	x.candidates = make([]candidate, 0, len(x.rules))
	x.bloom = newBloom(len(x.rules))
	keys := slices.Collect(maps.Keys(groups))
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(groups[a].values(), groups[b].values()), cmp.Compare(a, b))
	})
	for _, key := range keys {
		s := x.shape(groups[key])
		if name := groups[key].fileName(); name != "" {
			x.files[name] = append(x.files[name], s)
		} else {
			x.plain = append(x.plain, s)
		}
	}
}

// thinOut moves the rules of shapes beyond a file's bound into groups of their least common aspect; any other would
// have longer hash chains.
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
			// Fewer requests match an aspect with a value.
			return cmp.Or(cmp.Compare(common[a], common[b]), -cmp.Compare(min(a.value, 1), min(b.value, 1)))
		})
		groups.add(rule, []aspect{least}, false)
	}
}

type shapeGroup struct {
	terms   []term
	members []member
}

type member struct {
	candidate
	hash uint64
}

type shapeGroups map[string]*shapeGroup

func (gs shapeGroups) add(rule *rules.Rule, aspects []aspect, certain bool) {
	var buf [512]byte
	key := buf[:0]
	for _, a := range aspects {
		key = append(key, byte(a.kind))
		key = binary.BigEndian.AppendUint16(key, uint16(a.length))
		key = append(key, a.attribute...)
		key = append(key, 0)
	}
	g := gs[string(key)]
	if g == nil {
		g = &shapeGroup{}
		for _, a := range aspects {
			g.terms = append(g.terms, a.term)
		}
		gs[string(key)] = g
	}
	c := candidate{
		rule: rule, limit: rule.Limit(), certain: certain, adapts: rule.Adapts(),
		subject: subjectKindOf(rule.Pattern.Segments()), expires: rules.UnixMicro(rule.ExpiresAt),
	}
	g.members = append(g.members, member{c, hashOfValues(aspects)})
}

// surplus removes the groups with the fewest rules beyond a file's bound; those of a single term cannot be reduced.
func (gs shapeGroups) surplus() (rare []*rules.Rule) {
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
			return cmp.Or(-cmp.Compare(len(gs[a].members), len(gs[b].members)), cmp.Compare(a, b))
		})
		for _, key := range keys[shapesPerFile:] {
			for _, m := range gs[key].members {
				rare = append(rare, m.rule)
			}
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

func (g *shapeGroup) values() (n int) {
	for _, t := range g.terms {
		if t.kind.hasValue() {
			n++
		}
	}
	return n
}

func (x *index) shape(g *shapeGroup) shape {
	s := shape{bits: -1}
	for _, t := range g.terms {
		s.needs |= t.kind.set()
		switch t.kind {
		case endpointsBelow:
			s.path = uint16(t.length)
		case ipv4Network, ipv6Network:
			s.bits = int16(t.length)
		case oneAttribute:
			s.attributes = append(s.attributes, t.attribute)
		}
	}
	slices.SortStableFunc(g.members, func(a, b member) int { return cmp.Compare(a.hash, b.hash) })
	s.all.start = uint32(len(x.candidates))
	for _, m := range g.members {
		x.candidates = append(x.candidates, m.candidate)
	}
	s.all.end = uint32(len(x.candidates))
	if g.values() == 0 {
		return s
	}
	s.byValues = make(map[uint64]span, len(g.members))
	for i, m := range g.members {
		group, found := s.byValues[m.hash]
		if !found {
			group.start = s.all.start + uint32(i)
			x.bloom.add(m.hash)
		}
		group.end = s.all.start + uint32(i) + 1
		s.byValues[m.hash] = group
	}
	return s
}

// aspect is a term with the hash of the rule's value, 0 for any.
type aspect struct {
	term
	value uint64
}

// allCertain reports whether fitting the shape implies a match, which no value and no attribute does.
func allCertain(aspects []aspect) bool {
	return !slices.ContainsFunc(aspects, func(a aspect) bool { return a.kind.hasValue() || a.kind.ofAttribute() })
}

// aspects appends attributes first, because the first determines the file.
func (x *index) aspects(rule *rules.Rule, dst []aspect) []aspect {
	segments := rule.Pattern.Segments()
	for i := range segments {
		switch segments[i].Field {
		case rules.FieldUser:
			dst = append(dst, x.userAspect(&segments[i]))
		case rules.FieldEndpoint:
			dst = x.endpointAspects(&segments[i], dst)
		case rules.FieldIP:
			dst = append(dst, x.ipAspect(&segments[i]))
		case rules.FieldAttribute:
			dst = append(dst, x.attributeAspect(&segments[i]))
		case rules.FieldGlobal:
		}
	}
	if rule.Plan != "" {
		dst = append(dst, x.aspect(onePlan, rule.Plan))
	}
	slices.SortStableFunc(dst, func(a, b aspect) int {
		switch {
		case a.kind.ofAttribute() && b.kind.ofAttribute():
			return 0 // the pattern has sorted them by name
		case a.kind.ofAttribute():
			return -1
		case b.kind.ofAttribute():
			return 1
		}
		return cmp.Compare(a.kind, b.kind)
	})
	return dst
}

func (x *index) aspect(kind termKind, value string) aspect {
	return aspect{term: term{kind: kind}, value: maphash.String(x.seed, value)}
}

func (x *index) attributeAspect(s *rules.Segment) aspect {
	if s.Placeholder {
		return aspect{term: term{kind: anyAttribute, attribute: s.Attribute}}
	}
	a := x.aspect(oneAttribute, s.Value)
	a.attribute = s.Attribute
	return a
}

func (x *index) userAspect(s *rules.Segment) aspect {
	if s.Placeholder {
		return aspect{term: term{kind: anyUser}}
	}
	return x.aspect(oneUser, s.Value)
}

func (x *index) endpointAspects(s *rules.Segment, dst []aspect) []aspect {
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

func (x *index) ipAspect(s *rules.Segment) aspect {
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
