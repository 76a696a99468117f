package checkjson

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// MaxLeaseBody caps the bytes of a request for leases.
	MaxLeaseBody = MaxBatchBody

	maxLeasedBuckets = maxChecks * enforce.MaxLeasedTiers
	maxReturns       = enforce.MaxSlots
	maxDenials       = enforce.MaxLeasedTiers
	maxHolder        = 64
	maxBucketText    = 64 << 10
	// maxDecided caps each count of decisions, and maxDecidedCost their cost in tokens.
	maxDecided     = 1_000_000_000
	maxDecidedCost = 1_000_000_000_000
	// maxExact is the largest integer that every JSON reader keeps.
	maxExact = 1<<53 - 1

	leaseFields       = "holder, checks and buckets"
	leaseCheckFields  = "check, allowed and denied"
	leaseDenialFields = "rule_id and count"
	leaseBucketFields = "bucket, epoch, presence, held, want and returns"
	leaseReturnFields = "slot, spent and back"
)

// DecodeLeases reads what a client asks to lease, and reports. r records what is wrong with it.
func DecodeLeases(r *httpapi.Reader, tenant rules.TenantID) (request enforce.LesseeRequest) {
	if !r.Object() {
		return request
	}
	named := map[enforce.Key]bool{}
	for r.More() {
		switch r.Name().String() {
		case "holder":
			request.Holder = decodeHolder(r)
		case "checks":
			decodeList(r, maxChecks, func(i int) {
				request.Checks = append(request.Checks, decodeLeaseCheck(r, "/checks/"+strconv.Itoa(i)))
			})
		case "buckets":
			decodeList(r, maxLeasedBuckets, func(i int) {
				at := "/buckets/" + strconv.Itoa(i)
				b := decodeLeaseBucket(r, at, tenant)
				if named[b.Key] {
					r.RefuseAt(at+"/bucket", "is named twice; send what is known of a bucket once")
				}
				named[b.Key] = true
				request.Buckets = append(request.Buckets, b)
			})
		default:
			r.RefuseUnknown(leaseFields)
		}
	}
	if request.Holder == "" {
		r.RefuseAt("/holder", "is missing; send a name that this process chose at random")
	}
	return request
}

// decodeList reads up to most elements.
func decodeList(r *httpapi.Reader, most int, element func(i int)) {
	if !r.Array() {
		return
	}
	n := 0
	for ; r.More(); n++ {
		if n < most {
			element(n)
		} else {
			r.Skip()
		}
	}
	if n > most {
		r.Refuse(fmt.Sprintf("has %d elements; send at most %d", n, most))
	}
}

func decodeHolder(r *httpapi.Reader) string {
	holder := r.Text(maxHolder)
	if holder == "" || strings.ContainsFunc(holder, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_'
	}) {
		r.Refuse("must be 1 to 64 letters, digits, '-' and '_'")
	}
	return holder
}

func decodeLeaseCheck(r *httpapi.Reader, at string) (c enforce.LesseeCheck) {
	if !r.Object() {
		return c
	}
	found := false
	for r.More() {
		switch r.Name().String() {
		case "check":
			found = true
			if c.Check = DecodeCheck(r); c.Check.Reserve || c.Check.ReserveFor != 0 {
				r.RefuseAt(at+"/check/reserve", "cannot be leased; send this check to /v1/check")
			}
		case "allowed":
			c.Allowed = decodeWhole(r, maxDecided)
		case "denied":
			decodeList(r, maxDenials, func(int) { c.Denied = append(c.Denied, decodeDenials(r)) })
		default:
			r.RefuseUnknown(leaseCheckFields)
		}
	}
	if !found {
		r.RefuseAt(at+"/check", "is missing; send the check as to /v1/check")
	}
	cost := float64(c.Check.Cost) / float64(enforce.Token)
	if float64(c.Allowed)*cost > maxDecidedCost {
		r.RefuseAt(at+"/allowed", fmt.Sprintf("times the cost must be at most %d", int64(maxDecidedCost)))
	}
	return c
}

func decodeDenials(r *httpapi.Reader) (d enforce.LesseeDenials) {
	if !r.Object() {
		return d
	}
	for r.More() {
		switch r.Name().String() {
		case "rule_id":
			d.Rule = rules.RuleID(decodeWhole(r, maxExact))
		case "count":
			d.Count = decodeWhole(r, maxDecided)
		default:
			r.RefuseUnknown(leaseDenialFields)
		}
	}
	return d
}

