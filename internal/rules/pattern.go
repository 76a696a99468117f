package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// Pattern is a parsed, immutable key pattern. The zero Pattern is invalid and matches nothing.
//
// A pattern is the word global alone, or segments joined with a colon, each field at most once:
//
//	pattern = "global" / segment *( ":" segment )
//	segment = "user:" value / "ip:" value / "attr." name ":" value / "endpoint:" endpoint
//	value = placeholder / text
//	endpoint = placeholder / [ method " " ] text [ "*" ]
//	text = bare / DQUOTE quoted DQUOTE
//
// A placeholder is {user_id}, {endpoint}, {ip} or {attr.NAME}, for its own field only. A placeholder gives each value a
// bucket of its own; a text matches one value. Other braces are text, as in /users/{id}, but a bare {word} is refused
// as a probable misspelling of a placeholder.
//
// Quoted text is literal: user:"{user_id}" is the one user with that name. A quote inside is doubled. Text must be
// quoted if it contains a colon or a quote, begins or ends with a space, or looks like a placeholder. In an endpoint it
// must also be quoted if it contains a space or a star.
//
// An endpoint may begin with a method in capital letters, and end with /*: /api/* matches /api/search and not /api.
// Both stay outside quotes: POST "/v1/charges:capture", "/users/:id/"*. Other stars are refused unless quoted
// ("/files/*name"), because a reader would take them for wildcards.
//
// An ip is an address or a network in CIDR notation without host bits; IPv6 needs quotes for its colons.
//
// String prints the canonical text: quotes only where required, and the fields of the scope first.
type Pattern struct {
	text     string
	scope    Scope
	segments []Segment
}

// Field is the part of a request that a segment tests.
type Field string

// The fields. Global tests nothing and is a pattern by itself.
const (
	FieldUser      Field = "user"
	FieldEndpoint  Field = "endpoint"
	FieldIP        Field = "ip"
	FieldAttribute Field = "attr"
	FieldGlobal    Field = "global"
)

// Segment is one condition of a pattern. A request matches if all of them hold.
type Segment struct {
	Field       Field
	Attribute   string // the attribute's name, for FieldAttribute
	Placeholder bool
	Value       string       // a user id, attribute value or endpoint; with Below the part up to the star
	Method      string       // endpoint only: matches this method alone; "" for all
	Below       bool         // endpoint only: matches every endpoint with the prefix Value
	Prefix      netip.Prefix // ip only
}

// The longest parts, in bytes; an endpoint is bounded by its pattern.
const (
	maxPatternLength        = 512
	MaxUserIDLength         = 256
	MaxAttributeNameLength  = 64
	MaxAttributeValueLength = 256
)

// ParsePattern reads a key pattern; an error names the byte, counted from 0, and the expectation.
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
			return Pattern{}, patternError(start, "%s stands here a second time: each field can be given once",
				segment.name())
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
		return patternError(maxPatternLength, "expected the end: a pattern has at most %d bytes, this one has %d",
			maxPatternLength, len(text))
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

func (p Pattern) String() string { return p.text }

// Scope returns the tier of a rule with this pattern: the field of its first segment, where attributes count as the
// user's.
func (p Pattern) Scope() Scope { return p.scope }

// Segments returns the conditions in printed order; do not modify them.
func (p Pattern) Segments() []Segment { return p.segments }

// SplitsByUser reports whether each user has buckets of their own.
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

func (s Segment) name() string {
	if s.Field == FieldAttribute {
		return "attr." + s.Attribute
	}
	return string(s.Field)
}

func (s Segment) sameField(other Segment) bool { return s.name() == other.name() }

func (s Segment) placeholder() string {
	if s.Field == FieldUser {
		return "{user_id}"
	}
	return "{" + s.name() + "}"
}

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

func (s Segment) quote(text string) string {
	if strings.ContainsAny(text, `:"`) || strings.TrimSpace(text) != text || isBraced(text) ||
		s.Field == FieldEndpoint && strings.ContainsAny(text, " *") {
		return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
	}
	return text
}

func isBraced(text string) bool {
	inner, opens := strings.CutPrefix(text, "{")
	inner, closes := strings.CutSuffix(inner, "}")
	return opens && closes && !strings.ContainsAny(inner, "{}")
}
