package violations

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Store reads the violations of one tenant.
type Store interface {
	// Violations returns up to limit rows of a filter, newest first, before an id; the zero ID begins at the filter's
	// end.
	Violations(ctx context.Context, tenant rules.TenantID, filter *Filter, before ID, limit int) (Page, error)
	// Violation returns a row, or rules.ErrNotFound.
	Violation(ctx context.Context, tenant rules.TenantID, id ID) (Violation, error)
	// ViolationsBeside returns up to limit other rows of the violation's user in the same minute, newest first. Without
	// a user, it uses the address.
	ViolationsBeside(ctx context.Context, of *Violation, limit int) ([]Violation, error)
	// ViolationsArrived returns up to limit rows of a filter that were written after since minus within, latest first,
	// whatever their time; more means that there are others. A zero since is now. A polling caller sees rows repeatedly
	// and recognizes them by id.
	ViolationsArrived(ctx context.Context, tenant rules.TenantID, filter *Filter, since time.Time, within time.Duration,
		limit int) (arrived []Violation, more bool, err error)
	// ArrivedAt returns when a row was written, on the database's clock; for the zero ID, the present time.
	ArrivedAt(ctx context.Context, tenant rules.TenantID, id ID) (time.Time, error)
	DeniedInMinute(ctx context.Context, of *Violation) (int64, error)
	Top(ctx context.Context, tenant rules.TenantID, of TopOf, limit int) (Top, error)
	// Present returns up to limit values with the most denials of enforced rules in a time, and how many each had in
	// the minutes before. See the function Present. meter is the Word of one, or "" for all.
	Present(ctx context.Context, tenant rules.TenantID, by Dimension, meter string, since, until time.Time,
		limit int) (PresentDenials, error)
	// Busiest returns up to limit users or networks with the most checks in a minute, most first. See BusyMinute.
	Busiest(ctx context.Context, tenant rules.TenantID, by Dimension, minute time.Time, limit int) (Busiest, error)

	// DenialsOfUser returns up to limit counts of a user's denials by hour and rule, latest first.
	DenialsOfUser(ctx context.Context, tenant rules.TenantID, userID string, since, until time.Time,
		limit int) ([]UserDenials, error)

	// ViolationsInSteps counts by step the checks of a filter's violations. The steps replace the filter's time. Empty
	// steps may be left out.
	ViolationsInSteps(ctx context.Context, tenant rules.TenantID, filter *Filter, steps Steps) (StepCounts, error)

	// Decisions counts by step the decisions on checks that a rule matched (rule 0: all checks). Times are whole
	// minutes; see Steps. Empty steps are left out.
	Decisions(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, steps Steps) ([]Point, error)
	// Totals adds up the decisions of each rule, in steps of a minute or an hour. See the function Totals.
	Totals(ctx context.Context, tenant rules.TenantID, of []rules.RuleID, steps Steps) (map[rules.RuleID]Verdicts,
		error)
	// TotalsOfDays adds up each rule's decisions in whole days in UTC, by id; rule 0 is all checks.
	TotalsOfDays(ctx context.Context, tenant rules.TenantID, since, until time.Time) ([]RuleVerdicts, error)
	// Crossings returns up to limit crossings of a filter, latest first, before a cursor; the zero cursor begins at the
	// latest.
	Crossings(ctx context.Context, tenant rules.TenantID, filter CrossingFilter, before CrossingPlace,
		limit int) ([]Crossing, error)
	TopRules(ctx context.Context, tenant rules.TenantID, steps Steps, limit int) (RuleTop, error)
	// Additional returns up to limit subjects of allowed checks that the candidate would have denied. See Compare.
	Additional(ctx context.Context, tenant rules.TenantID, live, candidate rules.RuleID, steps Steps,
		limit int) (Additional, error)
}

// Filter selects violations. A zero field selects all.
type Filter struct {
	Since, Until time.Time
	Rule         rules.RuleID
	Scope        rules.Scope
	Mode         rules.Mode
	Meter        string // the Word of one; "" for all
	Plan         string
	UserID       string
	// IP is an address or a network.
	IP netip.Prefix
	// Endpoint is a whole endpoint, EndpointPrefix a prefix.
	Endpoint, EndpointPrefix string
}

// Wants reports whether a filter selects a violation, whenever that happened.
func (f *Filter) Wants(v *Violation) bool {
	return (f.Rule == 0 || v.Rule == f.Rule) &&
		(f.Scope == "" || v.Scope == f.Scope) &&
		(f.Mode == "" || v.Mode == f.Mode) &&
		(f.Meter == "" || v.Meter.Word() == f.Meter) &&
		(f.Plan == "" || v.Plan == f.Plan) &&
		(f.UserID == "" || v.UserID == f.UserID) &&
		(!f.IP.IsValid() || f.IP.Contains(v.IP)) &&
		(f.Endpoint == "" || v.Endpoint == f.Endpoint) &&
		strings.HasPrefix(v.Endpoint, f.EndpointPrefix)
}

