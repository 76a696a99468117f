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
	// Violations returns up to limit rows, newest first, before an id; the zero ID begins at the filter's end.
	Violations(ctx context.Context, tenant rules.TenantID, filter *Filter, before ID, limit int) (Page, error)
	Violation(ctx context.Context, tenant rules.TenantID, id ID) (Violation, error) // or rules.ErrNotFound
	// ViolationsBeside returns up to limit other rows of the same minute and user (without one, address), newest first.
	ViolationsBeside(ctx context.Context, of *Violation, limit int) ([]Violation, error)
	// ViolationsArrived returns up to limit rows that were written after since minus within, latest first, whatever
	// their time; a zero since is now. A polling caller sees rows repeatedly and recognizes them by id.
	ViolationsArrived(ctx context.Context, tenant rules.TenantID, filter *Filter, since time.Time, within time.Duration,
		limit int) (arrived []Violation, more bool, err error)
	// ArrivedAt returns when a row was written, on the database's clock, and for the zero ID the present time.
	ArrivedAt(ctx context.Context, tenant rules.TenantID, id ID) (time.Time, error)
	DeniedInMinute(ctx context.Context, of *Violation) (int64, error)
	Top(ctx context.Context, tenant rules.TenantID, of TopOf, limit int) (Top, error)
	// Present returns up to limit values with the most denials of enforced rules, and the numbers before. meter is the
	// Word of one, or "" for all.
	Present(ctx context.Context, tenant rules.TenantID, by Dimension, meter string, since, until time.Time,
		limit int) (PresentDenials, error)
	Busiest(ctx context.Context, tenant rules.TenantID, by Dimension, since, until time.Time,
		limit int) (Busiest, error)

	// DenialsOfUser returns up to limit counts of a user's denials by hour and rule, latest first.
	DenialsOfUser(ctx context.Context, tenant rules.TenantID, userID string, since, until time.Time,
		limit int) ([]UserDenials, error)

	// ViolationsInSteps counts the checks of a filter's violations by step. It reads exact counts if the filter is
	// Counted and steps are whole minutes, and rows of violations otherwise. The steps replace the filter's time. Empty
	// steps may be left out.
	ViolationsInSteps(ctx context.Context, tenant rules.TenantID, filter *Filter, steps Steps) (StepCounts, error)

	// Decisions counts by step the decisions on checks that a rule (0: any) matched. Empty steps are left out.
	Decisions(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, steps Steps) ([]Point, error)
	Totals(ctx context.Context, tenant rules.TenantID, of []rules.RuleID, steps Steps) (map[rules.RuleID]Verdicts,
		error)
	// TotalsOfDays adds up each rule's decisions in whole days in UTC; rule 0 is all checks.
	TotalsOfDays(ctx context.Context, tenant rules.TenantID, since, until time.Time) ([]RuleVerdicts, error)
	// Crossings returns up to limit crossings, latest first, before a cursor; the zero cursor begins at the latest.
	Crossings(ctx context.Context, tenant rules.TenantID, filter CrossingFilter, before CrossingPlace,
		limit int) ([]Crossing, error)
	TopRules(ctx context.Context, tenant rules.TenantID, steps Steps, limit int) (RuleTop, error)
	Additional(ctx context.Context, tenant rules.TenantID, live, candidate rules.RuleID, steps Steps,
		limit int) (Additional, error)
}

// Filter selects violations. A zero field selects all.
type Filter struct {
	Since, Until             time.Time
	Rule                     rules.RuleID
	Scope                    rules.Scope
	Mode                     rules.Mode
	Meter                    string // the Word of one; "" for all
	Plan                     string
	UserID                   string
	IP                       netip.Prefix // or a network
	Endpoint, EndpointPrefix string
}

// Wants reports whether a filter selects a violation, whatever its time.
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

