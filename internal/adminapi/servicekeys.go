package adminapi

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// ListServiceKeys handles GET /api/v1/service-keys.
func (s *surface) ListServiceKeys(ctx context.Context, request openapi.ListServiceKeysRequestObject) (openapi.ListServiceKeysResponseObject, error) {
	place, err := after(ctx, 1)
	if err != nil {
		return nil, err
	}
	limit := limitOf(request.Params.Limit)
	keys, err := s.People.ServiceKeys(ctx, place[0], limit+1)
	if err != nil {
		return nil, err
	}
	items, cursor := page(ctx, keys, limit, showKey, func(k *auth.NamedKey) string { return k.ID })
	return openapi.ListServiceKeys200JSONResponse{Items: items, NextCursor: cursor}, nil
}

// CreateServiceKey handles POST /api/v1/service-keys.
func (s *surface) CreateServiceKey(ctx context.Context, request openapi.CreateServiceKeyRequestObject) (openapi.CreateServiceKeyResponseObject, error) {
	key, err := s.newKey(ctx, request.Body, (*auth.NamedKey).ValidateService)
	if err != nil {
		return nil, err
	}
	token, id, digest := auth.NewServiceKeyToken()
	key.ID, key.Digest = id, digest
	if key, err = s.People.CreateServiceKey(ctx, requestOf(ctx).actor, key); err != nil {
		return nil, err
	}
	return openapi.CreateServiceKey201JSONResponse{KeyCreatedJSONResponse: answerNewKey(ctx, &key, token)}, nil
}

// GetServiceKey handles GET /api/v1/service-keys/{key_id}.
func (s *surface) GetServiceKey(ctx context.Context, request openapi.GetServiceKeyRequestObject) (openapi.GetServiceKeyResponseObject, error) {
	key, err := s.People.ServiceKey(ctx, request.KeyId)
	if err != nil {
		return nil, err
	}
	return openapi.GetServiceKey200JSONResponse{TheKeyJSONResponse: answerKey(&key)}, nil
}

func (s *surface) serviceKeyVersion(ctx context.Context, id string) func() (int64, error) {
	return func() (int64, error) {
		key, err := s.People.ServiceKey(ctx, id)
		return key.Revision, err
	}
}

// RotateServiceKey handles POST /api/v1/service-keys/{key_id}/rotate.
func (s *surface) RotateServiceKey(ctx context.Context, request openapi.RotateServiceKeyRequestObject) (openapi.RotateServiceKeyResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	old, err := s.People.ServiceKey(ctx, request.KeyId)
	if err != nil {
		return nil, err
	}
	if err := requestOf(ctx).mayGive(&old.Key); err != nil {
		return nil, err
	}
	token, id, digest := auth.NewServiceKeyToken()
	following := auth.NamedKey{Key: auth.Key{ID: id, Digest: digest}}
	if end := request.Body.ExpiresAt; end != nil {
		if wrong := rules.WrongExpiry(*end, s.Now()); wrong != "" {
			return nil, rules.FieldErrors{{Field: "expires_at", Message: wrong}}
		}
		following.ExpiresAt = *end
	}
	grace := time.Duration(request.Body.GraceSeconds) * time.Second
	created, err := s.People.RotateServiceKey(ctx, requestOf(ctx).actor, request.KeyId, at, following, grace)
	if err != nil {
		return nil, lost(ctx, err, s.serviceKeyVersion(ctx, request.KeyId))
	}
	return openapi.RotateServiceKey201JSONResponse{KeyCreatedJSONResponse: answerNewKey(ctx, &created, token)}, nil
}

// KeepServiceKey handles POST /api/v1/service-keys/{key_id}/keep.
func (s *surface) KeepServiceKey(ctx context.Context, request openapi.KeepServiceKeyRequestObject) (openapi.KeepServiceKeyResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	key, err := s.People.KeepServiceKey(ctx, requestOf(ctx).actor, request.KeyId, at)
	if err != nil {
		return nil, notKept(ctx, err, s.serviceKeyVersion(ctx, request.KeyId))
	}
	return openapi.KeepServiceKey200JSONResponse{TheKeyJSONResponse: answerKey(&key)}, nil
}

// RevokeServiceKey handles POST /api/v1/service-keys/{key_id}/revoke.
func (s *surface) RevokeServiceKey(ctx context.Context, request openapi.RevokeServiceKeyRequestObject) (openapi.RevokeServiceKeyResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	key, err := s.People.RevokeServiceKey(ctx, requestOf(ctx).actor, request.KeyId, at)
	if err != nil {
		return nil, lost(ctx, err, s.serviceKeyVersion(ctx, request.KeyId))
	}
	return openapi.RevokeServiceKey200JSONResponse{TheKeyJSONResponse: answerKey(&key)}, nil
}
