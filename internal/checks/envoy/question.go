package envoy

import (
	"sync"

	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// question is a request in reused memory: its descriptors by what they ask for.
type question struct {
	asked, recorded, refunded part
	fields                    checkjson.Headers
}

type part struct {
	checks    []enforce.Check
	indexes   []int              // of their descriptors
	decisions []enforce.Decision // as long as checks, or longer
}

var questions = sync.Pool{New: func() any { return new(question) }}

func (q *question) parts() [3]*part { return [...]*part{&q.asked, &q.recorded, &q.refunded} }

func (q *question) release() {
	for _, p := range q.parts() {
		if cap(p.checks) > keptDescriptors {
			return
		}
		clear(p.checks)
		p.checks, p.indexes = p.checks[:0], p.indexes[:0]
	}
	questions.Put(q)
}

func (p *part) add(check enforce.Check, index int) {
	p.checks, p.indexes = append(p.checks, check), append(p.indexes, index)
	if len(p.checks) > len(p.decisions) {
		p.decisions = append(p.decisions, enforce.Decision{})
	}
}

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

const maxHits = 1_000_000_000

func (q *question) read(r *request, tenant *snapshot.Tenant, mapping *gateway.DescriptorMapping) error {
	usual, takesLimits := uint64(max(1, r.hits)), mapping.TakesLimits(r.domain)
	attributes := make([]rules.Attribute, r.attributes()) // violations keep them, so they are not reused
	for i := range r.descriptors {
		d := &r.descriptors[i]
		hits := usual
		if d.ownHits {
			hits = d.hits
		}
		if hits > maxHits {
			return invalid("descriptor %d has %d hits; send at most %d", i, hits, maxHits)
		}
		n := d.attributes()
		request, counted := mapping.Check(r.domain, d.entries, attributes[:0:n])
		check := enforce.Check{Request: request, Proxied: true}
		check.SetCost(counted.Meter, enforce.Tokens(hits)*enforce.Token)
		if takesLimits {
			check.OwnLimit = gateway.OwnLimit(int64(d.limit.requests), int64(d.limit.unit))
		}
		attributes = attributes[n:]
		var err error
		if check.EffectivePlan, err = tenant.PlanOf(&check.Request); err != nil {
			// An error would let the request pass, so an unknown plan counts as none.
			check.Plan = ""
			if check.EffectivePlan, err = tenant.PlanOf(&check.Request); err != nil {
				return invalid("descriptor %d: %v", i, err)
			}
		}
		switch {
		case d.negative:
			q.refunded.add(check, i)
		case counted.Record && hits > 0:
			check.Record = true
			q.recorded.add(check, i)
		default:
			q.asked.add(check, i)
		}
	}
	mapping.Replace(r.domain, q.requests)
	return nil
}

func (q *question) requests(yield func(*rules.Request) bool) {
	for _, p := range q.parts() {
		for i := range p.checks {
			if !yield(&p.checks[i].Request) {
				return
			}
		}
	}
}
