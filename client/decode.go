package sluice

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// decoder reads decisions. With encoding/json, reading the answers cost more than half of the processor time of
// callers that share requests.
type decoder struct {
	rest  []byte
	bad   bool
	depth int
	// like is the decision before this one in a batch, or an empty one: checks of one tenant have about as many tiers,
	// with the same texts.
	like *Decision
}

// decodeDecision reads one answer; ok is whether it is a decision that fits its status.
func decodeDecision(answer []byte, status int) (d Decision, ok bool) {
	r := decoder{rest: answer, like: new(Decision)}
	allowed, _ := r.decision(&d)
	d.Status = status
	return d, r.ended() && fits(allowed, status)
}

// decodeBatch reads the results of a batch; ok is whether all are decisions.
func decodeBatch(answer []byte, checks int) (decisions []Decision, ok bool) {
	r := decoder{rest: answer, like: new(Decision)}
	ok = true
	r.object(func(name []byte) {
		if string(name) != "results" {
			r.skip()
			return
		}
		decisions = make([]Decision, 0, checks)
		r.array(func() {
			decisions = append(decisions, Decision{})
			d := &decisions[len(decisions)-1]
			var allowed *bool
			allowed, d.Status = r.decision(d)
			r.like = d
			ok = ok && fits(allowed, d.Status)
		})
	})
	return decisions, ok && r.ended() && decisions != nil
}

// fits says whether an answer is a decision at all, and the one that the status stands for.
func fits(allowed *bool, status int) bool {
	switch status {
	case 200:
		return allowed != nil && *allowed
	case 429, 503:
		return allowed != nil && !*allowed
	}
	return false
}

// decision reads a decision. Batches carry a status, too. null leaves zero.
func (r *decoder) decision(d *Decision) (allowed *bool, status int) {
	d.Source = FromServer
	r.object(func(name []byte) {
		switch string(name) {
		case "allowed":
			d.Allowed = r.boolean()
			allowed = &d.Allowed
		case "status":
			status = int(r.number())
		case "plan":
			d.Plan = r.text(r.like.Plan)
		case "violated_tier":
			d.ViolatedTier = r.text(r.like.ViolatedTier)
		case "violated_rule":
			d.ViolatedRule = r.text(r.like.ViolatedRule)
		case "violated_rule_id":
			d.ViolatedRuleID = int64(r.number())
		case "reason":
			d.Reason = r.text(r.like.Reason)
		case "retry_after_ms":
			d.RetryAfter = millis(r.number())
		case "delay_ms":
			d.Delay = millis(r.number())
		case "limit":
			d.Limit = int64(r.number())
		case "remaining":
			d.Remaining = int64(r.number())
		case "reset_after_ms":
			d.ResetAfter = millis(r.number())
		case "reservation":
			d.Reservation = r.text("")
		case "degraded":
			d.Degraded = r.boolean()
		case "tiers":
			d.Tiers = r.tiers()
		default:
			r.skip()
		}
	})
	return allowed, status
}

func (r *decoder) tiers() (tiers []Tier) {
	if r.null() {
		return nil
	}
	tiers = make([]Tier, 0, len(r.like.Tiers))
	r.array(func() {
		var like Tier
		if n := len(tiers); n < len(r.like.Tiers) {
			like = r.like.Tiers[n]
		}
		tiers = append(tiers, Tier{})
		t := &tiers[len(tiers)-1]
		r.object(func(name []byte) {
			switch string(name) {
			case "rule_id":
				t.RuleID = int64(r.number())
			case "name":
				t.Name = r.text(like.Name)
			case "scope":
				t.Scope = r.text(like.Scope)
			case "key_pattern":
				t.KeyPattern = r.text(like.KeyPattern)
			case "mode":
				t.Mode = r.text(like.Mode)
			case "allowed":
				t.Allowed = r.boolean()
			case "limit":
				t.Limit = int64(r.number())
			case "remaining":
				t.Remaining = r.number()
			case "retry_after_ms":
				t.RetryAfter = millis(r.number())
			case "reset_after_ms":
				t.ResetAfter = millis(r.number())
			default:
				r.skip()
			}
		})
	})
	return tiers
}

