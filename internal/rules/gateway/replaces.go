package gateway

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

func (d Domain) validateReplaces(errs *rules.FieldErrors, field string, templates map[string]bool) {
	wrong := func(name string) string {
		if !templates[name] {
			return fmt.Sprintf("must name a template of the domain, got %q", name)
		}
		return ""
	}
	for _, by := range slices.Sorted(maps.Keys(d.Replaces)) {
		errs.Add(field, wrong(by))
		errs.AddIf(len(d.Replaces[by]) == 0, field, fmt.Sprintf("must name what %q replaces", by))
		for _, name := range d.Replaces[by] {
			errs.Add(field, wrong(name))
			errs.AddIf(name == by, field, fmt.Sprintf("must not name %q as what it replaces itself", name))
		}
	}
}

func (d Domain) compileReplaces() map[string][]string {
	if len(d.Replaces) == 0 {
		return nil
	}
	compiled := map[string][]string{}
	for by, names := range d.Replaces {
		for _, name := range names {
			compiled[shortName(by)] = append(compiled[shortName(by)], shortName(name))
		}
	}
	return compiled
}

// Replace removes the names that other descriptors of the request replace; a replaced descriptor still replaces others.
func (m *DescriptorMapping) Replace(domain string, checks iter.Seq[*rules.Request]) {
	d := m.domains[domain]
	if d == nil || d.replaces == nil {
		return
	}
	gone := map[string]bool{}
	for r := range checks {
		if at := nameAt(r); at >= 0 {
			for _, name := range d.replaces[r.Attributes[at].Value] {
				gone[name] = true
			}
		}
	}
	for r := range checks {
		if at := nameAt(r); at >= 0 && gone[r.Attributes[at].Value] {
			r.Attributes = slices.Delete(r.Attributes, at, at+1)
		}
	}
}

func nameAt(r *rules.Request) int {
	const second = 1 // after the domain: see Check
	if len(r.Attributes) > second && r.Attributes[second].Name == DescriptorAttribute {
		return second
	}
	return -1
}
