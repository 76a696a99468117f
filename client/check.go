package sluice

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// Check is one question: may this request pass? Every field is optional; rules match by those that are set.
type Check struct {
	UserID     string            // who is limited; at most 256 bytes
	Plan       string            // the plan to judge by; "" is the user's own, else the tenant's default
	Endpoint   string            // a route template such as /orders/{id}; at most 1024 bytes
	Method     string            // in capital letters
	IP         string            // IPv4 or IPv6
	Attributes map[string]string // for rules with attr.<name>; at most 16
	Cost       float64           // tokens to take, at most 1e9, rounded to 6 decimals; 0 is 1
	Look       bool              // takes nothing, whatever Cost is
}

// Source says who made a decision.
type Source string

// The sources of decisions.
const (
	FromServer      Source = "server"
	FromMemory      Source = "memory"       // an earlier denial whose wait is not over
	FromFailureMode Source = "failure_mode" // the server did not decide; see Decision.Err
)

// Decision is the answer to a check.
type Decision struct {
	Allowed bool
	Status  int    // 200 allowed, 429 denied, 503 denied because nobody could decide
	Reason  string // why it is denied, such as limit_exceeded; "" if allowed
	Plan    string // the plan that was judged by; "" if none

	RetryAfter time.Duration // how long until the same check may pass; 0 if allowed or if waiting does not help
	Delay      time.Duration // how long an allowed caller waits before going on (leaky buckets); Middleware does

	// One limit: the one that denied, else the one with the fewest tokens left.
	Limit      int64         // its burst; 0 if no limit applied
	Remaining  int64         // whole tokens left
	ResetAfter time.Duration // until its bucket is full

	ViolatedTier   string // scope of the rule that denied: user, endpoint, global or ip
	ViolatedRule   string // its pattern
	ViolatedRuleID int64
	Tiers          []Tier // each rule that took part

	Reservation string // what Settle, Release, Cancel and Extend take; "" if nothing was reserved
	Degraded    bool   // the server decided without its store, by the rules' failure modes

	Source Source
	Err    error // an *Error if Source is FromFailureMode, else nil
}

// Tier is one rule's part of a decision.
type Tier struct {
	RuleID     int64
	Name       string
	Scope      string
	KeyPattern string
	Mode       string // enforce, or shadow: it reports and never denies
	Allowed    bool
	Limit      int64   // burst; 0 if the rule is no limit
	Remaining  float64 // tokens
	RetryAfter time.Duration
	ResetAfter time.Duration
}

// question is a check on its way: encoded, and with the identity that denials are remembered by.
type question struct {
	body     []byte
	identity string // everything but the cost
	cost     float64
	reserve  bool
}

type checkJSON struct {
	UserID     string            `json:"user_id,omitempty"`
	Plan       string            `json:"plan,omitempty"`
	Endpoint   string            `json:"endpoint,omitempty"`
	Method     string            `json:"method,omitempty"`
	IP         string            `json:"ip,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// ask encodes a check. hold is how long a reservation lasts: 0 is the server's default, and less than 0 reserves nothing.
func (c *Check) ask(hold time.Duration) (question, error) {
	fields := []struct{ name, value string }{
		{"user_id", c.UserID}, {"plan", c.Plan}, {"endpoint", c.Endpoint}, {"method", c.Method}, {"ip", c.IP},
	}
	for name, value := range c.Attributes {
		fields = append(fields, struct{ name, value string }{"attributes", name + value})
	}
	for _, field := range fields {
		if !utf8.ValidString(field.value) { // encoding/json would make two users one
			return question{}, refused("/"+field.name, "must be valid UTF-8")
		}
	}
	identity, err := json.Marshal(checkJSON{c.UserID, c.Plan, c.Endpoint, c.Method, c.IP, c.Attributes})
	if err != nil {
		return question{}, fmt.Errorf("encode the check: %w", err)
	}
	q := question{identity: string(identity), cost: 1}
	switch {
	case c.Look:
		q.cost = 0
	case c.Cost != 0:
		q.cost = c.Cost
	}
	number, err := tokens(q.cost)
	if err != nil {
		return question{}, refused("/cost", err.Error())
	}
	body := identity[:len(identity)-1]
	member := func(name, value string) {
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(append(append(body, '"'), name...), `":`...)
		body = append(body, value...)
	}
	if q.cost != 1 {
		member("cost", number)
	}
	if hold >= 0 {
		q.reserve = true
		member("reserve", "true")
	}
	if hold > 0 {
		member("reserve_for", strconv.FormatInt(int64(math.Ceil(hold.Seconds())), 10))
	}
	body = append(body, '}')
	q.body = body
	return q, nil
}

// tokens writes an amount as the server reads it: in at most 6 decimals, which is the smallest amount there is.
func tokens(amount float64) (string, error) {
	if math.IsNaN(amount) || math.IsInf(amount, 0) {
		return "", fmt.Errorf("must be a number; it is %v", amount)
	}
	return strconv.FormatFloat(math.Round(amount*1e6)/1e6, 'f', -1, 64), nil
}

// millis is a duration given in milliseconds, at most a century.
func millis(ms float64) time.Duration {
	const century = 100 * 365 * 24 * float64(time.Hour)
	return time.Duration(max(0, min(ms*float64(time.Millisecond), century)))
}
