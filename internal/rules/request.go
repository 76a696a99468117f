package rules

import "net/netip"

// Request is the identity and endpoint that a check asks about. A field that is empty has no
// value: a rule that needs it does not match.
type Request struct {
	UserID     string
	Plan       string // the plan the check names; "" leaves it to the user's assignment
	Endpoint   string // compared byte for byte
	Method     string
	IP         netip.Addr // the zero Addr for none; ::ffff:a.b.c.d is IPv4
	Attributes []Attribute
}

// Attribute is one of the caller's own values, such as the model or the organisation. Names are
// unique within a request.
type Attribute struct{ Name, Value string }

// Attribute returns the value of the attribute with that name, or "".
func (r *Request) Attribute(name string) string {
	for i := range r.Attributes {
		if r.Attributes[i].Name == name {
			return r.Attributes[i].Value
		}
	}
	return ""
}

// Match is one rule that a request meets.
type Match struct {
	Rule *Rule
	// Limit is what holds for this request: the user's override if one is in force, else the
	// rule's own. Its Since counts an override that ended. Meaningless for block and bypass.
	Limit Limit
	// Mode is in force for the check: the rule's own, or ModeShadow while its tenant is in shadow. Whatever
	// asks how a matched rule acts reads this and not Rule.Mode.
	Mode Mode
	// FailureMode is the rule's, or its tenant's default.
	FailureMode FailureMode
	// Subject says whose bucket it is: the values of the pattern's placeholders, joined so that no
	// two different lists of values are ever the same subject.
	Subject string
}

// Shard returns which of the Shards a match's bucket is in, from 1, if its tenant's buckets are spread: by the user if the pattern
// has {user_id}, so that a user's buckets are together; by the rule if the bucket is shared by many, as those of global and
// endpoint:{endpoint} are; else by the subject.
func (m *Match) Shard() uint8 {
	holder, isShared := m.Rule.Pattern.holder(m.Subject)
	if isShared {
		return uint8(m.Rule.ID%Shards) + 1
	}
	return ShardOf(holder)
}

// Owner returns the user whose bucket a match is, or "" if it is not one user's, as those of global,
// endpoint:/a and ip:{ip} are not.
func (m *Match) Owner() string {
	return m.Rule.Pattern.OwnerOf(m.Subject)
}
