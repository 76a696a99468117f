package adminapi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/boombuler/barcode/qr"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func (s *surface) FinishSignIn(ctx context.Context,
	request openapi.FinishSignInRequestObject,
) (openapi.FinishSignInResponseObject, error) {
	q := requestOf(ctx)
	token := ""
	if cookie, err := q.r.Cookie(s.cookie(plainPending)); err == nil {
		token = cookie.Value
	}
	entry, err := s.Gate.FinishSignIn(ctx, token, request.Body.Code, s.browser(q))
	s.noteFactor(q, &entry, err)
	if errors.Is(err, auth.ErrSignedOut) {
		q.forgetCookie(s.cookie(plainPending))
		return nil, httpapi.Unauthorized.Problem(
			"This sign-in is over, after five minutes or five wrong codes; sign in again.")
	}
	if err != nil {
		return nil, q.codeProblem(err)
	}
	answer, err := s.welcome(ctx, entry)
	if err != nil {
		return nil, err
	}
	q.forgetCookie(s.cookie(plainPending))
	return openapi.FinishSignIn200JSONResponse{SignedInJSONResponse: answer}, nil
}

func (q *apiRequest) codeProblem(err error) error {
	switch {
	case errors.Is(err, auth.ErrWrongCode):
		return wrongBody("/code", "is wrong, or was used before")
	case errors.Is(err, auth.ErrNeedsCode):
		return wrongBody("/code", "is missing; your account has a second factor")
	}
	return q.slowDown(err)
}

func (s *surface) ConfirmIdentity(ctx context.Context,
	request openapi.ConfirmIdentityRequestObject,
) (openapi.ConfirmIdentityResponseObject, error) {
	q := requestOf(ctx)
	err := s.Gate.ConfirmIdentity(ctx, *q.session, request.Body.Password, valueOf(request.Body.Code), s.browser(q))
	switch {
	case errors.Is(err, auth.ErrWrongPassword):
		s.note(q, auth.AccessPasswordFailed, "confirm")
		return nil, wrongBody("/password", "is not your password")
	case errors.Is(err, auth.ErrWrongCode):
		s.note(q, auth.AccessFactorFailed, "confirm")
	}
	if err != nil {
		return nil, q.codeProblem(err)
	}
	s.note(q, auth.AccessConfirmed, "")
	return openapi.ConfirmIdentity204Response{}, nil
}

func (s *surface) GetSecondFactor(ctx context.Context,
	_ openapi.GetSecondFactorRequestObject,
) (openapi.GetSecondFactorResponseObject, error) {
	factor, err := s.Gate.SecondFactor(ctx, requestOf(ctx).account().ID)
	return openapi.GetSecondFactor200JSONResponse{
		Enabled: !factor.Since.IsZero(), Since: timeOrNull(factor.Since), RecoveryCodes: factor.RecoveryCodes,
		Available: s.Gate.TakesSecondFactors(),
	}, err
}

var hasFactor = httpapi.Conflict.Problem(
	"Your account has a second factor already; turn it off first to set up another.")

func (s *surface) BeginSecondFactor(ctx context.Context,
	_ openapi.BeginSecondFactorRequestObject,
) (openapi.BeginSecondFactorResponseObject, error) {
	enrolment, err := s.Gate.BeginSecondFactor(ctx, *requestOf(ctx).session)
	switch {
	case errors.Is(err, auth.ErrNoSecretKey):
		return nil, httpapi.Conflict.Problem(
			"This installation cannot keep second factors; an operator can set SLUICE_SECRET_KEY.")
	case errors.Is(err, rules.ErrExists):
		return nil, hasFactor
	case err != nil:
		return nil, err
	}
	code, err := drawQR(enrolment.URI)
	return openapi.BeginSecondFactor200JSONResponse{Secret: enrolment.Secret, Uri: enrolment.URI, Qr: code}, err
}

// drawQR draws the dark modules of a QR code row by row, as the path of an SVG.
func drawQR(text string) (openapi.QRCode, error) {
	code, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		return openapi.QRCode{}, fmt.Errorf("draw a QR code: %w", err)
	}
	size := code.Bounds().Dx()
	isDark := func(x, y int) bool {
		if x == size {
			return false
		}
		light, _, _, _ := code.At(x, y).RGBA()
		return light == 0
	}
	var path strings.Builder
	for y := range size {
		for x := 0; x < size; x++ {
			begin := x
			for isDark(x, y) {
				x++
			}
			if x > begin {
				fmt.Fprintf(&path, "M%d %dh%dv1h-%dz", begin, y, x-begin, x-begin)
			}
		}
	}
	return openapi.QRCode{Size: size, Path: path.String()}, nil
}

func (s *surface) TurnSecondFactorOn(ctx context.Context,
	request openapi.TurnSecondFactorOnRequestObject,
) (openapi.TurnSecondFactorOnResponseObject, error) {
	q := requestOf(ctx)
	codes, err := s.Gate.TurnSecondFactorOn(ctx, q.actor, *q.session, request.Body.Code, s.browser(q))
	switch {
	case errors.Is(err, rules.ErrExists):
		return nil, hasFactor
	case err != nil:
		return nil, q.codeProblem(err)
	}
	s.note(q, auth.AccessFactorOn, "")
	return openapi.TurnSecondFactorOn200JSONResponse{RecoveryCodes: codes}, nil
}

func (s *surface) TurnSecondFactorOff(ctx context.Context,
	_ openapi.TurnSecondFactorOffRequestObject,
) (openapi.TurnSecondFactorOffResponseObject, error) {
	q := requestOf(ctx)
	if err := s.Gate.TurnSecondFactorOff(ctx, q.actor, q.account(), s.browser(q)); err != nil {
		return nil, err
	}
	s.note(q, auth.AccessFactorOff, "")
	return openapi.TurnSecondFactorOff204Response{}, nil
}

func (s *surface) ReplaceRecoveryCodes(ctx context.Context,
	_ openapi.ReplaceRecoveryCodesRequestObject,
) (openapi.ReplaceRecoveryCodesResponseObject, error) {
	q := requestOf(ctx)
	codes, err := s.Gate.ReplaceRecoveryCodes(ctx, q.actor, q.account(), s.browser(q))
	if err != nil {
		return nil, err
	}
	s.note(q, auth.AccessRecoveryCodes, "")
	return openapi.ReplaceRecoveryCodes200JSONResponse{RecoveryCodes: codes}, nil
}
