package adminapi

import (
	"context"
	"errors"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func (q *apiRequest) showMember(m *auth.Member) openapi.Member {
	return openapi.Member{
		AccountId: openapi.ID(m.Account.ID), Email: m.Account.Email, Name: m.Account.Name, Role: openapi.Role(m.Role),
		GrantedBy: orNull(m.GrantedBy), Disabled: !m.Account.DisabledAt.IsZero(), Proven: m.Account.Proven(),
		CreatedAt: m.CreatedAt.UTC(), Version: m.Version,
		// Accounts without a second factor are the easiest to take over, so only those who manage members see them.
		SecondFactor: orNullIf(q.role.May(auth.Owner) || q.key != nil && q.key.Has(auth.PermissionMembers),
			m.Account.HasSecondFactor()),
	}
}

func (q *apiRequest) answerMember(m *auth.Member) openapi.TheMemberJSONResponse {
	return openapi.TheMemberJSONResponse{
		Body:    q.showMember(m),
		Headers: openapi.TheMemberResponseHeaders{ETag: etag(m.Version)},
	}
}

func (s *surface) ListMembers(ctx context.Context,
	request openapi.ListMembersRequestObject,
) (openapi.ListMembersResponseObject, error) {
	q := requestOf(ctx)
	members, cursor, err := list(ctx, request.Params.Limit,
		func(after auth.AccountPlace, limit int) ([]auth.Member, error) {
			return s.People.Members(ctx, q.tenant.ID, after, limit)
		}, func(m *auth.Member) auth.AccountPlace { return m.Account.Place() })
	return openapi.ListMembers200JSONResponse{Items: itemsOf(members, q.showMember), NextCursor: cursor}, err
}

func (s *surface) GetMember(ctx context.Context,
	request openapi.GetMemberRequestObject,
) (openapi.GetMemberResponseObject, error) {
	member, err := s.People.Member(ctx, requestOf(ctx).tenant.ID, auth.AccountID(request.AccountId))
	return openapi.GetMember200JSONResponse{TheMemberJSONResponse: requestOf(ctx).answerMember(&member)}, err
}

func (s *surface) memberVersion(ctx context.Context, id auth.AccountID) func() (int64, error) {
	return func() (int64, error) {
		member, err := s.People.Member(ctx, requestOf(ctx).tenant.ID, id)
		return member.Version, err
	}
}

func (s *surface) ChangeRole(ctx context.Context,
	request openapi.ChangeRoleRequestObject,
) (openapi.ChangeRoleResponseObject, error) {
	q, id := requestOf(ctx), auth.AccountID(request.AccountId)
	member, err := s.People.Member(ctx, q.tenant.ID, id)
	if err != nil {
		return nil, err
	}
	if !holds(q.ifMatch, member.Version) {
		return nil, lost(ctx, rules.ErrChanged, s.memberVersion(ctx, id))
	}
	if err := q.mayGiveRole(auth.Role(request.Body.Role)); err != nil {
		return nil, err
	}
	member.Role = auth.Role(request.Body.Role)
	member, err = s.People.ChangeRole(ctx, q.actor, member)
	return openapi.ChangeRole200JSONResponse{TheMemberJSONResponse: q.answerMember(&member)},
		lost(ctx, err, s.memberVersion(ctx, id))
}

func (s *surface) RemoveMember(ctx context.Context,
	request openapi.RemoveMemberRequestObject,
) (openapi.RemoveMemberResponseObject, error) {
	q, id := requestOf(ctx), auth.AccountID(request.AccountId)
	cancels := valueOf(request.Params.ScheduledChanges) == openapi.Cancel
	if cancels && q.key != nil {
		if err := q.judgeKey(anEditor, auth.PermissionRules, false); err != nil {
			return nil, err
		}
	}
	err := s.People.RemoveMember(ctx, q.actor, q.tenant.ID, id, q.ifMatch, cancels)
	return openapi.RemoveMember204Response{}, lost(ctx, err, s.memberVersion(ctx, id))
}

func showInvitation(i *auth.Invitation) openapi.Invitation {
	return openapi.Invitation{
		InvitationId: openapi.ID(i.ID), Email: i.Email, Role: openapi.Role(i.Role), InvitedBy: i.InvitedBy,
		CreatedAt: i.CreatedAt.UTC(), ExpiresAt: i.ExpiresAt.UTC(), Mail: showMailStatus(i.Mail),
	}
}

func (s *surface) ListInvitations(ctx context.Context,
	request openapi.ListInvitationsRequestObject,
) (openapi.ListInvitationsResponseObject, error) {
	invitations, cursor, err := list(ctx, request.Params.Limit,
		func(before int64, limit int) ([]auth.Invitation, error) {
			return s.People.Invitations(ctx, requestOf(ctx).tenant.ID, before, limit)
		}, func(i *auth.Invitation) int64 { return i.ID })
	return openapi.ListInvitations200JSONResponse{Items: itemsOf(invitations, showInvitation), NextCursor: cursor}, err
}

func (s *surface) Invite(ctx context.Context, request openapi.InviteRequestObject) (openapi.InviteResponseObject,
	error,
) {
	q := requestOf(ctx)
	if err := q.mayGiveRole(auth.Role(request.Body.Role)); err != nil {
		return nil, err
	}
	invitation, token, err := s.Gate.Invite(ctx, q.actor, auth.Invitation{
		TenantID: q.tenant.ID, Email: request.Body.Email, Role: auth.Role(request.Body.Role),
	})
	if errors.Is(err, rules.ErrExists) {
		return nil, httpapi.Conflict.Problem("A member has this address already; change the member's role instead.")
	}
	if errors.Is(err, auth.ErrTooMuchMail) {
		setSeconds(q.w.Header(), "Retry-After", 3600)
		return nil, httpapi.TooSoon.Problem(
			"The tenant has 100 messages waiting or has sent 200 within a day; invite more people later.")
	}
	if err != nil {
		return nil, err
	}
	return openapi.Invite201JSONResponse{InvitationCreatedJSONResponse: openapi.InvitationCreatedJSONResponse{
		Invitation: showInvitation(&invitation), Token: orNull(token),
	}}, nil
}

func (s *surface) RevokeInvitation(ctx context.Context,
	request openapi.RevokeInvitationRequestObject,
) (openapi.RevokeInvitationResponseObject, error) {
	q := requestOf(ctx)
	err := s.People.RevokeInvitation(ctx, q.actor, q.tenant.ID, int64(request.InvitationId))
	return openapi.RevokeInvitation204Response{}, err
}
