package redisbucket

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// A script blocks Redis: 64 checks of four tiers take half a millisecond.
const (
	maxChecks = 64
	maxKeys   = 256
)

// maxTiers: four times an index must fit the 16 bits of a wire.
const maxTiers = math.MaxUint16 / 4

const (
	limitBytes = 32 // a limit in an argument and in a reply
	tierBytes  = 12 // a tier in a reply
	waitsBytes = 24
	lentBytes  = 2 + 8 + 4 + 8
	replyBytes = 4 + 8 + 2 + 1 + 4 + 2 // between tiers and limits in a reply
)

const (
	flagLook    = 1
	flagNoDelay = 2
	flagMixed   = 4
	flagRecord  = 8
)

const (
	wireShadow = 1
	wireAfter  = 2
	wireIndex  = 4
)

// takeScript is a run of take.lua for many checks, or for a look at some keys. Each distinct bucket is sent once, with
// one limit.
type takeScript struct {
	scriptRun
	store    *Store
	readAt   int64               // of all checks
	single   bool                // there is one check, whose keys are distinct
	indexes  map[enforce.Key]int // in KEYS; unused for a single check
	limits   []enforce.Limit     // distinct
	limitOf  []uint16            // for each key, the index of its limit
	wires    []uint16            // for each check, its number of tiers, its flags, and its tiers' wires
	hasSlots bool                // a limit is of concurrency
	tierKeys []int               // the indexes of the keys of a check that is being added; -1 for a new one
	eras     []rules.TenantID    // the tenants of long limits
	eraOf    []uint16            // for each key, the number of its era, or 0; may be shorter
	expected expectedEras

	text       []byte   // all arguments, one after the other
	textEnds   []int    // of each argument in text
	argStrings []string // the arguments
	keyCount   int
	args       []any
}

func (s *takeScript) reset(store *Store, single bool) {
	s.scriptRun.reset()
	s.store, s.single, s.hasSlots, s.expected.node = store, single, false, nil
	s.eras, s.eraOf = s.eras[:0], s.eraOf[:0]
	s.limits, s.limitOf, s.wires = s.limits[:0], s.limitOf[:0], s.wires[:0]
	s.text, s.textEnds = s.text[:0], s.textEnds[:0]
	clear(s.indexes)
	if !single && s.indexes == nil {
		s.indexes = make(map[enforce.Key]int)
	}
}

// isAlone: two more keys follow the buckets, so a check has its own script.
func isAlone(check *enforce.BucketCheck) bool { return check.Reserve != nil || check.HasRecordID() }

// A script has one limit per bucket and one ReadAt: checks that disagree, while rules reload, go into the next.
func (s *takeScript) add(check *enforce.BucketCheck) bool {
	if len(s.checks) > 0 && (s.readAt != check.ReadAt || isAlone(check) || isAlone(s.checks[0])) {
		return false
	}
	s.tierKeys = s.tierKeys[:0]
	fresh := 0
	for i := range check.Tiers {
		index := -1
		if !s.single {
			if found, ok := s.indexes[check.Tiers[i].Key]; ok {
				index = found
			}
		}
		if index < 0 {
			fresh++
		} else if s.limits[s.limitOf[index]] != check.Tiers[i].Limit {
			return false
		}
		s.tierKeys = append(s.tierKeys, index)
	}
	if len(s.checks) > 0 && (len(s.checks) == maxChecks || len(s.limitOf)+fresh > maxKeys) {
		return false
	}
	s.checks, s.readAt = append(s.checks, check), check.ReadAt
	var flags uint16
	if check.Look {
		flags |= flagLook
	}
	if check.NoDelay {
		flags |= flagNoDelay
	}
	if check.Mixed {
		flags |= flagMixed
	}
	if check.Record {
		flags |= flagRecord
	}
	s.wires = append(s.wires, uint16(len(check.Tiers)), flags)
	for i := range check.Tiers {
		index := s.tierKeys[i]
		if index < 0 {
			index = s.addTierKey(&check.Tiers[i])
		}
		wire := uint16(index * wireIndex)
		if check.Tiers[i].Shadow {
			wire += wireShadow
		}
		if check.IsChargedAfter(&check.Tiers[i]) {
			wire += wireAfter
		}
		s.wires = append(s.wires, wire)
	}
	return true
}

func (s *takeScript) addOtherKeys() {
	s.text = s.text[:s.textEnds[len(s.limitOf)-1]] // a second call starts behind the buckets
	s.textEnds = s.textEnds[:len(s.limitOf)]
	for _, tenant := range s.eras {
		s.text = appendEraKey(s.text, s.store.prefix, tenant)
		s.endArg()
	}
	switch check := s.checks[0]; {
	case check.Reserve != nil:
		tenant := check.Tiers[0].Key.Tenant
		s.text = appendReservationKey(s.text, s.store.prefix, tenant, check.Reserve.ID)
		s.endArg()
		s.text = appendIndexKey(s.text, s.store.prefix, tenant)
		s.endArg()
	case check.HasRecordID():
		tenant := check.Tiers[0].Key.Tenant
		s.text = appendRecordIDsKey(s.text, s.store.prefix, tenant)
		s.text = append(s.text, ' ')
		s.text = hex.AppendEncode(s.text, check.RecordID[:1])
		s.endArg()
		s.text = appendRecordIDsKey(s.text, s.store.prefix, tenant)
		s.endArg()
	}
	s.keyCount = len(s.textEnds)
}