// Counted returns where denials are counted that the filter selects: those of a value of a dimension or, if the value
// is "", all of the dimension. The filter's time, rule, mode and meter apply to the counts, too. If ok is false, only
// rows of violations can answer the filter.
func (f *Filter) Counted() (by Dimension, value string, ok bool) {
	by = ByEndpoint // any dimension would do: each has all denials
	values := 0
	if f.Endpoint != "" {
		value, values = rules.StoredSubject(f.Endpoint), values+1
	}
	if f.UserID != "" {
		by, value, values = ByUser, rules.StoredSubject(f.UserID), values+1
	}
	switch {
	case !f.IP.IsValid():
	case f.IP.IsSingleIP():
		by, value, values = ByIP, f.IP.Addr().String(), values+1
	case f.IP == rules.SiteNetwork(f.IP.Addr()):
		by, value, values = ByNetwork, f.IP.String(), values+1
	default:
		return "", "", false
	}
	return by, value, values <= 1 && f.Scope == "" && f.Plan == "" && f.EndpointPrefix == ""
}

// Page is a part of a list.
type Page struct {
	Violations []Violation
	// Next is the cursor of the next page, zero at the end. A page with a Next may be short: without a fitting index
	// the store reads a bounded number of rows, back to Next.At.
	Next ID
}

// Checks returns their sum.
func (v *Verdicts) Checks() int64 { return v.Allowed + v.Denied + v.Bypassed }

// ShareDenied returns the denied share of the checks, from 0 to 1; 0 without checks.
func (v *Verdicts) ShareDenied() float64 {
	if v.Checks() == 0 {
		return 0
	}
	return float64(v.Denied) / float64(v.Checks())
}

// Point is a step of a Chart.
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
	Rules        []RuleVerdicts
	LookedBackTo time.Time // of the oldest row read; zero: all were read
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
	Since, Until time.Time    // and the rest of their minutes
	Rule         rules.RuleID // 0 for all
	Mode         rules.Mode   // "" for all
	Meter        string       // the Word of one; "" for all
}

// UserDenials counts a user's denials by a rule in an hour, including those of shadow rules.
type UserDenials struct {
	Hour   time.Time // beginning
	Rule   rules.RuleID
	Mode   rules.Mode
	Denied int64
	Exact  bool // from counts; otherwise a lower bound from detail rows
}

// MaxTopRows bounds the rows that Top, TopRules and ViolationsInSteps read.
const MaxTopRows = 100_000

// StepCounts are counts of violations over time: of the newest MaxTopRows rows or counts.
type StepCounts struct {
	Counts       []StepCount
	Exact        bool  // nothing is missing, apart from what is older than LookedBackTo
	LookedAt     int64 // rows read, back to LookedBackTo
	LookedBackTo time.Time
}

// StepCount counts the checks of a step's violations.
type StepCount struct {
	At     time.Time // beginning
	Checks int64
}

// Top are the values of a dimension with the most denials.
type Top struct {
	Values []TopValue
	// Unattributed counts denials of values without memory of their own. If above 0, figures are lower bounds that
	// together miss at most so many.
	Unattributed int64
	LookedBackTo time.Time // of the oldest count read; zero: all were read
}

// TopValue is a value of a Top.
type TopValue struct {
	Value  string
	Denied int64
	LastAt time.Time // to SlotLength or, if it is not recent, to the minute
}

// PresentDenials are the present denials of a dimension's values.
type PresentDenials struct {
	Values               []PresentValue
	Denied, Unattributed int64 // also of checks without a value, and of an unknown value
}

// PresentValue is a value of PresentDenials.
type PresentValue struct {
	Value   string // of ByRule, the rule's id
	Denied  int64
	Earlier int64        // in the EarlierTime before
	Rule    rules.RuleID // which denied most
}

// Busiest are the callers with the most checks, without small ones; see CallerCount.
type Busiest struct {
	Callers []Caller
	All     Caller // all callers
}

// Caller is a caller's checks.
type Caller struct {
	Value  string
	Checks int64
	Before int64 // in CallersBefore
}
