package violations

import (
	"context"
	"iter"
	"net/netip"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Store is where violations are read. Every method is about one tenant and sees no other's rows.
type Store interface {
	// Violations returns up to limit rows that a filter wants, newest first, those before an id; the zero
	// ID begins at the filter's end. The page says how far it looked.
	Violations(ctx context.Context, tenant rules.TenantID, filter *Filter, before ID, limit int) (Page, error)
	// AllViolations returns every row that a filter wants, newest first, in memory that does not grow with
	// them. An error is the last thing it yields.
	AllViolations(ctx context.Context, tenant rules.TenantID, filter *Filter) iter.Seq2[Violation, error]
	// Violation returns one row, or rules.ErrNotFound.
	Violation(ctx context.Context, tenant rules.TenantID, id ID) (Violation, error)
	// ViolationsBeside returns the other rows of a violation's user in the same minute or, if the check
	// named no user, of its address; up to limit of them, newest first.
	ViolationsBeside(ctx context.Context, of *Violation, limit int) ([]Violation, error)
	// ViolationsArrived returns the rows that were written within a time before since, or after it, and that
	// a filter wants, whenever they happened, the latest written first. A zero since is now. It looks at up
	// to limit rows; more says that there were others. A caller that polls sees rows several times, and
	// tells them apart by their ids.
	ViolationsArrived(ctx context.Context, tenant rules.TenantID, filter *Filter, since time.Time, within time.Duration, limit int) (arrived []Violation, more bool, err error)
	// ArrivedAt returns when a row was written, by the database's clock; the zero ID asks for the time now.
	ArrivedAt(ctx context.Context, tenant rules.TenantID, id ID) (time.Time, error)
	// DeniedInMinute returns how often a violation's rule denied its subject in its minute, in all.
	DeniedInMinute(ctx context.Context, of *Violation) (int64, error)
	// Top returns the values of a dimension that were denied most.
	Top(ctx context.Context, tenant rules.TenantID, of TopOf, limit int) (Top, error)

	// ViolationsInSteps counts the checks that the violations which a filter wants stand for, in steps; those
	// without any may be left out. The time is that of the steps.
	ViolationsInSteps(ctx context.Context, tenant rules.TenantID, filter *Filter, steps Steps) (StepCounts, error)

	// Decisions returns how the checks that a rule matched (rule 0: all checks) were decided, in steps;
	// those without checks are left out. Since, until and step are whole minutes; see Steps.
	Decisions(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, steps Steps) ([]Point, error)
	// Totals sums up what each of some rules decided; the steps are of a minute or an hour. See Totals.
	Totals(ctx context.Context, tenant rules.TenantID, of []rules.RuleID, steps Steps) (map[rules.RuleID]Verdicts, error)
	// TopRules returns the rules that denied the most checks, shadow rules included.
	TopRules(ctx context.Context, tenant rules.TenantID, steps Steps, limit int) (RuleTop, error)
}

// Filter chooses violations. What is zero wants everything.
type Filter struct {
	// Since and Until bound the time, the first included and the second not; both are set.
	Since, Until time.Time
	Rule         rules.RuleID
	Scope        rules.Scope
	Mode         rules.Mode
	Plan         string
	UserID       string
	// IP is an address or a network.
	IP netip.Prefix
	// Endpoint is a whole endpoint, EndpointPrefix its beginning.
	Endpoint, EndpointPrefix string
}

// Wants says whether a filter chooses a violation.
func (f *Filter) Wants(v *Violation) bool {
	return f.WantsOtherwise(v) && !v.ID.At.Before(f.Since) && v.ID.At.Before(f.Until)
}

// WantsOtherwise is Wants but for the time.
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

// Page is a part of a list.
type Page struct {
	Violations []Violation
	// Next is where the next page begins; the zero ID if there is none. A page that is not full has one
	// if the filter has no index and few rows are wanted: the page then looked at as many as one may, back
	// to Next.At.
	Next ID
}

// Checks is how many checks were decided.
func (v *Verdicts) Checks() int64 { return v.Allowed + v.Denied + v.Bypassed }

// ShareDenied is the part of the checks that was denied, from 0 to 1; 0 if there were none.
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

// RuleVerdicts are a rule's verdicts over some time.
type RuleVerdicts struct {
	Rule rules.RuleID
	Verdicts
}

// RuleTop are the rules that denied the most checks. It is drawn from the newest MaxTopRows rows of counts alone.
type RuleTop struct {
	Rules []RuleVerdicts
	// LookedBackTo is how far back those rows go; zero if they are all that there are.
	LookedBackTo time.Time
}

// Dimension is something that violations share.
type Dimension string

// The dimensions.
const (
	ByUser     Dimension = "user"
	ByIP       Dimension = "ip"
	ByEndpoint Dimension = "endpoint"
)

// TopOf says of which violations, and in which respect.
type TopOf struct {
	Dimension    Dimension
	Since, Until time.Time
	Rule         rules.RuleID // 0 for all
	Mode         rules.Mode   // "" for all
}

// MaxTopRows is how many rows Top, TopRules and ViolationsInSteps look at.
const MaxTopRows = 100_000

// StepCounts are counts of violations over time. Like Top, they are drawn from the newest MaxTopRows rows that an
// index finds, and do not know of violations whose detail was dropped.
type StepCounts struct {
	Counts []StepCount
	// LookedAt is how many rows were, back to LookedBackTo.
	LookedAt     int64
	LookedBackTo time.Time
}

// StepCount is how many checks the violations of one step stand for.
type StepCount struct {
	At     time.Time // its beginning
	Checks int64
}

// Top are the values of a dimension that were denied most.
//
// A rule whose one placeholder is the dimension counts each value's denials exactly, whatever becomes of their detail.
// The mode of such a rule is the one it has now. Denials by all other rules are known by their rows in detail.
type Top struct {
	Values []TopValue
	// Unattributed is how many denials were counted whose value is not known, because their detail was dropped. If
	// it is 0 every figure is exact; else figures are lower bounds, which together miss at most so many.
	Unattributed int64
	// LookedBackTo is since when all was looked at; zero if it was the whole time.
	LookedBackTo time.Time
}

// TopValue is one of them.
type TopValue struct {
	Value  string
	Denied int64
	LastAt time.Time // to the minute, where only counts know it
}
