package adminapi

import (
	"context"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
)

func showMail(m *auth.Mail) openapi.Mail {
	return openapi.Mail{
		MailId: openapi.ID(m.ID), Kind: string(m.Kind), To: m.To, TenantId: orNull(openapi.ID(m.Tenant)),
		State:    openapi.MailState(m.State),
		Attempts: m.Attempts, Error: m.Error, CreatedAt: m.CreatedAt.UTC(), AttemptedAt: timeOrNull(m.AttemptedAt),
		NextAttemptAt: timeIf(m.State == auth.MailQueued, m.NextAttemptAt),
	}
}

func showMailStatus(m *auth.Mail) nullable.Nullable[openapi.MailStatus] {
	if m == nil {
		return nullable.NewNullNullable[openapi.MailStatus]()
	}
	return nullable.NewNullableWithValue(openapi.MailStatus{
		State: openapi.MailState(m.State), Attempts: m.Attempts, Error: m.Error, AttemptedAt: timeOrNull(m.AttemptedAt),
	})
}

func (s *surface) ListMail(ctx context.Context,
	request openapi.ListMailRequestObject,
) (openapi.ListMailResponseObject, error) {
	mails, cursor, err := list(ctx, request.Params.Limit, func(before int64, limit int) ([]auth.Mail, error) {
		return s.People.Mails(ctx, before, limit)
	}, func(m *auth.Mail) int64 { return m.ID })
	return openapi.ListMail200JSONResponse{Items: itemsOf(mails, showMail), NextCursor: cursor}, err
}

func (s *surface) TestMail(ctx context.Context, request openapi.TestMailRequestObject) (openapi.TestMailResponseObject,
	error,
) {
	if !s.Gate.SendsMail() {
		return nil, httpapi.Conflict.Problem("No mail server is configured; set SLUICE_SMTP_ADDR.")
	}
	mail, err := s.Gate.TestMail(ctx, request.Body.To)
	return openapi.TestMail201JSONResponse(showMail(&mail)), err
}

func (s *surface) GetSignInOptions(_ context.Context,
	_ openapi.GetSignInOptionsRequestObject,
) (openapi.GetSignInOptionsResponseObject, error) {
	return openapi.GetSignInOptions200JSONResponse{
		Mail: s.Gate.SendsMail(), Passwords: s.Gate.TakesPasswords(),
		Providers: itemsOf(s.Providers.List(), showProvider),
	}, nil
}
