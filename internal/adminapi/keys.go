package adminapi

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func showKey(k *auth.NamedKey) openapi.Key {
	return openapi.Key{
		KeyId: k.ID, Name: k.Name,
		Permissions: itemsOf(k.Permissions, func(p *auth.Permission) openapi.Permission { return openapi.Permission(*p) }),
		CreatedAt:   k.CreatedAt.UTC(), ExpiresAt: timeOrNull(k.ExpiresAt), RevokedAt: timeOrNull(k.RevokedAt),
		LastUsedAt: timeOrNull(k.LastUsedAt), Version: k.Revision,
	}
}

func answerKey(k *auth.NamedKey) openapi.TheKeyJSONResponse {
	return openapi.TheKeyJSONResponse{Body: showKey(k), Headers: openapi.TheKeyResponseHeaders{ETag: etag(k.Revision)}}
}

// answerNewKey makes the only answer that shows a key's secret.
func answerNewKey(ctx context.Context, k *auth.NamedKey, secret string) openapi.KeyCreatedJSONResponse {
	return openapi.KeyCreatedJSONResponse{
		Body: openapi.CreatedKey{Key: showKey(k), Secret: secret},
		Headers: openapi.KeyCreatedResponseHeaders{
			ETag: etag(k.Revision), Location: location("%s/api-keys/%s", requestOf(ctx).tenant.Slug, k.ID),
		},
	}
}

// ListKeys handles GET …/api-keys.
func (s *surface) ListKeys(ctx context.Context, request openapi.ListKeysRequestObject) (openapi.ListKeysResponseObject, error) {
	place, err := after(ctx, 1)
	if err != nil {
		return nil, err
	}
	limit := limitOf(request.Params.Limit)
	keys, err := s.Stores.Keys(ctx, requestOf(ctx).tenant.ID, place[0], limit+1)
	if err != nil {
		return nil, err
	}
	items, cursor := page(ctx, keys, limit, showKey, func(k *auth.NamedKey) string { return k.ID })
	return openapi.ListKeys200JSONResponse{Items: items, NextCursor: cursor}, nil
}

// CreateKey handles POST …/api-keys.
func (s *surface) CreateKey(ctx context.Context, request openapi.CreateKeyRequestObject) (openapi.CreateKeyResponseObject, error) {
	token, id, digest := auth.NewKeyToken()
	key := auth.NamedKey{
		Key: auth.Key{
			ID: id, TenantID: requestOf(ctx).tenant.ID, Digest: digest, ExpiresAt: orZero(request.Body.ExpiresAt),
			Permissions: itemsOf(request.Body.Permissions, func(p *openapi.Permission) auth.Permission { return auth.Permission(*p) }),
		},
		Name: request.Body.Name,
	}
	wrong := key.Validate(s.Now())
	if isZeroTime(request.Body.ExpiresAt) {
		wrong = append(wrong, wrongZeroTime)
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	key, err := s.store(ctx).CreateKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return openapi.CreateKey201JSONResponse{KeyCreatedJSONResponse: answerNewKey(ctx, &key, token)}, nil
}

// GetKey handles GET …/api-keys/{key_id}.
func (s *surface) GetKey(ctx context.Context, request openapi.GetKeyRequestObject) (openapi.GetKeyResponseObject, error) {
	key, err := s.Stores.Key(ctx, requestOf(ctx).tenant.ID, request.KeyId)
	if err != nil {
		return nil, err
	}
	return openapi.GetKey200JSONResponse{TheKeyJSONResponse: answerKey(&key)}, nil
}

func (s *surface) keyVersion(ctx context.Context, id string) func() (int64, error) {
	return func() (int64, error) {
		key, err := s.Stores.Key(ctx, requestOf(ctx).tenant.ID, id)
		return key.Revision, err
	}
}

// RotateKey handles POST …/api-keys/{key_id}/rotate.
func (s *surface) RotateKey(ctx context.Context, request openapi.RotateKeyRequestObject) (openapi.RotateKeyResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	tenant := requestOf(ctx).tenant.ID
	token, id, digest := auth.NewKeyToken()
	following := auth.NamedKey{Key: auth.Key{ID: id, TenantID: tenant, Digest: digest}}
	if end := request.Body.ExpiresAt; end != nil {
		if wrong := rules.WrongExpiry(*end, s.Now()); wrong != "" {
			return nil, rules.FieldErrors{{Field: "expires_at", Message: wrong}}
		}
		following.ExpiresAt = *end
	}
	grace := time.Duration(request.Body.GraceSeconds) * time.Second
	_, created, err := s.acting(ctx, "rotate").RotateKey(ctx, tenant, request.KeyId, at, following, grace)
	if err != nil {
		return nil, lost(ctx, err, s.keyVersion(ctx, request.KeyId))
	}
	return openapi.RotateKey201JSONResponse{KeyCreatedJSONResponse: answerNewKey(ctx, &created, token)}, nil
}

// RevokeKey handles POST …/api-keys/{key_id}/revoke.
func (s *surface) RevokeKey(ctx context.Context, request openapi.RevokeKeyRequestObject) (openapi.RevokeKeyResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	tenant := requestOf(ctx).tenant.ID
	if err := s.store(ctx).RevokeKey(ctx, tenant, request.KeyId, at); err != nil {
		return nil, lost(ctx, err, s.keyVersion(ctx, request.KeyId))
	}
	key, err := s.Stores.Key(ctx, tenant, request.KeyId)
	if err != nil {
		return nil, err
	}
	return openapi.RevokeKey200JSONResponse{TheKeyJSONResponse: answerKey(&key)}, nil
}