func (s *takeScript) addTierKey(tier *enforce.Tier) int {
	index := len(s.limitOf)
	if !s.single {
		s.indexes[tier.Key] = index
	}
	s.text = appendKey(s.text, s.store.prefix, tier.Key)
	s.addLimit(tier.Limit)
	if s.store.isLong(tier.Limit) {
		s.addEra(tier.Key.Tenant)
	}
	return index
}

func (s *takeScript) addEra(tenant rules.TenantID) {
	at := slices.Index(s.eras, tenant)
	if at < 0 {
		at = len(s.eras)
		s.eras = append(s.eras, tenant)
	}
	for len(s.eraOf) < len(s.limitOf)-1 {
		s.eraOf = append(s.eraOf, 0)
	}
	s.eraOf = append(s.eraOf, uint16(at+1))
}

func (s *takeScript) addLimit(limit enforce.Limit) {
	s.endArg()
	index := len(s.limits) - 1
	for index >= 0 && s.limits[index] != limit {
		index--
	}
	if index < 0 {
		index = len(s.limits)
		s.limits = append(s.limits, limit)
	}
	s.limitOf = append(s.limitOf, uint16(index))
	s.hasSlots = s.hasSlots || limit.Kind == rules.KindConcurrency
}

func (s *takeScript) endArg() { s.textEnds = append(s.textEnds, len(s.text)) }

func (s *takeScript) command(ctx context.Context, n *node, bySource bool, stamp int64) *noRetryCmd {
	s.expected.script, s.expected.node = s, n
	s.addOtherKeys()
	for _, limit := range s.limitOf {
		s.text = binary.LittleEndian.AppendUint16(s.text, limit)
	}
	for _, word := range s.wires {
		s.text = binary.LittleEndian.AppendUint16(s.text, word)
	}
	s.endArg()
	for _, check := range s.checks {
		s.text = appendFloat(s.text, float64(check.Cost))
		for i := 0; check.Mixed && i < len(check.Tiers); i++ {
			s.text = appendFloat(s.text, float64(check.Tiers[i].Cost))
		}
	}
	s.endArg()
	calendars := uint16(0)
	for _, limit := range s.limits {
		s.text = appendLimit(s.text, limit, &calendars)
	}
	s.text = appendFloat(s.text, float64(s.readAt))
	s.endArg()
	for i := 0; calendars > 0 && i < len(s.limits); i++ {
		s.text = appendCalendar(s.text, s.limits[i], stamp)
	}
	s.endArg()
	for i := 0; (s.hasSlots || s.checks[0].Reserve != nil) && i < len(s.checks); i++ {
		s.text = append(s.text, s.checks[i].Holder[:]...)
	}
	s.endArg()
	if check := s.checks[0]; check.Reserve != nil {
		s.text = appendReservation(s.text, check.Reserve, check.Tiers)
	} else if check.HasRecordID() {
		s.text = append(appendFloat(s.text, 0), check.RecordID[:]...)
	}
	s.endArg()
	args := s.arguments(bySource)
	switch {
	case len(s.eras) > 0:
		args = append(args, &s.expected)
	case stamp != 0:
		args = append(args, "")
	}
	if stamp != 0 {
		args = append(args, stamp)
	}
	s.args = args
	return &noRetryCmd{redis.NewStringCmd(ctx, args...)}
}

// Pointers save a copy on the heap; the first key is a string, because the cluster client reads the slot from it.
func (s *takeScript) arguments(bySource bool) []any {
	text := string(s.text)
	s.argStrings = s.argStrings[:0]
	start := 0
	for _, end := range s.textEnds {
		s.argStrings = append(s.argStrings, text[start:end])
		start = end
	}
	s.args = append(s.args[:0], takeSource.eval(bySource)...)
	s.args = append(s.args, &s.keyCount, s.argStrings[0])
	for i := 1; i < len(s.argStrings); i++ {
		s.args = append(s.args, &s.argStrings[i])
	}
	return s.args
}

// outsideMicros is OUTSIDE of bucket.lua, lostMicros LOST, and less is UNKNOWN.
const (
	outsideMicros = -3_000_000_000_000_000
	lostMicros    = outsideMicros - 500_000_000_000_000
)

