package rules

import "slices"

// UnknownWord returns why this process cannot apply a rule that a newer process has written, or "". The rule then acts
// by its failure mode, with FailLocal as FailOpen, because this process has no bucket for it.
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

func knows[T ~string](word T, known ...T) bool { return word == "" || slices.Contains(known, word) }

// Known reports whether this process knows the failure mode; the empty mode is known.
func (m FailureMode) Known() bool { return knows(m, FailLocal, FailOpen, FailClosed) }
