package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// storedMapping returns the tenant's mapping of a kind; one with revision 0 is the default.
func (s *surface) storedMapping(ctx context.Context, kind rules.GatewayKind) (rules.Gateway, error) {
	stored, err := s.Stores.Gateway(ctx, requestOf(ctx).tenant.ID, kind)
	if errors.Is(err, rules.ErrNotFound) {
		return rules.Gateway{Document: "{}"}, nil
	}
	return stored, err
}

func (s *surface) putMapping(ctx context.Context, kind rules.GatewayKind, document string) (rules.Gateway, error) {
	q := requestOf(ctx)
	stored, err := s.store(ctx).PutGateway(ctx,
		rules.Gateway{TenantID: q.tenant.ID, Kind: kind, Document: document}, q.ifMatch)
	return stored, lost(ctx, err, s.mappingVersion(ctx, kind))
}

func (s *surface) removeMapping(ctx context.Context, kind rules.GatewayKind) error {
	q := requestOf(ctx)
	err := s.store(ctx).RemoveGateway(ctx, q.tenant.ID, kind, q.ifMatch)
	return lost(ctx, err, s.mappingVersion(ctx, kind))
}

func (s *surface) mappingVersion(ctx context.Context, kind rules.GatewayKind) func() (int64, error) {
	return func() (int64, error) {
		stored, err := s.storedMapping(ctx, kind)
		return stored.Revision, err
	}
}

func readSent(sent any, mapping interface{ Validate() rules.FieldErrors }) error {
	if err := copyMapping(sent, mapping); err != nil {
		return err
	}
	return fieldsProblem("/mapping", mapping.Validate())
}

func copyMapping(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("write a mapping that was read: %w", err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("read a mapping that was checked: %w", err)
	}
	return nil
}

func readStored(stored rules.Gateway, mapping any) error {
	if err := json.Unmarshal([]byte(stored.Document), mapping); err != nil {
		return fmt.Errorf("read the stored mapping: %w", err)
	}
	return nil
}

func answerAuthorizeMapping(stored rules.Gateway) (answer openapi.TheAuthorizeMappingJSONResponse, err error) {
	answer.Headers.ETag = etag(stored.Revision)
	answer.Body.Version, answer.Body.IsDefault = stored.Revision, stored.Revision == 0
	return answer, readStored(stored, &answer.Body.Mapping)
}

func (s *surface) GetAuthorizeMapping(ctx context.Context,
	_ openapi.GetAuthorizeMappingRequestObject,
) (openapi.GetAuthorizeMappingResponseObject, error) {
	stored, err := s.storedMapping(ctx, rules.GatewayAuthorize)
	if err != nil {
		return nil, err
	}
	answer, err := answerAuthorizeMapping(stored)
	return openapi.GetAuthorizeMapping200JSONResponse{TheAuthorizeMappingJSONResponse: answer}, err
}

func (s *surface) PutAuthorizeMapping(ctx context.Context,
	request openapi.PutAuthorizeMappingRequestObject,
) (openapi.PutAuthorizeMappingResponseObject, error) {
	mapping := new(gateway.Authorize)
	if err := copyMapping(request.Body, mapping); err != nil {
		return nil, err
	}
	if wrong := mapping.Validate(); len(wrong) > 0 {
		return nil, wrong
	}
	if jwt := mapping.JWT; jwt != nil && jwt.JWKSURL != "" && s.CheckTarget(ctx, jwt.JWKSURL) != nil {
		return nil, rules.FieldErrors{{Field: "jwt.jwks_url", Message: "must lead to a public address"}}
	}
	stored, err := s.putMapping(ctx, rules.GatewayAuthorize, mapping.Document())
	if err != nil {
		return nil, err
	}
	answer, err := answerAuthorizeMapping(stored)
	return openapi.PutAuthorizeMapping200JSONResponse{TheAuthorizeMappingJSONResponse: answer}, err
}

