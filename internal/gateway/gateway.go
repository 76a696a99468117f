// Package gateway says what a request is to the rules of a tenant: who its user is, which endpoint it is for, where it comes
// from and what it costs. A proxy that asks about a request only passes it on; the tenant's mapping turns it into a check.
//
// The documents of mappings are stored as rules.Gateway, one for each kind of gateway. ParseAuthorize reads the one for
// proxies that ask over HTTP, Authorize.Validate judges it, and Authorize.Compile makes the Mapping that a snapshot holds.
//
// # Whom a mapping believes
//
// A visitor of the proxy can send any header. So a mapping reads the headers that it names and no others, refuses a
// header of identity that came twice, and counts the addresses of X-Forwarded-For from the end that the proxies write. The
// proxy has to set or remove each header that the mapping names; the examples in deploy/examples do. Visitors choose the
// spelling of paths: see Endpoint.
//
// A mapping costs a few hash lookups and neither waits nor does input or output. Tokens are verified before it is applied:
// see Mapping.Token and Claims.
package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/rules"
)

// Mapping is a compiled document. It is immutable.
type Mapping struct {
	document   Authorize
	endpoint   string // the header that carries the request's URI
	method     string // the header that carries its method
	address    string // the header that carries its addresses
	cost       int64  // the default, in millionths
	templates  templates
	attributes []attribute // by name
	claims     []string    // that fields are read from
}

type attribute struct {
	name   string
	source Source
}

// Default is the mapping of a tenant that has none.
var Default = new(Authorize).Compile()

// Request is the question of a proxy.
type Request struct {
	Headers Headers
	// Method is the method of the question, and Query its query.
	Method, Query string
	// Below is the path below the address that the proxy asks at, as it was sent. Envoy appends the path of the visitor's
	// request to that address, and keeps its method and query. "" for proxies that send headers instead.
	Below string
}

// Headers are those of a question. Names are in canonical form: X-User-Id.
type Headers interface {
	// Values returns the values of all lines of a header.
	Values(name string) [][]byte
}

// Claims are the verified claims of a request's token that the mapping reads, as text. A claim that is missing, or neither
// text nor a whole number, is not there.
type Claims map[string]string

// Check is what a request asks of the rules.
type Check struct {
	rules.Request
	// Cost is in millionths of a token.
	Cost int64
}

// Error says why a request is no check. It is for the proxy's visitor, who may have caused it.
type Error struct{ Detail string }

// Error returns the detail.
func (e *Error) Error() string { return e.Detail }

// ErrNoKeys says that the keys of an issuer were not loaded yet, so that no token of it can be verified.
var ErrNoKeys = errors.New("the issuer's keys are not loaded")

func refuse(parts ...string) error { return &Error{strings.Join(parts, "")} }

// Document returns what the mapping was compiled from. Do not change it.
func (m *Mapping) Document() *Authorize { return &m.document }

// JWT returns how tokens are verified, or nil if the mapping reads none. A changed document has another one, so the pointer
// identifies it.
func (m *Mapping) JWT() *JWT { return m.document.JWT }

// ClaimNames lists the claims that the mapping reads.
func (m *Mapping) ClaimNames() []string { return m.claims }

// Token returns the token of a request, or "". Only one line of its header may have one.
func (m *Mapping) Token(r *Request) string {
	lines := r.Headers.Values(m.document.JWT.header())
	if len(lines) != 1 {
		return ""
	}
	const scheme = "bearer "
	value := bytes.TrimSpace(lines[0])
	if len(value) > len(scheme) && bytes.EqualFold(value[:len(scheme)], []byte(scheme)) {
		return string(bytes.TrimSpace(value[len(scheme):]))
	}
	if m.document.JWT.header() == "Authorization" {
		return "" // another scheme, such as Basic
	}
	return string(value)
}

// Check turns a request into a check. The error is an *Error.
func (m *Mapping) Check(r *Request, claims Claims) (c Check, err error) {
	if c.UserID, err = m.user(r, claims); err != nil {
		return c, err
	}
	if plan := m.document.Plan; plan != nil {
		if c.Plan, err = plan.value(r, claims, maxPlan); err != nil {
			return c, err
		}
	}
	var query string
	if c.Endpoint, c.Method, query, err = m.target(r); err != nil {
		return c, err
	}
	if c.Cost, err = m.costOf(r, query); err != nil {
		return c, err
	}
	hops := 0
	if m.document.Address != nil {
		hops = m.document.Address.TrustedHops
	}
	c.IP = visitor(r.Headers.Values(m.address), hops)
	for i := range m.attributes {
		value, err := m.attributes[i].source.value(r, claims, rules.MaxAttributeValueLength)
		if err != nil {
			return c, err
		}
		if value != "" {
			c.Attributes = append(c.Attributes, rules.Attribute{Name: m.attributes[i].name, Value: value})
		}
	}
	return c, nil
}

