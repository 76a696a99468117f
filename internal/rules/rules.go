// Package rules is the domain of limits: tenants, plans, rules, overrides and key patterns, and their validation.
//
// Everything here is plain data and pure functions. Package snapshot finds the rules that match a request, and package
// enforce decides.
package rules

import (
	"strconv"
	"time"
)

// TenantID identifies a tenant.
type TenantID int64

// RuleID identifies a rule, and is never reused, so a deleted rule's buckets are not either.
type RuleID int64

// Scope is the tier of a rule: the first segment of its key pattern.
type Scope string

// The scopes, from the narrowest to the widest.
const (
	ScopeUser     Scope = "user"
	ScopeEndpoint Scope = "endpoint"
	ScopeGlobal   Scope = "global"
	ScopeIP       Scope = "ip"
)

// RateUnit is the unit to show a rate in, which is stored per second.
type RateUnit string

// The units.
const (
	PerSecond RateUnit = "second"
	PerMinute RateUnit = "minute"
	PerHour   RateUnit = "hour"
	PerDay    RateUnit = "day"
)

// Length returns the unit's length; 0 for a unit that this version does not know.
func (u RateUnit) Length() time.Duration {
	switch u {
	case PerSecond:
		return time.Second
	case PerMinute:
		return time.Minute
	case PerHour:
		return time.Hour
	case PerDay:
		return 24 * time.Hour
	}
	return 0
}

func (u RateUnit) seconds() float64 { return u.Length().Seconds() }

// Mode says whether a rule decides or only reports.
type Mode string

// ModeShadow counts and reports decisions without enforcing them.
const (
	ModeEnforce Mode = "enforce"
	ModeShadow  Mode = "shadow"
)

// Action is the effect of a rule on a check that it matches.
type Action string

// ActionLimit takes tokens, ActionBlock always denies, ActionBypass allows the check without any other rule.
const (
	ActionLimit  Action = "limit"
	ActionBlock  Action = "block"
	ActionBypass Action = "bypass"
)

// FailureMode is the behaviour of a limit without its bucket; "" is the tenant's default.
type FailureMode string

// FailLocal uses buckets in this process with the same limits, FailOpen skips the rule, FailClosed denies the check.
const (
	FailLocal  FailureMode = "local"
	FailOpen   FailureMode = "open"
	FailClosed FailureMode = "closed"
)

// Lease says whether the tokens of a rule's buckets are lent to processes ahead of demand.
type Lease string

// LeaseAuto lends tokens of busy buckets; LeaseNever leaves them in the store.
const (
	LeaseAuto  Lease = "auto"
	LeaseNever Lease = "never"
)

// Tenant is a product or team with everything that belongs to it.
type Tenant struct {
	ID          TenantID
	Slug        string
	Name        string
	DefaultPlan string // the plan of users without an assignment; "" for none
	Suspended   bool
	// InShadow makes every rule but a bypass a shadow rule.
	InShadow  bool
	Settings  Settings
	Version   int64 // 1 for a new tenant, raised by each change to the tenant itself
	Revision  int64 // raised by every change that a check depends on
	CreatedAt time.Time
	Removed   bool
}

// Enforcement is the word for Tenant.InShadow.
type Enforcement string

// The switch's positions.
const (
	EnforcementOn     Enforcement = "on"
	EnforcementShadow Enforcement = "shadow"
)

// Enforcement returns the position of the tenant's emergency switch.
func (t *Tenant) Enforcement() Enforcement {
	if t.InShadow {
		return EnforcementShadow
	}
	return EnforcementOn
}

// Settings are a tenant's settings.
type Settings struct {
	// RetryJitterPercent, from 0 to 50, spreads Retry-After over identities.
	RetryJitterPercent int
	// IPv4Prefix and IPv6Prefix are the leading bits of an address that make one IP subject.
	IPv4Prefix, IPv6Prefix int
	FailureMode            FailureMode
	FixedRates             bool
	// RecordDays is how many days of checks are kept for replays, up to MaxRecordDays.
	RecordDays          int
	RequireSecondFactor bool
}

// MaxRecordDays bounds Settings.RecordDays.
const MaxRecordDays = 30

// DefaultSettings returns the settings of a new tenant.
func DefaultSettings() Settings {
	return Settings{IPv4Prefix: 32, IPv6Prefix: 64, FailureMode: FailLocal}
}