func (s *surface) DeleteAuthorizeMapping(ctx context.Context,
	_ openapi.DeleteAuthorizeMappingRequestObject,
) (openapi.DeleteAuthorizeMappingResponseObject, error) {
	return openapi.DeleteAuthorizeMapping204Response{}, s.removeMapping(ctx, rules.GatewayAuthorize)
}

// sampleRequest is SampleRequest of openapi.yaml; the generator leaves out what only this operation has.
type sampleRequest struct {
	Mapping     *openapi.AuthorizeMapping
	Method, URI string
	Headers     []struct{ Name, Value string }
	Claims      json.RawMessage
}

type sampleHeaders map[string][][]byte

func (h sampleHeaders) Values(name string) [][]byte { return h[name] }

// asJSON makes a handler of a function that returns JSON, which a generated handler would decode and encode again.
func (s *surface) asJSON(handle func(ctx context.Context, body []byte) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := handle(r.Context(), requestOf(r.Context()).body)
		if err != nil {
			s.handlerFailed(w, r, err)
			return
		}
		w.Header().Set("Content-Type", jsonType)
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer) // a caller that went away needs no answer
	}
}

func readSample(body []byte, sample any) error {
	if err := json.Unmarshal(body, sample); err != nil {
		return fmt.Errorf("read a sample that was checked: %w", err)
	}
	return nil
}

func (s *surface) explained(ctx context.Context, tenant *snapshot.Tenant, check gateway.Check, own *rules.Limit) (
	asked, explanation []byte, err error,
) {
	if asked, err = json.Marshal(shownCheck(check)); err != nil {
		return nil, nil, fmt.Errorf("write a check: %w", err)
	}
	explained := enforce.Check{Request: check.Request, Cost: enforce.Tokens(check.Cost), Proxied: true, OwnLimit: own}
	for _, cost := range check.Costs {
		explained.SetCost(cost.Meter, enforce.Tokens(cost.Cost))
	}
	explanation, err = s.ExplainCheck(ctx, tenant, explained)
	return asked, explanation, err
}

func (s *surface) tryAuthorizeMapping(ctx context.Context, body []byte) ([]byte, error) {
	var sample sampleRequest
	if err := readSample(body, &sample); err != nil {
		return nil, err
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
	check, err := mapping.Check(&gateway.Request{Headers: headers, Method: sample.Method, Below: path, Query: query},
		claims)
	if err != nil {
		return nil, httpapi.InvalidRequest.Problem(err.Error())
	}
	tenant, err := s.tenantRules(requestOf(ctx).tenant.ID)
	if err != nil {
		return nil, err
	}
	asked, explanation, err := s.explained(ctx, tenant, check, nil)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"check":%s,"explanation":%s}`, asked, explanation), nil
}

func (s *surface) mappingToTry(ctx context.Context, sent *openapi.AuthorizeMapping) (*gateway.Mapping, error) {
	mapping := new(gateway.Authorize)
	if sent == nil {
		stored, err := s.storedMapping(ctx, rules.GatewayAuthorize)
		if err != nil {
			return nil, err
		}
		if mapping, err = gateway.ParseAuthorize(stored.Document); err != nil {
			return nil, err
		}
	} else if err := readSent(sent, mapping); err != nil {
		return nil, err
	}
	return mapping.Compile(), nil
}

func shownCheck(c gateway.Check) map[string]any {
	shown := map[string]any{"cost": json.Number(costText(c.Cost))}
	if len(c.Costs) > 0 {
		costs := map[string]any{rules.Meter("").Word(): shown["cost"]}
		for _, cost := range c.Costs {
			costs[string(cost.Meter)] = json.Number(costText(cost.Cost))
		}
		delete(shown, "cost")
		shown["costs"] = costs
	}
	for name, text := range map[string]string{
		"user_id": c.UserID, "plan": c.Plan, "endpoint": c.Endpoint,
		"method": c.Method,
	} {
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

func costText(millionths int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%06d", millionths/1_000_000, millionths%1_000_000),
		"0"), ".")
}
