// Package rules is the domain of limits: what tenants, plans, rules, overrides and key patterns are, which of them
// are valid, and the [Store] that they are written to.
//
// Everything here is plain data and pure functions over it; the package imports only the standard library. Which
// rules a request meets is found by the package snapshot, and what follows from that is decided by enforce.
package rules

import (
	"strconv"
	"time"
)

// TenantID identifies a tenant: the isolation boundary that owns plans, rules, users and keys.
type TenantID int64

// RuleID identifies a rule. Ids are never used again, so neither are a deleted rule's buckets.
type RuleID int64

// Scope says which tier of limit a rule is. It is the first segment of the rule's key pattern.
type Scope string

// The scopes, from the narrowest question to the widest.
const (
	ScopeUser     Scope = "user"
	ScopeEndpoint Scope = "endpoint"
	ScopeGlobal   Scope = "global"
	ScopeIP       Scope = "ip"
)

// RateUnit is the unit in which a person typed a rate. It changes how the rate is shown, never
// what it means: rates are kept in tokens per second.
type RateUnit string

// The units people use.
const (
	PerSecond RateUnit = "second"
	PerMinute RateUnit = "minute"
	PerHour   RateUnit = "hour"
	PerDay    RateUnit = "day"
)

// seconds returns the length of the unit in seconds, or 0 for a unit that does not exist.
func (u RateUnit) seconds() float64 {
	switch u {
	case PerSecond:
		return 1
	case PerMinute:
		return 60
	case PerHour:
		return 3600
	case PerDay:
		return 86400
	}
	return 0
}

// Mode says whether a rule decides or only reports.
type Mode string

// A rule in ModeShadow counts and reports what it would have done, and never decides.
const (
	ModeEnforce Mode = "enforce"
	ModeShadow  Mode = "shadow"
)

// Action is what a rule does to a check that it matches.
type Action string

// A limit takes tokens; block always denies; bypass lets a check pass without any other rule.
const (
	ActionLimit  Action = "limit"
	ActionBlock  Action = "block"
	ActionBypass Action = "bypass"
)

// FailureMode says how a limit answers while its bucket cannot be reached.
type FailureMode string

// FailLocal asks this process's own buckets with the same limits; FailOpen skips the tier;
// FailClosed denies the check. The empty mode of a rule means its tenant's default.
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

// Tenant is one product or team with everything it owns.
type Tenant struct {
	ID          TenantID
	Slug        string
	Name        string
	DefaultPlan string // the plan of users without an assignment; "" for none
	Suspended   bool
	// InShadow makes every rule of the tenant act as a shadow rule, so that nothing denies. Bypass rules,
	// which have no shadow mode, act as ever.
	InShadow bool
	// Spread keeps the tenant's buckets on all masters of a Redis Cluster instead of together on one. It is chosen when the
	// tenant is made.
	Spread    bool
	Settings  Settings
	Version   int64 // 1 for a new tenant, raised by each change to the tenant itself
	Revision  int64 // raised by every change that a check depends on
	CreatedAt time.Time
	// Removed marks a tenant that no query finds any more; a process that reads one forgets it.
	Removed bool
}

// Enforcement is a tenant's switch for bad days, as people write it.
type Enforcement string

// EnforcementOn lets rules act in their own modes; EnforcementShadow makes all of them shadow rules.
const (
	EnforcementOn     Enforcement = "on"
	EnforcementShadow Enforcement = "shadow"
)

// Enforcement returns how the tenant's switch for bad days stands.
func (t *Tenant) Enforcement() Enforcement {
	if t.InShadow {
		return EnforcementShadow
	}
	return EnforcementOn
}

// Placement says where a Redis Cluster keeps a tenant's buckets, as people write it.
type Placement string

// BucketsTogether keeps them on one master, so that one script decides a check; BucketsSpread on all of them.
const (
	BucketsTogether Placement = "together"
	BucketsSpread   Placement = "spread"
)

// Buckets returns where the tenant's buckets are kept.
func (t *Tenant) Buckets() Placement {
	if t.Spread {
		return BucketsSpread
	}
	return BucketsTogether
}

// Settings are a tenant's own choices.
type Settings struct {
	// RetryJitterPercent, 0 to 50, spreads Retry-After over identities.
	RetryJitterPercent int
	// IPv4Prefix (0 to 32, default 32) and IPv6Prefix (0 to 128, default 64) say how many leading
	// bits of an address are one IP subject.
	IPv4Prefix, IPv6Prefix int
	// FailureMode is the mode of rules that name none.
	FailureMode FailureMode
	// FixedRates keeps every rule at its configured rate, as if none adapted.
	FixedRates bool
	// RecordDays is how many days of checks are recorded for replays, up to MaxRecordDays; 0 records none.
	RecordDays int
	// RequireSecondFactor keeps people without a second factor from all of the tenant.
	RequireSecondFactor bool
}

// MaxRecordDays is the longest time that checks are recorded for.
const MaxRecordDays = 30

// DefaultSettings are the settings of a tenant that has chosen nothing.
func DefaultSettings() Settings {
	return Settings{IPv4Prefix: 32, IPv6Prefix: 64, FailureMode: FailLocal}
}

