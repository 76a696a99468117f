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

// Tokens is an amount of tokens in millionths, the smallest cost there is.
type Tokens int64

// Token is one token.
const Token Tokens = 1_000_000

// Float returns the amount in tokens. Every amount that Sluice accepts survives the conversion.
func (t Tokens) Float() float64 { return float64(t) / float64(Token) }

// Violation is a denial, or what a shadow rule would have denied, with everything as it was then.
type Violation struct {
	ID     ID
	Tenant rules.TenantID
	Rule   rules.RuleID
	// Subject names the bucket within the rule; see rules.Match.
	Subject string

	// Reason is why the tier denied: limit_exceeded, blocked, cost_exceeds_limit, concurrency_exceeded,
	// store_unavailable.
	Reason  string
	Scope   rules.Scope
	Mode    rules.Mode
	Pattern string
	// Version is the rule's at that time.
	Version int64
	// Rate, in tokens per second, and Burst, in tokens, are the limit in force, which may be a user's override; 0 for a
	// block.
	Rate  float64
	Burst int64
	// Algorithm is the rule's, and LimitText describes the limit in force: 10 per second, bursts to 50; "" for a block.
	Algorithm rules.Algorithm
	LimitText string

	// From the check; "" or the zero Addr if it named none. Plan is the plan in force.
	UserID   string
	IP       netip.Addr
	Endpoint string
	Method   string
	Plan     string
	Cost     Tokens

	// Tokens is what the bucket held; meaningless unless TokensKnown.
	Tokens      Tokens
	TokensKnown bool
	// RetryAfter is how long the caller had to wait; 0 if waiting would not have helped.
	RetryAfter time.Duration

	// Count is how many violations this row stands for: the first at ID.At, the last at LastAt, the same except for
	// time, tokens and wait.
	Count  int64
	LastAt time.Time
}

// Queue returns how long the queue of a leaky bucket was: the delay that the check would have had behind it. ok is false
// for other algorithms, and if the bucket was not read.
func (v *Violation) Queue() (queue time.Duration, ok bool) {
	if v.Algorithm != rules.LeakyBucket || !v.TokensKnown || v.Rate <= 0 {
		return 0, false
	}
	seconds := (float64(v.Burst) - v.Tokens.Float()) / v.Rate
	return time.Duration(min(max(seconds, 0), rules.MaxTimeToFull.Seconds()) * float64(time.Second)), true
}

// ID names a row of one tenant. Newer rows have a later At; at the same time, the later written one has the higher
// Number.
type ID struct {
	At     time.Time // in microseconds
	Number int64     // above 0
}

// String writes the id in the form that ParseID reads. It does not sort.
func (id ID) String() string {
	return strconv.FormatInt(id.At.UnixMicro(), 10) + "-" + strconv.FormatInt(id.Number, 10)
}

// ParseID reads what String wrote. Any other text is rules.ErrNotFound.
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

// BucketKey returns the bucket as text: the rule's id, a colon, the subject.
func (v *Violation) BucketKey() string {
	return strconv.FormatInt(int64(v.Rule), 10) + ":" + v.Subject
}