// Page is a part of a list.
type Page struct {
	Violations []Violation
	// Next is the cursor of the next page; zero at the end. A page that is not full can have one: without a fitting
	// index it reads a bounded number of rows, back to Next.At.
	Next ID
}

// Checks returns the number of decided checks.
func (v *Verdicts) Checks() int64 { return v.Allowed + v.Denied + v.Bypassed }

// ShareDenied returns the denied share of the checks, from 0 to 1; 0 without checks.
func (v *Verdicts) ShareDenied() float64 {
	if v.Checks() == 0 {
		return 0
	}
	return float64(v.Denied) / float64(v.Checks())
}

// Point is a step of a chart.
type Point struct {
	At time.Time // beginning
	Verdicts
}

// RuleVerdicts are a rule's verdicts.
type RuleVerdicts struct {
	Rule rules.RuleID
	Verdicts
}

// RuleTop are the rules that denied the most checks in the newest MaxTopRows rows of counts.
type RuleTop struct {
	Rules []RuleVerdicts
	// LookedBackTo is the time of the oldest row read; zero if the whole time was read.
	LookedBackTo time.Time
}

// Dimension is a property that groups violations.
type Dimension string

// The dimensions. Only Present takes ByRule.
const (
	ByRule     Dimension = "rule"
	ByUser     Dimension = "user"
	ByIP       Dimension = "ip"
	ByNetwork  Dimension = "network" // the /24 of an IPv4 address, the /48 of an IPv6 address
	ByEndpoint Dimension = "endpoint"
)

// TopOf selects violations and their dimension.
type TopOf struct {
	Dimension    Dimension
	Since, Until time.Time
	Rule         rules.RuleID // 0 for all
	Mode         rules.Mode   // "" for all
	Meter        string       // the Word of one; "" for all
	// RecentSince is from when each violation is counted by the dimension; see the function. The zero Time means never.
	RecentSince time.Time
}

// UserDenials counts a user's denials by a rule in an hour, including those of shadow rules.
type UserDenials struct {
	Hour   time.Time // beginning
	Rule   rules.RuleID
	Mode   rules.Mode
	Denied int64
	// Exact means that Denied comes from counts. Otherwise Denied is a lower bound from detail rows.
	Exact bool
}

// MaxTopRows bounds the rows that Top, TopRules and ViolationsInSteps read.
const MaxTopRows = 100_000

// StepCounts are counts of violations over time. They cover the newest MaxTopRows rows that an index finds, without
// dropped details.
type StepCounts struct {
	Counts []StepCount
	// LookedAt is the number of rows read, back to LookedBackTo.
	LookedAt     int64
	LookedBackTo time.Time
}

// StepCount counts the checks of a step's violations.
type StepCount struct {
	At     time.Time // beginning
	Checks int64
}

// Top are the values of a dimension with the most denials.
//
// Recent denials are exact. Of earlier ones, those by a rule whose only placeholder is the dimension are exact, even if
// details were dropped, under the rule's present mode. Earlier denials by other rules are counted by their detail rows.
type Top struct {
	Values []TopValue
	// Unattributed counts denials without a known value, because their detail was dropped. If it is 0, every figure is
	// exact; otherwise figures are lower bounds that together miss at most this many.
	Unattributed int64
	// LookedBackTo is the time of the oldest row read; zero if the whole time was read.
	LookedBackTo time.Time
}

// TopValue is a value of a Top.
type TopValue struct {
	Value  string
	Denied int64
	LastAt time.Time // to the minute if only counts know it
}

// PresentDenials are the present denials of a dimension's values.
type PresentDenials struct {
	Values []PresentValue
	// Denied counts all of them, also those without a value. Unattributed are those of unknown value.
	Denied, Unattributed int64
}

// PresentValue is a value of PresentDenials.
type PresentValue struct {
	Value  string // of ByRule, the rule's id
	Denied int64
	// Earlier is the number in the EarlierTime before.
	Earlier int64
	// Rule is the one that denied most.
	Rule rules.RuleID
}

// Busiest are the callers with the most checks in a minute, without small ones. See CallerCount.
type Busiest struct {
	Callers []Caller
	// All are the checks of all callers, exactly.
	All Caller
}

// Caller is a caller's checks.
type Caller struct {
	Value  string
	Checks int64
	// Before is the number in the CallersBefore before.
	Before int64
}
