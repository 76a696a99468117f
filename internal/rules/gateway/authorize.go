package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/rules"
)

// Authorize is the mapping for proxies that call /v1/authorize. Without any field, a request has no user, the tenant's
// plan, a cost of 1, the path and method of X-Forwarded-Uri and X-Forwarded-Method, and the last address of
// X-Forwarded-For.
type Authorize struct {
	JWT        *JWT              `json:"jwt,omitempty"`
	User       *User             `json:"user,omitempty"`
	Plan       *Source           `json:"plan,omitempty"`
	Cost       *Cost             `json:"cost,omitempty"`
	Costs      map[string]Cost   `json:"costs,omitempty"`
	Endpoint   *Endpoint         `json:"endpoint,omitempty"`
	Address    *Address          `json:"address,omitempty"`
	Attributes map[string]Source `json:"attributes,omitempty"`
}

// Source is a header, or a claim of the verified token, whose nested names have dots: org.plan.
type Source struct {
	Header string `json:"header,omitempty"`
	Claim  string `json:"claim,omitempty"`
	Spelling
}

// Spelling merges spellings of one identity, before hashing.
type Spelling struct {
	Lower bool `json:"lower,omitempty"`
	// Trim removes Unicode's white space at both ends.
	Trim bool `json:"trim,omitempty"`
}

func (s Spelling) fold(text string) string {
	if s.Trim {
		text = strings.TrimSpace(text)
	}
	if s.Lower {
		text = strings.ToLower(text)
	}
	return text
}

// User is the source of the user id.
type User struct {
	Source
	// Plain keeps a header's value; otherwise the user id is its HashUser.
	Plain bool `json:"plain,omitempty"`
	// Default is shared by requests without an id; a rule such as user:anonymous limits them.
	Default string `json:"default,omitempty"`
}

// Cost is a header, or a parameter of the visitor's query, whose cost is at least the default. A cost that is no number
// counts as the default.
type Cost struct {
	Header string `json:"header,omitempty"`
	Query  string `json:"query,omitempty"`
	// Default is in tokens; nil is 1.
	Default *float64 `json:"default,omitempty"`
}

// Endpoint is the normalized path, or the template that it matches. Visitors choose the spelling of a path, and
// /orders, //orders, /x/../orders and /%6Frders must not be four endpoints. As in RFC 3986 section 6.2.2, escapes of
// unreserved characters are decoded, others are upper-case, slashes are merged and dot segments resolved.
type Endpoint struct {
	// Header carries the URI, by default X-Forwarded-Uri.
	Header string `json:"header,omitempty"`
	// MethodHeader is by default X-Forwarded-Method.
	MethodHeader string `json:"method_header,omitempty"`
	// Templates merge paths: /orders/{id} is the endpoint of /orders/123, and a last * matches everything below. The
	// one with the leftmost literal segments wins.
	Templates []string `json:"templates,omitempty"`
	Folds     []Fold   `json:"folds,omitempty"`
}

// Address is the source of the visitor's address.
type Address struct {
	// Header is by default X-Forwarded-For; Forwarded is read as RFC 7239 says.
	Header string `json:"header,omitempty"`
	// TrustedHops is the number of proxies between visitor and gateway; each appends the address of its client.
	TrustedHops int    `json:"trusted_hops,omitempty"`
	Short       string `json:"short,omitempty"`
	// Default is shared by requests without an address, such as 0.0.0.0.
	Default string `json:"default,omitempty"`
}

// The choices for a list that is too short, because a request passed fewer proxies or none.
const (
	ShortLast   = "last"   // counts the last address
	ShortNobody = "nobody" // has no address
	ShortRefuse = "refuse" // is refused
)

// JWT verifies a token's signature, its expiry, and its issuer and audience if set.
type JWT struct {
	// Header carries the token, with or without "Bearer "; "" is Authorization.
	Header string `json:"header,omitempty"`
	// JWKSURL is the address of the issuer's keys; JWKS has them as JSON.
	JWKSURL  string `json:"jwks_url,omitempty"`
	JWKS     string `json:"jwks,omitempty"`
	Issuer   string `json:"issuer,omitempty"`
	Audience string `json:"audience,omitempty"`
	// Optional allows requests without a valid token, which otherwise get 401.
	Optional bool `json:"optional,omitempty"`
}

