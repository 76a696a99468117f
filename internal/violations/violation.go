package violations

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Tokens is an amount in millionths of a token.
type Tokens int64

// Token is one token.
const Token Tokens = 1_000_000

// Float returns the amount in tokens, exactly for every valid amount.
func (t Tokens) Float() float64 { return float64(t) / float64(Token) }

// Violation is a denial, or one that a shadow rule would have made, with its circumstances at that time.
type Violation struct {
	ID       ID
	Tenant   rules.TenantID
	Rule     rules.RuleID
	Subject  string      // the bucket within the rule; see rules.Match
	OwnLimit rules.Limit // that came with the check, and whose bucket it is; else zero

	// Reason is limit_exceeded, blocked, cost_exceeds_limit, concurrency_exceeded or store_unavailable.
	Reason  string
	Scope   rules.Scope
	Mode    rules.Mode
	Pattern string
	Version int64 // of the rule
	// Rate (tokens per second) and Burst (tokens) are the limit in force, with overrides; 0 for a block.
	Rate  float64
	Burst int64
	// LimitText reads like "10 per second, bursts to 50"; "" for a block.
	Algorithm rules.Algorithm
	LimitText string
	Meter     rules.Meter

	// The check's values; "" or the zero Addr if missing. Plan is the plan in force.
	UserID   string
	IP       netip.Addr
	Endpoint string
	Method   string
	Plan     string
	Cost     Tokens

	Tokens      Tokens // the bucket's level; meaningless unless TokensKnown
	TokensKnown bool
	RetryAfter  time.Duration // 0: waiting would not have helped

	// Count violations from ID.At to LastAt are in this row; they may differ in tokens and wait.
	Count  int64
	LastAt time.Time
}

// Queue returns the delay of a check in a leaky bucket. ok is false for other algorithms, and if the bucket was not
// read.
func (v *Violation) Queue() (queue time.Duration, ok bool) {
	if v.Algorithm != rules.LeakyBucket || !v.TokensKnown || v.Rate <= 0 {
		return 0, false
	}
	seconds := (float64(v.Burst) - v.Tokens.Float()) / v.Rate
	return time.Duration(min(max(seconds, 0), rules.MaxTimeToFull.Seconds()) * float64(time.Second)), true
}

// ID identifies a row within a tenant. A newer row has a later At or, at the same time, a higher Number.
type ID struct {
	At     time.Time // to the microsecond
	Number int64     // above 0
}

// String formats the id for ParseID. The texts do not sort by age.
func (id ID) String() string {
	return strconv.FormatInt(id.At.UnixMicro(), 10) + "-" + strconv.FormatInt(id.Number, 10)
}

// ParseID parses the format of String, and returns rules.ErrNotFound for any other text.
func ParseID(text string) (ID, error) {
	at, number, _ := strings.Cut(text, "-")
	micros, err := strconv.ParseInt(at, 10, 64)
	if err == nil && (micros < 0 || micros > maxMicros) {
		err = strconv.ErrRange
	}
	n, numberErr := strconv.ParseInt(number, 10, 64)
	if err = errors.Join(err, numberErr); err != nil || n < 1 {
		return ID{}, fmt.Errorf("violation %q: %w", text, rules.ErrNotFound)
	}
	return ID{At: time.UnixMicro(micros).UTC(), Number: n}, nil
}

// maxMicros is the end of the year 9999.
const maxMicros = 253402300799999999

// BucketKey returns the rule's id, a colon and the subject, as enforce.KeyOf does.
func (v *Violation) BucketKey() string {
	if v.OwnLimit.Burst > 0 {
		return strconv.FormatInt(int64(-v.Rule), 10) + ":" + rules.OwnSubject(v.OwnLimit, v.Subject)
	}
	return strconv.FormatInt(int64(v.Rule), 10) + ":" + v.Subject
}
