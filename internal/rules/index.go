package rules

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"slices"
)

// shapesPerFile bounds the shapes of one file of an index, but for those of a single term.
const shapesPerFile = 64

// index finds the active rules that a request meets, by tuple space search (Srinivasan, Suri and
// Varghese, "Packet Classification Using Tuple Space Search", SIGCOMM 1999).
//
// Rules are grouped by shape: which fields they look at and how, such as "any user, an endpoint
// below a path of 5 bytes, on one plan". All rules of a shape are in one hash map from their literal
// values, so a check needs one probe for each shape, however many rules have it. A hundred
// thousand rules usually have fewer than twenty shapes. A probe only finds candidates, and
// query.meets decides; that leaves the maps free to keep 64-bit hashes instead of values, and a
// hash is seeded, so that nobody can make them collide on purpose.
//
// Each prefix length is a shape of its own, and so is each set of attribute names, so a tenant can
// make as many shapes as rules. Two things bound what they cost. A shape with attributes is filed
// under the first of them, and only a check that has the attribute looks into that file. And a file
// keeps only the 64 shapes with the most rules: each further rule is found by the one term of it
// that the fewest such rules share, as a shape of that single term. There are few of those: one for
// each length of a path that ends in /*, one for each length of an ip prefix, and less than ten more.
// Thus a check with a attributes probes at most 64 × (1 + a) shapes, two more for each attribute,
// and one for each '/' of its endpoint and each length of network, in all about 25 ns each. What
// such a probe of a single term finds is compared one by one; only a tenant that has hundreds of
// shapes and, in the rare ones of them, thousands of rules without an uncommon value sees that.
type index struct {
	rules []*Rule // all of them by id, inactive ones too
	seed  maphash.Seed
	files map[string][]*shape // by the shapes' first attribute; "" for shapes without
}

// shape is a group of rules that look at the same fields in the same way.
type shape struct {
	terms []term
	rules map[uint64]*link // by the hash of the terms' values
}

// link is one rule among those with the same hash.
type link struct {
	rule *Rule
	next *link
}

// term is one thing that a rule asks of a request.
type term struct {
	kind      termKind
	length    int    // of a path in bytes or of a network in bits
	attribute string // the attribute's name
}

type termKind uint8

const (
	anyUser termKind = iota
	oneUser
	anyEndpoint
	oneEndpoint
	endpointsBelow // of any path of length bytes
	oneMethod
	anyIP
	ipv4Network // any network of length bits
	ipv6Network
	anyAttribute
	oneAttribute
	onePlan
)

func newIndex(rules table[RuleID, *Rule]) *index {
	x := &index{seed: maphash.MakeSeed(), files: map[string][]*shape{}}
	x.rules = make([]*Rule, 0, rules.size)
	for _, rule := range rules.all() {
		x.rules = append(x.rules, rule)
	}
	slices.SortFunc(x.rules, func(a, b *Rule) int { return cmp.Compare(a.ID, b.ID) })
	x.build()
	return x
}

// query is a request being matched.
type query struct {
	*Request
	plan   string
	ip     netip.Addr // unmapped, without zone
	ipText string     // the masked address, once it was needed
	hashes struct{ user, endpoint, method, plan uint64 }
}

func (x *index) query(r *Request, plan string) query {
	q := query{Request: r, plan: plan, ip: plainIP(r.IP)}
	q.hashes.user = maphash.String(x.seed, r.UserID)
	q.hashes.endpoint = maphash.String(x.seed, r.Endpoint)
	q.hashes.method = maphash.String(x.seed, r.Method)
	q.hashes.plan = maphash.String(x.seed, plan)
	return q
}

// visit calls found for every active rule that the request meets, in no order.
func (x *index) visit(q *query, found func(*Rule)) {
	x.visitFile(q, x.files[""], found)
	for i := range q.Attributes {
		x.visitFile(q, x.files[q.Attributes[i].Name], found)
	}
}

func (x *index) visitFile(q *query, file []*shape, found func(*Rule)) {
	for _, s := range file {
		hash, ok := x.hashOf(q, s.terms)
		if !ok {
			continue
		}
		for l := s.rules[hash]; l != nil; l = l.next {
			if q.meets(l.rule) {
				found(l.rule)
			}
		}
	}
}

// hashOf combines the request's values for the terms. It is not ok if the request has none for
// one of them.
func (x *index) hashOf(q *query, terms []term) (hash uint64, ok bool) {
	for i := range terms {
		value, ok := x.requestValue(q, &terms[i])
		if !ok {
			return 0, false
		}
		hash = combine(hash, value)
	}
	return hash, true
}

// requestValue returns the hash of what the request has for a term: what ruleValue returns for the
// rules that the request meets. A term that any value fulfils adds nothing.
func (x *index) requestValue(q *query, t *term) (hash uint64, ok bool) {
	switch t.kind {
	case anyUser:
		return 0, q.UserID != ""
	case oneUser:
		return q.hashes.user, q.UserID != ""
	case anyEndpoint:
		return 0, q.Endpoint != ""
	case oneEndpoint:
		return q.hashes.endpoint, q.Endpoint != ""
	case endpointsBelow:
		if t.length > len(q.Endpoint) || q.Endpoint[t.length-1] != '/' {
			return 0, false
		}
		return maphash.String(x.seed, q.Endpoint[:t.length]), true
	case oneMethod:
		return q.hashes.method, q.Method != ""
	case anyIP:
		return 0, q.ip.IsValid()
	case ipv4Network:
		return x.network(q.ip, t.length), q.ip.Is4()
	case ipv6Network:
		return x.network(q.ip, t.length), q.ip.Is6()
	case anyAttribute:
		return 0, q.Attribute(t.attribute) != ""
	case oneAttribute:
		value := q.Attribute(t.attribute)
		return maphash.String(x.seed, value), value != ""
	case onePlan:
		return q.hashes.plan, q.plan != ""
	}
	return 0, false
}

// network hashes the network of that many bits around an address, of the same family alone.
func (x *index) network(ip netip.Addr, bits int) uint64 {
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return 0
	}
	bytes := prefix.Addr().As16()
	return maphash.Bytes(x.seed, bytes[:])
}

// combine is order-sensitive, so that the same value in two fields is two hashes. The multiplier is
// 2⁶⁴ divided by the golden ratio, whose bits are well spread.
func combine(hash, value uint64) uint64 {
	hash = (hash ^ value) * 0x9E3779B97F4A7C15
	return hash ^ hash>>32
}
