package snapshot

import (
	"fmt"

	"github.com/sluicegate/sluice/internal/gateway"
	"github.com/sluicegate/sluice/internal/rules"
)

// mappings are a tenant's documents, compiled once for all requests.
type mappings struct {
	authorize    *gateway.Mapping // nil for the default
	authorizeErr error

	descriptors    *gateway.DescriptorMapping // nil for the default
	descriptorsErr error
}

// Descriptors returns the tenant's mapping for proxies that speak Envoy's rate limit service; see Authorize.
func (t *Tenant) Descriptors() (*gateway.DescriptorMapping, error) {
	switch {
	case t.mappings.descriptorsErr != nil:
		return nil, t.mappings.descriptorsErr
	case t.mappings.descriptors == nil:
		return gateway.DefaultDescriptors, nil
	}
	return t.mappings.descriptors, nil
}

// Authorize returns the tenant's mapping for proxies that ask over HTTP. It is an error if this process cannot read the
// document, which a newer one wrote.
func (t *Tenant) Authorize() (*gateway.Mapping, error) {
	switch {
	case t.mappings.authorizeErr != nil:
		return nil, t.mappings.authorizeErr
	case t.mappings.authorize == nil:
		return gateway.Default, nil
	}
	return t.mappings.authorize, nil
}

// TokenMappings returns the mappings that read claims of tokens, by tenant.
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
