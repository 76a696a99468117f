package checkjson

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// MaxLeaseBody is in bytes.
const (
	MaxLeaseBody = MaxBatchBody

	maxLeasedBuckets = maxChecks * enforce.MaxLeasedTiers
	maxReturns       = enforce.MaxSlots
	maxDenials       = enforce.MaxLeasedTiers
	maxHolder        = 64
	maxBucketText    = 64 << 10
	// maxDecidedCost is in tokens, of one element.
	maxDecidedCost = 1_000_000_000_000
)

type leasesJSON struct {
	Holder  string            `json:"holder"`
	Checks  []leaseCheckJSON  `json:"checks"`
	Buckets []leaseBucketJSON `json:"buckets"`
}

type leaseCheckJSON struct {
	Check   jsontext.Value `json:"check"`
	Allowed count          `json:"allowed"`
	Denied  []struct {
		RuleID exact `json:"rule_id"`
		Count  count `json:"count"`
	} `json:"denied"`
}

type leaseBucketJSON struct {
	Bucket   string `json:"bucket"`
	Epoch    exact  `json:"epoch"`
	Presence exact  `json:"presence"`
	Held     amount `json:"held"`
	Want     amount `json:"want"`
	Returns  []struct {
		Slot  exact  `json:"slot"`
		Spent amount `json:"spent"`
		Back  amount `json:"back"`
	} `json:"returns"`
}

// DecodeLeases reads a client's request; the error is a *httpapi.Problem.
func DecodeLeases(body []byte, tenant rules.TenantID) (request enforce.LesseeRequest, err error) {
	var from leasesJSON
	if err := httpapi.Decode(body, &from); err != nil {
		return request, err
	}
	var wrong mistakes
	if request.Holder = from.Holder; from.Holder == "" {
		wrong.add("/holder", "is missing; send a name that this process chose at random")
	} else if !isHolder(from.Holder) {
		wrong.add("/holder", "must be 1 to 64 letters, digits, '-' and '_'")
	}
	if wrong.tooMany("/checks", len(from.Checks), maxChecks) ||
		wrong.tooMany("/buckets", len(from.Buckets), maxLeasedBuckets) {
		return request, httpapi.BodyProblem(wrong)
	}
	for i := range from.Checks {
		request.Checks = append(request.Checks, from.Checks[i].check("/checks/"+strconv.Itoa(i), &wrong))
	}
	named := map[enforce.Key]bool{}
	for i := range from.Buckets {
		at := "/buckets/" + strconv.Itoa(i)
		b := from.Buckets[i].bucket(at, tenant, &wrong)
		if named[b.Key] {
			wrong.add(at+"/bucket", "is named twice; report each bucket once")
		}
		named[b.Key] = true
		request.Buckets = append(request.Buckets, b)
	}
	return request, httpapi.BodyProblem(wrong)
}

func isHolder(name string) bool {
	return len(name) <= maxHolder && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_'
	})
}

func (from *leaseCheckJSON) check(at string, wrong *mistakes) (c enforce.LesseeCheck) {
	if from.Check == nil {
		wrong.add(at+"/check", "is missing; send the check as to /v1/check")
		return c
	}
	var r httpapi.Reader
	r.Reset(bytes.NewBuffer(from.Check))
	c.Check = DecodeCheck(&r)
	var refused *httpapi.Problem
	if errors.As(r.Close(), &refused) {
		for _, f := range refused.Fields {
			wrong.add(at+"/check"+f.Pointer, f.Detail)
		}
	}
	if c.Check.Reserve || c.Check.ReserveFor != 0 {
		wrong.add(at+"/check/reserve", "cannot be leased; send this check to /v1/check")
	}
	if c.Check.Record {
		wrong.add(at+"/check/record", "cannot be leased; send this check to /v1/check")
	}
	c.Allowed = from.Allowed.int64
	cost := float64(c.Check.Cost) / float64(enforce.Token)
	if float64(c.Allowed)*cost > maxDecidedCost {
		wrong.add(at+"/allowed", fmt.Sprintf("times the cost must be at most %d", int64(maxDecidedCost)))
	}
	wrong.tooMany(at+"/denied", len(from.Denied), maxDenials)
	for _, d := range from.Denied {
		c.Denied = append(c.Denied, enforce.LesseeDenials{Rule: rules.RuleID(d.RuleID.int64), Count: d.Count.int64})
	}
	return c
}

func (from *leaseBucketJSON) bucket(at string, tenant rules.TenantID, wrong *mistakes) (b enforce.LesseeBucket) {
	var err error
	switch b.Key, err = enforce.ParseKey(tenant, from.Bucket); {
	case from.Bucket == "":
		wrong.add(at+"/bucket", "is missing; send the name of the bucket as an answer has it")
	case err != nil || len(from.Bucket) > maxBucketText:
		wrong.add(at+"/bucket", "must be a bucket of an answer: a rule's id, a colon and a subject, such as 12:42")
	}
	b.Ask.Epoch, b.Ask.Presence = from.Epoch.int64, from.Presence.int64
	b.Ask.Held, b.Ask.Want = from.Held.Tokens, from.Want.Tokens
	wrong.tooMany(at+"/returns", len(from.Returns), maxReturns)
	for _, back := range from.Returns {
		b.Ask.Returns = append(b.Ask.Returns,
			enforce.Return{Slot: back.Slot.int64, Spent: back.Spent.Tokens, Back: back.Back.Tokens})
	}
	return b
}

// AppendLeases appends the answer to a request for leases.
func AppendLeases(
	b []byte, tenant *rules.Tenant, request *enforce.LesseeRequest, answer *enforce.LesseeAnswer,
) []byte {
	b = strconv.AppendInt(append(b, `{"valid_ms":`...), enforce.LesseeAnswerLife.Milliseconds(), 10)
	b = append(b, `,"checks":[`...)
	for i := range answer.Checks {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLeaseCheck(b, &answer.Checks[i], Jitter(tenant, &request.Checks[i].Check.Request))
	}
	b = appendList(append(b, `],"buckets":`...), answer.Buckets, appendLeaseBucket)
	return append(b, '}')
}

func appendLeaseCheck(b []byte, c *enforce.CheckAnswer, jitter int64) []byte {
	b = httpapi.AppendText(append(b, `{"how":`...), string(c.How))
	b = httpapi.AppendText(append(b, `,"plan":`...), c.Plan)
	if c.How == enforce.HowLease {
		b = appendJitter(b, jitter)
	}
	b = appendList(append(b, `,"buckets":`...), c.Buckets, func(b []byte, bucket *int) []byte {
		return strconv.AppendInt(b, int64(*bucket), 10)
	})
	b = append(b, `,"blocked_by":`...)
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
