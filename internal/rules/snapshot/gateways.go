package snapshot

import (
	"cmp"
	"fmt"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
)

type mappings struct {
	authorize   compiled[gateway.Mapping]
	descriptors compiled[gateway.DescriptorMapping]
}

// compiled is nil for the default; err: only a newer process can read the document.
type compiled[M any] struct {
	mapping *M
	err     error
}

// Descriptors returns the mapping for Envoy's rate limit protocol, or an error if only a newer process can read it.
func (t *Tenant) Descriptors() (*gateway.DescriptorMapping, error) {
	m := &t.mappings.descriptors
	return cmp.Or(m.mapping, gateway.DefaultDescriptors), m.err
}

// Authorize returns the mapping for /v1/authorize, or an error if only a newer process can read it.
func (t *Tenant) Authorize() (*gateway.Mapping, error) {
	m := &t.mappings.authorize
	return cmp.Or(m.mapping, gateway.Default), m.err
}

// TokenMappings returns the mappings that verify tokens, by tenant.
func (s *Snapshot) TokenMappings() map[rules.TenantID]*gateway.Mapping {
	mappings := map[rules.TenantID]*gateway.Mapping{}
	for id, t := range s.tenants.all() {
		if m := t.mappings.authorize.mapping; m != nil && m.JWT() != nil {
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
	t.gateways.set(row.Kind, *row)
}

func compileMappings(gateways table[rules.GatewayKind, rules.Gateway]) mappings {
	return mappings{
		compile(gateways, rules.GatewayAuthorize, gateway.ParseAuthorize),
		compile(gateways, rules.GatewayDescriptors, gateway.ParseDescriptors),
	}
}

func compile[D interface{ Compile() *M }, M any](
	gateways table[rules.GatewayKind, rules.Gateway], kind rules.GatewayKind, parse func(string) (D, error),
) (c compiled[M]) {
	row, ok := gateways.get(kind)
	if !ok {
		return c
	}
	document, err := parse(row.Document)
	if err != nil {
		return compiled[M]{err: fmt.Errorf("the mapping of the gateway %s: %w", kind, err)}
	}
	return compiled[M]{mapping: document.Compile()}
}
