package redisbucket

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
)

//go:embed take.lua
var takeSource string

var takeSHA = func() string {
	sum := sha1.Sum([]byte(takeSource)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}()

// What one script evaluates at most, unless it is a single check. Redis does nothing else
// meanwhile: 64 checks of four tiers are half a millisecond.
const (
	maxChecks = 64
	maxKeys   = 256
)

// maxTiers is how many tiers a check can have for its places to fit the wiring.
const maxTiers = math.MaxUint16 / 2

const (
	limitBytes = 20 // a limit, in a value, an argument and a reply
	tierBytes  = 12 // a tier's answer in a reply
)

// script is one call of take.lua under construction: checks whose buckets are on one server, each distinct bucket
// once, each bucket with one limit. take.lua says what the arguments are. Its memory is used again, so
// that a check allocates next to nothing here.
type script struct {
	prefix string // of the keys
	checks []*enforce.BucketCheck
	readAt int64               // of all asks
	alone  bool                // holds one ask, whose keys are distinct
	places map[enforce.Key]int // of the keys in KEYS, unless it is alone
	limits []enforce.Limit     // distinct
	of     []uint16            // for each key, the place of its limit
	tiers  []uint16            // for each ask, its number of tiers and each tier's wire
	found  []int               // the places of an ask's keys while it is added; -1 for a new one

	text    []byte   // all arguments, one behind the other
	ends    []int    // of each in text
	parts   []string // the same as strings
	count   int      // of keys
	args    []any
	cmd     *takeCmd
	err     error // why there is no answer
	unknown int   // tiers whose bucket has a version that take.lua does not know
}

// reset empties a script.
func (s *script) reset(prefix string, alone bool) {
	s.prefix = prefix
	clear(s.checks)
	clear(s.places)
	s.checks, s.limits, s.of, s.tiers = s.checks[:0], s.limits[:0], s.of[:0], s.tiers[:0]
	s.text, s.ends, s.cmd, s.err = s.text[:0], s.ends[:0], nil, nil
	s.alone = alone
	if !alone && s.places == nil {
		s.places = make(map[enforce.Key]int)
	}
}

// pack puts the asks of a pipeline that have no answer into as few scripts as hold them, each of one tenant alone
// if they are to be apart, and in order within each tenant. The keys have a prefix.
func (p *pipeline) pack(prefix string, apart bool) []*script {
	p.scripts = p.scripts[:0]
	clear(p.open)
	asks := 0
	for _, part := range p.parts {
		asks += len(part.checks)
	}
	for _, part := range p.parts {
		for i := range part.checks {
			check := &part.checks[i]
			if check.Answered {
				continue // or it has no tiers
			}
			tenant := int64(0) // of all
			if apart {
				tenant = int64(check.Tiers[0].Key.Tenant)
			}
			if s := p.open[tenant]; s != nil && s.add(check) {
				continue
			}
			s := p.newScript(prefix, asks == 1)
			s.add(check)
			if asks > 1 {
				p.open[tenant] = s
			}
		}
	}
	return p.scripts
}

// newScript returns one more script, in memory that served before if there is any.
func (p *pipeline) newScript(prefix string, alone bool) *script {
	n := len(p.scripts)
	if n < cap(p.scripts) && p.scripts[:n+1][n] != nil {
		p.scripts = p.scripts[:n+1]
	} else {
		p.scripts = append(p.scripts, &script{})
	}
	p.scripts[n].reset(prefix, alone)
	return p.scripts[n]
}

// add adds an ask, unless that would make the script too long, give one bucket two limits, or mix callers
// who read the limits at different times. A batch gathered while rules are reloaded does the latter two;
// in two scripts its asks are answered as they would be one by one.
func (s *script) add(check *enforce.BucketCheck) bool {
	if len(s.checks) > 0 && s.readAt != check.ReadAt {
		return false
	}
	s.found = s.found[:0]
	fresh := 0
	for i := range check.Tiers {
		place := -1
		if !s.alone {
			if known, ok := s.places[check.Tiers[i].Key]; ok {
				place = known
			}
		}
		if place < 0 {
			fresh++
		} else if s.limits[s.of[place]] != check.Tiers[i].Limit {
			return false
		}
		s.found = append(s.found, place)
	}
	if len(s.checks) > 0 && (len(s.checks) == maxChecks || len(s.of)+fresh > maxKeys) {
		return false
	}
	s.checks, s.readAt = append(s.checks, check), check.ReadAt
	s.tiers = append(s.tiers, uint16(len(check.Tiers)))
	for i := range check.Tiers {
		place := s.found[i]
		if place < 0 {
			place = s.place(&check.Tiers[i])
		}
		wire := uint16(place * 2)
		if check.Tiers[i].Shadow {
			wire++
		}
		s.tiers = append(s.tiers, wire)
	}
	return true
}

// place adds a tier's key to KEYS and returns its place.
func (s *script) place(tier *enforce.Tier) int {
	place := len(s.of)
	if !s.alone {
		s.places[tier.Key] = place
	}
	s.text = appendKey(s.text, s.prefix, tier.Key)
	s.endKey(tier.Limit)
	return place
}

// endKey makes an argument of the key that was appended to the text, whose bucket has a limit.
func (s *script) endKey(limit enforce.Limit) {
	s.endArgument()
	place := len(s.limits) - 1
	for place >= 0 && s.limits[place] != limit {
		place--
	}
	if place < 0 {
		place = len(s.limits)
		s.limits = append(s.limits, limit)
	}
	s.of = append(s.of, uint16(place))
}

// endArgument makes an argument of what was appended to the text since the last.
func (s *script) endArgument() { s.ends = append(s.ends, len(s.text)) }

// command returns the call by digest, or by source if that is asked for. A stamp of 0 leaves the
// time to Redis.
func (s *script) command(ctx context.Context, bySource bool, stamp int64) *takeCmd {
	s.count = len(s.of)
	s.text = s.text[:s.ends[s.count-1]] // a second call begins again behind the keys
	s.ends = s.ends[:s.count]
	for _, limit := range s.of {
		s.text = binary.LittleEndian.AppendUint16(s.text, limit)
	}
	for _, word := range s.tiers {
		s.text = binary.LittleEndian.AppendUint16(s.text, word)
	}
	s.endArgument()
	for _, check := range s.checks {
		s.text = appendFloat(s.text, float64(check.Cost))
	}
	s.endArgument()
	for _, limit := range s.limits {
		s.text = appendLimit(s.text, limit)
	}
	s.text = appendFloat(s.text, float64(s.readAt))
	s.endArgument()
	if stamp != 0 {
		s.text = strconv.AppendInt(s.text, stamp, 10)
		s.endArgument()
	}
	return &takeCmd{redis.NewStringCmd(ctx, s.arguments(bySource)...)}
}

// arguments returns the whole command for the driver, which takes pointers where it would otherwise
// be handed a copy on the heap. Redis Cluster's client finds the slot in the first key, and needs that
// as a string.
func (s *script) arguments(bySource bool) []any {
	text := string(s.text)
	s.parts = s.parts[:0]
	start := 0
	for _, end := range s.ends {
		s.parts = append(s.parts, text[start:end])
		start = end
	}
	s.args = s.args[:0]
	if bySource {
		s.args = append(s.args, "eval", &takeSource)
	} else {
		s.args = append(s.args, "evalsha", &takeSHA)
	}
	s.args = append(s.args, &s.count, s.parts[0])
	for i := 1; i < len(s.parts); i++ {
		s.args = append(s.args, &s.parts[i])
	}
	return s.args
}

// ErrUnknownVersion is about a bucket whose value a newer process wrote, in a format that this one does not
// know. Nothing was taken from it, and it is as it was.
var ErrUnknownVersion = errors.New("a bucket has a format that this process does not know; finish the upgrade")

// unknownMicros is UNKNOWN in take.lua.
const unknownMicros = -2

// answer reads the reply into the asks, and returns how many stored values were broken. An ErrUnknownVersion
// leaves only the asks unanswered that have such a bucket.
func (s *script) answer(reply string) (broken int, err error) {
	s.unknown = 0
	tiers := len(s.tiers) - len(s.checks)
	end := tiers*tierBytes + 4
	if len(reply) < end || (len(reply)-end)%(2+limitBytes) != 0 {
		return 0, fmt.Errorf("a reply of %d bytes to %d tiers", len(reply), tiers)
	}
	rest := reply
	for _, check := range s.checks {
		check.Allowed, check.Answered = true, true
		for i := range check.Tiers {
			tier := &check.Tiers[i]
			amount := int64(float(rest))
			tier.Holds = amount&1 == 1
			tier.Bucket = enforce.Bucket{
				Level: enforce.Level{Micros: enforce.Tokens(amount >> 1), Fraction: uint32At(rest[8:])},
				Limit: tier.Limit,
			}
			if !tier.Holds && !tier.Shadow {
				check.Allowed = false
			}
			if tier.Bucket.Level.Micros == unknownMicros {
				check.Allowed, check.Answered = false, false
				s.unknown++
			}
			rest = rest[tierBytes:]
		}
	}
	s.correct(reply[end:])
	if s.unknown > 0 {
		err = ErrUnknownVersion
	}
	return int(uint32At(rest)), err
}

// correct gives the tiers of buckets whose limit is not the caller's the limit in force.
func (s *script) correct(foreign string) {
	if foreign == "" {
		return
	}
	inForce := map[uint16]enforce.Limit{}
	for ; foreign != ""; foreign = foreign[2+limitBytes:] {
		place := uint16(foreign[0]) | uint16(foreign[1])<<8
		inForce[place] = limitAt(foreign[2:])
	}
	at := 0
	for _, check := range s.checks {
		at++ // the number of tiers
		for i := range check.Tiers {
			if limit, ok := inForce[s.tiers[at]/2]; ok {
				check.Tiers[i].Bucket.Limit = limit
			}
			at++
		}
	}
}

// takeCmd is a call of take.lua or credit.lua. A call that got no answer may have taken tokens, so
// nobody may repeat it: with MaxRetries at -1, ClusterClient still would.
type takeCmd struct{ *redis.StringCmd }

// NoRetry implements redis.Cmder.
func (*takeCmd) NoRetry() bool { return true }

func appendFloat(buf []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(buf, math.Float64bits(f))
}

func appendLimit(buf []byte, limit enforce.Limit) []byte {
	buf = appendFloat(buf, limit.Rate)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(limit.Burst))
	return appendFloat(buf, float64(limit.Since))
}

func limitAt(s string) enforce.Limit {
	return enforce.Limit{Rate: float(s), Burst: int64(uint32At(s[8:])), Since: int64(float(s[12:]))}
}

func float(s string) float64 {
	return math.Float64frombits(uint64(uint32At(s)) | uint64(uint32At(s[4:]))<<32)
}

func uint32At(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}
