package enforce

import (
	"iter"

	"github.com/sluicegate/sluice/internal/rules"
)

// AtGateway is how a limit differs for a Proxied check; "" if it does not.
type AtGateway string

// The differences.
const (
	DeniesDelays AtGateway = "denies_delays"
	NotApplied   AtGateway = "not_applied"
)

// AtGatewayOf returns how a kind differs at a gateway.
func AtGatewayOf(kind rules.Kind) AtGateway {
	switch kind {
	case rules.KindLeakyBucket:
		return DeniesDelays
	case rules.KindConcurrency:
		return NotApplied
	}
	return ""
}

// Differences yields the queue that denied a Proxied check, and its concurrency limits.
func (d *Decision) Differences() iter.Seq2[*rules.Rule, AtGateway] {
	return func(yield func(*rules.Rule, AtGateway) bool) {
		if t := d.DecidingTier(); t != nil && t.Reason == LimitExceeded && AtGatewayOf(t.Limit.Kind) == DeniesDelays {
			if !yield(t.Match.Rule, DeniesDelays) {
				return
			}
		}
		for i := range d.matches {
			m := &d.matches[i]
			if isLimit(m) && AtGatewayOf(m.Limit.Kind) == NotApplied && !yield(m.Rule, NotApplied) {
				return
			}
		}
	}
}
