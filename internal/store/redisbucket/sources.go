package redisbucket

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	_ "embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

var (
	//go:embed bucket.lua
	bucketText string
	//go:embed take.lua
	takeText string
	//go:embed credit.lua
	creditText string
	//go:embed reservation.lua
	reservationText string
	//go:embed lend.lua
	leaseText string
	//go:embed restore.lua
	restoreText string

	takeSource        = newSource(sourceOf(takeText))
	leaseSource       = newSource(sourceOf(leaseText))
	creditSource      = newSource(sourceOf(creditText))
	reservationSource = newSource(sourceOf(reservationText))
	restoreSource     = newSource(sourceOf(restoreText))
	// storedSource answers how many µs the reservation stays open (double), and the reservation, empty if missing or
	// of another type.
	storedSource = newSource(`local time, ends = redis.call('TIME'), redis.call('ZSCORE', KEYS[2], ARGV[1])
return struct.pack('<d', (ends or 0) - time[1] * 1000000 - time[2]) .. (redis.call('MGET', KEYS[1])[1] or '')`)
)

type source struct {
	text             string
	byText, byDigest []any // the begin of a command
}

func newSource(text string) *source {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	digest := hex.EncodeToString(sum[:])
	return &source{text: text, byText: []any{"eval", &text}, byDigest: []any{"evalsha", &digest}}
}

func (s *source) eval(bySource bool) []any {
	if bySource {
		return s.byText
	}
	return s.byDigest
}

// Lua 5.1 has no constants, so sourceOf replaces these names.
var constants = map[string]int64{
	"FRACTIONS":   1 << 32, // in a millionth of a token
	"HALF":        1 << 31, // half a millionth
	"TOKEN":       int64(enforce.Token),
	"COMMIT_TIME": enforce.CommitTime, // µs

	"LEAKY_BUCKET":   int64(rules.KindLeakyBucket),
	"FIXED_WINDOW":   int64(rules.KindFixedWindow),
	"SLIDING_WINDOW": int64(rules.KindSlidingWindow),
	"LOG":            int64(rules.KindSlidingWindowLog),
	"CONCURRENCY":    int64(rules.KindConcurrency),

	"SLACK":      10_000, // ms that a full bucket stays at least, for callers that hold an older limit
	"TEST_SLACK": 300_000,
	// µs; below SLACK, because older releases let keys expire SLACK after they are full, to the millisecond
	"EXPIRY_STEP": 5_000_000,
	"LONGEST":     enforce.MaxWait.Milliseconds(),
	"CHUNK":       2000, // values at a time on Lua's stack, which takes 8000

	"SLOT_LENGTH": enforce.SlotLength.Microseconds(),
	"SLOT_GUARD":  enforce.SlotGuard.Microseconds(),
	"LEASE_LIFE":  enforce.LeaseLife.Microseconds(),
	"HORIZON":     enforce.LeaseHorizon.Microseconds(),

	"LOOK":     flagLook,
	"NO_DELAY": flagNoDelay,
	"MIXED":    flagMixed,
	"RECORD":   flagRecord,

	"RECORD_SLOT":    enforce.RecordSlot,
	"RECORD_SLOTS":   enforce.RecordSlots,
	"RECORD_LIFE":    (enforce.RecordSlots + 1) * enforce.RecordSlot / 1000, // ms
	"MAX_RECORD_IDS": enforce.MaxRecordIDs,
	// Twice a set's even share, so that chosen ids cannot make it large: deleting this many takes a few milliseconds.
	"MAX_IN_SET": 2 * enforce.MaxRecordIDs / 256,

	"MAX_RESERVATIONS": enforce.MaxReservations,
	"MAX_RESERVE_FOR":  enforce.MaxReserveFor.Milliseconds(),

	// micros are never below -1e15.
	"OUTSIDE": outsideMicros,
	"LOST":    lostMicros,
	"UNKNOWN": outsideMicros - 1_000_000_000_000_000,
}

// Names are replaced, except in comments and strings.
var words = regexp.MustCompile(`--[^\n]*|'[^'\n]*'|\b[A-Z][A-Z_]+\b`)

func sourceOf(text string) string {
	return words.ReplaceAllStringFunc(bucketText+text, func(word string) string {
		switch number, isConstant := constants[word]; {
		case isConstant:
			return strconv.FormatInt(number, 10)
		case word[0] == '-':
			return "" // a comment
		case word[0] < 'A' || word == "KEYS" || word == "ARGV" || word == "REPLY":
			return word
		}
		panic(fmt.Sprintf("a script has the unknown constant %s", word))
	})
}