// SameKeys reports whether two JWTs use the same source of keys.
func (j *JWT) SameKeys(other *JWT) bool { return j.JWKSURL == other.JWKSURL && j.JWKS == other.JWKS }

func (j *JWT) header() string {
	if j.Header == "" {
		return "Authorization"
	}
	return j.Header
}

// The bounds of a mapping; texts in bytes.
const (
	maxDocument       = 64 << 10
	maxHeaderName     = 64
	maxClaim          = 256
	maxText           = 512
	maxJWKS           = 32 << 10
	maxKeys           = 20
	maxAttributes     = 16
	maxTrustedHops    = 16
	maxTemplates      = 200
	maxTemplate       = 256
	maxTemplateDepth  = 16
	token             = 1_000_000 // millionths
	maxCost           = 1_000_000_000
	defaultEndpoint   = "X-Forwarded-Uri"
	defaultMethod     = "X-Forwarded-Method"
	defaultAddress    = "X-Forwarded-For"
	keyHeader         = "X-Sluice-Key"
	mustBeHeader      = "must be the name of a header, such as X-User-Id"
	mustBeOneOfSource = "must have either a header or a claim"
)

// ParseAuthorize reads a stored document. An unknown field, of a newer process, is an error, because ignoring it would
// change the meaning.
func ParseAuthorize(document string) (*Authorize, error) {
	a := new(Authorize)
	return a, parse(document, a)
}

func parse(document string, into interface{ Validate() rules.FieldErrors }) error {
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("read the mapping: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read the mapping: unexpected text after the JSON object")
	}
	if wrong := into.Validate(); len(wrong) > 0 {
		return fmt.Errorf("read the mapping: %w", wrong)
	}
	return nil
}

// Document returns the mapping as stored.
func (a *Authorize) Document() string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(a) // a validated mapping is always valid JSON
	return strings.TrimSpace(b.String())
}

// Validate returns all mistakes in a mapping.
func (a *Authorize) Validate() (e rules.FieldErrors) {
	if a.JWT != nil {
		a.JWT.validate(&e)
	}
	claim := func(field, name string) {
		switch {
		case name == "":
		case len(name) > maxClaim || !isPlain(name):
			e.Add(field, fmt.Sprintf("must be the name of a claim, of at most %d bytes", maxClaim))
		case a.JWT == nil:
			e.Add(field, "needs jwt: only claims of verified tokens are read")
		}
	}
	source := func(field string, s Source) {
		e.AddIf((s.Header == "") == (s.Claim == ""), field, mustBeOneOfSource)
		e.Add(field+".header", wrongHeader(s.Header))
		claim(field+".claim", s.Claim)
	}
	if u := a.User; u != nil {
		source("user", u.Source)
		switch {
		case u.Plain && u.Header == "":
			e.Add("user.plain", "is for a header: claims are always kept as they are")
		case u.Plain && isSecret(u.Header):
			e.Add("user.plain", "must be false: "+carriesSecrets)
		}
		if len(u.Default) > rules.MaxUserIDLength || !isPlain(u.Default) {
			e.Add("user.default", fmt.Sprintf("must be a user id of at most %d bytes", rules.MaxUserIDLength))
		}
	}
	if a.Plan != nil {
		source("plan", *a.Plan)
		e.Add("plan.header", wrongStored(a.Plan.Header))
	}
	if a.Cost != nil {
		a.Cost.validate(&e, "cost")
	}
	a.validateCosts(&e)
	if a.Endpoint != nil {
		e.Add("endpoint.header", wrongHeader(a.Endpoint.Header))
		e.Add("endpoint.header", wrongStored(a.Endpoint.Header))
		e.Add("endpoint.method_header", wrongHeader(a.Endpoint.MethodHeader))
		e.Add("endpoint.method_header", wrongStored(a.Endpoint.MethodHeader))
		for i, fold := range a.Endpoint.Folds {
			e.Add(fmt.Sprintf("endpoint.folds.%d", i), rules.WrongChoice(fold, allFolds...))
		}
		a.Endpoint.validateTemplates(&e)
	}
	if a.Address != nil {
		e.Add("address.header", wrongHeader(a.Address.Header))
		if hops := a.Address.TrustedHops; hops < 0 || hops > maxTrustedHops {
			e.Add("address.trusted_hops", fmt.Sprintf("must be from 0 to %d, got %d", maxTrustedHops, hops))
		}
		if a.Address.Short != "" {
			e.Add("address.short", rules.WrongChoice(a.Address.Short, ShortLast, ShortNobody, ShortRefuse))
		}
		if a.Address.Default != "" && !parseAddress(a.Address.Default).IsValid() {
			e.Add("address.default", "must be an address such as 0.0.0.0")
		}
	}
	if len(a.Attributes) > maxAttributes {
		e.Add("attributes", fmt.Sprintf("must be at most %d, got %d", maxAttributes, len(a.Attributes)))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Attributes)) {
		if !rules.IsAttributeName(name) {
			e.Add("attributes", fmt.Sprintf(
				"has %q, which is no attribute's name: 1 to %d letters, digits, '_', '.' and '-'",
				name, rules.MaxAttributeNameLength))
			continue
		}
		source("attributes."+name, a.Attributes[name])
		e.Add("attributes."+name+".header", wrongStored(a.Attributes[name].Header))
	}
	if len(e) == 0 && len(a.Document()) > maxDocument {
		e.Add("", fmt.Sprintf("must be at most %d bytes of JSON", maxDocument))
	}
	return e
}

