package adminapi

import (
	"context"
	"strings"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func showTenant(t *rules.Tenant, role auth.Role) openapi.Tenant {
	return openapi.Tenant{
		Slug: t.Slug, Name: t.Name, DefaultPlan: orNull(t.DefaultPlan), Suspended: t.Suspended,
		Enforcement: openapi.Enforcement(t.Enforcement()),
		Settings: openapi.Settings{
			RetryJitterPercent: t.Settings.RetryJitterPercent,
			Ipv4Prefix:         t.Settings.IPv4Prefix, Ipv6Prefix: t.Settings.IPv6Prefix,
			FailureMode: openapi.FailureMode(t.Settings.FailureMode), FixedRates: t.Settings.FixedRates,
			RecordDays:          t.Settings.RecordDays,
			RequireSecondFactor: t.Settings.RequireSecondFactor,
		},
		Role: openapi.Role(role), CreatedAt: t.CreatedAt.UTC(), Version: t.Version,
	}
}

func answerTenant(ctx context.Context, t *rules.Tenant) openapi.TheTenantJSONResponse {
	return openapi.TheTenantJSONResponse{
		Body:    showTenant(t, requestOf(ctx).role),
		Headers: openapi.TheTenantResponseHeaders{ETag: etag(t.Version)},
	}
}

func (s *surface) ListTenants(ctx context.Context,
	request openapi.ListTenantsRequestObject,
) (openapi.ListTenantsResponseObject, error) {
	tenants, cursor, err := list(ctx, request.Params.Limit, func(after string, limit int) ([]auth.Membership, error) {
		return s.tenantsOfCaller(ctx, valueOf(request.Params.Q), after, limit)
	}, func(m *auth.Membership) string { return m.Tenant.Slug })
	return openapi.ListTenants200JSONResponse{
		Items:      itemsOf(tenants, func(m *auth.Membership) openapi.Tenant { return showTenant(&m.Tenant, m.Role) }),
		NextCursor: cursor,
	}, err
}

func (s *surface) tenantsOfCaller(ctx context.Context, text, after string, limit int) ([]auth.Membership, error) {
	q := requestOf(ctx)
	switch {
	case q.key != nil && !q.isPlatform():
		tenant, err := s.Stores.Tenant(ctx, q.key.TenantID)
		if err != nil || tenant.Suspended || after >= tenant.Slug || !mentions(&tenant, text) {
			return nil, err
		}
		return []auth.Membership{{Tenant: tenant, Role: roleOf(q.key)}}, nil
	case q.isPlatform():
		role := auth.Owner
		if q.key != nil {
			role = roleOf(q.key)
		}
		tenants, err := s.Stores.Tenants(ctx, text, after, limit)
		return itemsOf(tenants, func(t *rules.Tenant) auth.Membership {
			return auth.Membership{Tenant: *t, Role: role}
		}), err
	}
	// An account has few tenants, so their texts are filtered here.
	var found []auth.Membership
	for len(found) < limit {
		memberships, err := s.People.Memberships(ctx, q.account().ID, after, limit)
		if err != nil || len(memberships) == 0 {
			return found, err
		}
		for _, m := range memberships {
			if mentions(&m.Tenant, text) {
				found = append(found, m)
			}
		}
		after = memberships[len(memberships)-1].Tenant.Slug
	}
	return found[:limit], nil
}

func mentions(t *rules.Tenant, text string) bool {
	return strings.Contains(strings.ToLower(t.Slug+"\n"+t.Name), strings.ToLower(text))
}

func (s *surface) CreateTenant(ctx context.Context,
	request openapi.CreateTenantRequestObject,
) (openapi.CreateTenantResponseObject, error) {
	tenant := rules.Tenant{
		Slug: request.Body.Slug, Name: request.Body.Name, DefaultPlan: orZero(request.Body.DefaultPlan),
		Settings: rules.DefaultSettings(),
	}
	patchSettings(&tenant.Settings, request.Body.Settings)
	wrong := tenant.Validate()
	if tenant.DefaultPlan != "" {
		for _, f := range (&rules.Plan{Name: tenant.DefaultPlan}).Validate() {
			wrong = append(wrong, rules.FieldError{Field: "default_plan", Message: f.Message})
		}
	}
	if len(wrong) > 0 {
		return nil, inSettings(wrong)
	}
	tenant, err := s.store(ctx).CreateTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return openapi.CreateTenant201JSONResponse{TenantCreatedJSONResponse: openapi.TenantCreatedJSONResponse{
		Body: showTenant(&tenant, auth.Owner),
		Headers: openapi.TenantCreatedResponseHeaders{
			ETag:     etag(tenant.Version),
			Location: location("tenants/%s", tenant.Slug),
		},
	}}, nil
}

func patchSettings(settings *rules.Settings, patch *openapi.SettingsPatch) {
	if patch == nil {
		return
	}
	set(&settings.RetryJitterPercent, patch.RetryJitterPercent)
	set(&settings.IPv4Prefix, patch.Ipv4Prefix)
	set(&settings.IPv6Prefix, patch.Ipv6Prefix)
	set(&settings.FailureMode, (*rules.FailureMode)(patch.FailureMode))
	set(&settings.FixedRates, patch.FixedRates)
	set(&settings.RecordDays, patch.RecordDays)
	set(&settings.RequireSecondFactor, patch.RequireSecondFactor)
}

func inSettings(wrong rules.FieldErrors) rules.FieldErrors {
	for i, f := range wrong {
		switch f.Field {
		case "retry_jitter_percent", "ipv4_prefix", "ipv6_prefix", "failure_mode", "record_days":
			wrong[i].Field = "settings." + f.Field
		}
	}
	return wrong
}

func (s *surface) GetTenant(ctx context.Context, _ openapi.GetTenantRequestObject) (openapi.GetTenantResponseObject,
	error,
) {
	return openapi.GetTenant200JSONResponse{TheTenantJSONResponse: answerTenant(ctx, &requestOf(ctx).tenant)}, nil
}

func (s *surface) UpdateTenant(ctx context.Context,
	request openapi.UpdateTenantRequestObject,
) (openapi.UpdateTenantResponseObject, error) {
	if patch := request.Body.Settings; patch != nil && valueOf(patch.RequireSecondFactor) {
		if q := requestOf(ctx); q.session != nil && !q.session.HasTwoFactors() {
			return nil, httpapi.Conflict.Problem(
				"Set up your own second factor first; without it you would lose access to the tenant.")
		}
	}
	answer, err := s.changeTenant(ctx, func(t *rules.Tenant) error {
		wasRequired := t.Settings.RequireSecondFactor
		set(&t.Name, request.Body.Name)
		if request.Body.DefaultPlan.IsSpecified() {
			t.DefaultPlan = orZero(request.Body.DefaultPlan)
		}
		if request.Body.Enforcement != nil {
			t.InShadow = *request.Body.Enforcement == openapi.EnforcementShadow
		}
		patchSettings(&t.Settings, request.Body.Settings)
		if wasRequired && !t.Settings.RequireSecondFactor {
			return requestOf(ctx).mustBePerson("make the second factor optional")
		}
		return nil
	})
	return openapi.UpdateTenant200JSONResponse{TheTenantJSONResponse: answer}, err
}

func (s *surface) SuspendTenant(ctx context.Context,
	_ openapi.SuspendTenantRequestObject,
) (openapi.SuspendTenantResponseObject, error) {
	answer, err := s.changeTenant(ctx, func(t *rules.Tenant) error { t.Suspended = true; return nil })
	return openapi.SuspendTenant200JSONResponse{TheTenantJSONResponse: answer}, err
}

func (s *surface) ResumeTenant(ctx context.Context,
	_ openapi.ResumeTenantRequestObject,
) (openapi.ResumeTenantResponseObject, error) {
	answer, err := s.changeTenant(ctx, func(t *rules.Tenant) error { t.Suspended = false; return nil })
	return openapi.ResumeTenant200JSONResponse{TheTenantJSONResponse: answer}, err
}

func (s *surface) changeTenant(
	ctx context.Context, change func(*rules.Tenant) error,
) (openapi.TheTenantJSONResponse, error) {
	at := requestOf(ctx).ifMatch
	tenant, err := patched(at, func() (rules.Tenant, error) {
		tenant, err := s.Stores.Tenant(ctx, requestOf(ctx).tenant.ID)
		if err != nil {
			return tenant, err
		}
		if !holds(at, tenant.Version) {
			return tenant, rules.ErrChanged
		}
		if err := change(&tenant); err != nil {
			return tenant, err
		}
		if wrong := tenant.Validate(); len(wrong) > 0 {
			return tenant, inSettings(wrong)
		}
		if tenant.DefaultPlan != "" {
			if err := s.mustBePlan(ctx, "default_plan", tenant.DefaultPlan); err != nil {
				return tenant, err
			}
		}
		return s.store(ctx).UpdateTenant(ctx, tenant)
	})
	return answerTenant(ctx, &tenant), lost(ctx, err, s.tenantVersion(ctx))
}

func (s *surface) tenantVersion(ctx context.Context) func() (int64, error) {
	return func() (int64, error) {
		tenant, err := s.Stores.Tenant(ctx, requestOf(ctx).tenant.ID)
		return tenant.Version, err
	}
}

func (s *surface) DeleteTenant(ctx context.Context,
	_ openapi.DeleteTenantRequestObject,
) (openapi.DeleteTenantResponseObject, error) {
	q := requestOf(ctx)
	if !q.tenant.Suspended && holds(q.ifMatch, q.tenant.Version) {
		return nil, httpapi.InUse.Problem(
			"The tenant answers checks; suspend it first, and remove it when nobody has complained.")
	}
	err := s.store(ctx).RemoveTenant(ctx, q.tenant.ID, q.ifMatch)
	return openapi.DeleteTenant204Response{}, lost(ctx, err, s.tenantVersion(ctx))
}
