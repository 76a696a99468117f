package redisbucket

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// Each script is its own file behind settle.lua.
var (
	//go:embed settle.lua
	settleText string
	//go:embed take.lua
	takeText string
	//go:embed credit.lua
	creditText string
	//go:embed settlement.lua
	settlementText string
	//go:embed lease.lua
	leaseText string

	takeSource       = sourceOf(takeText)
	creditSource     = sourceOf(creditText)
	settlementSource = sourceOf(settlementText)
	leaseSource      = sourceOf(leaseText)
)

// constants are the numbers that scripts have names for. Lua 5.1 has no constants, so the names are replaced.
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

	"SLACK":       10_000, // ms that a full bucket stays at least, for callers that hold an older limit
	"TEST_SLACK":  300_000,
	"EXPIRY_STEP": 5_000_000, // µs; less than the slack, because older releases let keys expire the slack after they are full, to the millisecond
	"YEAR":        rules.MaxTimeToFull.Milliseconds(),
	"CHUNK":       2000, // values at a time on Lua's stack, which takes 8000

	"SLOT_LENGTH": enforce.SlotLength.Microseconds(),
	"SLOT_GUARD":  enforce.SlotGuard.Microseconds(),
	"LEASE_LIFE":  enforce.LeaseLife.Microseconds(),
	"HORIZON":     enforce.LeaseHorizon.Microseconds(),

	"LOOK":     flagLook,
	"NO_DELAY": flagNoDelay,
	"MIXED":    flagMixed,

	"MAX_RESERVATIONS": enforce.MaxReservations,
	"MAX_RESERVE_FOR":  enforce.MaxReserveFor.Milliseconds(),

	// For micros, which are never below -1e15.
	"OUTSIDE": outsideMicros,
	"UNKNOWN": outsideMicros - 1_000_000_000_000_000,
}

// words finds names, comments and texts; only names are replaced.
var words = regexp.MustCompile(`--[^\n]*|'[^'\n]*'|\b[A-Z][A-Z_]+\b`)

// sourceOf returns a script with the constants in place of their names.
func sourceOf(text string) string {
	return words.ReplaceAllStringFunc(settleText+text, func(word string) string {
		switch number, isConstant := constants[word]; {
		case isConstant:
			return strconv.FormatInt(number, 10)
		case word[0] < 'A' || word == "KEYS" || word == "ARGV" || word == "REPLY":
			return word
		}
		panic(fmt.Sprintf("a script has the name %s, which is no constant", word))
	})
}
