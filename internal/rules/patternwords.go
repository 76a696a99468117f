package rules

import (
	"slices"
	"strings"
)

// Words names the pattern as the UI does: "Each user on POST /v1/charges", "Everything below /api/".
func (p Pattern) Words() string {
	if p.scope == ScopeGlobal {
		return "All requests"
	}
	isSplit := slices.ContainsFunc(p.segments, func(s Segment) bool { return s.Placeholder })
	var each, where []string
	for i := range p.segments {
		switch s := &p.segments[i]; {
		case s.Placeholder:
			each = append(each, s.noun())
		case !isSplit && len(where) == 0:
			where = append(where, s.place())
		default:
			where = append(where, s.within())
		}
	}
	if !isSplit {
		words := strings.Join(where, " ")
		return strings.ToUpper(words[:1]) + words[1:]
	}
	return strings.TrimSpace("Each " + strings.Join(each, " and ") + " " + strings.Join(where, ", "))
}

func (s *Segment) noun() string {
	switch s.Field {
	case FieldIP:
		return "IP address"
	case FieldAttribute:
		return s.Attribute
	case FieldUser, FieldEndpoint, FieldGlobal:
	}
	return string(s.Field)
}

// A pattern without placeholders begins with its one bucket; within adds the further conditions.
func (s *Segment) place() string {
	switch {
	case s.Field == FieldUser:
		return "user " + s.Value
	case s.Field == FieldIP && s.Prefix.IsSingleIP():
		return "address " + s.network()
	case s.Field == FieldIP:
		return "network " + s.network()
	case s.Field == FieldAttribute:
		return s.Attribute + " " + s.Value
	case s.Below:
		return "everything below " + s.endpoint()
	}
	return "requests to " + s.endpoint()
}

func (s *Segment) within() string {
	switch {
	case s.Field == FieldUser:
		return "of user " + s.Value
	case s.Field == FieldIP:
		return "from " + s.network()
	case s.Field == FieldAttribute:
		return "with " + s.Attribute + " " + s.Value
	case s.Below:
		return "below " + s.endpoint()
	}
	return "on " + s.endpoint()
}

func (s *Segment) endpoint() string { return strings.TrimSpace(s.Method + " " + s.Value) }

func (s *Segment) network() string {
	if s.Prefix.IsSingleIP() {
		return s.Prefix.Addr().String()
	}
	return s.Prefix.String()
}
