package sluice

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Check asks whether a request may pass. Every field is optional; rules match by those that are set.
type Check struct {
	UserID     string            // the limited user; at most 256 bytes
	Plan       string            // plan of the decision; "" is the user's own, else the tenant's default
	Endpoint   string            // a route template such as /orders/{id}; at most 1024 bytes
	Method     string            // in capital letters
	IP         string            // IPv4 or IPv6
	Attributes map[string]string // for rules with attr.<name>; at most 16
	Cost       float64           // requests to count, at most 1e9, rounded to 6 decimals; 0 is 1
	// Costs are the costs of up to 7 other meters, such as input_tokens or usd, in the same range. 0 costs nothing.
	Costs map[string]float64
	Look  bool // take nothing, whatever Cost and Costs are
}

// Source is the origin of a decision.
type Source string

// The sources of decisions.
const (
	FromServer      Source = "server"
	FromLease       Source = "lease"        // a Handle, with tokens leased to this process
	FromMemory      Source = "memory"       // a cached denial
	FromFailureMode Source = "failure_mode" // the server did not decide; see Decision.Err
)

// Decision is the answer to a check.
type Decision struct {
	Allowed bool
	Status  int    // 200 allowed, 429 denied, 503 denied by FailureMode Closed or the server's failure modes
	Reason  string // such as limit_exceeded; "" if allowed
	Plan    string // plan of the decision; "" if none

	RetryAfter         time.Duration // until the same check may pass; 0 if allowed or if waiting does not help
	RetryJitterPercent float64       // what Retry-After adds to RetryAfter, from 0 to 50
	Delay              time.Duration // wait of an allowed caller (leaky buckets), done by Middleware

	// The limit that denied, else the one with the fewest tokens left.
	Limit      int64         // its burst; 0 if no limit applied
	Remaining  int64         // whole tokens
	ResetAfter time.Duration // until its bucket is full

	ViolatedTier   string // scope of the rule that denied: user, endpoint, global or ip
	ViolatedRule   string // its pattern
	ViolatedRuleID int64
	Tiers          []Tier // each evaluated rule

	Reservation string // for Settle, Release, Cancel and Extend; "" for none
	Degraded    bool   // the server decided without its store, by the rules' failure modes

	Source Source
	Err    error // an *Error if Source is FromFailureMode, else nil
}

// Tier is a rule's result.
type Tier struct {
	RuleID     int64
	Name       string
	Scope      string
	KeyPattern string
	Meter      string // what the rule counts; "" for requests
	Mode       string // enforce or shadow; a shadow rule never denies
	Allowed    bool
	Limit      int64   // burst; 0 if the rule does not limit
	Remaining  float64 // tokens
	RetryAfter time.Duration
	ResetAfter time.Duration
	Window     time.Duration // earns Limit; 0 if RateLimit-Policy has no item for the tier
	MoreAfter  time.Duration // until Remaining grows
}

// RetryWithJitter returns RetryAfter with jitter, as middleware answers, so that callers denied together do not return
// together.
func (d *Decision) RetryWithJitter() time.Duration {
	const whole = 10_000
	jitter := math.Round(min(max(0, d.RetryJitterPercent), maxJitterPercent) * (whole / 100))
	return d.RetryAfter + d.RetryAfter/whole*time.Duration(jitter)
}

const maxJitterPercent = 50

// The server has the same bounds, in bytes for texts. No invalid check is sent, because other checks may share the
// request.
const (
	maxUserID         = 256
	maxPlan           = 256
	maxEndpoint       = 1024
	maxMethod         = 32
	maxIP             = 64
	maxAttributes     = 16
	maxAttributeName  = 64
	maxAttributeValue = 256
	maxMeters         = 8
	maxMeter          = 32
	maxCost           = 1e9
	maxHold           = 24 * time.Hour
)

type question struct {
	body     string
	identity string // the body up to the cost and reservation, with the costs of other meters
	cost     float64
	reserve  bool
}

// ask encodes a check. hold is the life of a reservation: 0 is the server's default, below 0 no reservation.
func (c *Check) ask(hold time.Duration) (question, error) {
	q := question{cost: 1}
	switch {
	case c.Look:
		q.cost = 0
	case c.Cost != 0:
		q.cost = c.Cost
	}
	var memory [256]byte
	body := append(memory[:0], '{')
	for _, field := range [...]struct {
		name, value string
		most        int
	}{
		{"user_id", c.UserID, maxUserID},
		{"plan", c.Plan, maxPlan},
		{"endpoint", c.Endpoint, maxEndpoint},
		{"method", c.Method, maxMethod},
		{"ip", c.IP, maxIP},
	} {
		if field.value == "" {
			continue
		}
		if wrong := refuseText(field.name, field.value, field.most); wrong != nil {
			return question{}, wrong
		}
		quoted, ok := appendQuoted(appendName(body, field.name), field.value)
		if !ok {
			return question{}, notUTF8(field.name)
		}
		body = quoted
	}
	if wrong := c.refuseForms(hold); wrong != nil {
		return question{}, wrong
	}
	if len(c.Attributes) > 0 {
		attributes, err := json.Marshal(c.Attributes) // sorts them
		if err != nil {
			return question{}, fmt.Errorf("encode the check: %w", err)
		}
		body = append(appendName(body, "attributes"), attributes...)
	}
	identity := len(body)
	costs, err := c.appendCosts(body, q.cost)
	if err != nil {
		return question{}, err
	}
	if body = costs; len(c.Costs) > 0 { // a cached denial is for the same costs
		identity = len(body)
	}
	if hold >= 0 {
		q.reserve = true
		body = append(appendName(body, "reserve"), "true"...)
	}
	if hold > 0 {
		body = strconv.AppendInt(appendName(body, "reserve_for"), int64(math.Ceil(hold.Seconds())), 10)
	}
	q.body = string(append(body, '}'))
	q.identity = q.body[:identity]
	return q, nil
}

