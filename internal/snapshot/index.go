package snapshot

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"sync"

	"github.com/sluicegate/sluice/internal/rules"
)

// shapesPerFile bounds the shapes of one file of an index, but for those of a single term.
const shapesPerFile = 64

// index finds the active rules that a request meets, by tuple space search (Srinivasan, Suri and
// Varghese, "Packet Classification Using Tuple Space Search", SIGCOMM 1999).
//
// Rules are grouped by shape: which fields they look at and how, such as "any user, an endpoint
// below a path of 5 bytes, on one plan". All rules of a shape are in one hash map from their literal
// values, or in a list if none of them names a value, so a check needs one probe for each shape, however
// many rules have it. A hundred thousand rules usually have fewer than twenty shapes. A probe only finds
// candidates, and query.meets decides, unless the shape alone says that it would; that leaves the maps
// free to keep 64-bit hashes instead of values, and a hash is seeded, so that nobody can make them
// collide on purpose.
//
// Each length of a path or network is a shape of its own, and so is each set of attribute names, so
// a tenant can make as many shapes as rules. Three things bound what they cost.
//   - A path of some length is probed only if the endpoint has a '/' there, and a network, once there
//     are more than a few lengths, only if some rule names one of that length around the address.
//   - A shape with attributes is filed under the first of them, and only a check that has the
//     attribute looks into that file.
//   - A file keeps only the 64 shapes with the most rules. Each further rule is found by the one term
//     of it that the fewest such rules share, as a shape of that single term; of those there are
//     few: one for each length, two for each attribute, and eight more.
//
// So a check with a attributes looks at 64 × (1 + a) shapes and those of single terms, most of which
// it passes over in a few nanoseconds; a probe takes 20 to 40 (BenchmarkMatchManyShapes). What a
// probe of a single term finds is compared rule by rule. Only a tenant with hundreds of shapes, and
// with many rules in the rare ones that have no uncommon value, sees its matching slow down.
type index struct {
	rules []*rules.Rule // all of them by id, inactive ones too
	seed  maphash.Seed
	// plain is the file of the shapes without attributes, files are the others by their first attribute.
	plain []shape
	files map[string][]shape
	// candidates are the active rules, those of a shape and a hash side by side.
	candidates []candidate
	sieve      sieve // of all hashes in the shapes' maps

	networks networks

	userLimits func() userLimits // made when first needed; see UserBuckets
	// named are the attributes that rules name.
	named map[string]bool
}

// shape is a group of rules that look at the same fields in the same way.
type shape struct {
	needs      termKinds // of all its terms
	path       uint16    // the length of its path, 0 for none
	bits       int16     // the length of its network, -1 for none
	all        span      // its candidates
	attributes []string  // of which the rules name values
	byValues   map[uint64]span
}

// span is some candidates that stand side by side.
type span struct{ start, end uint32 }

// candidate is a rule that a probe finds, with all that a check needs of one that it meets: of a tenant that
// did not ask lately, the rule and its pattern are each a miss of the caches.
type candidate struct {
	rule  *rules.Rule
	limit rules.Limit // the rule's own
	// certain: every request that fits the shape meets the rule.
	certain bool
	adapts  bool // see Tenant.ownLimit
	subject subjectKind
	expires int64 // in microseconds; 0: never
}

// term is one thing that a rule asks of a request.
type term struct {
	kind      termKind
	length    int    // of a path in bytes or of a network in bits
	attribute string // the attribute's name
}

type termKind uint8

// Any value meets the terms before oneUser, if there is one.
const (
	anyUser termKind = iota
	anyEndpoint
	anyIP
	anyAttribute // not looked up: a shape is filed under its first, and query.meets sees to the others
	oneUser
	oneEndpoint
	oneMethod
	onePlan
	endpointsBelow // of a path of length bytes
	ipv4Network    // of length bits
	ipv6Network
	oneAttribute
)

func (k termKind) hasValue() bool { return k >= oneUser }

func (k termKind) ofAttribute() bool { return k == anyAttribute || k == oneAttribute }

// termKinds is a set of kinds.
type termKinds uint16

func (k termKind) set() termKinds { return 1 << k }

// hashed are the kinds of which a rule has at most one value.
const hashed = termKinds(1<<oneAttribute - 1<<oneUser)

func newIndex(all table[rules.RuleID, *rules.Rule]) *index {
	x := &index{seed: maphash.MakeSeed()}
	x.rules = make([]*rules.Rule, 0, all.size)
	for _, rule := range all.all() {
		x.rules = append(x.rules, rule)
	}
	slices.SortFunc(x.rules, func(a, b *rules.Rule) int { return cmp.Compare(a.ID, b.ID) })
	x.userLimits = sync.OnceValue(func() userLimits { return newUserLimits(x.rules) })
	x.named = map[string]bool{}
	for _, rule := range x.rules {
		for _, s := range rule.Pattern.Segments() {
			if s.Field == rules.FieldAttribute {
				x.named[s.Attribute] = true
			}
		}
	}
	x.build()
	return x
}

