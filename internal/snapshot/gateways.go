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
			return m
		}
		m.authorize = document.Compile()
	}
	return m
}
