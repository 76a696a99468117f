package adminapi

import (
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// showLimit adds what limits of some algorithms have to a rule's answer.
func showLimit(shown *openapi.Rule, r *rules.Rule) {
	shown.Window = orNull(r.Window.String())
	shown.WindowZone = orNull(r.Window.Zone)
	shown.WindowStartDay = orNull(r.Window.StartDay)
	shown.RefillInterval = orNull(rules.FormatDuration(r.RefillInterval))
	shown.MaxHold = orNull(rules.FormatDuration(r.MaxHold))
	shown.NotifyAt = append([]int{}, r.NotifyAt...)
	shown.Adapt = showAdapt(&r.Adapt)
	if r.Action == rules.ActionLimit {
		shown.LimitText = r.DescribeLimit()
	}
}

// patchLimit sets the given parts of a limit, after dropping what a limit of the rule's action and algorithm cannot
// have. Giving such a part too is a mistake that validation finds. It returns what cannot be read.
func patchLimit(r *rules.Rule, given *openapi.RulePatch) (wrong rules.FieldErrors) {
	set(&r.Action, (*rules.Action)(given.Action))
	set(&r.Algorithm, (*rules.Algorithm)(given.Algorithm))
	dropForeign(r)
	set(&r.RatePerSecond, given.RatePerSecond)
	set(&r.RateUnit, (*rules.RateUnit)(given.RateUnit))
	set(&r.Burst, given.BurstCapacity)
	if given.Window.IsSpecified() {
		var window rules.Window
		if !given.Window.IsNull() {
			var err error
			if window, err = rules.ParseWindow(orZero(given.Window)); err != nil {
				wrong.Add("window", err.Error())
			}
		}
		// The zone and day of another window go with it.
		if window.Calendar != "" {
			window.Zone = r.Window.Zone
		}
		if window.Calendar == r.Window.Calendar {
			window.StartDay = r.Window.StartDay
		}
		r.Window = window
	}
	if given.WindowZone.IsSpecified() {
		r.Window.Zone = orZero(given.WindowZone)
	}
	if given.WindowStartDay.IsSpecified() {
		r.Window.StartDay = orZero(given.WindowStartDay)
	}
	duration := func(field string, to *time.Duration, text string, isNull bool) {
		var err error
		if *to = 0; !isNull {
			*to, err = rules.ParseDuration(text)
		}
		if err != nil {
			wrong.Add(field, err.Error())
		}
	}
	if given.RefillInterval.IsSpecified() {
		duration("refill_interval", &r.RefillInterval, orZero(given.RefillInterval), given.RefillInterval.IsNull())
	}
	if given.MaxHold.IsSpecified() {
		duration("max_hold", &r.MaxHold, orZero(given.MaxHold), given.MaxHold.IsNull())
	}
	if given.NotifyAt != nil {
		r.NotifyAt = nil
		if len(*given.NotifyAt) > 0 {
			r.NotifyAt = *given.NotifyAt
		}
	}
	if given.Adapt.IsSpecified() {
		r.Adapt = readAdapt(given.Adapt)
	}
	return wrong
}

// dropForeign drops what a limit of the rule's action and algorithm cannot have.
func dropForeign(r *rules.Rule) {
	if r.Action != rules.ActionLimit {
		r.Burst = 0
	}
	if r.Action != rules.ActionLimit || !r.Algorithm.HasRate() {
		r.RatePerSecond = 0
	}
	if r.Action != rules.ActionLimit || !r.Algorithm.HasWindow() {
		r.Window = rules.Window{}
	}
	if r.Action != rules.ActionLimit || r.Algorithm != rules.TokenBucket {
		r.RefillInterval = 0
	}
	if r.Action != rules.ActionLimit || r.Algorithm != rules.Concurrency {
		r.MaxHold = 0
	}
	if r.Action != rules.ActionLimit || r.Algorithm != rules.FixedWindow {
		r.NotifyAt = nil
	}
	if r.Action != rules.ActionLimit || !r.Algorithm.HasRate() {
		r.Adapt = rules.Adapt{}
	}
}

// patchOf returns the fields of a new rule that can also be changed.
func patchOf(n *openapi.NewRule) *openapi.RulePatch {
	return &openapi.RulePatch{
		RatePerSecond: n.RatePerSecond, RateUnit: n.RateUnit, BurstCapacity: n.BurstCapacity, Algorithm: n.Algorithm,
		Window: n.Window, WindowZone: n.WindowZone, WindowStartDay: n.WindowStartDay, RefillInterval: n.RefillInterval,
		MaxHold: n.MaxHold, NotifyAt: n.NotifyAt, Adapt: n.Adapt,
		Mode: n.Mode, Action: n.Action, FailureMode: n.FailureMode, Lease: n.Lease, IsActive: n.IsActive, ExpiresAt: n.ExpiresAt, ExpiresInSeconds: n.ExpiresInSeconds,
		Description: n.Description,
	}
}

// newRuleOf returns a cell as the rule that it may create.
func newRuleOf(c *openapi.MatrixCell) *openapi.NewRule {
	return &openapi.NewRule{
		KeyPattern: valueOf(c.KeyPattern), Name: c.Name, Plan: c.Plan,
		RatePerSecond: c.RatePerSecond, RateUnit: c.RateUnit, BurstCapacity: c.BurstCapacity, Algorithm: c.Algorithm,
		Window: c.Window, WindowZone: c.WindowZone, WindowStartDay: c.WindowStartDay, RefillInterval: c.RefillInterval,
		MaxHold: c.MaxHold, NotifyAt: c.NotifyAt, Adapt: c.Adapt,
		Mode: c.Mode, Action: c.Action, FailureMode: c.FailureMode, Lease: c.Lease, IsActive: c.IsActive, ExpiresAt: c.ExpiresAt, Description: c.Description,
	}
}
