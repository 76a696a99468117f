package adminapi

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"github.com/sluicegate/sluice/api"
	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
)

func (s *surface) GetDescription(context.Context,
	openapi.GetDescriptionRequestObject,
) (openapi.GetDescriptionResponseObject, error) {
	return openapi.GetDescription200ApplicationyamlResponse{
		Body: bytes.NewReader(api.Description), ContentLength: int64(len(api.Description)),
	}, nil
}

func (s *surface) GetReference(ctx context.Context,
	_ openapi.GetReferenceRequestObject,
) (openapi.GetReferenceResponseObject, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/reference.html", nil)
	if s.UI == nil {
		page := `<!doctype html><title>Sluice API</title><a href="openapi.yaml">openapi.yaml</a>`
		return openapi.GetReference200TexthtmlResponse{Body: strings.NewReader(page), ContentLength: int64(len(page))},
			nil
	}
	return referencePage{s.UI, r}, err
}

type referencePage struct {
	ui      http.Handler
	request *http.Request
}

func (p referencePage) VisitGetReferenceResponse(w http.ResponseWriter) error {
	p.ui.ServeHTTP(w, p.request)
	return nil
}
