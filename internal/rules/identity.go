package rules

import (
	"cmp"
	"strconv"
	"strings"
	"unicode"
)

// RuleIdentity identifies a rule within its tenant.
type RuleIdentity struct {
	Pattern string // canonical text
	Plan    string // "" for all plans
	Name    string
}

// Identity returns the rule's identity.
func (r *Rule) Identity() RuleIdentity {
	return RuleIdentity{Pattern: r.Pattern.String(), Plan: r.Plan, Name: r.Name}
}

// Compare orders rules by pattern, plan and name.
func (id RuleIdentity) Compare(other RuleIdentity) int {
	return cmp.Or(
		cmp.Compare(id.Pattern, other.Pattern),
		cmp.Compare(id.Plan, other.Plan),
		cmp.Compare(id.Name, other.Name),
	)
}

func (id RuleIdentity) String() string {
	text := Visible(id.Pattern)
	if id.Plan != "" {
		text += " [" + id.Plan + "]"
	}
	if id.Name != "" {
		text += " " + id.Name
	}
	return text
}

// Visible quotes a text that could break a line or control a terminal.
func Visible(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	return strconv.Quote(text)
}
