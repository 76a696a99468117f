package control

import (
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func unmet(slug string, current, desired ruleset.Config, prune bool) (notes ruleset.Errors) {
	mapping := gateway.DefaultDescriptors
	for _, stored := range append(current.Gateways, desired.Gateways...) { // the desired one wins
		if stored.Kind != rules.GatewayDescriptors {
			continue
		}
		if document, err := gateway.ParseDescriptors(stored.Document); err == nil {
			mapping = document.Compile()
		}
	}
	after := desired.Rules
	if !prune {
		after = append(after, current.Rules...)
	}
	named := map[string]bool{}
	for i := range after {
		text := after[i].Pattern.String()
		if after[i].Active && !named[text] && !mapping.CanMeet(slug, after[i].Pattern) {
			named[text] = true
			notes = append(notes, ruleset.Error{Field: text, Message: "no descriptor meets this rule"})
		}
	}
	return notes
}
