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

const shapesPerFile = 64

// index finds the active rules that match a request, by tuple space search (Srinivasan, Suri and Varghese, "Packet
// Classification Using Tuple Space Search", SIGCOMM 1999).
//
// Rules are grouped by shape: the fields that they test and how, such as "any user, an endpoint below a path of 5
// bytes, on one plan". A check needs one probe of a hash map for each shape, and a hundred thousand rules usually have
// fewer than twenty. A probe finds candidates, and query.meets decides, so the maps store hashes instead of values,
// seeded against provoked collisions.
//
// Each length of a path or network, and each set of attribute names, is a separate shape. Three things bound the cost.
//   - A path of some length is probed only if the endpoint has a '/' there, and a network, once there
//     are more than a few lengths, only if some rule names one of that length around the address.
//   - A shape with attributes is filed under the first of them, and only a check that has the
//     attribute looks into that file.
//   - A file keeps only the 64 shapes with the most rules. Each further rule is found by the one term
//     of it that the fewest such rules share, as a shape of that single term; of those there are
//     few: one for each length, two for each attribute, and eight more.
//
// A probe takes 20 to 40 ns, and most shapes are skipped in a few (BenchmarkMatchManyShapes). Candidates of a single
// term are compared rule by rule.
type index struct {
	rules []*rules.Rule // sorted by id, including inactive rules
	seed  maphash.Seed
	// plain are the shapes without attributes; files has the others by their first.
	plain []shape
	files map[string][]shape
	// candidates of a shape and a hash are adjacent.
	candidates []candidate
	bloom      bloom // all hashes of the shapes' maps

	networks networks

	userLimits func() userLimits // computed on first use; see UserBuckets
	named      map[string]bool
	meters     map[rules.Meter]bool
}

type shape struct {
	needs      termKinds // of all its terms
	path       uint16    // the length of its path, 0 for none
	bits       int16     // the length of its network, -1 for none
	all        span      // its candidates
	attributes []string  // whose values the rules name
	byValues   map[uint64]span
}

type span struct{ start, end uint32 }

// candidate has all that a check needs, to avoid cache misses for the rule and its pattern.
type candidate struct {
	rule  *rules.Rule
	limit rules.Limit // the rule's own
	// certain: every request that fits the shape matches the rule.
	certain bool
	adapts  bool // see Tenant.ownLimit
	subject subjectKind
	expires int64 // in microseconds; 0: never
}

type term struct {
	kind      termKind
	length    int    // of a path in bytes or of a network in bits
	attribute string // the attribute's name
}

type termKind uint8

// Terms before oneUser accept any value.
const (
	anyUser termKind = iota
	anyEndpoint
	anyIP
	anyAttribute // not probed: the shape's file is that of its first attribute, and query.meets checks the others
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

type termKinds uint16

func (k termKind) set() termKinds { return 1 << k }

const hashed = termKinds(1<<oneAttribute - 1<<oneUser)

func newIndex(all table[rules.RuleID, *rules.Rule]) *index {
	x := &index{seed: maphash.MakeSeed()}
	x.rules = make([]*rules.Rule, 0, all.size)
	for _, rule := range all.all() {
		x.rules = append(x.rules, rule)
	}
	slices.SortFunc(x.rules, func(a, b *rules.Rule) int { return cmp.Compare(a.ID, b.ID) })
	x.userLimits = sync.OnceValue(func() userLimits { return newUserLimits(x.rules) })
	x.named, x.meters = map[string]bool{}, map[rules.Meter]bool{}
	for _, rule := range x.rules {
		x.meters[rule.Meter] = true
		for _, s := range rule.Pattern.Segments() {
			if s.Field == rules.FieldAttribute {
				x.named[s.Attribute] = true
			}
		}
	}
	x.build()
	return x
}

type query struct {
	*rules.Request
	plan    string
	ip      netip.Addr // unmapped, without zone
	ipText  string     // the masked address, cached
	has     termKinds
	hashes  [endpointsBelow]uint64
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
			if !x.bloom.mayHave(hash) {
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

// fits comes before any hash is computed, because most of many shapes do not fit.
func (s *shape) fits(q *query) bool {
	return s.needs&^q.has == 0 &&
		(s.path == 0 || int(s.path) <= len(q.Endpoint) && q.Endpoint[s.path-1] == '/') &&
		(s.bits < 0 || q.lengths.has(int(s.bits)))
}

// hashOf must combine values as hashOfValues does.
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

func hashOfValues(aspects []aspect) uint64 {
	hash := uint64(0)
	for _, a := range aspects {
		if a.kind.hasValue() {
			hash = combine(hash, a.value)
		}
	}
	return hash
}

func (x *index) network(ip netip.Addr, length int) uint64 {
	prefix, err := ip.Prefix(length)
	if err != nil {
		return 0
	}
	bytes := prefix.Addr().As16()
	return maphash.Bytes(x.seed, bytes[:])
}

// bloom is a Bloom filter of all hashes, with 16 to 32 bits for each rule. Most probes find nothing, and a probe of a
// cold map costs several cache misses.
type bloom []uint64

func newBloom(all int) bloom {
	words := 1
	for words*64 < all*16 {
		words *= 2
	}
	return make(bloom, words)
}

func (b bloom) add(hash uint64) { *b.word(hash) |= 1 << (hash % 64) }

func (b bloom) mayHave(hash uint64) bool { return *b.word(hash)&(1<<(hash%64)) != 0 }

func (b bloom) word(hash uint64) *uint64 { return &b[hash>>6&uint64(len(b)-1)] }

// combine depends on the order, so that a value in two fields gives two hashes.
func combine(hash, value uint64) uint64 {
	hash = (hash ^ value) * 0x9E3779B97F4A7C15
	return hash ^ hash>>32
}
