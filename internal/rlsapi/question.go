package rlsapi

import (
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/gateway"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// question is a request as the rules see it: checks, and refunds, with the places of their descriptors.
type question struct {
	checks, refunds      []enforce.Check
	places, refundPlaces []int
}

// checkBounds refuses what no gateway sends.
func checkBounds(request *rls.RateLimitRequest) error {
	switch domain, descriptors := request.GetDomain(), request.GetDescriptors(); {
	case domain == "":
		return invalid("the domain is empty; send the slug of the tenant, or one of its domains")
	case len(domain) > maxDomain:
		return invalid("the domain has more than %d bytes", maxDomain)
	case len(descriptors) == 0:
		return invalid("there are no descriptors; send at least one")
	case len(descriptors) > MaxDescriptors:
		return invalid("there are %d descriptors; send at most %d", len(descriptors), MaxDescriptors)
	}
	for i, d := range request.GetDescriptors() {
		switch n := len(d.GetEntries()); {
		case n == 0:
			return invalid("descriptor %d has no entries", i)
		case n > MaxEntries:
			return invalid("descriptor %d has %d entries; send at most %d", i, n, MaxEntries)
		}
		for _, e := range d.GetEntries() {
			if e.GetKey() == "" {
				return invalid("descriptor %d has an entry without a key", i)
			}
		}
	}
	return nil
}

// maxHits is the largest cost of a check, in tokens.
const maxHits = 1_000_000_000

// read maps the descriptors of a request.
func read(request *rls.RateLimitRequest, tenant *snapshot.Tenant, mapping *gateway.DescriptorMapping) (*question, error) {
	asked := &question{checks: make([]enforce.Check, 0, len(request.GetDescriptors()))}
	usual := uint64(max(1, request.GetHitsAddend()))
	var entries []gateway.Entry
	for i, d := range request.GetDescriptors() {
		hits := usual
		if own := d.GetHitsAddend(); own != nil {
			hits = own.GetValue()
		}
		if hits > maxHits {
			return nil, invalid("descriptor %d has %d hits; send at most %d", i, hits, maxHits)
		}
		entries = entries[:0]
		for _, e := range d.GetEntries() {
			entries = append(entries, gateway.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		check := enforce.Check{
			Request: mapping.Check(request.GetDomain(), entries), Cost: enforce.Tokens(hits) * enforce.Token, Proxied: true,
		}
		var err error
		if check.EffectivePlan, err = tenant.PlanOf(&check.Request); err != nil {
			// A plan that the tenant has not names none: an error would let the request pass.
			check.Plan = ""
			if check.EffectivePlan, err = tenant.PlanOf(&check.Request); err != nil {
				return nil, invalid("descriptor %d: %v", i, err)
			}
		}
		if d.GetIsNegativeHits() {
			asked.refunds, asked.refundPlaces = append(asked.refunds, check), append(asked.refundPlaces, i)
			continue
		}
		asked.checks, asked.places = append(asked.checks, check), append(asked.places, i)
	}
	return asked, nil
}
