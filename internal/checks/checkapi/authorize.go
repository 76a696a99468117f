package checkapi

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

const (
	authorizePath = "/v1/authorize"
	// keyHeader carries a proxy's key, because the Authorization header may be its visitor's.
	keyHeader    = "X-Sluice-Key"
	statusHeader = "X-Sluice-Status"
	noteHeader   = "X-Sluice-Note"
)

// Tokens verifies the tokens of visitors.
type Tokens interface {
	// Verify never waits; gateway.ErrNoKeys means that the issuer's keys are not loaded yet.
	Verify(tenant rules.TenantID, mapping *gateway.Mapping, token string) (gateway.Claims, error)
}

type noTokens struct{}

func (noTokens) Verify(rules.TenantID, *gateway.Mapping, string) (gateway.Claims, error) {
	return nil, gateway.ErrNoKeys
}

type questionHeaders struct {
	*fasthttp.RequestHeader
	keyHeader string
}

func (h questionHeaders) Values(name string) [][]byte {
	if name == h.keyHeader {
		return nil
	}
	return h.PeekAll(name)
}

// authorizeRequest answers a proxy that asks whether its visitor's request may pass, in any method.
//
// Visitors see refusals, so 401 is about the visitor's token only; a wrong key of the proxy is 500.
func (s *surface) authorizeRequest(c *fasthttp.RequestCtx, by caller) error {
	x, tenant := scratchOf(c), by.tenant
	h := &c.Request.Header
	path, query := splitTarget(h.RequestURI())
	request := gateway.Request{
		Headers: questionHeaders{h, keyHeaderOf(h)}, Method: string(c.Method()),
		Below: string(path[len(authorizePath):]), Query: string(query),
	}
	check, err := s.checkOf(tenant, &request)
	if err != nil {
		return refuseVisitor(c, &request, err)
	}
	x.checks = append(x.checks[:0], check)
	x.decide(c, s.Limiter, by)
	d := &x.decisions[0]
	x.headers.Reset()
	x.headers.AddRateLimit(d, s.Now(), checkjson.Jitter(&tenant.Tenant, &x.checks[0].Request))
	for name, value := range x.headers.All() {
		c.Response.Header.SetCanonical([]byte(name), value) // keeps the spelling RateLimit
	}
	for rule, difference := range d.Differences() {
		c.Response.Header.Add(noteHeader, noteOf(rule, difference))
	}
	if d.Allowed {
		c.Response.SetStatusCode(http.StatusOK)
		return nil
	}
	problem := *denialOf(d.Reason)
	problem.Violated = checkjson.ViolatedPolicies(d)
	c.Response.Header.Set("Cache-Control", "no-store")
	x.answer = problem.Append(x.answer[:0], requestIDOf(c))
	write(c, problem.Status, httpapi.ProblemType, x.answer)
	handOn(c, &request)
	return nil
}

// handOn makes a 403 of a 503, because Envoy takes a 5xx for an outage and may let the request pass.
func handOn(c *fasthttp.RequestCtx, r *gateway.Request) {
	if r.Below != "" && c.Response.StatusCode() == http.StatusServiceUnavailable {
		c.Response.SetStatusCode(http.StatusForbidden)
		c.Response.Header.Set(statusHeader, strconv.Itoa(http.StatusServiceUnavailable))
	}
}

func noteOf(rule *rules.Rule, difference enforce.AtGateway) string {
	id := strconv.FormatInt(int64(rule.ID), 10)
	if difference == enforce.DeniesDelays {
		return "rule " + id + " is a queue; it denied the request because a gateway cannot delay one"
	}
	return "rule " + id + " counts requests in flight; it was not applied because a gateway does not say when a " +
		"request ends"
}

var (
	deniedForNow = httpapi.LimitExceeded.Problem("Wait as long as Retry-After says, then try again.")
	blocked      = httpapi.Blocked.Problem("A rule blocks this request; waiting does not help.")
	tooCostly    = httpapi.CostExceedsLimit.Problem(
		"The request costs more than its limit ever holds; ask for less at once.")
	storeAway = httpapi.StoreUnavailable.Problem("Try again in a second.")
)

// denialOf: while a gateway's rules are older than the store's, it meets reasons that its checks do not ask for.
func denialOf(reason enforce.Reason) *httpapi.Problem {
	switch reason {
	case enforce.Blocked:
		return blocked
	case enforce.CostExceedsLimit:
		return tooCostly
	case enforce.StoreUnavailable:
		return storeAway
	}
	return deniedForNow
}