// Plan is a named tier of a tenant: free, pro, enterprise.
type Plan struct {
	TenantID    TenantID
	Name        string
	Description string
	Revision    int64
	Removed     bool
	// InUse says why the plan cannot be removed, beside the rules that need it: "it is the tenant's
	// default" or "12 users are on it"; "" if nothing stands against it. Only Store.Config fills it,
	// and it is never written.
	InUse string
}

// Rule says which requests it matches, which bucket they share, and what that bucket allows.
// Pattern, Plan and Name together identify it within its tenant and never change.
type Rule struct {
	ID            RuleID
	TenantID      TenantID
	Name          string
	Pattern       Pattern
	Mode          Mode
	Action        Action
	FailureMode   FailureMode // "" for the tenant's default
	Plan          string      // "" for all plans
	RatePerSecond float64
	RateUnit      RateUnit
	Burst         int64
	Algorithm     Algorithm
	// Window is that of a window's algorithm, else zero.
	Window Window
	// RefillInterval, in whole seconds, lets a token bucket refill in steps; 0 is continuous.
	RefillInterval time.Duration
	// MaxHold, in whole seconds, is how long a concurrency rule waits for a release before it frees the place.
	MaxHold time.Duration
	// NotifyAt are the shares of a fixed window's limit, in percent and ascending, whose crossing is noted.
	NotifyAt []int
	// Adapt lets the rate follow the health of a backend.
	Adapt Adapt
	// NeverLeased is LeaseNever.
	NeverLeased bool
	// CandidateFor is the live rule that this shadow rule is tried for, with its overrides; 0 for none.
	CandidateFor RuleID
	Active       bool
	// ExpiresAt is when the rule stops to match; zero: never. A past time is allowed: it ends the rule.
	ExpiresAt time.Time
	// ExpiresIn, in whole seconds, makes ExpiresAt so long after a write of the rule, by the store's clock. Stored rules have
	// none.
	ExpiresIn    *time.Duration
	Description  string
	Version      int64     // 1 for a new rule, raised by each change to it
	InForceSince time.Time // when its present limit came into force
	CreatedAt    time.Time
	UpdatedAt    time.Time
	Revision     int64
	Removed      bool

	// Unknown is the UnknownWord of a rule of a Snapshot, which fills it, so that no check has to look for it.
	Unknown string
}

// Scope is the tier of limit the rule is.
func (r *Rule) Scope() Scope { return r.Pattern.Scope() }

// CanBeTried reports whether a candidate can be tried beside the rule.
func (r *Rule) CanBeTried() bool { return r.Mode == ModeEnforce && r.Action != ActionBypass }

// CandidateName returns the first free name for a candidate of the rule: its own name with "candidate", "candidate-2" and so
// on.
func (r *Rule) CandidateName(isTaken func(name string) bool) string {
	const room = maxRuleNameLength - len("-candidate-99") // at most MaxRulesPerPattern rules have names
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

// ExpiredKept is how long a rule stays after its end, or its last edit after that. Then it is removed.
const ExpiredKept = 7 * 24 * time.Hour

// HasExpired reports whether the rule matches nothing any more.
func (r *Rule) HasExpired(now time.Time) bool {
	return !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(now)
}

// UnixMicro counts the zero time as 0: its true value is so far below that stores which compute
// in doubles could not hold it.
func UnixMicro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Override is one user's own rate and burst for one rule. It holds for all of that user's buckets
// of the rule, until ExpiresAt.
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
	// RemovedAt is when the override was taken away; zero while it stands. A removed override is
	// remembered, because the rule's own limit is in force again since that moment.
	RemovedAt time.Time
	Revision  int64
}

// Assignment puts one user of a tenant on a plan.
type Assignment struct {
	TenantID TenantID
	UserID   string
	Plan     string
	Revision int64
	Removed  bool
}

// GatewayKind is how gateways ask: each kind has a mapping of its own.
type GatewayKind string

// GatewayAuthorize is for proxies that ask over HTTP, at /v1/authorize; GatewayDescriptors for those that speak Envoy's
// rate limit protocol.
const (
	GatewayAuthorize   GatewayKind = "authorize"
	GatewayDescriptors GatewayKind = "descriptors"
)

// GatewayKinds lists the kinds.
func GatewayKinds() []GatewayKind { return []GatewayKind{GatewayAuthorize, GatewayDescriptors} }

// Gateway is a tenant's mapping of requests to checks for one kind of gateway. A tenant without one has the default
// mapping.
type Gateway struct {
	TenantID TenantID
	Kind     GatewayKind
	// Document is the mapping in JSON; the package gateway reads it.
	Document string
	Revision int64
	Removed  bool
}

// Lease returns the rule's NeverLeased as people write it.
func (r *Rule) Lease() Lease {
	if r.NeverLeased {
		return LeaseNever
	}
	return LeaseAuto
}

// ParseLease sets NeverLeased, and returns what is wrong with the word, or "".
func (r *Rule) ParseLease(word Lease) (wrong string) {
	r.NeverLeased = word == LeaseNever
	return WrongChoice(word, LeaseAuto, LeaseNever)
}
