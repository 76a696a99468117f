// Package openapi is what oapi-codegen makes of api/openapi.yaml, and the types of rules beside it.
package openapi

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/rules"
)

// RuleShown is a Rule of openapi.yaml.
type RuleShown struct {
	RuleID     ID                        `json:"rule_id"`
	KeyPattern string                    `json:"key_pattern"`
	Name       string                    `json:"name"`
	Plan       nullable.Nullable[string] `json:"plan"`
	Scope      Scope                     `json:"scope"`
	LimitText  string                    `json:"limit_text"`
	Rate       nullable.Nullable[string] `json:"rate"`
	rules.Fields
	CandidateFor nullable.Nullable[ID] `json:"candidate_for"`
	Version      int64                 `json:"version"`
	InForceSince time.Time             `json:"in_force_since"`
	CreatedAt    time.Time             `json:"created_at"`
	UpdatedAt    time.Time             `json:"updated_at"`
	NoDescriptor bool                  `json:"no_descriptor,omitempty"`
}

// RuleGiven is a NewRule or a MatrixCell of openapi.yaml: the rule's identity and all given fields.
type RuleGiven struct {
	RuleID     nullable.Nullable[ID]     `json:"rule_id"`
	Version    nullable.Nullable[int64]  `json:"version"`
	Remove     bool                      `json:"remove"`
	KeyPattern *string                   `json:"key_pattern"`
	Name       *string                   `json:"name"`
	Plan       nullable.Nullable[string] `json:"plan"`
	Fields     json.RawMessage           `json:"-"`
}

// UnmarshalJSON keeps the object.
func (g *RuleGiven) UnmarshalJSON(object []byte) error {
	type named RuleGiven
	if err := json.Unmarshal(object, (*named)(g)); err != nil {
		return err
	}
	g.Fields = bytes.Clone(object)
	return nil
}
