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

type keyCreator = struct {
	Id   string                   `json:"id"` //nolint:revive // generated
	Kind openapi.KeyCreatedByKind `json:"kind"`
	Name string                   `json:"name"`
}

func showKey(k *auth.NamedKey) openapi.Key {
	by := k.CreatedBy
	return openapi.Key{
		KeyId: k.ID, Name: k.Name,
		Permissions: itemsOf(k.Permissions,
			func(p *auth.Permission) openapi.Permission { return openapi.Permission(*p) }),
		CreatedBy: orNullIf(by.Kind != "",
			keyCreator{Id: by.ID, Kind: openapi.KeyCreatedByKind(by.Kind), Name: by.Name}),
		CreatedAt: k.CreatedAt.UTC(), ExpiresAt: timeOrNull(k.ExpiresAt), RevokedAt: timeOrNull(k.RevokedAt),
		LastUsedAt: timeOrNull(k.LastUsedAt), Version: k.Revision, CreatorLeft: k.CreatorLeft,
		KeptAt:   timeOrNull(k.KeptAt),
		Networks: itemsOf(k.Networks, func(n *netip.Prefix) string { return n.String() }),
	}
}

// Service keys have tenant 0.

func (s *surface) keyPage(ctx context.Context, limit *int) (openapi.KeyList, error) {
	keys, cursor, err := list(ctx, limit, func(after string, limit int) ([]auth.NamedKey, error) {
		return s.Stores.Keys(ctx, requestOf(ctx).tenant.ID, after, limit)
	}, func(k *auth.NamedKey) string { return k.ID })
	return openapi.KeyList{Items: itemsOf(keys, showKey), NextCursor: cursor}, err
}

func (s *surface) key(ctx context.Context, id string) (openapi.TheKeyJSONResponse, error) {
	key, err := s.Stores.Key(ctx, requestOf(ctx).tenant.ID, id)
	return answerKey(&key), err
}

func newKeyToken(tenant rules.TenantID) (token string, key auth.Key) {
	create := auth.NewKeyToken
	if tenant == 0 {
		create = auth.NewServiceKeyToken
	}
	key.TenantID = tenant
	token, key.ID, key.Digest = create()
	return token, key
}

func (s *surface) createKey(ctx context.Context, body *openapi.NewKey) (created openapi.KeyCreatedJSONResponse,
	err error,
) {
	key, err := s.newKey(ctx, body)
	if err != nil {
		return created, err
	}
	token, made := newKeyToken(requestOf(ctx).tenant.ID)
	key.ID, key.TenantID, key.Digest = made.ID, made.TenantID, made.Digest
	if key, err = s.store(ctx).CreateKey(ctx, key); err != nil {
		return created, err
	}
	return answerNewKey(ctx, &key, token), nil
}

func (s *surface) rotateKey(
	ctx context.Context, keyID string, body *openapi.RotateKeyJSONRequestBody,
) (rotated openapi.KeyCreatedJSONResponse, err error) {
	tenant := requestOf(ctx).tenant.ID
	old, err := s.Stores.Key(ctx, tenant, keyID)
	if err != nil {
		return rotated, err
	}
	token, made := newKeyToken(tenant)
	following := auth.NamedKey{Key: made}
	if end := body.ExpiresAt; end != nil {
		if wrong := rules.WrongExpiry(*end, s.Now()); wrong != "" {
			return rotated, rules.FieldErrors{{Field: "expires_at", Message: wrong}}
		}
		following.ExpiresAt, old.ExpiresAt = *end, *end
	}
	if err := requestOf(ctx).mayGive(&old.Key); err != nil { // what the following key will be
		return rotated, err
	}
	grace := time.Duration(body.GraceSeconds) * time.Second
	_, created, err := s.store(ctx).RotateKey(ctx, tenant, keyID, requestOf(ctx).ifMatch, following, grace)
	return answerNewKey(ctx, &created, token), s.lostKey(ctx, err, keyID)
}

func (s *surface) keepKey(ctx context.Context, keyID string) (kept openapi.TheKeyJSONResponse, err error) {
	key, err := s.store(ctx).KeepKey(ctx, requestOf(ctx).tenant.ID, keyID, requestOf(ctx).ifMatch)
	switch {
	case errors.Is(err, auth.ErrCreatorStays):
		return kept, httpapi.Conflict.Problem(
			"The person who made this key has not left, so there is nothing to decide.")
	case errors.Is(err, rules.ErrFinal):
		return kept, httpapi.Conflict.Problem("The key was revoked, and stays so; create a new one.")
	}
	return answerKey(&key), s.lostKey(ctx, err, keyID)
}

func (s *surface) revokeKey(ctx context.Context, keyID string) (openapi.TheKeyJSONResponse, error) {
	err := s.store(ctx).RevokeKey(ctx, requestOf(ctx).tenant.ID, keyID, requestOf(ctx).ifMatch)
	if err != nil {
		return openapi.TheKeyJSONResponse{}, s.lostKey(ctx, err, keyID)
	}
	return s.key(ctx, keyID)
}