func wrongHeader(name string) string {
	switch {
	case len(name) > maxHeaderName || !rules.IsToken(name):
		return fmt.Sprintf("%s, of at most %d bytes", mustBeHeader, maxHeaderName)
	case http.CanonicalHeaderKey(name) == keyHeader:
		return "must not be " + keyHeader + ", which carries the gateway's own key"
	}
	return ""
}

const carriesSecrets = "this header carries secrets, which would be stored"

func isSecret(header string) bool {
	return slices.Contains([]string{"Authorization", "Cookie"}, http.CanonicalHeaderKey(header))
}

// wrongStored refuses a header with secrets, because its value becomes part of unencrypted keys and rows.
func wrongStored(header string) string {
	if isSecret(header) {
		return "must be another: " + carriesSecrets + "; only user keeps a hash instead"
	}
	return ""
}

func (a *Authorize) validateCosts(e *rules.FieldErrors) {
	const most = rules.MaxMeters - 1 // and cost
	e.AddIf(len(a.Costs) > most, "costs", fmt.Sprintf("must be at most %d, got %d", most, len(a.Costs)))
	for _, word := range slices.Sorted(maps.Keys(a.Costs)) {
		meter, err := rules.ParseMeter(word)
		switch {
		case err != nil:
			e.Add("costs", "has "+strconv.Quote(word)+", which is no meter: it "+err.Error())
			continue
		case meter == "":
			e.Add("costs.requests", "must be left out: cost is the cost of requests")
		}
		cost := a.Costs[word]
		cost.validate(e, "costs."+word)
	}
}

func (c *Cost) validate(e *rules.FieldErrors, field string) {
	e.AddIf(c.Header != "" && c.Query != "", field, "must have a header or a query parameter, not both")
	e.Add(field+".header", wrongHeader(c.Header))
	if len(c.Query) > maxHeaderName || !isPlain(c.Query) {
		e.Add(field+".query", fmt.Sprintf("must be the name of a query parameter, of at most %d bytes", maxHeaderName))
	}
	if c.Default != nil {
		millionths := *c.Default * token
		if !(*c.Default >= 0 && *c.Default <= maxCost) || math.Abs(millionths-math.Round(millionths)) > 1e-3 {
			e.Add(field+".default", fmt.Sprintf("must be from 0 to %d, with at most 6 decimals", maxCost))
		}
	}
}