// Plan is a named tier of a tenant: free, pro, enterprise.
type Plan struct {
	TenantID    TenantID
	Name        string
	Description string
	Position    float64 // of its column in the matrix; ties go by name
	Revision    int64
	Removed     bool
	// InUse says for people why the plan cannot be removed: "it is the tenant's default"; "" if it can. Only Config
	// fills it.
	InUse string
}

// Rule limits the buckets of requests; Pattern, Plan and Name never change.
type Rule struct {
	ID            RuleID
	TenantID      TenantID
	Name          string
	Pattern       Pattern
	Meter         Meter // never changes
	Mode          Mode
	Action        Action
	FailureMode   FailureMode // "" for the tenant's default
	Plan          string      // "" for all plans
	RatePerSecond float64
	RateUnit      RateUnit
	Burst         int64
	Algorithm     Algorithm
	Window        Window
	// RefillInterval is in whole seconds; 0 is continuous.
	RefillInterval time.Duration
	// MaxHold, in whole seconds, frees a concurrency slot without a release.
	MaxHold time.Duration
	// NotifyAt lists the shares of a fixed window's limit, in ascending percent, that are recorded when crossed.
	NotifyAt     []int
	Adapt        Adapt
	ChargedAfter bool
	NeverLeased  bool
	// CandidateFor is the live rule that this shadow rule would replace, and whose overrides it has; 0 for none.
	CandidateFor RuleID
	Active       bool
	// ExpiresAt is when the rule stops matching; zero: never.
	ExpiresAt time.Time
	// ExpiresIn, in whole seconds, sets ExpiresAt on the store's clock; stored rules have none.
	ExpiresIn    *time.Duration
	Description  string
	Version      int64     // 1 for a new rule, raised by each change to it
	InForceSince time.Time // start of the present limit
	CreatedAt    time.Time
	UpdatedAt    time.Time
	Revision     int64
	Removed      bool

	// Unknown is the rule's UnknownWord, computed once by the Snapshot for all checks.
	Unknown string
}

// Scope returns the rule's tier.
func (r *Rule) Scope() Scope { return r.Pattern.Scope() }

// CanBeTried reports whether the rule can have a candidate.
func (r *Rule) CanBeTried() bool { return r.Mode == ModeEnforce && r.Action != ActionBypass }

// CandidateName returns the first free name for a candidate of the rule.
func (r *Rule) CandidateName(isTaken func(name string) bool) string {
	const room = maxRuleNameLength - len("-candidate-99") // at most MaxRulesPerPattern names are taken
	base := []rune(r.Name)
	prefix := string(base[:min(len(base), room)])
	if prefix != "" {
		prefix += "-"
	}
	name := prefix + "candidate"
	for number := 2; isTaken(name); number++ {
		name = prefix + "candidate-" + strconv.Itoa(number)
	}
	return name
}

// ExpiredKept is how long an expired rule is kept before it is removed.
const ExpiredKept = 7 * 24 * time.Hour

// HasExpired reports whether the rule has stopped matching.
func (r *Rule) HasExpired(now time.Time) bool {
	return !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(now)
}

// UnixMicro returns 0 for the zero time, whose true value does not fit the doubles of some stores.
func UnixMicro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Override is one user's rate and burst for one rule, for all the user's buckets of it.
type Override struct {
	TenantID      TenantID
	RuleID        RuleID
	UserID        string
	RatePerSecond float64
	RateUnit      RateUnit
	Burst         int64
	Reason        string
	ExpiresAt     time.Time // zero: never
	InForceSince  time.Time
	// RemovedAt is zero while the override exists. A removed one stays, because the rule's own limit is in force since
	// then.
	RemovedAt time.Time
	Revision  int64
}

// Assignment puts a user on a plan.
type Assignment struct {
	TenantID TenantID
	UserID   string
	Plan     string
	Revision int64
	Removed  bool
}

// GatewayKind is the protocol of a gateway. Each kind has its own mapping.
type GatewayKind string

// GatewayAuthorize is for proxies that call /v1/authorize; GatewayDescriptors for Envoy's rate limit protocol.
const (
	GatewayAuthorize   GatewayKind = "authorize"
	GatewayDescriptors GatewayKind = "descriptors"
)

// Gateway is a tenant's mapping for one kind of gateway; without one the default applies.
type Gateway struct {
	TenantID TenantID
	Kind     GatewayKind
	Document string
	Revision int64
	Removed  bool
}

// Lease returns the word for NeverLeased.
func (r *Rule) Lease() Lease {
	if r.NeverLeased {
		return LeaseNever
	}
	return LeaseAuto
}
