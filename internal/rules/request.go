package rules

import (
	"net/netip"
	"strings"
)

// Request is the identity and endpoint of a check; a rule that needs an empty field does not match.
type Request struct {
	UserID     string
	Plan       string // named by the check; "" for the user's assigned plan
	Endpoint   string // compared byte for byte
	Method     string
	IP         netip.Addr // the zero Addr for none; ::ffff:a.b.c.d is IPv4
	Attributes []Attribute
}

// Attribute is a value of the caller, such as the model; names are unique within a request.
type Attribute struct{ Name, Value string }

// DescriptorAttribute is the attribute that names a proxy's descriptor.
const DescriptorAttribute = "descriptor"

// Attribute returns the value of the attribute with that name, or "".
func (r *Request) Attribute(name string) string {
	for i := range r.Attributes {
		if r.Attributes[i].Name == name {
			return r.Attributes[i].Value
		}
	}
	return ""
}

// IsToken reports whether a text has only tchar of RFC 9110, section 5.6.2.
func IsToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !isLetter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return true
}

// Match is a rule that matches a request.
type Match struct {
	Rule *Rule
	// Limit is the user's override if one is in force, else the rule's; meaningless for block and bypass.
	Limit Limit
	// Mode is ModeShadow while the tenant is in shadow: read this, not Rule.Mode.
	Mode Mode
	// FailureMode is the rule's, or its tenant's default.
	FailureMode FailureMode
	// IsOwn: Limit came with the check, and has buckets of its own.
	IsOwn bool
	// Subject identifies the bucket: see AppendSubject.
	Subject string
}

// Owner returns the user that owns the bucket, or "" for a shared one.
func (m *Match) Owner() string {
	return m.Rule.Pattern.OwnerOf(m.Subject)
}
