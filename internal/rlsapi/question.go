package rlsapi

import (
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/gateway"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// question is a request as the rules see it: checks, and refunds, with the places of their descriptors.
type question struct {
	checks, refunds      []enforce.Check
	places, refundPlaces []int
}

// checkBounds refuses what no gateway sends.
func checkBounds(r *request) error {
	switch domain, descriptors := r.domain, r.descriptors; {
	case domain == "":
		return invalid("the domain is empty; send the slug of the tenant, or one of its domains")
	case len(domain) > maxDomain:
		return invalid("the domain has more than %d bytes", maxDomain)
	case len(descriptors) == 0:
		return invalid("there are no descriptors; send at least one")
	case len(descriptors) > MaxDescriptors:
		return invalid("there are %d descriptors; send at most %d", len(descriptors), MaxDescriptors)
	}
	for i := range r.descriptors {
		entries := r.descriptors[i].entries
		switch n := len(entries); {
		case n == 0:
			return invalid("descriptor %d has no entries", i)
		case n > MaxEntries:
			return invalid("descriptor %d has %d entries; send at most %d", i, n, MaxEntries)
		}
		for j := range entries {
			if entries[j].Key == "" {
				return invalid("descriptor %d has an entry without a key", i)
			}
		}
	}
	return nil
}

// maxHits is the largest cost of a check, in tokens.
const maxHits = 1_000_000_000

// read maps the descriptors of a request.
func read(r *request, tenant *snapshot.Tenant, mapping *gateway.DescriptorMapping) (*question, error) {
	asked := &question{checks: make([]enforce.Check, 0, len(r.descriptors)), places: make([]int, 0, len(r.descriptors))}
	usual := uint64(max(1, r.hits))
	for i := range r.descriptors {
		d := &r.descriptors[i]
		hits := usual
		if d.ownHits {
			hits = d.hits
		}
		if hits > maxHits {
			return nil, invalid("descriptor %d has %d hits; send at most %d", i, hits, maxHits)
		}
		check := enforce.Check{
			Request: mapping.Check(r.domain, d.entries), Cost: enforce.Tokens(hits) * enforce.Token, Proxied: true,
		}
		var err error
		if check.EffectivePlan, err = tenant.PlanOf(&check.Request); err != nil {
			// A plan that the tenant has not names none: an error would let the request pass.
			check.Plan = ""
			if check.EffectivePlan, err = tenant.PlanOf(&check.Request); err != nil {
				return nil, invalid("descriptor %d: %v", i, err)
			}
		}
		if d.negative {
			asked.refunds, asked.refundPlaces = append(asked.refunds, check), append(asked.refundPlaces, i)
			continue
		}
		asked.checks, asked.places = append(asked.checks, check), append(asked.places, i)
	}
	mapping.Replace(r.domain, asked.requests)
	return asked, nil
}

// requests yields what each descriptor asks of the rules.
func (q *question) requests(yield func(*rules.Request) bool) {
	for _, checks := range [][]enforce.Check{q.checks, q.refunds} {
		for i := range checks {
			if !yield(&checks[i].Request) {
				return
			}
		}
	}
}
