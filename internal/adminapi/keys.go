package adminapi

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// keyCreator is the generated type of created_by.
type keyCreator = struct {
	Id   string                   `json:"id"` //nolint:revive // generated
	Kind openapi.KeyCreatedByKind `json:"kind"`
	Name string                   `json:"name"`
}

func showKey(k *auth.NamedKey) openapi.Key {
	shown := openapi.Key{
		KeyId: k.ID, Name: k.Name,
		Permissions: itemsOf(k.Permissions, func(p *auth.Permission) openapi.Permission { return openapi.Permission(*p) }),
		CreatedAt:   k.CreatedAt.UTC(), ExpiresAt: timeOrNull(k.ExpiresAt), RevokedAt: timeOrNull(k.RevokedAt),
		LastUsedAt: timeOrNull(k.LastUsedAt), Version: k.Revision, CreatorLeft: k.CreatorLeft, KeptAt: timeOrNull(k.KeptAt),
		Networks: itemsOf(k.Networks, func(n *netip.Prefix) string { return n.String() }),
	}
	shown.CreatedBy.SetNull()
	if by := k.CreatedBy; by.Kind != "" {
		shown.CreatedBy.Set(keyCreator{Id: by.ID, Kind: openapi.KeyCreatedByKind(by.Kind), Name: by.Name})
	}
	return shown
}

// newKey reads a key to be created. It may do no more than the caller.
func (s *surface) newKey(ctx context.Context, body *openapi.NewKey, validate func(*auth.NamedKey, time.Time) rules.FieldErrors) (auth.NamedKey, error) {
	key := auth.NamedKey{
		Key: auth.Key{
			ExpiresAt:   orZero(body.ExpiresAt),
			Permissions: itemsOf(body.Permissions, func(p *openapi.Permission) auth.Permission { return auth.Permission(*p) }),
		},
		Name: body.Name,
	}
	var wrong rules.FieldErrors
	key.Networks, wrong = auth.ParseNetworks(valueOf(body.Networks))
	wrong = append(wrong, validate(&key, s.Now())...)
	if isZeroTime(body.ExpiresAt) {
		wrong = append(wrong, wrongZeroTime)
	}
	if len(wrong) > 0 {
		return key, wrong
	}
	return key, requestOf(ctx).mayGive(&key.Key)
}

func answerKey(k *auth.NamedKey) openapi.TheKeyJSONResponse {
	return openapi.TheKeyJSONResponse{Body: showKey(k), Headers: openapi.TheKeyResponseHeaders{ETag: etag(k.Revision)}}
}

// answerNewKey makes the only answer that shows a key's secret.
func answerNewKey(ctx context.Context, k *auth.NamedKey, secret string) openapi.KeyCreatedJSONResponse {
	return openapi.KeyCreatedJSONResponse{
		Body: openapi.CreatedKey{Key: showKey(k), Secret: secret},
		Headers: openapi.KeyCreatedResponseHeaders{
			ETag: etag(k.Revision), Location: keyLocation(requestOf(ctx).tenant.Slug, k.ID),
		},
	}
}

func keyLocation(tenant, id string) string {
	if tenant == "" {
		return location("service-keys/%s", id)
	}
	return location("tenants/%s/api-keys/%s", tenant, id)
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
	key, err := s.newKey(ctx, request.Body, (*auth.NamedKey).Validate)
	if err != nil {
		return nil, err
	}
	token, id, digest := auth.NewKeyToken()
	key.ID, key.TenantID, key.Digest = id, requestOf(ctx).tenant.ID, digest
	if key, err = s.store(ctx).CreateKey(ctx, key); err != nil {
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
	old, err := s.Stores.Key(ctx, tenant, request.KeyId)
	if err != nil {
		return nil, err
	}
	if err := requestOf(ctx).mayGive(&old.Key); err != nil {
		return nil, err
	}
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

// KeepKey handles POST …/api-keys/{key_id}/keep.
func (s *surface) KeepKey(ctx context.Context, request openapi.KeepKeyRequestObject) (openapi.KeepKeyResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	key, err := s.store(ctx).KeepKey(ctx, requestOf(ctx).tenant.ID, request.KeyId, at)
	if err != nil {
		return nil, notKept(ctx, err, s.keyVersion(ctx, request.KeyId))
	}
	return openapi.KeepKey200JSONResponse{TheKeyJSONResponse: answerKey(&key)}, nil
}

// notKept says why a key could not be kept.
func notKept(ctx context.Context, err error, version func() (int64, error)) error {
	switch {
	case errors.Is(err, auth.ErrCreatorStays):
		return httpapi.Conflict.Problem("The person who made this key has not left, so there is nothing to decide.")
	case errors.Is(err, rules.ErrFinal):
		return httpapi.Conflict.Problem("The key was revoked, and stays so; create a new one.")
	}
	return lost(ctx, err, version)
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
