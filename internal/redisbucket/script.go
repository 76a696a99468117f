package redisbucket

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	_ "embed"
	"encoding/binary"
	"encoding/hex"
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

// script is one call of take.lua under construction: checks of one tenant, each distinct bucket
// once, each bucket with one limit. take.lua says what the arguments are.
type script struct {
	asks   []*enforce.Ask
	keys   []any
	places map[enforce.Key]int // of keys; nil in a script for one ask, whose keys are distinct
	limits []enforce.Limit     // distinct
	of     []uint16            // for each key, the place of its limit
	tiers  []uint16            // for each ask, its number of tiers and each tier's wire
	cmd    *takeCmd
}

// plan puts asks into as few scripts as hold them, in order within each tenant. Asks without
// tiers need no script and are answered here.
func plan(asks []enforce.Ask) ([]*script, error) {
	var scripts []*script
	open := map[int64]*script{}
	for i := range asks {
		ask := &asks[i]
		ask.Answered = false
		if len(ask.Tiers) == 0 {
			ask.Allowed, ask.Answered = true, true
			continue
		}
		if len(ask.Tiers) > maxTiers {
			return nil, fmt.Errorf("a check of %d tiers: redis is asked about %d at most", len(ask.Tiers), maxTiers)
		}
		tenant := int64(ask.Tiers[0].Key.Tenant)
		if s := open[tenant]; s != nil && s.add(ask) {
			continue
		}
		s := &script{}
		if len(asks) > 1 {
			s.places = make(map[enforce.Key]int, 4*min(len(asks), maxChecks))
		}
		s.add(ask)
		open[tenant] = s
		scripts = append(scripts, s)
	}
	return scripts, nil
}

// add adds an ask, unless that would make the script too long or give one bucket two limits. A
// batch gathered while rules are reloaded does the latter; in two scripts its asks are answered as
// they would be one by one.
func (s *script) add(ask *enforce.Ask) bool {
	if len(s.asks) > 0 {
		fresh := 0
		for i := range ask.Tiers {
			tier := &ask.Tiers[i]
			place, ok := s.places[tier.Key]
			if !ok {
				fresh++
			} else if s.limits[s.of[place]] != tier.Limit {
				return false
			}
		}
		if len(s.asks) == maxChecks || len(s.keys)+fresh > maxKeys {
			return false
		}
	}
	s.asks = append(s.asks, ask)
	s.tiers = append(s.tiers, uint16(len(ask.Tiers)))
	for i := range ask.Tiers {
		tier := &ask.Tiers[i]
		wire := uint16(s.place(tier) * 2)
		if tier.Shadow {
			wire++
		}
		s.tiers = append(s.tiers, wire)
	}
	return true
}

// place returns the place of a tier's key in KEYS, adding it if need be.
func (s *script) place(tier *enforce.Tier) int {
	place, ok := s.places[tier.Key]
	if ok {
		return place
	}
	place = len(s.keys)
	if s.places != nil {
		s.places[tier.Key] = place
	}
	s.keys = append(s.keys, redisKey(tier.Key))
	limit := len(s.limits) - 1
	for limit >= 0 && s.limits[limit] != tier.Limit {
		limit--
	}
	if limit < 0 {
		limit = len(s.limits)
		s.limits = append(s.limits, tier.Limit)
	}
	s.of = append(s.of, uint16(limit))
	return place
}

// command returns the call by digest, or by source if that is asked for. A stamp of 0 leaves the
// time to Redis.
func (s *script) command(ctx context.Context, bySource bool, stamp int64) *takeCmd {
	wiring := make([]byte, 0, 2*(len(s.of)+len(s.tiers)))
	for _, limit := range s.of {
		wiring = binary.LittleEndian.AppendUint16(wiring, limit)
	}
	for _, word := range s.tiers {
		wiring = binary.LittleEndian.AppendUint16(wiring, word)
	}
	costs := make([]byte, 0, 8*len(s.asks))
	for _, ask := range s.asks {
		costs = appendFloat(costs, float64(ask.Cost))
	}
	limits := make([]byte, 0, limitBytes*len(s.limits))
	for _, limit := range s.limits {
		limits = appendLimit(limits, limit)
	}
	args := make([]any, 0, len(s.keys)+7)
	if bySource {
		args = append(args, "eval", takeSource)
	} else {
		args = append(args, "evalsha", takeSHA)
	}
	args = append(args, len(s.keys))
	args = append(args, s.keys...)
	args = append(args, wiring, costs, limits)
	if stamp != 0 {
		args = append(args, strconv.FormatInt(stamp, 10))
	}
	return &takeCmd{redis.NewStringCmd(ctx, args...)}
}

// answer reads the reply into the asks, and returns how many stored values were no bucket.
func (s *script) answer(reply string) (broken int, err error) {
	tiers := len(s.tiers) - len(s.asks)
	end := tiers*tierBytes + 4
	if len(reply) < end || (len(reply)-end)%(2+limitBytes) != 0 {
		return 0, fmt.Errorf("a reply of %d bytes to %d tiers", len(reply), tiers)
	}
	rest := reply
	for _, ask := range s.asks {
		ask.Allowed, ask.Answered = true, true
		for i := range ask.Tiers {
			tier := &ask.Tiers[i]
			amount := int64(float(rest))
			tier.Holds = amount&1 == 1
			tier.Bucket = enforce.Bucket{
				Level: enforce.Level{Micros: enforce.Tokens(amount >> 1), Fraction: uint32At(rest[8:])},
				Limit: tier.Limit,
			}
			if !tier.Holds && !tier.Shadow {
				ask.Allowed = false
			}
			rest = rest[tierBytes:]
		}
	}
	s.correct(reply[end:])
	return int(uint32At(rest)), nil
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
	for _, ask := range s.asks {
		at++ // the number of tiers
		for i := range ask.Tiers {
			if limit, ok := inForce[s.tiers[at]/2]; ok {
				ask.Tiers[i].Bucket.Limit = limit
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
