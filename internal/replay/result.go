package replay

import (
	"math"
	"time"
)

// Result is what a replay found. Figures count checks.
type Result struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// First and Last are the times of the earliest and the latest check that was looked at; zero if there was none. The
	// latest checks of a range that ends now are not recorded yet.
	First, Last time.Time `json:"-"`
	// Read is how many recorded checks were replayed, without those before the range.
	Read int64 `json:"read"`
	// Share is that of all users and addresses in the sample; 1 for all.
	Share float64 `json:"share"`
	// IsEstimate: a sample, or the beginning of buckets in the middle of the traffic, makes the figures estimates.
	IsEstimate bool `json:"is_estimate"`

	Checks Figure `json:"checks"`
	Counts
	// RecordedDenied is how many checks of the sample were denied when they came, and Agreeing how many the replay of
	// the rules in force then decides alike, with those of LeftOut.
	RecordedDenied int64 `json:"recorded_denied"`
	Agreeing       int64 `json:"agreeing"`

	// Rules are those with the most checks that are decided otherwise, then the candidate's; MoreRules is how many
	// others there are.
	Rules     []OfRule `json:"rules"`
	MoreRules int      `json:"more_rules"`
	Plans     []OfPlan `json:"plans"`
	// Users are the users and addresses with the most checks that are decided otherwise; figures are not scaled.
	Users []OfUser `json:"users"`
	// MoreUsers is how many others there are.
	MoreUsers int      `json:"more_users"`
	Steps     []OfStep `json:"steps"`
	// StepSeconds is the length of a step.
	StepSeconds int `json:"step_seconds"`
	// Listed are users outside of the sample who were denied.
	Listed []Listed `json:"listed"`

	// LeftOut are the rules that took no part. The checks that they denied when they came stay denied.
	LeftOut []LeftOut `json:"left_out"`
	// Reserving, Dropped are checks of the time that were not recorded: they reserve, or had no room.
	Reserving int64 `json:"reserving"`
	Dropped   int64 `json:"dropped"`
	// RecordedSince is when recording began, if that is after Since. RulesKnownSince is when the audit log begins, if
	// that is after Since: before it, the rules of that time stand for the earlier ones. Both are zero otherwise.
	RecordedSince   time.Time `json:"recorded_since,omitzero"`
	RulesKnownSince time.Time `json:"rules_known_since,omitzero"`
	// Notes say what else to know.
	Notes []string `json:"notes"`
}

// Counts are how checks were and would have been decided.
type Counts struct {
	// DeniedThen is by the rules in force then, DeniedNow with the candidate.
	DeniedThen Figure `json:"denied_then"`
	DeniedNow  Figure `json:"denied_now"`
	// NewlyDenied passed then; NoLongerDenied pass now.
	NewlyDenied    Figure `json:"newly_denied"`
	NoLongerDenied Figure `json:"no_longer_denied"`
}

// Figure is a number of checks. With 95 % confidence the true one is at most Error away; 0 for an exact one.
type Figure struct {
	Value float64 `json:"value"`
	Error float64 `json:"error"`
}

// OfRule are the checks that a rule denies or, in shadow mode, would deny. A rule that was in both modes is listed
// twice.
//
// A check that several rules deny counts for the deciding one, with the longest wait. A check that is denied either way
// can therefore change its rule: see OfRule.FromOtherRules.
type OfRule struct {
	RuleID int64  `json:"rule_id"` // 0 for a new rule
	Rule   string `json:"rule"`
	Mode   string `json:"mode"`
	// IsChanged: the candidate has the rule.
	IsChanged  bool `json:"is_changed"`
	IsEstimate bool `json:"is_estimate"`
	// RecordedDenied is how many checks of the sample the rule denied when they came.
	RecordedDenied int64 `json:"recorded_denied"`
	Counts
	// FromOtherRules is how many checks that were denied then, and still are, another rule denied then, without those
	// that another rule denies now. DeniedNow is DeniedThen, NewlyDenied and this, without NoLongerDenied.
	FromOtherRules Figure `json:"from_other_rules"`
}

