// Package gateway turns a proxy's request into a check, by the tenant's mapping, whose stored document is a
// rules.Gateway.
//
// Visitors can send any header. A mapping therefore reads only the headers that it names, refuses an identity header
// that occurs twice, and counts X-Forwarded-For from the end that the proxies write.
//
// Applying a mapping costs a few hash lookups. Tokens are verified before: see Mapping.Token and Claims.
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
	Headers       Headers
	Method, Query string
	// Below is the undecoded path below our address, where Envoy appends the path of the visitor's request. "" is for
	// proxies that send headers instead.
	Below string
}

// Headers are those of a Request, by canonical names: X-User-Id.
type Headers interface {
	Values(name string) [][]byte
}

// Claims are verified, as text.
type Claims map[string]string

// Check is the check that a request stands for.
type Check struct {
	rules.Request
	// Cost and Costs are in millionths of a token; Costs are of other meters than requests.
	Cost         int64
	Costs        []MeterCost
	NoAddress    bool
	UnusableCost bool
}

// MeterCost is a cost in millionths.
type MeterCost struct {
	Meter rules.Meter
	Cost  int64
}

// Gap is why a proxy's request may escape limits.
type Gap string

// The gaps of requests.
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

// Error is for the visitor, who may have caused the error.
type Error struct{ Detail string }

func (e *Error) Error() string { return e.Detail }

// ErrNoKeys means that the issuer's keys are not loaded yet.
var ErrNoKeys = errors.New("the issuer's keys are not loaded")

func refuse(parts ...string) error { return &Error{strings.Join(parts, "")} }

// Document returns the document; do not modify it.
func (m *Mapping) Document() *Authorize { return &m.document }

// JWT returns how tokens are verified, or nil; a changed document has a new pointer.
func (m *Mapping) JWT() *JWT { return m.document.JWT }

// ClaimNames lists the claims that the mapping reads.
func (m *Mapping) ClaimNames() []string { return m.claims }

// Token returns the one token of a request, or "".
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

// Check turns a request into a check; the error is an *Error.
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

// HashUser hides a value that may be a customer's API key, which Redis and the database must not store.
func HashUser(value []byte) string {
	sum := sha256.Sum256(value)
	return "sha256-" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Visitors may choose the value of a header, so an empty one has a bucket too.
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

// one refuses a repeated header, because the proxy wrote only one.
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
