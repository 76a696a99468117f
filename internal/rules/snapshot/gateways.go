package snapshot

import (
	"fmt"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
)

type mappings struct {
	authorize    *gateway.Mapping // nil for the default
	authorizeErr error

	descriptors    *gateway.DescriptorMapping // nil for the default
	descriptorsErr error
}

// Descriptors returns the mapping for Envoy's rate limit protocol, or an error if only a newer process can read it.
func (t *Tenant) Descriptors() (*gateway.DescriptorMapping, error) {
	switch {
	case t.mappings.descriptorsErr != nil:
		return nil, t.mappings.descriptorsErr
	case t.mappings.descriptors == nil:
		return gateway.DefaultDescriptors, nil
	}
	return t.mappings.descriptors, nil
}

// Authorize returns the mapping for /v1/authorize, or an error if only a newer process can read it.
func (t *Tenant) Authorize() (*gateway.Mapping, error) {
	switch {
	case t.mappings.authorizeErr != nil:
		return nil, t.mappings.authorizeErr
	case t.mappings.authorize == nil:
		return gateway.Default, nil
	}
	return t.mappings.authorize, nil
}

// TokenMappings returns the mappings that verify tokens, by tenant.
func (s *Snapshot) TokenMappings() map[rules.TenantID]*gateway.Mapping {
	mappings := map[rules.TenantID]*gateway.Mapping{}
	for id, t := range s.tenants.all() {
		if m := t.mappings.authorize; m != nil && m.JWT() != nil {
			mappings[id] = m
		}
	}
	return mappings
}

func (t *tenantDraft) addGateway(row *rules.Gateway) {
	if row.Removed {
		t.gateways.remove(row.Kind)
		return
	}
	t.seen.gateways++
	t.gateways.set(row.Kind, *row)
}

func compileMappings(gateways table[rules.GatewayKind, rules.Gateway]) (m mappings) {
	if row, ok := gateways.get(rules.GatewayAuthorize); ok {
		document, err := gateway.ParseAuthorize(row.Document)
		if err != nil {
			m.authorizeErr = fmt.Errorf("the mapping of the gateway %s: %w", row.Kind, err)
		} else {
			m.authorize = document.Compile()
		}
	}
	if row, ok := gateways.get(rules.GatewayDescriptors); ok {
		document, err := gateway.ParseDescriptors(row.Document)
		if err != nil {
			m.descriptorsErr = fmt.Errorf("the mapping of the gateway %s: %w", row.Kind, err)
		} else {
			m.descriptors = document.Compile()
		}
	}
	return m
}
