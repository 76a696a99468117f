package rules

import "slices"

// UnknownWord returns the word because of which this process cannot apply the rule, with what it is, such as
// "algorithm leaky_bucket"; "" if it can. A newer process may have written it. Such a rule acts by its failure mode,
// and FailLocal counts as FailOpen: this process has no buckets for it either. The unit of the rate means nothing to
// a check, and neither do algorithm and failure mode to a rule that has no bucket.
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

// knows reports whether a word is known. An empty one stands for the default.
func knows[T ~string](word T, known ...T) bool { return word == "" || slices.Contains(known, word) }

// Known reports whether this process knows the failure mode; the empty one it does.
func (m FailureMode) Known() bool { return knows(m, FailLocal, FailOpen, FailClosed) }