func decodeLeaseBucket(r *httpapi.Reader, at string, tenant rules.TenantID) (b enforce.LesseeBucket) {
	if !r.Object() {
		return b
	}
	found := false
	for r.More() {
		switch r.Name().String() {
		case "bucket":
			found = true
			var err error
			if b.Key, err = enforce.ParseKey(tenant, r.Text(maxBucketText)); err != nil {
				r.Refuse("must be a bucket of an answer: a rule's id, a colon and a subject, such as 12:42")
			}
		case "epoch":
			b.Ask.Epoch = decodeWhole(r, maxExact)
		case "presence":
			b.Ask.Presence = decodeWhole(r, maxExact)
		case "held":
			b.Ask.Held = decodeCost(r)
		case "want":
			b.Ask.Want = decodeCost(r)
		case "returns":
			decodeList(r, maxReturns, func(int) { b.Ask.Returns = append(b.Ask.Returns, decodeReturn(r)) })
		default:
			r.RefuseUnknown(leaseBucketFields)
		}
	}
	if !found {
		r.RefuseAt(at+"/bucket", "is missing; send the name of the bucket as an answer has it")
	}
	return b
}

func decodeReturn(r *httpapi.Reader) (back enforce.Return) {
	if !r.Object() {
		return back
	}
	for r.More() {
		switch r.Name().String() {
		case "slot":
			back.Slot = decodeWhole(r, maxExact)
		case "spent":
			back.Spent = decodeCost(r)
		case "back":
			back.Back = decodeCost(r)
		default:
			r.RefuseUnknown(leaseReturnFields)
		}
	}
	return back
}

// decodeWhole reads an integer from 0 to most.
func decodeWhole(r *httpapi.Reader, most int64) int64 {
	if !r.IsNumber() {
		r.Number() // refuses it
		return 0
	}
	text := r.Number()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most || text[0] == '-' {
		r.Refuse(fmt.Sprintf("must be a whole number from 0 to %d, written in plain digits", most))
		return 0
	}
	return n
}

// AppendLeases appends the answer to a request for leases.
func AppendLeases(b []byte, answer *enforce.LesseeAnswer) []byte {
	b = strconv.AppendInt(append(b, `{"valid_ms":`...), enforce.LesseeAnswerLife.Milliseconds(), 10)
	b = append(b, `,"checks":[`...)
	for i := range answer.Checks {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLeaseCheck(b, &answer.Checks[i])
	}
	b = append(b, `],"buckets":[`...)
	for i := range answer.Buckets {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLeaseBucket(b, &answer.Buckets[i])
	}
	return append(b, `]}`...)
}

func appendLeaseCheck(b []byte, c *enforce.CheckAnswer) []byte {
	b = httpapi.AppendText(append(b, `{"how":`...), string(c.How))
	b = httpapi.AppendText(append(b, `,"plan":`...), c.Plan)
	b = append(b, `,"buckets":[`...)
	for i, bucket := range c.Buckets {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(bucket), 10)
	}
	b = append(b, `],"blocked_by":`...)
	if c.Block == nil {
		return append(b, `null}`...)
	}
	return append(appendRule(append(b, '{'), c.Block.Rule, c.Block.Mode), `}}`...)
}

func appendLeaseBucket(b []byte, bucket *enforce.BucketAnswer) []byte {
	limit := bucket.Match.Limit
	if bucket.Answered {
		limit = bucket.Grant.Limit
	}
	b = httpapi.AppendText(append(b, `{"bucket":`...), bucket.Key.Text())
	b = appendRule(append(b, ','), bucket.Match.Rule, bucket.Match.Mode)
	b = strconv.AppendFloat(append(b, `,"rate_per_second":`...), limit.Rate, 'g', -1, 64)
	b = strconv.AppendInt(append(b, `,"burst_capacity":`...), limit.Burst, 10)
	b = strconv.AppendInt(append(b, `,"since":`...), limit.Since, 10)
	b = append(b, `,"grant":`...)
	if !bucket.Answered {
		return append(b, `null}`...)
	}
	g := &bucket.Grant
	b = appendTokens(append(b, `{"amount":`...), g.Amount)
	b = strconv.AppendInt(append(b, `,"slot":`...), g.Slot, 10)
	b = strconv.AppendInt(append(b, `,"epoch":`...), g.Epoch, 10)
	b = appendTokens(append(b, `,"level":`...), g.Level.Micros)
	b = appendTokens(append(b, `,"out":`...), g.Out)
	b = strconv.AppendInt(append(b, `,"holders":`...), g.Holders, 10)
	b = strconv.AppendInt(append(b, `,"pause_us":`...), bucket.Pause.Microseconds(), 10)
	return append(b, `}}`...)
}