// query is a request being matched.
type query struct {
	*rules.Request
	plan   string
	ip     netip.Addr // unmapped, without zone
	ipText string     // the masked address, once it was needed
	// has are the kinds of terms that the request has a value for, hashes the values of those whose
	// value depends on nothing else.
	has    termKinds
	hashes [endpointsBelow]uint64
	// lengths are those of the networks around ip that some rule names.
	lengths lengthSet
}

func (x *index) query(r *rules.Request, plan string) query {
	q := query{Request: r, plan: plan, ip: rules.PlainIP(r.IP), has: anyAttribute.set() | oneAttribute.set()}
	if r.UserID != "" {
		q.has |= anyUser.set() | oneUser.set()
		q.hashes[oneUser] = maphash.String(x.seed, r.UserID)
	}
	if r.Endpoint != "" {
		q.has |= anyEndpoint.set() | oneEndpoint.set() | endpointsBelow.set()
		q.hashes[oneEndpoint] = maphash.String(x.seed, r.Endpoint)
	}
	if r.Method != "" {
		q.has |= oneMethod.set()
		q.hashes[oneMethod] = maphash.String(x.seed, r.Method)
	}
	if plan != "" {
		q.has |= onePlan.set()
		q.hashes[onePlan] = maphash.String(x.seed, plan)
	}
	switch {
	case q.ip.Is4():
		q.has |= anyIP.set() | ipv4Network.set()
	case q.ip.Is6():
		q.has |= anyIP.set() | ipv6Network.set()
	}
	if q.ip.IsValid() {
		q.lengths = x.networks.lengthsAround(q.ip)
	}
	return q
}

// visit calls found for every active rule that the request meets, in no order.
func (x *index) visit(q *query, found func(*candidate)) {
	x.visitFile(q, x.plain, found)
	if len(x.files) == 0 {
		return
	}
	for i := range q.Attributes {
		x.visitFile(q, x.files[q.Attributes[i].Name], found)
	}
}

func (x *index) visitFile(q *query, file []shape, found func(*candidate)) {
	for i := range file {
		s := &file[i]
		if !s.fits(q) {
			continue
		}
		group := s.all
		if s.byValues != nil {
			hash := x.hashOf(q, s)
			if !x.sieve.mayHave(hash) {
				continue
			}
			group = s.byValues[hash]
		}
		candidates := x.candidates[group.start:group.end]
		for j := range candidates {
			if c := &candidates[j]; c.certain || q.meets(c.rule) {
				found(c)
			}
		}
	}
}

// fits reports whether the request can meet a rule of the shape at all. It comes before any hash, because most shapes of
// a tenant that has many do not fit.
func (s *shape) fits(q *query) bool {
	return s.needs&^q.has == 0 &&
		(s.path == 0 || int(s.path) <= len(q.Endpoint) && q.Endpoint[s.path-1] == '/') &&
		(s.bits < 0 || q.lengths.has(int(s.bits)))
}

// hashOf combines what the request has for the shape's terms, as hashOfValues does what a rule wants.
func (x *index) hashOf(q *query, s *shape) uint64 {
	hash := uint64(0)
	for _, name := range s.attributes {
		hash = combine(hash, maphash.String(x.seed, q.Attribute(name)))
	}
	for left := s.needs & hashed; left != 0; left &= left - 1 {
		value := uint64(0)
		switch kind := termKind(bits.TrailingZeros16(uint16(left))); kind {
		case endpointsBelow:
			value = maphash.String(x.seed, q.Endpoint[:s.path])
		case ipv4Network, ipv6Network:
			value = x.network(q.ip, int(s.bits))
		default:
			value = q.hashes[kind]
		}
		hash = combine(hash, value)
	}
	return hash
}

// hashOfValues combines the values that a rule wants, in the order of aspects.
func hashOfValues(aspects []aspect) uint64 {
	hash := uint64(0)
	for _, a := range aspects {
		if a.kind.hasValue() {
			hash = combine(hash, a.value)
		}
	}
	return hash
}

// network hashes the network of a length in bits around an address, of the same family alone.
func (x *index) network(ip netip.Addr, length int) uint64 {
	prefix, err := ip.Prefix(length)
	if err != nil {
		return 0
	}
	bytes := prefix.Addr().As16()
	return maphash.Bytes(x.seed, bytes[:])
}

// sieve tells most hashes that are in no map, by one look into memory that a tenant's rules have together:
// most probes find nothing, and one into a map that nobody asked lately costs several misses of the caches.
// It is a Bloom filter that sets one bit for each hash. It has 16 to 32 bits for each rule, at least 64, and a power of
// two in all.
type sieve []uint64

func newSieve(all int) sieve {
	words := 1
	for words*64 < all*16 {
		words *= 2
	}
	return make(sieve, words)
}

func (s sieve) add(hash uint64) { *s.word(hash) |= 1 << (hash % 64) }

func (s sieve) mayHave(hash uint64) bool { return *s.word(hash)&(1<<(hash%64)) != 0 }

func (s sieve) word(hash uint64) *uint64 { return &s[hash>>6&uint64(len(s)-1)] }

// combine is order-sensitive, so that the same value in two fields is two hashes. The multiplier is
// 2⁶⁴ divided by the golden ratio, whose bits are well spread.
func combine(hash, value uint64) uint64 {
	hash = (hash ^ value) * 0x9E3779B97F4A7C15
	return hash ^ hash>>32
}
