package sluice

import "encoding/json"

// decisionJSON is the server's encoding. A null leaves zero.
type decisionJSON struct {
	Allowed        *bool       `json:"allowed"`
	Status         int         `json:"status"` // in batches
	Plan           string      `json:"plan"`
	ViolatedTier   string      `json:"violated_tier"`
	ViolatedRule   string      `json:"violated_rule"`
	ViolatedRuleID int64       `json:"violated_rule_id"`
	Reason         string      `json:"reason"`
	RetryAfter     float64     `json:"retry_after_ms"`
	RetryJitter    float64     `json:"retry_jitter_percent"`
	Delay          float64     `json:"delay_ms"`
	Limit          int64       `json:"limit"`
	Remaining      int64       `json:"remaining"`
	ResetAfter     float64     `json:"reset_after_ms"`
	Reservation    string      `json:"reservation"`
	Degraded       bool        `json:"degraded"`
	Tiers          []*tierJSON `json:"tiers"`
}

type tierJSON struct {
	RuleID     int64   `json:"rule_id"`
	Name       string  `json:"name"`
	Scope      string  `json:"scope"`
	KeyPattern string  `json:"key_pattern"`
	Meter      string  `json:"meter"`
	Mode       string  `json:"mode"`
	Allowed    bool    `json:"allowed"`
	Limit      int64   `json:"limit"`
	Remaining  float64 `json:"remaining"`
	RetryAfter float64 `json:"retry_after_ms"`
	ResetAfter float64 `json:"reset_after_ms"`
	Window     float64 `json:"window_ms"`
	MoreAfter  float64 `json:"more_after_ms"`
}

// decodeDecision reads a decision; ok is whether it is one that fits the status.
func decodeDecision(answer []byte, status int) (d Decision, ok bool) {
	var from decisionJSON
	if json.Unmarshal(answer, &from) != nil {
		return d, false
	}
	from.Status = status
	return from.decision()
}

// decodeBatch reads a batch; ok is whether all results are decisions.
func decodeBatch(answer []byte) (decisions []Decision, ok bool) {
	var from struct {
		Results []decisionJSON `json:"results"`
	}
	if json.Unmarshal(answer, &from) != nil || from.Results == nil {
		return nil, false
	}
	decisions = make([]Decision, len(from.Results))
	for i := range from.Results {
		if decisions[i], ok = from.Results[i].decision(); !ok {
			return nil, false
		}
	}
	return decisions, true
}

func (from *decisionJSON) decision() (d Decision, ok bool) {
	if from.Allowed == nil {
		return d, false
	}
	d = Decision{
		Allowed: *from.Allowed, Status: from.Status, Reason: from.Reason, Plan: from.Plan,
		RetryAfter: millis(from.RetryAfter), RetryJitterPercent: from.RetryJitter, Delay: millis(from.Delay),
		Limit: from.Limit, Remaining: from.Remaining, ResetAfter: millis(from.ResetAfter),
		ViolatedTier: from.ViolatedTier, ViolatedRule: from.ViolatedRule, ViolatedRuleID: from.ViolatedRuleID,
		Reservation: from.Reservation, Degraded: from.Degraded, Source: FromServer,
	}
	if from.Tiers != nil {
		d.Tiers = make([]Tier, len(from.Tiers))
	}
	for i, t := range from.Tiers {
		if t == nil {
			return d, false
		}
		d.Tiers[i] = Tier{
			RuleID: t.RuleID, Name: t.Name, Scope: t.Scope, KeyPattern: t.KeyPattern, Meter: t.Meter,
			Mode: t.Mode, Allowed: t.Allowed,
			Limit: t.Limit, Remaining: t.Remaining, RetryAfter: millis(t.RetryAfter), ResetAfter: millis(t.ResetAfter),
			Window: millis(t.Window), MoreAfter: millis(t.MoreAfter),
		}
	}
	switch d.Status {
	case 200:
		return d, d.Allowed
	case 429, 503:
		return d, !d.Allowed
	}
	return d, false
}