// After ErrUnknownVersion or ErrOtherWindow only the checks with such a bucket are unanswered, and took nothing.
func (s *takeScript) readReply(reply string) (err error) {
	if reply, err = s.readEras(reply); err != nil {
		return err
	}
	tiers := len(s.wires) - 2*len(s.checks)
	end := tiers * tierBytes
	if len(reply) < end+replyBytes {
		return fmt.Errorf("an unexpected reply of %d bytes to %d tiers", len(reply), tiers)
	}
	broken := int64(uint32At(reply[end:]))
	stamp := int64(float(reply[end+4:]))
	exhausted := reply[end+14] == 1
	switch reply[end+14] {
	case 2:
		s.checks[0].Unreserve()
	case 3:
		s.checks[0].Repeated = true
	}
	s.store.forgotten.Add(int64(uint32At(reply[end+15:])))
	rest := reply[end+replyBytes:]
	foreign := int(reply[end+12]) | int(reply[end+13])<<8
	lent := int(reply[end+19]) | int(reply[end+20])<<8
	if len(rest) < foreign*(2+limitBytes) {
		return fmt.Errorf("an unexpected reply of %d bytes to %d tiers with %d limits", len(reply), tiers, foreign)
	}
	isLost, unknown := false, int64(0)
	for _, check := range s.checks {
		check.Allowed, check.Answered, check.Exhausted = !exhausted, true, exhausted
		for i := range check.Tiers {
			tier := &check.Tiers[i]
			amount := int64(float(reply))
			tier.TierAnswer = enforce.TierAnswer{Holds: amount&1 == 1, Bucket: enforce.Bucket{
				Level: enforce.Level{Micros: enforce.Tokens(amount >> 1), Fraction: uint32At(reply[8:])},
				Stamp: stamp,
				Limit: tier.Limit,
			}}
			if !tier.Holds && !tier.Shadow {
				check.Allowed = false
			}
			if left := tier.Bucket.Level.Micros; left <= outsideMicros {
				check.Allowed, check.Answered = false, false
				switch left {
				case outsideMicros:
					err = nothingTaken(ErrOtherWindow)
				case lostMicros:
					isLost = true
				default:
					unknown++
				}
			}
			reply = reply[tierBytes:]
		}
	}
	s.store.unknown.Add(unknown)
	s.applyForeignLimits(rest[:foreign*(2+limitBytes)])
	rest = rest[foreign*(2+limitBytes):]
	if len(rest) < lent*lentBytes {
		return fmt.Errorf("an unexpected reply of %d bytes to %d tiers, of which %d have lent", len(reply), tiers,
			lent)
	}
	s.readLent(rest[:lent*lentBytes])
	rest, restErr := s.readCharges(rest[lent*lentBytes:])
	if restErr == nil {
		restErr = s.readWaits(rest)
	}
	if restErr != nil {
		return restErr
	}
	switch {
	case unknown > 0:
		err = nothingTaken(ErrUnknownVersion)
	case isLost && err == nil:
		err = nothingTaken(errLost)
	}
	s.store.broken.Add(broken)
	return err
}

func (s *takeScript) readLent(lent string) {
	index := 0
	for _, check := range s.checks {
		for i := range check.Tiers {
			if lent == "" {
				return
			}
			if int(lent[0])|int(lent[1])<<8 == index {
				tier := &check.Tiers[i]
				tier.Out, tier.Holders = enforce.Tokens(float(lent[2:])), int64(uint32At(lent[10:]))
				tier.Former = enforce.Tokens(float(lent[14:]))
				lent = lent[lentBytes:]
			}
			index++
		}
	}
}

func (s *takeScript) readCharges(reply string) (rest string, err error) {
	for _, check := range s.checks {
		for i := range check.Tiers {
			tier := &check.Tiers[i]
			check.SetCharged(tier)
			if !check.IsChargedAfter(tier) || !check.Took() {
				continue
			}
			if len(reply) < 8 {
				check.Answered = false
				return "", errors.New("a reply lacks the charge of a tier")
			}
			tier.Charged, reply = enforce.Tokens(float(reply)), reply[8:]
		}
	}
	return reply, nil
}

func (s *takeScript) readWaits(waits string) error {
	for _, check := range s.checks {
		for i := range check.Tiers {
			tier := &check.Tiers[i]
			if !enforce.NeedsWaits(tier.Bucket.Limit) && tier.Out == 0 || tier.Bucket.Level.Micros <= outsideMicros {
				continue
			}
			if len(waits) < waitsBytes {
				check.Answered = false
				return fmt.Errorf("a reply lacks the waits of a %s", tier.Bucket.Limit.Kind.Algorithm())
			}
			tier.SetWaits(int64(float(waits)), int64(float(waits[8:])))
			if tier.Bucket.Limit.Kind == rules.KindSlidingWindow {
				tier.Former = enforce.Tokens(float(waits[16:]))
			}
			waits = waits[waitsBytes:]
		}
	}
	if waits != "" {
		return fmt.Errorf("a reply has %d bytes too many", len(waits))
	}
	return nil
}

func (s *takeScript) applyForeignLimits(foreign string) {
	if foreign == "" {
		return
	}
	inForce := map[uint16]enforce.Limit{}
	for ; foreign != ""; foreign = foreign[2+limitBytes:] {
		index := uint16(foreign[0]) | uint16(foreign[1])<<8
		inForce[index] = limitAt(foreign[2:])
	}
	wire := 0
	for _, check := range s.checks {
		wire += 2 // the number of tiers, and the flags
		for i := range check.Tiers {
			if limit, ok := inForce[s.wires[wire]/wireIndex]; ok {
				check.Tiers[i].Bucket.Limit = limit
			}
			wire++
		}
	}
}