func (s *surface) lostKey(ctx context.Context, err error, keyID string) error {
	return lost(ctx, err, func() (int64, error) {
		key, err := s.Stores.Key(ctx, requestOf(ctx).tenant.ID, keyID)
		return key.Revision, err
	})
}

func (s *surface) newKey(ctx context.Context, body *openapi.NewKey) (auth.NamedKey, error) {
	key := auth.NamedKey{
		Key: auth.Key{
			ExpiresAt: orZero(body.ExpiresAt),
			Permissions: itemsOf(body.Permissions,
				func(p *openapi.Permission) auth.Permission { return auth.Permission(*p) }),
		},
		Name: body.Name,
	}
	var wrong rules.FieldErrors
	key.Networks, wrong = auth.ParseNetworks(valueOf(body.Networks))
	validate := key.Validate
	if requestOf(ctx).tenant.ID == 0 {
		validate = key.ValidateService
	}
	wrong = append(wrong, validate(s.Now())...)
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

func (s *surface) ListKeys(ctx context.Context, request openapi.ListKeysRequestObject) (openapi.ListKeysResponseObject,
	error,
) {
	page, err := s.keyPage(ctx, request.Params.Limit)
	return openapi.ListKeys200JSONResponse(page), err
}

func (s *surface) CreateKey(ctx context.Context,
	request openapi.CreateKeyRequestObject,
) (openapi.CreateKeyResponseObject, error) {
	created, err := s.createKey(ctx, request.Body)
	return openapi.CreateKey201JSONResponse{KeyCreatedJSONResponse: created}, err
}

func (s *surface) GetKey(ctx context.Context, request openapi.GetKeyRequestObject) (openapi.GetKeyResponseObject,
	error,
) {
	key, err := s.key(ctx, request.KeyId)
	return openapi.GetKey200JSONResponse{TheKeyJSONResponse: key}, err
}

func (s *surface) RotateKey(ctx context.Context,
	request openapi.RotateKeyRequestObject,
) (openapi.RotateKeyResponseObject, error) {
	created, err := s.rotateKey(ctx, request.KeyId, request.Body)
	return openapi.RotateKey201JSONResponse{KeyCreatedJSONResponse: created}, err
}

func (s *surface) KeepKey(ctx context.Context, request openapi.KeepKeyRequestObject) (openapi.KeepKeyResponseObject,
	error,
) {
	kept, err := s.keepKey(ctx, request.KeyId)
	return openapi.KeepKey200JSONResponse{TheKeyJSONResponse: kept}, err
}

func (s *surface) RevokeKey(ctx context.Context,
	request openapi.RevokeKeyRequestObject,
) (openapi.RevokeKeyResponseObject, error) {
	revoked, err := s.revokeKey(ctx, request.KeyId)
	return openapi.RevokeKey200JSONResponse{TheKeyJSONResponse: revoked}, err
}

func (s *surface) ListServiceKeys(ctx context.Context,
	request openapi.ListServiceKeysRequestObject,
) (openapi.ListServiceKeysResponseObject, error) {
	page, err := s.keyPage(ctx, request.Params.Limit)
	return openapi.ListServiceKeys200JSONResponse(page), err
}

func (s *surface) CreateServiceKey(ctx context.Context,
	request openapi.CreateServiceKeyRequestObject,
) (openapi.CreateServiceKeyResponseObject, error) {
	created, err := s.createKey(ctx, request.Body)
	return openapi.CreateServiceKey201JSONResponse{KeyCreatedJSONResponse: created}, err
}

func (s *surface) GetServiceKey(ctx context.Context,
	request openapi.GetServiceKeyRequestObject,
) (openapi.GetServiceKeyResponseObject, error) {
	key, err := s.key(ctx, request.KeyId)
	return openapi.GetServiceKey200JSONResponse{TheKeyJSONResponse: key}, err
}

func (s *surface) RotateServiceKey(ctx context.Context,
	request openapi.RotateServiceKeyRequestObject,
) (openapi.RotateServiceKeyResponseObject, error) {
	created, err := s.rotateKey(ctx, request.KeyId, (*openapi.RotateKeyJSONRequestBody)(request.Body))
	return openapi.RotateServiceKey201JSONResponse{KeyCreatedJSONResponse: created}, err
}

func (s *surface) KeepServiceKey(ctx context.Context,
	request openapi.KeepServiceKeyRequestObject,
) (openapi.KeepServiceKeyResponseObject, error) {
	kept, err := s.keepKey(ctx, request.KeyId)
	return openapi.KeepServiceKey200JSONResponse{TheKeyJSONResponse: kept}, err
}

func (s *surface) RevokeServiceKey(ctx context.Context,
	request openapi.RevokeServiceKeyRequestObject,
) (openapi.RevokeServiceKeyResponseObject, error) {
	revoked, err := s.revokeKey(ctx, request.KeyId)
	return openapi.RevokeServiceKey200JSONResponse{TheKeyJSONResponse: revoked}, err
}
