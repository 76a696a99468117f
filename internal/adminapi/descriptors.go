package adminapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func answerDescriptorMapping(stored rules.Gateway) (answer openapi.TheDescriptorMappingJSONResponse, err error) {
	answer.Headers.ETag = etag(stored.Revision)
	answer.Body.Version, answer.Body.IsDefault = stored.Revision, stored.Revision == 0
	return answer, readStored(stored, &answer.Body.Mapping)
}

func (s *surface) GetDescriptorMapping(ctx context.Context,
	_ openapi.GetDescriptorMappingRequestObject,
) (openapi.GetDescriptorMappingResponseObject, error) {
	stored, err := s.storedMapping(ctx, rules.GatewayDescriptors)
	if err != nil {
		return nil, err
	}
	answer, err := answerDescriptorMapping(stored)
	return openapi.GetDescriptorMapping200JSONResponse{TheDescriptorMappingJSONResponse: answer}, err
}

func (s *surface) PutDescriptorMapping(ctx context.Context,
	request openapi.PutDescriptorMappingRequestObject,
) (openapi.PutDescriptorMappingResponseObject, error) {
	mapping := new(gateway.Descriptors)
	if err := copyMapping(request.Body, mapping); err != nil {
		return nil, err
	}
	if wrong := mapping.Validate(); len(wrong) > 0 {
		return nil, wrong
	}
	stored, err := s.putMapping(ctx, rules.GatewayDescriptors, mapping.Document())
	if err != nil {
		return nil, err
	}
	answer, err := answerDescriptorMapping(stored)
	return openapi.PutDescriptorMapping200JSONResponse{TheDescriptorMappingJSONResponse: answer}, err
}

func (s *surface) DeleteDescriptorMapping(ctx context.Context,
	_ openapi.DeleteDescriptorMappingRequestObject,
) (openapi.DeleteDescriptorMappingResponseObject, error) {
	return openapi.DeleteDescriptorMapping204Response{}, s.removeMapping(ctx, rules.GatewayDescriptors)
}

// sampleDescriptors is SampleDescriptors of openapi.yaml; the generator leaves out what only this operation has.
type sampleDescriptors struct {
	Mapping     *openapi.DescriptorMapping
	Domain      string
	Hits        int64 `json:"hits_addend"`
	Descriptors []struct {
		Hits    *int64 `json:"hits_addend"`
		Entries []gateway.Entry
		Limit   struct {
			Requests int64 `json:"requests_per_unit"`
			Unit     string
		}
	}
}

type triedDescriptor struct {
	Check       json.RawMessage `json:"check"`
	Explanation json.RawMessage `json:"explanation"`
	Replaced    bool            `json:"replaced"`
	Recorded    bool            `json:"recorded"`
	OwnLimit    bool            `json:"own_limit"`
}

func (s *surface) tryDescriptorMapping(ctx context.Context, body []byte) ([]byte, error) {
	var sample sampleDescriptors
	if err := readSample(body, &sample); err != nil {
		return nil, err
	}
	mapping, err := s.descriptorsToTry(ctx, sample.Mapping)
	if err != nil {
		return nil, err
	}
	tenant, err := s.tenantRules(requestOf(ctx).tenant.ID)
	if err != nil {
		return nil, err
	}
	answer := struct {
		Answered bool              `json:"answered"`
		Results  []triedDescriptor `json:"results"`
	}{mapping.Answers(tenant.Tenant.Slug, sample.Domain), []triedDescriptor{}}
	if answer.Answered {
		if answer.Results, err = s.tryDescriptors(ctx, tenant, mapping, &sample); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("write what descriptors become: %w", err)
	}
	return text, nil
}

func (s *surface) tryDescriptors(
	ctx context.Context, tenant *snapshot.Tenant, mapping *gateway.DescriptorMapping, sample *sampleDescriptors,
) ([]triedDescriptor, error) {
	checks, isRecord := make([]gateway.Check, len(sample.Descriptors)), make([]bool, len(sample.Descriptors))
	for i, d := range sample.Descriptors {
		hits := max(1, sample.Hits)
		if d.Hits != nil {
			hits = *d.Hits
		}
		request, counted := mapping.Check(sample.Domain, d.Entries, nil)
		checks[i].Request = request
		if cost := hits * int64(enforce.Token); counted.Meter == "" {
			checks[i].Cost = cost
		} else {
			checks[i].Costs = []gateway.MeterCost{{Meter: counted.Meter, Cost: cost}}
		}
		isRecord[i] = counted.Record && hits > 0
		if _, err := tenant.PlanOf(&checks[i].Request); err != nil {
			checks[i].Plan = "" // as the service does
		}
	}
	named := make([]bool, len(checks))
	for i := range checks {
		named[i] = hasName(&checks[i])
	}
	mapping.Replace(sample.Domain, func(yield func(*rules.Request) bool) {
		for i := range checks {
			if !yield(&checks[i].Request) {
				return
			}
		}
	})
	results := make([]triedDescriptor, len(checks))
	for i := range checks {
		var own *rules.Limit
		if limit := &sample.Descriptors[i].Limit; mapping.TakesLimits(sample.Domain) {
			own = gateway.OwnLimit(limit.Requests, unitNumber(limit.Unit))
		}
		asked, explanation, err := s.explained(ctx, tenant, checks[i], own)
		if err != nil {
			return nil, err
		}
		results[i] = triedDescriptor{
			asked, explanation, named[i] && !hasName(&checks[i]), isRecord[i], own != nil,
		}
	}
	return results, nil
}

func unitNumber(name string) int64 {
	for number, unit := range gateway.LimitUnits {
		if unit.Name == name {
			return int64(number)
		}
	}
	return 0
}

func hasName(c *gateway.Check) bool {
	return slices.ContainsFunc(c.Attributes,
		func(a rules.Attribute) bool { return a.Name == gateway.DescriptorAttribute })
}

func (s *surface) descriptorsToTry(
	ctx context.Context, sent *openapi.DescriptorMapping,
) (*gateway.DescriptorMapping, error) {
	mapping := new(gateway.Descriptors)
	if sent == nil {
		stored, err := s.storedMapping(ctx, rules.GatewayDescriptors)
		if err != nil {
			return nil, err
		}
		if mapping, err = gateway.ParseDescriptors(stored.Document); err != nil {
			return nil, err
		}
	} else if err := readSent(sent, mapping); err != nil {
		return nil, err
	}
	return mapping.Compile(), nil
}
