package rules

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Thing is a kind of row that a quota limits.
type Thing string

// The kinds with quotas. A user counts while a plan is assigned to it, an API key until it is revoked or expires, an
// override until it is removed.
const (
	ThingPlans     Thing = "plans"
	ThingRules     Thing = "rules"
	ThingOverrides Thing = "overrides"
	ThingUsers     Thing = "users"
	ThingKeys      Thing = "api_keys"
	ThingAlerts    Thing = "alerts"
	ThingMembers   Thing = "members"
)

// Things lists all kinds in the UI's order.
var Things = []Thing{ThingPlans, ThingRules, ThingOverrides, ThingUsers, ThingKeys, ThingAlerts, ThingMembers}

// MaxQuota is the highest quota that can be set.
const MaxQuota = 1_000_000_000

// Quota is how many of a thing a tenant has (Held) and may have (Allowed). Held exceeds Allowed after the quota was
// lowered: nothing is removed, but more is refused.
type Quota struct {
	Thing         Thing
	Held, Allowed int64
	Default       int64 // of the platform
	IsDefault     bool  // the tenant has no exception
}

// Quotas are a tenant's quotas, one for each of Things.
type Quotas struct {
	Version int64 // of the exceptions; 0 if the tenant never had any
	Of      []Quota
}

// QuotaUse counts the tenants that are near a quota.
type QuotaUse struct {
	Near int // at 90 % of the quota or more, but below it
	Full int // at the quota or above
}

// Exceptions are the quotas of a tenant that differ from the defaults.
type Exceptions map[Thing]int64

// Validate returns the mistakes.
func (e Exceptions) Validate() (wrong FieldErrors) {
	for _, thing := range Things {
		if n, ok := e[thing]; ok && (n < 0 || n > MaxQuota) {
			wrong.Add(string(thing), fmt.Sprintf("must be 0 to %d", MaxQuota))
		}
	}
	return wrong
}

// QuotaStore reads and changes quotas.
type QuotaStore interface {
	Quotas(ctx context.Context, tenant TenantID) (Quotas, error)
	// PutQuotas replaces a tenant's exceptions. Returns ErrChanged if their version is not the expected one.
	PutQuotas(ctx context.Context, by Actor, tenant TenantID, exceptions Exceptions, expected Expected) (Quotas, error)
}

// QuotaError refuses a write that would exceed a quota. Nothing was written.
type QuotaError struct {
	Thing                    Thing
	Held, WouldHold, Allowed int64
}

// Error names the quota, the present and the attempted number, and the remedies.
func (e QuotaError) Error() string {
	return fmt.Sprintf("the tenant's capacity is %s; it holds %s and would hold %s. %s, or ask a platform admin to "+
		"raise the capacity",
		counted(e.Allowed, e.Thing), amount(e.Held), amount(e.WouldHold), e.Thing.howToMakeRoom())
}

// Room returns a QuotaError if adding this many would exceed the quota, else nil.
func (q *Quota) Room(added int64) error {
	if added > 0 && q.Held+added > q.Allowed {
		return QuotaError{Thing: q.Thing, Held: q.Held, WouldHold: q.Held + added, Allowed: q.Allowed}
	}
	return nil
}

func (t Thing) howToMakeRoom() string {
	switch t {
	case ThingKeys:
		return "Revoke some that are no longer used"
	case ThingOverrides:
		return "Remove some, expired ones too"
	case ThingUsers:
		return "Put some back on the default plan"
	default:
		return "Remove some"
	}
}

func counted(n int64, thing Thing) string {
	name := strings.ReplaceAll(string(thing), "_", " ")
	switch thing {
	case ThingKeys:
		name = "API keys"
	case ThingUsers:
		name = "users with a plan of their own"
	}
	if n == 1 && thing != ThingUsers {
		name = strings.TrimSuffix(name, "s")
	}
	return amount(n) + " " + name
}

func amount(n int64) string { return grouped(strconv.FormatInt(n, 10)) }
