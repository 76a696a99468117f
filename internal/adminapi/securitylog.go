package adminapi

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func showAccess(e *auth.AccessEvent) openapi.SecurityEvent {
	return openapi.SecurityEvent{
		EventId: formatInt(e.ID), At: e.At.UTC(), Count: e.Count, Kind: string(e.Kind), Succeeded: e.Kind.Succeeded(),
		AccountId: orNull(openapi.ID(e.Account)), Who: e.Who, Typed: e.Typed, KeyId: e.KeyID, Tenant: e.Tenant,
		Ip: orNullIf(e.IP.IsValid(), e.IP.String()), UserAgent: e.UserAgent, Detail: e.Detail, RequestId: e.RequestID,
	}
}

func accessFilter(from, until *time.Time, kind *string, account *openapi.ID, ip *string) (auth.AccessFilter, error) {
	filter := auth.AccessFilter{
		From: valueOf(from), Until: valueOf(until), Kind: auth.AccessKind(valueOf(kind)),
		Account: auth.AccountID(valueOf(account)),
	}
	if ip != nil {
		address, err := netip.ParseAddr(*ip)
		if err != nil || address.Zone() != "" {
			return filter, wrongQuery("ip", "must be an IP address such as 203.0.113.9")
		}
		filter.IP = address.Unmap()
	}
	return filter, nil
}

func (s *surface) accessPage(
	ctx context.Context, limit *int, tenant rules.TenantID, filter auth.AccessFilter,
) (openapi.SecurityEventList, error) {
	events, cursor, err := list(ctx, limit, func(before auth.LogCursor, limit int) ([]auth.AccessEvent, error) {
		return s.AccessEvents.AccessEvents(ctx, tenant, filter, before, limit)
	}, (*auth.AccessEvent).Cursor)
	return openapi.SecurityEventList{Items: itemsOf(events, showAccess), NextCursor: cursor}, err
}

func (s *surface) ListOwnSecurityLog(ctx context.Context,
	request openapi.ListOwnSecurityLogRequestObject,
) (openapi.ListOwnSecurityLogResponseObject, error) {
	account := requestOf(ctx).account()
	filter := auth.AccessFilter{Account: account.ID}
	if account.Proven() { // otherwise the address may be another person's
		filter.Typed = account.Email
	}
	page, err := s.accessPage(ctx, request.Params.Limit, 0, filter)
	return openapi.ListOwnSecurityLog200JSONResponse(page), err
}

func (s *surface) ListSecurityLog(ctx context.Context,
	request openapi.ListSecurityLogRequestObject,
) (openapi.ListSecurityLogResponseObject, error) {
	p := request.Params
	filter, err := accessFilter(p.From, p.Until, p.Kind, p.AccountId, p.Ip)
	if err != nil {
		return nil, err
	}
	filter.Email, filter.Tenant = valueOf(p.Email), valueOf(p.Tenant)
	page, err := s.accessPage(ctx, p.Limit, 0, filter)
	return openapi.ListSecurityLog200JSONResponse(page), err
}

func (s *surface) ListTenantSecurityLog(ctx context.Context,
	request openapi.ListTenantSecurityLogRequestObject,
) (openapi.ListTenantSecurityLogResponseObject, error) {
	p := request.Params
	filter, err := accessFilter(p.From, p.Until, p.Kind, p.AccountId, p.Ip)
	if err != nil {
		return nil, err
	}
	page, err := s.accessPage(ctx, p.Limit, requestOf(ctx).tenant.ID, filter)
	return openapi.ListTenantSecurityLog200JSONResponse(page), err
}

func (f *file) VisitExportSecurityLogResponse(w http.ResponseWriter) error { return f.send(w) }

var accessHeader = []string{
	"event_id", "at", "count", "kind", "succeeded", "account_id", "who", "typed", "key_id", "tenant", "ip",
	"user_agent", "detail", "request_id",
}

func (s *surface) ExportSecurityLog(ctx context.Context,
	request openapi.ExportSecurityLogRequestObject,
) (openapi.ExportSecurityLogResponseObject, error) {
	p := request.Params
	filter, err := accessFilter(p.From, p.Until, p.Kind, p.AccountId, p.Ip)
	if err != nil {
		return nil, err
	}
	filter.Email, filter.Tenant = valueOf(p.Email), valueOf(p.Tenant)
	return s.small(ctx, csvType, "security-log.csv", "Choose a shorter time, or a filter.",
		func(ctx context.Context, w io.Writer, place string) (rows int, next string, err error) {
			before, err := placeFrom[auth.LogCursor](place)
			if err != nil {
				return 0, "", err
			}
			events, err := s.AccessEvents.AccessEvents(ctx, 0, filter, before, exportPage)
			if err != nil {
				return 0, "", err
			}
			out := &rowWriter{csv: csv.NewWriter(w)}
			if place == "" {
				out.err = out.csv.Write(accessHeader)
			}
			for i := range events {
				out.put(accessRecord(&events[i]), nil)
			}
			if len(events) == exportPage {
				next, err = placeText(events[len(events)-1].Cursor())
			}
			return out.rows, next, errors.Join(err, out.end())
		}), nil
}

func accessRecord(e *auth.AccessEvent) []string {
	shown := showAccess(e)
	return []string{
		shown.EventId, shown.At.Format(time.RFC3339Nano), formatInt(e.Count), shown.Kind,
		strconv.FormatBool(shown.Succeeded),
		cell(shown.AccountId, formatInt[openapi.ID]), e.Who, e.Typed, e.KeyID, e.Tenant, orZero(shown.Ip), e.UserAgent,
		e.Detail,
		e.RequestID,
	}
}
