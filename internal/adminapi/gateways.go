package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/gateway"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// authorizeMapping returns the tenant's mapping; one with revision 0 is the default.
func (s *surface) authorizeMapping(ctx context.Context) (rules.Gateway, error) {
	stored, err := s.Stores.Gateway(ctx, requestOf(ctx).tenant.ID, rules.GatewayAuthorize)
	if errors.Is(err, rules.ErrNotFound) {
		return rules.Gateway{Document: "{}"}, nil
	}
	return stored, err
}

func answerAuthorizeMapping(stored rules.Gateway) (answer openapi.TheAuthorizeMappingJSONResponse, err error) {
	answer.Headers.ETag = etag(stored.Revision)
	answer.Body.Version, answer.Body.IsDefault = stored.Revision, stored.Revision == 0
	if err := json.Unmarshal([]byte(stored.Document), &answer.Body.Mapping); err != nil {
		return answer, fmt.Errorf("read the stored mapping: %w", err)
	}
	return answer, nil
}

func (s *surface) authorizeVersion(ctx context.Context) func() (int64, error) {
	return func() (int64, error) {
		stored, err := s.authorizeMapping(ctx)
		return stored.Revision, err
	}
}

// GetAuthorizeMapping handles GET …/gateways/authorize.
func (s *surface) GetAuthorizeMapping(ctx context.Context, _ openapi.GetAuthorizeMappingRequestObject) (openapi.GetAuthorizeMappingResponseObject, error) {
	stored, err := s.authorizeMapping(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := answerAuthorizeMapping(stored)
	return openapi.GetAuthorizeMapping200JSONResponse{TheAuthorizeMappingJSONResponse: answer}, err
}

// PutAuthorizeMapping handles PUT …/gateways/authorize.
func (s *surface) PutAuthorizeMapping(ctx context.Context, request openapi.PutAuthorizeMappingRequestObject) (openapi.PutAuthorizeMappingResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	mapping, err := mappingOf(request.Body)
	if err != nil {
		return nil, err
	}
	if wrong := mapping.Validate(); len(wrong) > 0 {
		return nil, wrong
	}
	if jwt := mapping.JWT; jwt != nil && jwt.JWKSURL != "" && s.CheckTarget(ctx, jwt.JWKSURL) != nil {
		return nil, rules.FieldErrors{{Field: "jwt.jwks_url", Message: "must lead to a public address"}}
	}
	stored, err := s.store(ctx).PutGateway(ctx, rules.Gateway{
		TenantID: requestOf(ctx).tenant.ID, Kind: rules.GatewayAuthorize, Document: mapping.Document(),
	}, at)
	if err != nil {
		return nil, lost(ctx, err, s.authorizeVersion(ctx))
	}
	answer, err := answerAuthorizeMapping(stored)
	return openapi.PutAuthorizeMapping200JSONResponse{TheAuthorizeMappingJSONResponse: answer}, err
}

// mappingOf turns a mapping of the API, which has the same JSON, into the domain's.
func mappingOf(sent *openapi.AuthorizeMapping) (*gateway.Authorize, error) {
	text, err := json.Marshal(sent)
	if err != nil {
		return nil, fmt.Errorf("write a mapping that was read: %w", err)
	}
	mapping := new(gateway.Authorize)
	if err := json.Unmarshal(text, mapping); err != nil {
		return nil, fmt.Errorf("read a mapping that was checked: %w", err)
	}
	return mapping, nil
}

// DeleteAuthorizeMapping handles DELETE …/gateways/authorize.
func (s *surface) DeleteAuthorizeMapping(ctx context.Context, request openapi.DeleteAuthorizeMappingRequestObject) (openapi.DeleteAuthorizeMappingResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	if err := s.store(ctx).RemoveGateway(ctx, requestOf(ctx).tenant.ID, rules.GatewayAuthorize, at); err != nil {
		return nil, lost(ctx, err, s.authorizeVersion(ctx))
	}
	return openapi.DeleteAuthorizeMapping204Response{}, nil
}

// sampleRequest is SampleRequest of openapi.yaml; the generator leaves out what only this operation has.
type sampleRequest struct {
	Mapping     *openapi.AuthorizeMapping
	Method, URI string
	Headers     []struct{ Name, Value string }
	Claims      json.RawMessage
}

// sampleHeaders are the headers of a sample request.
type sampleHeaders map[string][][]byte

func (h sampleHeaders) Values(name string) [][]byte { return h[name] }

// tryAuthorizeMapping handles POST …/gateways/authorize/try. It has no generated handler, because the explanation is JSON
// already.
func (s *surface) tryAuthorizeMapping(w http.ResponseWriter, r *http.Request) {
	answer, err := s.triedMapping(r)
	if err != nil {
		s.handlerFailed(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = w.Write(answer) //nolint:gosec // it is JSON and says so; a caller that went away needs no answer
}

func (s *surface) triedMapping(r *http.Request) ([]byte, error) {
	ctx := r.Context()
	body, err := io.ReadAll(r.Body) // from memory: checkBody has read it
	if err != nil {
		return nil, fmt.Errorf("read a body that is in memory: %w", err)
	}
	var sample sampleRequest
	if err := json.Unmarshal(body, &sample); err != nil {
		return nil, fmt.Errorf("read a sample that was checked: %w", err)
	}
	mapping, err := s.mappingToTry(ctx, sample.Mapping)
	if err != nil {
		return nil, err
	}
	headers := sampleHeaders{}
	for _, h := range sample.Headers {
		name := http.CanonicalHeaderKey(h.Name)
		headers[name] = append(headers[name], []byte(h.Value))
	}
	var claims gateway.Claims
	if sample.Claims != nil {
		if claims, err = gateway.ReadClaims(sample.Claims, mapping.ClaimNames()); err != nil {
			return nil, fmt.Errorf("read the claims of a sample: %w", err)
		}
	}
	path, query, _ := strings.Cut(sample.URI, "?")
	check, err := mapping.Check(&gateway.Request{Headers: headers, Method: sample.Method, Below: path, Query: query}, claims)
	if err != nil {
		return nil, httpapi.InvalidRequest.Problem(err.Error())
	}
	tenant, err := s.tenantRules(requestOf(ctx).tenant.ID)
	if err != nil {
		return nil, err
	}
	asked, err := json.Marshal(shownCheck(check))
	if err != nil {
		return nil, fmt.Errorf("write a check: %w", err)
	}
	explanation, err := s.Explain(ctx, tenant, asked)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"check":%s,"explanation":%s}`, asked, explanation), nil
}

// mappingToTry compiles the mapping of a sample, or else the stored one.
func (s *surface) mappingToTry(ctx context.Context, sent *openapi.AuthorizeMapping) (*gateway.Mapping, error) {
	if sent == nil {
		stored, err := s.authorizeMapping(ctx)
		if err != nil {
			return nil, err
		}
		mapping, err := gateway.ParseAuthorize(stored.Document)
		if err != nil {
			return nil, err
		}
		return mapping.Compile(), nil
	}
	mapping, err := mappingOf(sent)
	if err != nil {
		return nil, err
	}
	if wrong := mapping.Validate(); len(wrong) > 0 {
		return nil, fieldsProblem("/mapping", wrong)
	}
	return mapping.Compile(), nil
}

// shownCheck is a check as the check endpoint takes it.
func shownCheck(c gateway.Check) map[string]any {
	shown := map[string]any{"cost": json.Number(costText(c.Cost))}
	for name, text := range map[string]string{"user_id": c.UserID, "plan": c.Plan, "endpoint": c.Endpoint, "method": c.Method} {
		if text != "" {
			shown[name] = text
		}
	}
	if c.IP.IsValid() {
		shown["ip"] = c.IP.String()
	}
	attributes := map[string]string{}
	for _, a := range c.Attributes {
		attributes[a.Name] = a.Value
	}
	if len(attributes) > 0 {
		shown["attributes"] = attributes
	}
	return shown
}

// costText writes millionths as a decimal number.
func costText(millionths int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%06d", millionths/1_000_000, millionths%1_000_000), "0"), ".")
}
