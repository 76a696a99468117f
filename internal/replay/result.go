package replay

import (
	"math"
	"time"
)

// Result is the outcome of a replay. Figures count checks.
type Result struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// First and Last are the times of the earliest and the latest check; zero if there was none. The latest checks of a
	// range that ends now are not recorded yet.
	First, Last time.Time `json:"-"`
	Read        int64     `json:"read"`        // replayed checks, without those before the range
	Share       float64   `json:"share"`       // of all users and addresses; 1 for all
	IsEstimate  bool      `json:"is_estimate"` // a sample, or buckets that begin amid the traffic

	Checks Figure `json:"checks"`
	Counts
	// RecordedDenied are checks of the sample that were denied when they came. Agreeing are decided alike by the replay
	// of the rules in force then, with those of LeftOut.
	RecordedDenied int64 `json:"recorded_denied"`
	Agreeing       int64 `json:"agreeing"`

	// Rules are those with the most checks that are decided otherwise, then the candidate's. MoreRules counts the
	// others.
	Rules     []OfRule `json:"rules"`
	MoreRules int      `json:"more_rules"`
	Plans     []OfPlan `json:"plans"`
	// Users are the users and addresses with the most checks that are decided otherwise, unscaled.
	Users       []OfUser `json:"users"`
	MoreUsers   int      `json:"more_users"`
	Steps       []OfStep `json:"steps"`
	StepSeconds int      `json:"step_seconds"`
	Listed      []Listed `json:"listed"` // denied users outside of the sample

	LeftOut []LeftOut `json:"left_out"` // rules that took no part; checks that they denied stay denied
	// Reserving and Dropped checks were not recorded: they reserve, or exceeded a bound.
	Reserving int64 `json:"reserving"`
	Dropped   int64 `json:"dropped"`
	// RecordedSince is when recording began, and RulesKnownSince when the audit log begins, if after Since. Earlier
	// rules are those of RulesKnownSince.
	RecordedSince   time.Time `json:"recorded_since,omitzero"`
	RulesKnownSince time.Time `json:"rules_known_since,omitzero"`
	Notes           []string  `json:"notes"`
}

// Counts are the decisions then and with the candidate.
type Counts struct {
	DeniedThen     Figure `json:"denied_then"`
	DeniedNow      Figure `json:"denied_now"` // with the candidate
	NewlyDenied    Figure `json:"newly_denied"`
	NoLongerDenied Figure `json:"no_longer_denied"`
}

// Figure is a number of checks. With 95 % confidence the true one is at most Error away; 0 is exact.
type Figure struct {
	Value float64 `json:"value"`
	Error float64 `json:"error"`
}

// OfRule are the checks that a rule denies or, in shadow mode, would deny. A rule that was in both modes is listed
// twice.
//
// A check that several rules deny counts for the deciding one, with the longest wait. A candidate can therefore move it
// to another rule: see FromOtherRules.
type OfRule struct {
	RuleID         int64  `json:"rule_id"` // 0 for a new rule
	Rule           string `json:"rule"`
	Mode           string `json:"mode"`
	IsChanged      bool   `json:"is_changed"` // the candidate has the rule
	IsEstimate     bool   `json:"is_estimate"`
	RecordedDenied int64  `json:"recorded_denied"` // checks of the sample that the rule denied when they came
	Counts
	// FromOtherRules are the checks that another rule denied then and this one denies now, less those that went the
	// other way. DeniedNow is DeniedThen + NewlyDenied + FromOtherRules − NoLongerDenied.
	FromOtherRules Figure `json:"from_other_rules"`
}

// OfPlan is a plan's checks.
type OfPlan struct {
	Plan   string `json:"plan"` // "" for none
	Checks Figure `json:"checks"`
	Counts
}

// OfUser are the checks of a user or, without one, of an address.
type OfUser struct {
	UserID         string `json:"user_id,omitempty"`
	IP             string `json:"ip,omitempty"`
	Plan           string `json:"plan"`
	DeniedThen     int64  `json:"denied_then"`
	DeniedNow      int64  `json:"denied_now"`
	NewlyDenied    int64  `json:"newly_denied"`
	NoLongerDenied int64  `json:"no_longer_denied"`
}

// OfStep are the checks of a step of time, scaled.
type OfStep struct {
	At             time.Time `json:"at"`
	Checks         float64   `json:"checks"`
	DeniedThen     float64   `json:"denied_then"`
	DeniedNow      float64   `json:"denied_now"`
	NewlyDenied    float64   `json:"newly_denied"`
	NoLongerDenied float64   `json:"no_longer_denied"`
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

const (
	then = iota
	now
	newly
	noLonger
	asked // checks
	kinds
)

// groups bounds the memory of a tally, whose error is right to about a twentieth.
const groups = 256

// tally counts checks and, for a sample, those of each group of subjects, whose differences give the error.
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

// estimate is the Horvitz-Thompson estimator of a sample whose subjects have the same probability. Its error needs the
// sum of the subjects' squares, and the groups' squares have the same mean.
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
