package rules

import "slices"

// UnknownWord returns why this process cannot apply the rule, such as "algorithm leaky_bucket", or "" if it can. A
// newer process may have written the rule. Such a rule acts by its failure mode, with FailLocal as FailOpen, because
// this process has no bucket for it. The rate's unit does not matter to a check, nor algorithm and failure mode to a
// rule without a bucket.
func (r *Rule) UnknownWord() string {
	switch {
	case !knows(r.Action, ActionLimit, ActionBlock, ActionBypass):
		return "action " + string(r.Action)
	case !knows(r.Mode, ModeEnforce, ModeShadow):
		return "mode " + string(r.Mode)
	case r.Action != ActionLimit:
		return ""
	case !knows(r.Algorithm, Algorithms...):
		return "algorithm " + string(r.Algorithm)
	case !r.FailureMode.Known():
		return "failure mode " + string(r.FailureMode)
	}
	return ""
}

// knows reports whether a word is known. An empty word means the default.
func knows[T ~string](word T, known ...T) bool { return word == "" || slices.Contains(known, word) }

// Known reports whether this process knows the failure mode; the empty mode is known.
func (m FailureMode) Known() bool { return knows(m, FailLocal, FailOpen, FailClosed) }