const maxPlan = 256

func (m *Mapping) user(r *Request, claims Claims) (string, error) {
	user := m.document.User
	if user == nil {
		return "", nil
	}
	if user.Header == "" || user.Plain {
		return Source{user.Header, user.Claim}.value(r, claims, rules.MaxUserIDLength)
	}
	value, err := one(r, user.Header)
	if err != nil || len(value) == 0 {
		return "", err
	}
	return HashUser(value), nil
}

// HashUser returns the user id of a header's value that is stored hashed: sha256- and the SHA-256 of the value in unpadded
// base64url. Neither Redis nor the database gets to know the value, which may be a customer's API key.
func HashUser(value []byte) string {
	sum := sha256.Sum256(value)
	return "sha256-" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// value returns the value of a source, or "" if the request has none.
func (s Source) value(r *Request, claims Claims, longest int) (string, error) {
	what, text := "The claim "+s.Claim, claims[s.Claim]
	if s.Header != "" {
		value, err := one(r, s.Header)
		if err != nil {
			return "", err
		}
		what, text = "The header "+s.Header, string(value)
	}
	switch {
	case len(text) > longest:
		return "", refuse(what, " has more than ", strconv.Itoa(longest), " bytes.")
	case !utf8.ValidString(text) || strings.Contains(text, "\x00"):
		return "", refuse(what, " is not UTF-8 without NUL.")
	}
	return text, nil
}

// one returns the value of a header that may come once, because with two values one is somebody else's than the proxy's.
func one(r *Request, header string) ([]byte, error) {
	switch lines := r.Headers.Values(header); len(lines) {
	case 0:
		return nil, nil
	case 1:
		return bytes.TrimSpace(lines[0]), nil
	}
	return nil, refuse("The header ", header, " came more than once.")
}

// target returns the endpoint and the method that the visitor asked for, and the query.
func (m *Mapping) target(r *Request) (endpoint, method, query string, err error) {
	path, method, query := r.Below, r.Method, r.Query
	if path == "" {
		uri, err := one(r, m.endpoint)
		if err != nil {
			return "", "", "", err
		}
		sent, err := one(r, m.method)
		if err != nil {
			return "", "", "", err
		}
		path, query, _ = strings.Cut(string(uri), "?")
		query, _, _ = strings.Cut(query, "#")
		method = string(sent)
	}
	if !isMethod(method) {
		return "", "", "", refuse("The method is not one of HTTP.")
	}
	if path == "" {
		return "", method, query, nil
	}
	endpoint = m.templates.fold(cleanPath(path))
	if len(endpoint) > maxEndpoint {
		return "", "", "", refuse("The path has more than ", strconv.Itoa(maxEndpoint), " bytes.")
	}
	return endpoint, method, query, nil
}

const (
	maxEndpoint = 1024
	maxMethod   = 32
)

func isMethod(method string) bool {
	return len(method) <= maxMethod && !strings.ContainsFunc(method, func(c rune) bool { return !isTokenChar(c) })
}

// isTokenChar is tchar of RFC 9110 section 5.6.2.
func isTokenChar(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// visitor returns the address that is hops places before the last one of X-Forwarded-For. A list that is shorter was not
// written by as many proxies, so it says nothing.
func visitor(lines [][]byte, hops int) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; hops-- {
			entry := rest
			if at := bytes.LastIndexByte(rest, ','); at >= 0 {
				rest, entry = rest[:at], rest[at+1:]
			} else {
				more = false
			}
			if hops == 0 {
				return parseAddress(string(bytes.TrimSpace(entry)))
			}
		}
	}
	return netip.Addr{}
}

// parseAddress reads an address that may have a port. It drops a zone, which has a meaning only on the proxy's machine.
func parseAddress(text string) netip.Addr {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return rules.PlainIP(at.Addr())
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		return netip.Addr{}
	}
	return rules.PlainIP(ip)
}
