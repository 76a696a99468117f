package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// Pattern is a parsed key pattern: which requests match, and which of them share a bucket. It is
// immutable; the zero Pattern is invalid and matches nothing.
//
// A pattern is the word global alone, or segments joined with a colon, each field at most once:
//
//	pattern  = "global" / segment *( ":" segment )
//	segment  = "user:" value / "ip:" value / "attr." name ":" value / "endpoint:" endpoint
//	value    = placeholder / text
//	endpoint = placeholder / [ method " " ] text [ "*" ]
//	text     = bare / DQUOTE quoted DQUOTE
//
// A placeholder is {user_id}, {endpoint}, {ip} or {attr.NAME} and fits its own field alone. It
// matches every value and gives each its own bucket; a text matches that value and all that match
// share a bucket. Other braces are text, as in /users/{id}, but a bare text that is nothing except
// one {word} is refused, because it is most likely a misspelt placeholder.
//
// Quotes take text as it is: what stands in them is never a placeholder, a method or a star, so
// user:"{user_id}" is the one user with that name. A quote inside is doubled. Text must be quoted
// if it contains a colon or a quote, begins or ends with a space, or looks like a placeholder, and in
// an endpoint also if it contains a space or a star.
//
// An endpoint may begin with a method in capital letters, which then must be the request's, and may
// end with /*, which matches whatever begins with the text before the star: /api/* matches
// /api/search and not /api. Both stay outside quotes: POST "/v1/charges:capture", "/users/:id/"*.
// Stars elsewhere are refused unless quoted ("/files/*name"), so that nobody takes one for a
// wildcard.
//
// An ip is an address or a network in CIDR notation without host bits; IPv6 needs quotes for its
// colons. ::ffff:a.b.c.d is IPv4.
//
// One meaning has one text, which String prints: quotes only where they must be, addresses in their
// shortest form, and after the fields of the scope the others in the order user, attr (by name),
// endpoint, ip.
type Pattern struct {
	text     string
	scope    Scope
	segments []Segment
}

// Field is what a segment of a pattern looks at.
type Field string

// The fields. Global looks at nothing and is a pattern by itself.
const (
	FieldUser      Field = "user"
	FieldEndpoint  Field = "endpoint"
	FieldIP        Field = "ip"
	FieldAttribute Field = "attr"
	FieldGlobal    Field = "global"
)

// Segment is one condition of a pattern. All of them must hold for a request to match.
type Segment struct {
	Field     Field
	Attribute string // the attribute's name, for FieldAttribute
	// Placeholder says that any value matches and each has its own bucket. If false, the rest
	// says which values match, and all of them share a bucket.
	Placeholder bool
	Value       string       // a user id, attribute value or endpoint; with Below the part up to the star
	Method      string       // endpoint only: matches this method alone; "" for all
	Below       bool         // endpoint only: matches whatever starts with Value
	Prefix      netip.Prefix // ip only
}

// The longest parts of a pattern, in bytes. A whole pattern is shorter than the longest endpoint
// that a check may carry, so endpoints need no bound of their own.
const (
	maxPatternLength        = 512
	MaxUserIDLength         = 256
	MaxAttributeNameLength  = 64
	MaxAttributeValueLength = 256
)

// ParsePattern reads a key pattern; see Pattern for the grammar. Its errors say the byte at which
// the text stops making sense, counted from 0, and what was expected there.
func ParsePattern(text string) (Pattern, error) {
	if err := checkPatternText(text); err != nil {
		return Pattern{}, err
	}
	if text == string(FieldGlobal) {
		return newPattern([]Segment{{Field: FieldGlobal}}), nil
	}
	var segments []Segment
	scan := patternScanner{text: text}
	for {
		start := scan.pos
		segment, err := scan.segment()
		if err != nil {
			return Pattern{}, err
		}
		if slices.ContainsFunc(segments, segment.sameField) {
			return Pattern{}, patternError(start, "%s stands here a second time: each field can be given once", segment.name())
		}
		segments = append(segments, segment)
		if scan.done() {
			return newPattern(segments), nil
		}
		if !scan.skip(':') {
			return Pattern{}, patternError(scan.pos, "expected ':' or the end, found %q", scan.rest())
		}
	}
}