// OfPlan are the checks of a plan.
type OfPlan struct {
	Plan   string `json:"plan"` // "" for none
	Checks Figure `json:"checks"`
	Counts
}

// OfUser are the checks of a user or, for those without a user, of an address.
type OfUser struct {
	UserID         string `json:"user_id,omitempty"`
	IP             string `json:"ip,omitempty"`
	Plan           string `json:"plan"`
	DeniedThen     int64  `json:"denied_then"`
	DeniedNow      int64  `json:"denied_now"`
	NewlyDenied    int64  `json:"newly_denied"`
	NoLongerDenied int64  `json:"no_longer_denied"`
}

// OfStep are the checks of a step of time.
type OfStep struct {
	At     time.Time `json:"at"`
	Checks float64   `json:"checks"`
	// The figures are scaled.
	DeniedThen     float64 `json:"denied_then"`
	DeniedNow      float64 `json:"denied_now"`
	NewlyDenied    float64 `json:"newly_denied"`
	NoLongerDenied float64 `json:"no_longer_denied"`
}

// Listed is a user outside of the sample.
type Listed struct {
	UserID string `json:"user_id,omitempty"`
	IP     string `json:"ip,omitempty"`
	Denied int64  `json:"denied"`
}

// LeftOut is a rule that took no part.
type LeftOut struct {
	RuleID int64  `json:"rule_id"`
	Rule   string `json:"rule"`
	Why    string `json:"why"`
}

// Counted figures.
const (
	then = iota
	now
	newly
	noLonger
	asked // checks
	kinds
)

// groups is how many groups the subjects of a sample are divided into, so that the memory of a tally does not grow with
// them. The error that follows is right to about a twentieth.
const groups = 256

// tally counts checks. For a sample it also counts those of each group of subjects; how much the groups differ gives
// the error of a figure.
type tally struct {
	n  [kinds]int64
	of [kinds]*[groups]int64 // nil without a sample
}

func (t *tally) add(kind int, s *subject, isSample bool) {
	t.n[kind]++
	if !isSample {
		return
	}
	if t.of[kind] == nil {
		t.of[kind] = new([groups]int64)
	}
	t.of[kind][s.group]++
}

func (t *tally) figure(kind int, share float64) Figure { return estimate(t.n[kind], t.of[kind], share) }

// fromOthers is FromOtherRules. Gains and losses of one subject are no error.
func (t *tally) fromOthers(share float64) Figure {
	sum, of := int64(0), new([groups]int64)
	for kind, sign := range map[int]int64{now: 1, noLonger: 1, then: -1, newly: -1} {
		sum += sign * t.n[kind]
		if t.of[kind] == nil {
			continue
		}
		for group, n := range t.of[kind] {
			of[group] += sign * n
		}
	}
	return estimate(sum, of, share)
}

// estimate scales a sum: the Horvitz-Thompson estimator of a sample in which each subject has the same probability. Its
// error needs the sum of the subjects' squares. That of the groups' is as large on average, without the products of
// subjects that meet in a group by chance.
func estimate(sum int64, of *[groups]int64, share float64) Figure {
	f := Figure{Value: float64(sum) / share}
	if share == 1 {
		return f
	}
	squares := 0.0
	if of != nil {
		for _, n := range of {
			squares += float64(n) * float64(n)
		}
	}
	if squares == 0 { // of what nobody in the sample did, others may have done some: the rule of three
		f.Error = 3 * (1 - share) / share
		return f
	}
	squares = (squares - float64(sum)*float64(sum)/groups) * groups / (groups - 1)
	squares = max(squares, math.Abs(float64(sum)), 1) // as if each check were another subject's
	f.Error = 1.96 * math.Sqrt((1-share)*squares) / share
	return f
}

func (t *tally) counts(share float64) Counts {
	return Counts{
		DeniedThen: t.figure(then, share), DeniedNow: t.figure(now, share),
		NewlyDenied: t.figure(newly, share), NoLongerDenied: t.figure(noLonger, share),
	}
}