func (j *JWT) validate(e *rules.FieldErrors) {
	e.Add("jwt.header", wrongHeader(j.Header))
	for _, f := range []struct{ name, text string }{{"issuer", j.Issuer}, {"audience", j.Audience}} {
		if len(f.text) > maxText || !isPlain(f.text) {
			e.Add("jwt."+f.name, fmt.Sprintf("must be text of at most %d bytes", maxText))
		}
	}
	switch {
	case (j.JWKSURL == "") == (j.JWKS == ""):
		e.Add("jwt", "must have either jwks_url or jwks, the keys that tokens are verified with")
	case j.JWKSURL != "":
		target, err := url.Parse(j.JWKSURL)
		if err != nil || len(j.JWKSURL) > maxText*4 || target.Scheme != "https" && target.Scheme != "http" ||
			target.Hostname() == "" || target.User != nil {
			e.Add("jwt.jwks_url", "must be a URL such as https://id.example.com/.well-known/jwks.json, without a "+
				"password")
		}
	default:
		e.Add("jwt.jwks", wrongKeys(j.JWKS))
	}
}

// wrongKeys accepts public keys only: everybody who may read the mapping could sign with others.
func wrongKeys(text string) string {
	var set struct {
		Keys []map[string]any `json:"keys"`
	}
	const must = `must be a JSON Web Key Set: {"keys":[…]}`
	if len(text) > maxJWKS {
		return fmt.Sprintf("must be at most %d bytes long", maxJWKS)
	}
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		return must + ": " + err.Error()
	}
	if len(set.Keys) == 0 || len(set.Keys) > maxKeys {
		return fmt.Sprintf("%s with 1 to %d keys", must, maxKeys)
	}
	for i, key := range set.Keys {
		switch kind := key["kty"]; {
		case key["d"] != nil || key["k"] != nil:
			return fmt.Sprintf("must have public keys only, and key %d is secret: replace it everywhere, and put in "+
				"its public half", i)
		case kind != "RSA" && kind != "EC" && kind != "OKP":
			return fmt.Sprintf("must have keys with the kty RSA, EC or OKP, and key %d has %v", i, kind)
		}
	}
	return ""
}

// Compile returns the mapping of a valid document, which must not change afterwards.
func (a *Authorize) Compile() *Mapping {
	m := &Mapping{document: *a, endpoint: defaultEndpoint, method: defaultMethod, address: defaultAddress}
	canonical := func(to *string, name string) {
		if name != "" {
			*to = http.CanonicalHeaderKey(name)
		}
	}
	if a.JWT != nil {
		jwt := *a.JWT
		canonical(&jwt.Header, jwt.Header)
		m.document.JWT = &jwt
	}
	claims := map[string]bool{}
	read := func(s Source) Source {
		canonical(&s.Header, s.Header)
		if s.Claim != "" {
			claims[s.Claim] = true
		}
		return s
	}
	if a.User != nil {
		m.document.User = &User{read(a.User.Source), a.User.Plain, a.User.Default}
	}
	if a.Plan != nil {
		source := read(*a.Plan)
		m.document.Plan = &source
	}
	m.cost = a.Cost.compile("")
	for _, word := range slices.Sorted(maps.Keys(a.Costs)) {
		cost := a.Costs[word]
		m.costs = append(m.costs, cost.compile(rules.Meter(word)))
	}
	if a.Endpoint != nil {
		canonical(&m.endpoint, a.Endpoint.Header)
		canonical(&m.method, a.Endpoint.MethodHeader)
		m.folds = a.Endpoint.Folds
		m.templates = a.Endpoint.compileTemplates()
	}
	if a.Address != nil {
		canonical(&m.address, a.Address.Header)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Attributes)) {
		m.attributes = append(m.attributes, attribute{name, read(a.Attributes[name])})
	}
	m.claims = slices.Sorted(maps.Keys(claims))
	return m
}
