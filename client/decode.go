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
	rest   []byte
	member []byte // rest as it was where the present member began
	at     position
	bad    bool
	depth  int
	// Most decisions of a batch differ only in the remaining tokens and the times. An object whose first part is the same text
	// as in the decision before is not read again up to there.
	decision start[Decision]
	told     bool          // whether its text says if the check is allowed
	tiers    []start[Tier] // by place
}

// position is where in an object or array the decoder is.
type position uint8

const (
	behindValue position = iota
	behindBracket
	behindComma
)

// start is the first part of an object's text, up to a comma, and what that part decodes to.
type start[T any] struct {
	text []byte
	says T
}

// continues reports whether an object whose bracket was read begins with the text, and reads that.
func (s *start[T]) continues(r *decoder, into *T) bool {
	if len(s.text) == 0 || !bytes.HasPrefix(r.rest, s.text) {
		return false
	}
	*into = s.says
	r.rest, r.at = r.rest[len(s.text):], behindComma
	return true
}

// decodeDecision reads one answer; ok is whether it is a decision that fits its status.
func decodeDecision(answer []byte, status int) (d Decision, ok bool) {
	r := decoder{rest: answer}
	told := r.readDecision(&d)
	d.Status = status
	return d, r.ended() && told && fits(&d)
}

// decodeBatch reads the results of a batch to where into says, and returns how many there are; ok is whether all are decisions.
func decodeBatch(answer []byte, into func(i int) *Decision) (n int, ok bool) {
	r := decoder{rest: answer}
	found := false
	ok = true
	for r.begin('{'); r.more('}'); {
		if string(r.name()) != "results" {
			r.skip()
			continue
		}
		found, n = true, 0
		for r.begin('['); r.more(']'); n++ {
			d := into(n)
			told := r.readDecision(d)
			ok = ok && told && fits(d)
		}
	}
	return n, ok && found && r.ended()
}

// fits says whether a decision is the one that its status stands for.
func fits(d *Decision) bool {
	switch d.Status {
	case 200:
		return d.Allowed
	case 429, 503:
		return !d.Allowed
	}
	return false
}

// readDecision reads a decision, and returns whether it says if the check is allowed. Batches carry a status, too. null leaves
// zero.
func (r *decoder) readDecision(d *Decision) (told bool) {
	*d = Decision{Source: FromServer}
	r.begin('{')
	object := r.rest
	known := r.decision.continues(r, d)
	told = known && r.told
	like := &r.decision.says
	for r.more('}') {
		switch string(r.name()) {
		case "allowed":
			told = !r.null()
			d.Allowed = told && r.boolean()
		case "status":
			d.Status = int(r.number())
		case "plan":
			d.Plan = r.text(like.Plan)
		case "violated_tier":
			d.ViolatedTier = r.text(like.ViolatedTier)
		case "violated_rule":
			d.ViolatedRule = r.text(like.ViolatedRule)
		case "violated_rule_id":
			d.ViolatedRuleID = int64(r.number())
		case "reason":
			d.Reason = r.text(like.Reason)
		case "retry_after_ms":
			d.RetryAfter = millis(r.number())
		case "delay_ms":
			d.Delay = millis(r.number())
		case "limit":
			d.Limit = int64(r.number())
		case "remaining":
			if !known {
				r.decision, r.told = start[Decision]{r.since(object), *d}, told
			}
			d.Remaining = int64(r.number())
		case "reset_after_ms":
			d.ResetAfter = millis(r.number())
		case "reservation":
			d.Reservation = r.text("")
		case "degraded":
			d.Degraded = r.boolean()
		case "tiers":
			d.Tiers = r.readTiers()
		default:
			r.skip()
		}
	}
	return told
}

func (r *decoder) readTiers() []Tier {
	if r.null() {
		return nil
	}
	tiers := make([]Tier, 0, len(r.tiers)) // checks of one tenant have about as many
	for r.begin('['); r.more(']'); {
		tiers = append(tiers, Tier{})
		if len(tiers) > len(r.tiers) {
			r.tiers = append(r.tiers, start[Tier]{})
		}
		r.readTier(&tiers[len(tiers)-1], &r.tiers[len(tiers)-1])
	}
	return tiers
}

func (r *decoder) readTier(t *Tier, before *start[Tier]) {
	r.begin('{')
	object := r.rest
	known := before.continues(r, t)
	like := &before.says
	for r.more('}') {
		switch string(r.name()) {
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
			if !known {
				*before = start[Tier]{r.since(object), *t}
			}
			t.Remaining = r.number()
		case "retry_after_ms":
			t.RetryAfter = millis(r.number())
		case "reset_after_ms":
			t.ResetAfter = millis(r.number())
		default:
			r.skip()
		}
	}
}

// since returns the text of an object from behind its bracket to the present member.
func (r *decoder) since(object []byte) []byte { return object[:len(object)-len(r.member)] }

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

// begin reads the bracket of an object or array. Its members or elements are read while there is more.
func (r *decoder) begin(bracket byte) {
	if !r.take(bracket) {
		r.fail()
	}
	r.at = behindBracket
}

// more reports whether a member or element follows, before the bracket that ends the object or array.
func (r *decoder) more(end byte) bool {
	at := r.at
	r.at = behindValue
	switch {
	case at == behindComma:
	case r.take(end):
		return false
	case at == behindValue && !r.take(','):
		r.fail()
	}
	r.member = r.rest
	return !r.bad
}

// name reads the name of a member. Sluice escapes nothing in names.
func (r *decoder) name() []byte {
	name := r.quoted()
	if !r.take(':') {
		r.fail()
		return nil
	}
	return name[1 : len(name)-1]
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
		for r.begin('{'); r.more('}'); {
			r.name()
			r.skip()
		}
	case '[':
		for r.begin('['); r.more(']'); {
			r.skip()
		}
	case '"':
		r.quoted()
	case 't', 'f', 'n':
		r.boolean()
	default:
		r.number()
	}
	r.depth--
}
