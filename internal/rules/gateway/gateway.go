// Package gateway turns a proxy's request into a check: user, endpoint, address, attributes and cost, by the tenant's
// mapping. ParseAuthorize and ParseDescriptors read the stored documents (rules.Gateway), Validate checks them, and
// Compile makes the mappings of a snapshot.
//
// Visitors can send any header. A mapping therefore reads only the headers that it names, refuses an identity header
// that occurs twice, and counts X-Forwarded-For from the end that the proxies write. The proxy must set or remove each
// named header, as the examples in deploy/examples do.
//
// Applying a mapping costs a few hash lookups and no input or output. Tokens are verified before: see Mapping.Token and
// Claims.
package gateway

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/sluicegate/sluice/internal/rules"
)

// Mapping is a compiled, immutable document.
type Mapping struct {
	document   Authorize
	endpoint   string // header of the request's URI
	method     string // header of the method
	address    string // header of the addresses
	cost       cost
	costs      []cost // of other meters than requests, sorted by name
	folds      []Fold
	templates  templates
	attributes []attribute // sorted by name
	claims     []string    // the names of all claims that are read
}

type attribute struct {
	name   string
	source Source
}

// Default is the mapping of a tenant without one.
var Default = new(Authorize).Compile()

// Request is the proxy's request to us.
type Request struct {
	Headers Headers
	// Method and Query belong to the proxy's request.
	Method, Query string
	// Below is the undecoded path below our address. Envoy appends the path of the visitor's request there, and keeps
	// its method and query. "" for proxies that send headers instead.
	Below string
}

// Headers are the headers of a Request. Names are in canonical form: X-User-Id.
type Headers interface {
	// Values returns the values of all lines of a header.
	Values(name string) [][]byte
}

// Claims are the verified claims that the mapping reads, as text. A claim that is neither text nor a whole number is
// missing.
type Claims map[string]string

// Check is the check that a request stands for.
type Check struct {
	rules.Request
	// Cost is that of requests, in millionths of a token, and Costs are those of other meters.
	Cost  int64
	Costs []MeterCost
	// NoAddress: the request has no usable address.
	NoAddress bool
	// UnusableCost: a cost is no number, so its default counts.
	UnusableCost bool
}

// MeterCost is a cost in millionths.
type MeterCost struct {
	Meter rules.Meter
	Cost  int64
}

// Gap is why a proxy's request may escape limits. Gaps are counted.
type Gap string

// The gaps. The last two are of Envoy's protocol.
const (
	GapAddress Gap = "no_address"
	GapCost    Gap = "unusable_cost"
	GapDomain  Gap = "unknown_domain"
	GapRule    Gap = "no_rule" // no rule matches a descriptor
)

// Gaps returns the names of all gaps.
func Gaps() []string {
	return []string{string(GapAddress), string(GapCost), string(GapDomain), string(GapRule)}
}

// Error explains why a request is not a valid check, to the visitor, who may have caused the error.
type Error struct{ Detail string }

// Error returns the detail.
func (e *Error) Error() string { return e.Detail }

// ErrNoKeys means that the issuer's keys are not loaded yet, so that its tokens cannot be verified.
var ErrNoKeys = errors.New("the issuer's keys are not loaded")

func refuse(parts ...string) error { return &Error{strings.Join(parts, "")} }

// Document returns the document of the mapping. Do not modify it.
func (m *Mapping) Document() *Authorize { return &m.document }

// JWT returns how tokens are verified, or nil if none are read. A changed document has a new pointer, so the pointer
// identifies the version.
func (m *Mapping) JWT() *JWT { return m.document.JWT }

// ClaimNames lists the claims that the mapping reads.
func (m *Mapping) ClaimNames() []string { return m.claims }

// Token returns the token of a request, or "", also if its header has several lines.
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
		if c.Plan, _, err = plan.text(r, claims); err != nil {
			return c, err
		}
	}
	var query string
	if c.Endpoint, c.Method, query, err = m.target(r); err != nil {
		return c, err
	}
	if c.Cost, c.UnusableCost, err = m.cost.of(r, query); err != nil {
		return c, err
	}
	for i := range m.costs {
		cost, unusable, err := m.costs[i].of(r, query)
		if err != nil {
			return c, err
		}
		c.Costs, c.UnusableCost = append(c.Costs, MeterCost{m.costs[i].meter, cost}), c.UnusableCost || unusable
	}
	if c.IP, err = m.visitor(r); err != nil {
		return c, err
	}
	if c.NoAddress = !c.IP.IsValid(); c.NoAddress && m.document.Address != nil {
		c.IP = parseAddress(m.document.Address.Default)
	}
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
		id, err := user.value(r, claims, rules.MaxUserIDLength)
		return cmp.Or(id, user.Default), err
	}
	value, sent, err := user.text(r, claims)
	if err != nil || !sent {
		return user.Default, err
	}
	return HashUser([]byte(value)), nil
}

// HashUser returns "sha256-" and the SHA-256 of the value in unpadded base64url. The value may be a customer's API key,
// which Redis and the database must not store.
func HashUser(value []byte) string {
	sum := sha256.Sum256(value)
	return "sha256-" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// value returns the value of the source as it fits a field of a check, or "" without one. Visitors may choose the value
// of a header, so an empty one has a bucket too.
func (s Source) value(r *Request, claims Claims, longest int) (string, error) {
	text, sent, err := s.text(r, claims)
	if err != nil || !sent {
		return "", err
	}
	return Shorten(text, longest), nil
}

func (s Source) text(r *Request, claims Claims) (text string, sent bool, err error) {
	if s.Header == "" {
		text = claims[s.Claim]
		return s.fold(text), text != "", nil
	}
	value, sent, err := one(r, s.Header)
	return s.fold(string(value)), sent, err
}

// one refuses a repeated header, because one of the values may not be the proxy's.
func one(r *Request, header string) (value []byte, sent bool, err error) {
	switch lines := r.Headers.Values(header); len(lines) {
	case 0:
		return nil, false, nil
	case 1:
		return bytes.TrimSpace(lines[0]), true, nil
	}
	return nil, false, refuse("The header ", header, " came more than once.")
}

func (m *Mapping) target(r *Request) (endpoint, method, query string, err error) {
	path, method, query := r.Below, r.Method, r.Query
	if path == "" {
		uri, _, err := one(r, m.endpoint)
		if err != nil {
			return "", "", "", err
		}
		sent, _, err := one(r, m.method)
		if err != nil {
			return "", "", "", err
		}
		path, query, _ = strings.Cut(string(uri), "?")
		query, _, _ = strings.Cut(query, "#")
		method = string(sent)
	}
	if !isMethod(method) {
		method = HashUser([]byte(method))
	}
	if path == "" {
		return "", method, query, nil
	}
	return shortenEndpoint(m.templates.fold(foldPath(cleanPath(path), m.folds))), method, query, nil
}

const (
	maxEndpoint = 1024
	maxMethod   = 32
)

func isMethod(method string) bool {
	return len(method) <= maxMethod && rules.IsToken(method)
}