func (s *surface) checkOf(tenant *snapshot.Tenant, r *gateway.Request) (check enforce.Check, err error) {
	mapping, err := tenant.Authorize()
	if err != nil {
		s.Log.Error("requests of a tenant's gateways cannot be mapped; upgrade this process", "tenant",
			tenant.Tenant.Slug, "error", err)
		return check, httpapi.Internal.Problem(
			"This process cannot read the tenant's mapping, which a newer version wrote.")
	}
	claims, err := s.claimsOf(tenant, mapping, r)
	if err != nil {
		return check, err
	}
	mapped, err := mapping.Check(r, claims)
	if err != nil {
		return check, httpapi.InvalidRequest.Problem(err.Error())
	}
	if mapped.NoAddress {
		s.Gap(gateway.GapAddress)
	}
	if mapped.UnusableCost {
		s.Gap(gateway.GapCost)
	}
	check = enforce.Check{Request: mapped.Request, Cost: enforce.Tokens(mapped.Cost), Proxied: true}
	for _, cost := range mapped.Costs {
		check.SetCost(cost.Meter, enforce.Tokens(cost.Cost))
	}
	if check.EffectivePlan, err = tenant.PlanOf(&check.Request); err != nil {
		return check, httpapi.InvalidRequest.Problem("The plan of the request is not one of the tenant.")
	}
	return check, nil
}

func (s *surface) claimsOf(tenant *snapshot.Tenant, mapping *gateway.Mapping, r *gateway.Request) (gateway.Claims,
	error,
) {
	jwt := mapping.JWT()
	if jwt == nil {
		return nil, nil
	}
	token := mapping.Token(r)
	var claims gateway.Claims
	err := errNoToken
	if token != "" {
		claims, err = s.Tokens.Verify(tenant.Tenant.ID, mapping, token)
	}
	switch {
	case err == nil:
		return claims, nil
	case jwt.Optional:
		return nil, nil
	case errors.Is(err, gateway.ErrNoKeys):
		return nil, httpapi.Unavailable.Problem(
			"The keys that tokens are verified with were not loaded yet; try again in a second.")
	}
	return nil, httpapi.Unauthorized.Problem("The request needs a valid token: " + err.Error() + ".")
}

var errNoToken = errors.New("it has none")

func refuseVisitor(c *fasthttp.RequestCtx, r *gateway.Request, err error) error {
	var p *httpapi.Problem
	if !errors.As(err, &p) {
		return err
	}
	writeProblem(c, p)
	handOn(c, r)
	if p.Status == http.StatusUnauthorized {
		c.Response.Header.Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	}
	return nil
}

// Below the path itself, the query is the visitor's.
func asksFor403(target []byte) bool {
	path, query := splitTarget(target)
	return string(path) == authorizePath && hasParameter(string(query), "deny=403")
}

// sendAs403 leaves 200 and 502, because nginx's auth_request makes a 500 of most others, and empties the body, because
// nginx does not read it and would close the connection.
func sendAs403(c *fasthttp.RequestCtx) {
	status := c.Response.StatusCode()
	if status == http.StatusOK || status == http.StatusBadGateway {
		return
	}
	c.Response.ResetBody()
	c.Response.Header.SetContentType("")
	c.Response.SetStatusCode(http.StatusForbidden)
	c.Response.Header.Set(statusHeader, strconv.Itoa(status))
}

func hasParameter(query, parameter string) bool {
	for part := range strings.SplitSeq(query, "&") {
		if part == parameter {
			return true
		}
	}
	return false
}

// errTwoKeys is no 500, because a visitor can add either key, and proxies let requests pass on a 500.
var errTwoKeys = httpapi.InvalidRequest.Problem("The request has two API keys of Sluice, in " + keyHeader +
	" or Authorization. Send none; a proxy must remove its visitor's.")

// hasTwoKeys: Sluice cannot know which key is the visitor's, whose tenant's mapping may read the proxy's key.
func hasTwoKeys(h *fasthttp.RequestHeader) bool {
	if len(h.Peek(keyHeader)) == 0 {
		return false
	}
	if len(h.PeekAll(keyHeader)) > 1 {
		return true
	}
	for _, line := range h.PeekAll("Authorization") {
		scheme, token, _ := bytes.Cut(line, []byte(" "))
		if bytes.EqualFold(scheme, []byte("Bearer")) && auth.IsKeyToken(bytes.TrimSpace(token)) {
			return true
		}
	}
	return false
}

func keyHeaderOf(h *fasthttp.RequestHeader) string {
	if len(h.Peek(keyHeader)) > 0 {
		return keyHeader
	}
	return "Authorization"
}

func (r *route) keyLines(h *fasthttp.RequestHeader) (lines []string) {
	header := "Authorization"
	if r.asksForVisitor {
		header = keyHeaderOf(h)
	}
	for _, value := range h.PeekAll(header) {
		line := string(value)
		if header == keyHeader && !strings.Contains(line, " ") {
			line = "Bearer " + line
		}
		lines = append(lines, line)
	}
	return lines
}

// forVisitor makes a 500 of a key's refusal, because a 401 would ask a visitor for a password. Proxies take a 502 for
// an outage; a 503 is a rule's.
func forVisitor(err error) error {
	var p *httpapi.Problem
	if !errors.As(err, &p) {
		return err
	}
	refused := *p
	if refused.Status = http.StatusInternalServerError; p.Kind == httpapi.Unavailable {
		refused.Status = http.StatusBadGateway
	}
	return &refused
}