// fail ends the reading: nothing is left to read.
func (r *decoder) fail() { r.bad, r.rest = true, nil }

func (r *decoder) space() {
	for len(r.rest) > 0 && (r.rest[0] == ' ' || r.rest[0] == '\n' || r.rest[0] == '\t' || r.rest[0] == '\r') {
		r.rest = r.rest[1:]
	}
}

// take takes one byte, if it is next.
func (r *decoder) take(b byte) bool {
	r.space()
	if len(r.rest) == 0 || r.rest[0] != b {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

func (r *decoder) word(w string) bool {
	r.space()
	if !bytes.HasPrefix(r.rest, []byte(w)) {
		return false
	}
	r.rest = r.rest[len(w):]
	return true
}

func (r *decoder) null() bool {
	r.space()
	return len(r.rest) > 0 && r.rest[0] == 'n' && r.word("null")
}

func (r *decoder) ended() bool {
	r.space()
	return !r.bad && len(r.rest) == 0
}

func (r *decoder) object(member func(name []byte)) {
	if !r.take('{') {
		r.fail()
		return
	}
	if r.take('}') {
		return
	}
	for !r.bad {
		name := r.quoted()
		if !r.take(':') {
			r.fail()
			return
		}
		member(name[1 : len(name)-1]) // Sluice escapes nothing in names
		if r.take('}') {
			return
		}
		if !r.take(',') {
			r.fail()
		}
	}
}

func (r *decoder) array(element func()) {
	if !r.take('[') {
		r.fail()
		return
	}
	if r.take(']') {
		return
	}
	for !r.bad {
		element()
		if r.take(']') {
			return
		}
		if !r.take(',') {
			r.fail()
		}
	}
}

func (r *decoder) boolean() bool {
	switch {
	case r.word("true"):
		return true
	case r.word("false"), r.null():
	default:
		r.fail()
	}
	return false
}

func (r *decoder) number() float64 {
	if r.null() {
		return 0
	}
	n, whole := 0, 0.0
	for n < len(r.rest) && r.rest[n] >= '0' && r.rest[n] <= '9' && n < 15 {
		whole = whole*10 + float64(r.rest[n]-'0')
		n++
	}
	end := n
	for end < len(r.rest) && bytes.IndexByte([]byte("+-.eE0123456789"), r.rest[end]) >= 0 {
		end++
	}
	digits := r.rest[:end]
	r.rest = r.rest[end:]
	if n == end && n > 0 {
		return whole
	}
	value, err := strconv.ParseFloat(string(digits), 64)
	if err != nil || math.Abs(value) > 1e18 { // it must fit an integer
		r.fail()
		return 0
	}
	return value
}

// text reads a string; null is "". One like the given string shares its memory.
func (r *decoder) text(like string) string {
	if r.null() {
		return ""
	}
	raw := r.quoted()
	if raw == nil {
		return ""
	}
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') >= 0 {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			r.fail()
		}
		return text
	}
	if string(inner) == like {
		return like
	}
	return string(inner)
}

// quoted takes a string with its quotes, or fails.
func (r *decoder) quoted() []byte {
	r.space()
	if len(r.rest) > 0 && r.rest[0] == '"' {
		for i := 1; i < len(r.rest); i++ {
			switch r.rest[i] {
			case '\\':
				i++
			case '"':
				raw := r.rest[:i+1]
				r.rest = r.rest[i+1:]
				return raw
			}
		}
	}
	r.fail()
	return nil
}

// maxDepth is deeper than any answer nests.
const maxDepth = 32

// skip takes a value that nobody asked for.
func (r *decoder) skip() {
	r.space()
	if r.depth++; r.depth > maxDepth || len(r.rest) == 0 {
		r.fail()
		return
	}
	switch r.rest[0] {
	case '{':
		r.object(func([]byte) { r.skip() })
	case '[':
		r.array(r.skip)
	case '"':
		r.quoted()
	case 't', 'f', 'n':
		r.boolean()
	default:
		r.number()
	}
	r.depth--
}
