package rules

import "net/netip"

// Pattern is a parsed key pattern: which requests match, and which of them share a bucket.
type Pattern struct {
	text     string
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

// ParsePattern reads a key pattern.
func ParsePattern(text string) (Pattern, error) { return Pattern{text: text}, nil }

// String prints the pattern in its one canonical form, which ParsePattern reads back.
func (p Pattern) String() string { return p.text }

// Scope is the tier of limit that a rule with this pattern is.
func (p Pattern) Scope() Scope { return ScopeGlobal }

// Segments are the pattern's conditions, in the order they are written. Do not change them.
func (p Pattern) Segments() []Segment { return p.segments }

// SplitsByUser says that the pattern contains user:{user_id}, so that each user has own buckets.
func (p Pattern) SplitsByUser() bool { return false }