func checkPatternText(text string) error {
	if text == "" {
		return patternError(0, "expected global, or a segment such as user:{user_id}, found nothing")
	}
	if len(text) > maxPatternLength {
		return patternError(maxPatternLength, "expected the end: a pattern has at most %d bytes, this one has %d", maxPatternLength, len(text))
	}
	if at := strings.IndexByte(text, 0); at >= 0 {
		return patternError(at, "expected text, found a NUL byte")
	}
	for at, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[at:]); size == 1 {
				return patternError(at, "expected UTF-8, found the byte %#02x", text[at])
			}
		}
	}
	return nil
}

func patternError(at int, format string, args ...any) error {
	return fmt.Errorf("at byte %d: %s", at, fmt.Sprintf(format, args...))
}

// newPattern puts the segments into their one order and prints them.
func newPattern(segments []Segment) Pattern {
	scope := segments[0].Field.scope()
	rank := func(s Segment) int {
		if s.Field.scope() == scope && scope != ScopeUser {
			return -1
		}
		return slices.Index([]Field{FieldUser, FieldAttribute, FieldEndpoint, FieldIP}, s.Field)
	}
	slices.SortFunc(segments, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Attribute, b.Attribute))
	})
	texts := make([]string, len(segments))
	for i, s := range segments {
		texts[i] = s.text()
	}
	return Pattern{text: strings.Join(texts, ":"), scope: scope, segments: segments}
}

// String prints the pattern in its one canonical form, which ParsePattern reads back.
func (p Pattern) String() string { return p.text }

// Scope is the tier of limit that a rule with this pattern is: the field of its first segment. A
// caller's attributes belong to the user. The zero Pattern has none.
func (p Pattern) Scope() Scope { return p.scope }

// Segments are the pattern's conditions, in the order they are printed. Do not change them.
func (p Pattern) Segments() []Segment { return p.segments }

// SplitsByUser reports whether the pattern contains user:{user_id}, so that each user has separate buckets.
func (p Pattern) SplitsByUser() bool {
	for i := range p.segments {
		if p.segments[i].Field == FieldUser && p.segments[i].Placeholder {
			return true
		}
	}
	return false
}

func (f Field) scope() Scope {
	if f == FieldAttribute {
		return ScopeUser
	}
	return Scope(f)
}

// name is what stands before the segment's colon.
func (s Segment) name() string {
	if s.Field == FieldAttribute {
		return "attr." + s.Attribute
	}
	return string(s.Field)
}

func (s Segment) sameField(other Segment) bool { return s.name() == other.name() }

// placeholder is the one placeholder that fits the segment.
func (s Segment) placeholder() string {
	if s.Field == FieldUser {
		return "{user_id}"
	}
	return "{" + s.name() + "}"
}

// text prints the segment.
func (s Segment) text() string {
	switch {
	case s.Field == FieldGlobal:
		return s.name()
	case s.Placeholder:
		return s.name() + ":" + s.placeholder()
	case s.Field == FieldIP && s.Prefix.IsSingleIP():
		return s.name() + ":" + s.quote(s.Prefix.Addr().String())
	case s.Field == FieldIP:
		return s.name() + ":" + s.quote(s.Prefix.String())
	}
	text := s.quote(s.Value)
	if s.Method != "" {
		text = s.Method + " " + text
	}
	if s.Below {
		text += "*"
	}
	return s.name() + ":" + text
}

// quote puts a text into quotes if it would not be read back as itself without.
func (s Segment) quote(text string) string {
	if strings.ContainsAny(text, `:"`) || strings.TrimSpace(text) != text || isBraced(text) ||
		s.Field == FieldEndpoint && strings.ContainsAny(text, " *") {
		return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
	}
	return text
}

// isBraced reports whether a text is one {word} and nothing else.
func isBraced(text string) bool {
	inner, opens := strings.CutPrefix(text, "{")
	inner, closes := strings.CutSuffix(inner, "}")
	return opens && closes && !strings.ContainsAny(inner, "{}")
}
