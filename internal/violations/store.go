package violations

import (
	"context"
	"iter"
	"net/netip"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Store reads violations. Every method is about one tenant and sees no other tenant's rows.
type Store interface {
	// Violations returns up to limit rows of a filter, newest first, before an id; the zero ID begins at the filter's
	// end.
	Violations(ctx context.Context, tenant rules.TenantID, filter *Filter, before ID, limit int) (Page, error)
	// AllViolations returns every row of a filter, newest first, in bounded memory. It ends after an error.
	AllViolations(ctx context.Context, tenant rules.TenantID, filter *Filter) iter.Seq2[Violation, error]
	// Violation returns one row, or rules.ErrNotFound.
	Violation(ctx context.Context, tenant rules.TenantID, id ID) (Violation, error)
	// ViolationsBeside returns up to limit other rows, newest first, of the violation's user in the same minute or, for
	// a check without a user, of its address.
	ViolationsBeside(ctx context.Context, of *Violation, limit int) ([]Violation, error)
	// ViolationsArrived returns rows of a filter that were written after since minus within, the latest written first,
	// whenever they happened. A zero since is now. It looks at up to limit rows; more means that there were others. A
	// caller that polls sees rows several times and tells them apart by id.
	ViolationsArrived(ctx context.Context, tenant rules.TenantID, filter *Filter, since time.Time, within time.Duration, limit int) (arrived []Violation, more bool, err error)
	// ArrivedAt returns when a row was written, by the database's clock. The zero ID asks for the present time.
	ArrivedAt(ctx context.Context, tenant rules.TenantID, id ID) (time.Time, error)
	// DeniedInMinute returns how often the violation's rule denied its subject in its minute.
	DeniedInMinute(ctx context.Context, of *Violation) (int64, error)
	// Top returns the values of a dimension that were denied most.
	Top(ctx context.Context, tenant rules.TenantID, of TopOf, limit int) (Top, error)

	// DenialsOfUser returns a user's denials by hour and rule, the latest first, at most limit.
	DenialsOfUser(ctx context.Context, tenant rules.TenantID, userID string, since, until time.Time, limit int) ([]UserDenials, error)

	// ViolationsInSteps counts, by step, the checks that a filter's violations stand for. Empty steps may be left out.
	// The steps replace the filter's time.
	ViolationsInSteps(ctx context.Context, tenant rules.TenantID, filter *Filter, steps Steps) (StepCounts, error)

	// Decisions counts, by step, the decisions on checks that a rule matched (rule 0: all checks). Empty steps are left
	// out. Since, until and step are whole minutes; see Steps.
	Decisions(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, steps Steps) ([]Point, error)
	// Totals adds up what each rule decided; the steps are of a minute or an hour. See Totals.
	Totals(ctx context.Context, tenant rules.TenantID, of []rules.RuleID, steps Steps) (map[rules.RuleID]Verdicts, error)
	// TotalsOfDays adds up what each rule that decided something did in whole days in UTC, by id; rule 0 is all checks.
	TotalsOfDays(ctx context.Context, tenant rules.TenantID, since, until time.Time) ([]RuleVerdicts, error)
	// Crossings returns up to limit crossings of a filter, the latest first, before a place; the zero place begins at the
	// latest.
	Crossings(ctx context.Context, tenant rules.TenantID, filter CrossingFilter, before CrossingPlace, limit int) ([]Crossing, error)
	// TopRules returns the rules that denied the most checks, shadow rules included.
	TopRules(ctx context.Context, tenant rules.TenantID, steps Steps, limit int) (RuleTop, error)
	// Additional returns up to limit subjects of checks that passed and the candidate would have denied. See Compare.
	Additional(ctx context.Context, tenant rules.TenantID, live, candidate rules.RuleID, steps Steps, limit int) (Additional, error)
}

// Filter selects violations. A zero field selects all.
type Filter struct {
	// Since is included and Until is not; both are set.
	Since, Until time.Time
	Rule         rules.RuleID
	Scope        rules.Scope
	Mode         rules.Mode
	Plan         string
	UserID       string
	// IP is an address or a network.
	IP netip.Prefix
	// Endpoint is a whole endpoint, EndpointPrefix the beginning of one.
	Endpoint, EndpointPrefix string
}

// Wants reports whether a filter selects a violation.
func (f *Filter) Wants(v *Violation) bool {
	return f.WantsOtherwise(v) && !v.ID.At.Before(f.Since) && v.ID.At.Before(f.Until)
}

// WantsOtherwise is Wants without the time.
func (f *Filter) WantsOtherwise(v *Violation) bool {
	return (f.Rule == 0 || v.Rule == f.Rule) &&
		(f.Scope == "" || v.Scope == f.Scope) &&
		(f.Mode == "" || v.Mode == f.Mode) &&
		(f.Plan == "" || v.Plan == f.Plan) &&
		(f.UserID == "" || v.UserID == f.UserID) &&
		(!f.IP.IsValid() || f.IP.Contains(v.IP)) &&
		(f.Endpoint == "" || v.Endpoint == f.Endpoint) &&
		strings.HasPrefix(v.Endpoint, f.EndpointPrefix)
}

// Page is part of a list.
type Page struct {
	Violations []Violation
	// Next is where the next page begins; zero at the end. A page that is not full can have one: if no index fits the
	// filter, a page looks at a bounded number of rows, back to Next.At.
	Next ID
}

// Checks returns how many checks were decided.
func (v *Verdicts) Checks() int64 { return v.Allowed + v.Denied + v.Bypassed }

// ShareDenied returns the denied share of the checks, from 0 to 1; 0 without checks.
func (v *Verdicts) ShareDenied() float64 {
	if v.Checks() == 0 {
		return 0
	}
	return float64(v.Denied) / float64(v.Checks())
}

// Point is one step of a chart.
type Point struct {
	At time.Time // its beginning
	Verdicts
}

// RuleVerdicts are a rule's verdicts over a time.
type RuleVerdicts struct {
	Rule rules.RuleID
	Verdicts
}

// RuleTop has the rules that denied the most checks, according to the newest MaxTopRows rows of counts.
type RuleTop struct {
	Rules []RuleVerdicts
	// LookedBackTo is how far back those rows go; zero if they cover the whole time.
	LookedBackTo time.Time
}

// Dimension is a property by which violations are grouped.
type Dimension string

// The dimensions.
const (
	ByUser     Dimension = "user"
	ByIP       Dimension = "ip"
	ByNetwork  Dimension = "network" // IPv4 addresses by their /24, IPv6 addresses by their /48
	ByEndpoint Dimension = "endpoint"
)

// TopOf selects violations and the dimension to group them by.
type TopOf struct {
	Dimension    Dimension
	Since, Until time.Time
	Rule         rules.RuleID // 0 for all
	Mode         rules.Mode   // "" for all
}

// UserDenials are the checks of one user that a rule denied, or a shadow rule would have denied, in one hour.
type UserDenials struct {
	Hour   time.Time // its beginning
	Rule   rules.RuleID
	Mode   rules.Mode
	Denied int64
	// Exact: counts name the user. Otherwise Denied is a lower bound, from detail rows.
	Exact bool
}

// MaxTopRows caps the rows that Top, TopRules and ViolationsInSteps look at.
const MaxTopRows = 100_000

// StepCounts are counts of violations over time. Like Top, they cover the newest MaxTopRows rows that an index finds,
// without violations whose detail was dropped.
type StepCounts struct {
	Counts []StepCount
	// LookedAt is the number of rows looked at, back to LookedBackTo.
	LookedAt     int64
	LookedBackTo time.Time
}

// StepCount is how many checks the violations of one step stand for.
type StepCount struct {
	At     time.Time // its beginning
	Checks int64
}

// Top has the values of a dimension with the most denials.
//
// A rule whose only placeholder is the dimension counts each value's denials exactly, even if details were dropped,
// under the mode that the rule has now. Denials by other rules are counted by their detail rows.
type Top struct {
	Values []TopValue
	// Unattributed is how many denials have no known value, because their detail was dropped. If it is 0 every figure
	// is exact; otherwise figures are lower bounds that together miss at most so many.
	Unattributed int64
	// LookedBackTo is since when all was looked at; zero if it was the whole time.
	LookedBackTo time.Time
}

// TopValue is one value of a Top.
type TopValue struct {
	Value  string
	Denied int64
	LastAt time.Time // to the minute, where only counts know it
}
