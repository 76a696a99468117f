package rules

import "slices"

// unknownWord returns a word of the rule that this process does not know though it matters to a check, with what
// it is: "algorithm leaky_bucket". A newer process may have written it. "" means that all are known. The unit of
// the rate means nothing to a check, and neither do algorithm and failure mode to a rule that has no bucket.
func (r *Rule) unknownWord() string {
	switch {
	case !knows(r.Action, ActionLimit, ActionBlock, ActionBypass):
		return "action " + string(r.Action)
	case !knows(r.Mode, ModeEnforce, ModeShadow):
		return "mode " + string(r.Mode)
	case r.Action != ActionLimit:
		return ""
	case !knows(r.Algorithm, TokenBucket):
		return "algorithm " + string(r.Algorithm)
	case !knows(r.FailureMode, FailLocal, FailOpen, FailClosed):
		return "failure mode " + string(r.FailureMode)
	}
	return ""
}

// knows reports whether a word is one of those that there are. An empty one stands for the default.
func knows[T ~string](word T, known ...T) bool { return word == "" || slices.Contains(known, word) }

// Unknown returns the word because of which this process cannot apply the rule, with what it is, such as "algorithm
// leaky_bucket"; "" if it can. Such a rule acts by its failure mode, and FailLocal counts as FailOpen: this process
// has no buckets for it either.
func (r *Rule) Unknown() string { return r.unknown }

// failureMode returns the failure mode of a rule: its own, or its tenant's if it has none that is known.
func (t *TenantRules) failureMode(rule *Rule) FailureMode {
	if rule.FailureMode == "" || rule.unknown != "" && !knows(rule.FailureMode, FailLocal, FailOpen, FailClosed) {
		return t.Tenant.Settings.FailureMode
	}
	return rule.FailureMode
}
