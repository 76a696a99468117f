package checkapi

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/gateway"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

const (
	authorizePath = "/v1/authorize"
	// keyHeader carries a proxy's key, because the Authorization header may be its visitor's.
	keyHeader = "X-Sluice-Key"
	// statusHeader carries the status of a denial that is sent as 403, for nginx, which knows no other.
	statusHeader = "X-Sluice-Status"
)

// Tokens verifies the tokens of visitors.
type Tokens interface {
	// Verify returns those claims of a token that a mapping reads. It never waits. gateway.ErrNoKeys says that the
	// issuer's keys were not loaded yet; any other error is about the token.
	Verify(tenant rules.TenantID, mapping *gateway.Mapping, token string) (gateway.Claims, error)
}

// noTokens knows no keys.
type noTokens struct{}

func (noTokens) Verify(rules.TenantID, *gateway.Mapping, string) (gateway.Claims, error) {
	return nil, gateway.ErrNoKeys
}

// questionHeaders are the headers of a proxy's question. The key is none of them.
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

// authorizeRequest handles /v1/authorize and all below it, in any method: a proxy asks whether its visitor's request may
// pass, and sends parts of it as headers. The tenant's mapping makes a check of them.
//
// The answer is 200 without a body, or 429 (503 for a closed tier) with a problem document. With ?deny=403 a refusal is
// 403, and X-Sluice-Status has its status. Visitors see refusals, so 401 is about the visitor's token only; a wrong key of
// the proxy is 500.
func (s *surface) authorizeRequest(c *fasthttp.RequestCtx, by caller) error {
	x, tenant := scratchOf(c), by.tenant
	h := &c.Request.Header
	path := pathOf(h)
	_, query, _ := bytes.Cut(h.RequestURI(), []byte("?"))
	request := gateway.Request{
		Headers: questionHeaders{h, keyHeaderOf(h)}, Method: string(c.Method()),
		Below: string(path[len(authorizePath):]), Query: string(query),
	}
	// Below the path, the query is the visitor's.
	as403 := request.Below == "" && hasParameter(request.Query, "deny=403")
	check, err := s.checkOf(tenant, &request)
	if err != nil {
		return refusedAs(c, err, as403)
	}
	x.checks = append(x.checks[:0], check)
	x.decide(c, s.Limiter, by)
	d := &x.decisions[0]
	x.headers.Reset()
	x.headers.AddRateLimit(d, s.Now(), checkjson.Jitter(&tenant.Tenant, &x.checks[0].Request))
	for name, value := range x.headers.All() {
		c.Response.Header.SetCanonical([]byte(name), value) // as it is: RateLimit, not Ratelimit
	}
	if d.Allowed {
		c.Response.SetStatusCode(http.StatusOK)
		return nil
	}
	problem := denials[d.Reason]
	c.Response.Header.Set("Cache-Control", "no-store")
	x.answer = problem.Append(x.answer[:0], requestIDOf(c))
	write(c, problem.Status, httpapi.ProblemType, x.answer)
	if as403 {
		answer403(c, problem.Status)
	}
	return nil
}

// denials are the problem documents of denied requests, which visitors may see.
var denials = map[enforce.Reason]*httpapi.Problem{
	enforce.LimitExceeded:    httpapi.LimitExceeded.Problem("Wait as long as Retry-After says, then try again."),
	enforce.Blocked:          httpapi.Blocked.Problem("A rule blocks this request; waiting does not help."),
	enforce.CostExceedsLimit: httpapi.CostExceedsLimit.Problem("The request costs more than its limit ever holds; ask for less at once."),
	enforce.StoreUnavailable: httpapi.StoreUnavailable.Problem("Try again in a second."),
}

// checkOf returns the check that a visitor's request becomes.
func (s *surface) checkOf(tenant *snapshot.Tenant, r *gateway.Request) (check enforce.Check, err error) {
	mapping, err := tenant.Authorize()
	if err != nil {
		s.Log.Error("requests of a tenant's gateways cannot be mapped; upgrade this process", "tenant", tenant.Tenant.Slug, "error", err)
		return check, httpapi.Internal.Problem("This process cannot read the tenant's mapping, which a newer version wrote.")
	}
	claims, err := s.claimsOf(tenant, mapping, r)
	if err != nil {
		return check, err
	}
	mapped, err := mapping.Check(r, claims)
	if err != nil {
		return check, httpapi.InvalidRequest.Problem(err.Error())
	}
	check = enforce.Check{Request: mapped.Request, Cost: enforce.Tokens(mapped.Cost), Proxied: true}
	if check.EffectivePlan, err = tenant.PlanOf(&check.Request); err != nil {
		return check, httpapi.InvalidRequest.Problem("The plan of the request is not one of the tenant.")
	}
	return check, nil
}

// claimsOf returns the claims of the visitor's token, or none if the mapping reads none.
func (s *surface) claimsOf(tenant *snapshot.Tenant, mapping *gateway.Mapping, r *gateway.Request) (gateway.Claims, error) {
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
		return nil, httpapi.Unavailable.Problem("The keys that tokens are verified with were not loaded yet; try again in a second.")
	}
	return nil, httpapi.Unauthorized.Problem("The request needs a valid token: " + err.Error() + ".")
}

var errNoToken = errors.New("it has none")

// refusedAs is the answer to a request that became no check.
func refusedAs(c *fasthttp.RequestCtx, err error, as403 bool) error {
	var p *httpapi.Problem
	if !errors.As(err, &p) {
		return err
	}
	writeProblem(c, p)
	switch p.Status {
	case http.StatusUnauthorized:
		c.Response.Header.Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	case http.StatusBadRequest, http.StatusServiceUnavailable:
		if as403 {
			answer403(c, p.Status)
		}
	}
	return nil
}

// answer403 answers with 403 instead of a status, and without a body: nginx does not read it, and would close the connection.
func answer403(c *fasthttp.RequestCtx, status int) {
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

// keyHeaderOf returns the header that carries the key of a question.
func keyHeaderOf(h *fasthttp.RequestHeader) string {
	if len(h.Peek(keyHeader)) > 0 {
		return keyHeader
	}
	return "Authorization"
}

// keyLines returns the lines of a request's key, as those of an Authorization header.
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

// forVisitor turns the refusal of a key into 500: a visitor can do nothing about it, and a 401 would ask for their password.
func forVisitor(err error) error {
	var p *httpapi.Problem
	if !errors.As(err, &p) || p.Status == http.StatusServiceUnavailable {
		return err
	}
	refused := *p
	refused.Status = http.StatusInternalServerError
	return &refused
}