func (c *Check) refuseForms(hold time.Duration) error {
	if !consistsOf(c.Method, "!#$%&'*+-.^_`|~") {
		return refused("/method", "must be an HTTP method such as GET")
	}
	if c.IP != "" {
		if ip, err := netip.ParseAddr(c.IP); err != nil || ip.Zone() != "" {
			return refused("/ip", "must be an IPv4 or IPv6 address, without port, zone or prefix length")
		}
	}
	if len(c.Attributes) > maxAttributes {
		return refused("/attributes",
			fmt.Sprintf("has %d attributes; send at most %d", len(c.Attributes), maxAttributes))
	}
	for name, value := range c.Attributes {
		if name == "" || len(name) > maxAttributeName || !consistsOf(name, "_.-") {
			return refused("/attributes", "has a name other than 1 to 64 letters, digits, '_', '.' and '-'")
		}
		if !utf8.ValidString(value) {
			return notUTF8("attributes/" + name)
		}
		if wrong := refuseText("attributes/"+name, value, maxAttributeValue); wrong != nil {
			return wrong
		}
	}
	if hold > maxHold {
		return refused("/reserve_for", fmt.Sprintf("must be at most %v; it is %v", maxHold, hold))
	}
	return nil
}

// consistsOf reports whether a text has only ASCII letters, digits and others.
func consistsOf(text, others string) bool {
	for i := range len(text) {
		c := text[i]
		isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !isLetter && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

func refuseText(field, text string, most int) error {
	if len(text) > most {
		return refused("/"+field, fmt.Sprintf("is %d bytes long; at most %d are accepted", len(text), most))
	}
	if strings.IndexByte(text, 0) >= 0 {
		return refused("/"+field, "contains the character NUL; remove it")
	}
	return nil
}

// appendCosts omits a lone cost of 1 request.
func (c *Check) appendCosts(body []byte, requests float64) ([]byte, error) {
	number, err := tokens(requests)
	switch {
	case err != nil:
		return nil, refused("/cost", err.Error())
	case len(c.Costs) > 0:
		return c.appendMeters(body, number)
	case requests != 1:
		body = append(appendName(body, "cost"), number...)
	}
	return body, nil
}

func (c *Check) appendMeters(body []byte, requests string) ([]byte, error) {
	body = append(append(appendName(body, "costs"), `{"requests":`...), requests...)
	if len(c.Costs) >= maxMeters {
		return nil, refused("/costs", fmt.Sprintf("has %d meters beside requests; send at most %d", len(c.Costs),
			maxMeters-1))
	}
	for _, meter := range slices.Sorted(maps.Keys(c.Costs)) {
		if !isMeter(meter) {
			return nil, refused("/costs", "has a meter other than a lower-case letter and up to 31 of a-z, 0-9 and "+
				"'_', or requests, whose cost is Cost")
		}
		cost := c.Costs[meter]
		if c.Look {
			cost = 0
		}
		number, err := tokens(cost)
		if err != nil {
			return nil, refused("/costs/"+meter, err.Error())
		}
		body = append(appendName(body, meter), number...)
	}
	return append(body, '}'), nil
}

func isMeter(word string) bool {
	if word == "" || len(word) > maxMeter || word[0] < 'a' || word[0] > 'z' || word == "requests" {
		return false
	}
	return word == strings.ToLower(word) && consistsOf(word, "_")
}

// JSON would replace invalid bytes, and so merge two users.
func notUTF8(field string) error { return refused("/"+field, "must be valid UTF-8") }

func appendName(body []byte, name string) []byte {
	if len(body) > 1 {
		body = append(body, ',')
	}
	return append(append(append(body, '"'), name...), `":`...)
}

func appendQuoted(body []byte, text string) (quoted []byte, ok bool) {
	for i := range len(text) {
		if c := text[i]; c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			continue
		}
		if !utf8.ValidString(text) {
			return body, false
		}
		escaped, err := json.Marshal(text)
		return append(body, escaped...), err == nil
	}
	return append(append(append(body, '"'), text...), '"'), true
}

func tokens(amount float64) (string, error) {
	rounded := math.Round(amount*1e6) / 1e6
	if !(rounded >= 0 && rounded <= maxCost) { // NaN too
		return "", fmt.Errorf("must be a number from 0 to 1000000000; it is %v", amount)
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64), nil
}

func millis(ms float64) time.Duration {
	const century = 100 * 365 * 24 * float64(time.Hour)
	return time.Duration(max(0, min(ms*float64(time.Millisecond), century)))
}
