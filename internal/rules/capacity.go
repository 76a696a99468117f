package rules

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Thing is what a tenant may have only so many of, such as rules.
type Thing string

// A user counts while a plan is assigned to it, an API key until it is revoked or expires, an override until it is
// removed.
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

// MaxCapacity is the highest that can be set.
const MaxCapacity = 1_000_000_000

// ThingCapacity is how many of a thing a tenant has (Held) and may have; Held can exceed Allowed, after the capacity
// was lowered.
type ThingCapacity struct {
	Thing         Thing
	Held, Allowed int64
	Default       int64 // of the platform
	IsDefault     bool  // the tenant has no exception
}

// Capacity is what a tenant has and may have of each of Things.
type Capacity struct {
	Version int64 // of the exceptions; 0 if the tenant never had any
	Of      []ThingCapacity
}

// CapacityUse counts the tenants that are near their capacity.
type CapacityUse struct {
	Near int // at 90 % of the capacity or more, but below it
	Full int // at the capacity or above
}

// Exceptions are the capacities of a tenant that differ from the defaults.
type Exceptions map[Thing]int64

// Validate returns the mistakes.
func (e Exceptions) Validate() (wrong FieldErrors) {
	for _, thing := range Things {
		if n, ok := e[thing]; ok && (n < 0 || n > MaxCapacity) {
			wrong.Add(string(thing), fmt.Sprintf("must be 0 to %d", MaxCapacity))
		}
	}
	return wrong
}

// CapacityStore reads and changes the capacity of tenants.
type CapacityStore interface {
	Capacity(ctx context.Context, tenant TenantID) (Capacity, error)
	// PutCapacity returns ErrChanged if the version of the exceptions is not the expected one.
	PutCapacity(ctx context.Context, by Actor, tenant TenantID, exceptions Exceptions, expected Expected) (
		Capacity, error,
	)
}

// CapacityError refuses a write that would exceed a tenant's capacity.
type CapacityError struct {
	Thing                    Thing
	Held, WouldHold, Allowed int64
}

func (e CapacityError) Error() string {
	return fmt.Sprintf("the tenant's capacity is %s; it holds %s and would hold %s. %s, or ask a platform admin to "+
		"raise the capacity",
		counted(e.Allowed, e.Thing), amount(e.Held), amount(e.WouldHold), e.Thing.howToMakeRoom())
}

// Room returns a CapacityError if this many more would exceed the capacity.
func (c *ThingCapacity) Room(added int64) error {
	if added > 0 && c.Held+added > c.Allowed {
		return CapacityError{Thing: c.Thing, Held: c.Held, WouldHold: c.Held + added, Allowed: c.Allowed}
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
