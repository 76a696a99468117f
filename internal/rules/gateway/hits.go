package gateway

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

// Hits are what the hits of a descriptor are to the rules.
type Hits struct {
	Meter string `json:"meter,omitempty"`
	// Record: hits have happened, and are charged whatever is left; 0 hits ask.
	Record bool `json:"record,omitempty"`
}

// CountedHits are Hits of a compiled mapping.
type CountedHits struct {
	Meter  rules.Meter
	Record bool
}

func (d Domain) validateHits(errs *rules.FieldErrors, field string, templates map[string]bool) {
	wrongMeter := func(field, word string) {
		if _, err := rules.ParseMeter(word); word != "" && err != nil {
			errs.Add(field, err.Error())
		}
	}
	wrongMeter(field+".meter", d.Meter)
	for _, name := range slices.Sorted(maps.Keys(d.Hits)) {
		if len(templates) > 0 && !templates[name] {
			errs.Add(field+".hits", fmt.Sprintf("must name templates of the domain, got %q", name))
		}
		wrongMeter(field+".hits."+name+".meter", d.Hits[name].Meter)
	}
}

func (d Domain) compileHits() (usual CountedHits, byName map[string]CountedHits) {
	usual = Hits{}.counted(d.Meter)
	for name, hits := range d.Hits {
		if byName == nil {
			byName = map[string]CountedHits{}
		}
		byName[shortName(name)] = hits.counted(d.Meter)
	}
	return usual, byName
}

// MeterOf returns what the hits of descriptors of a valid template count.
func (d Domain) MeterOf(name string) rules.Meter { return d.Hits[name].counted(d.Meter).Meter }

func (h Hits) counted(usual string) CountedHits {
	word := h.Meter
	if word == "" {
		word = usual
	}
	if word == "" {
		return CountedHits{Record: h.Record}
	}
	meter, _ := rules.ParseMeter(word) // a valid document's always parse
	return CountedHits{meter, h.Record}
}

func (m *DescriptorMapping) hitsOf(domain, name string) CountedHits {
	d := m.domains[domain]
	switch {
	case d == nil:
		return CountedHits{}
	case d.hits == nil:
		return d.usual
	}
	if hits, found := d.hits[shortName(name)]; found {
		return hits
	}
	return d.usual
}
