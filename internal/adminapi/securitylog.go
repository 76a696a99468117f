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

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
)

func showAccess(e *auth.AccessEvent) openapi.SecurityEvent {
	shown := openapi.SecurityEvent{
		EventId: formatInt(e.ID), At: e.At.UTC(), Count: e.Count, Kind: string(e.Kind), Succeeded: e.Kind.Succeeded(),
		AccountId: orNull(int64(e.Account)), Who: e.Who, Typed: e.Typed, KeyId: e.KeyID, Tenant: e.Tenant,
		Ip: nullable.NewNullNullable[string](), UserAgent: e.UserAgent, Detail: e.Detail, RequestId: e.RequestID,
	}
	if e.IP.IsValid() {
		shown.Ip.Set(e.IP.String())
	}
	return shown
}

func accessFilter(from, until *time.Time, kind *string, account *int64, ip *string) (auth.AccessFilter, error) {
	filter := auth.AccessFilter{
		From: valueOf(from), Until: valueOf(until), Kind: auth.AccessKind(valueOf(kind)), Account: auth.AccountID(valueOf(account)),
	}
	if ip != nil {
		address, err := netip.ParseAddr(*ip)
		if err != nil || address.Zone() != "" {
			return filter, httpapi.InvalidRequest.Problem("Correct the parameters that errors names.",
				httpapi.FieldError{Pointer: "/query/ip", Detail: "must be an IP address such as 203.0.113.9"})
		}
		filter.IP = address.Unmap()
	}
	return filter, nil
}

// accessAfter returns the place in the request's cursor.
func accessAfter(ctx context.Context) (place auth.AccessPlace, err error) {
	parts, err := after(ctx, 2)
	if err != nil || parts[0] == "" {
		return place, err
	}
	at, timeErr := time.Parse(time.RFC3339Nano, parts[0])
	id, idErr := parseInt(parts[1])
	if errors.Join(timeErr, idErr) != nil {
		return place, errCursor
	}
	return auth.AccessPlace{At: at, ID: id}, nil
}

// accessPage reads a page of the security log.
func accessPage(
	ctx context.Context, limit *int, read func(before auth.AccessPlace, limit int) ([]auth.AccessEvent, error),
) (openapi.SecurityEventList, error) {
	before, err := accessAfter(ctx)
	if err != nil {
		return openapi.SecurityEventList{}, err
	}
	size := limitOf(limit)
	events, err := read(before, size+1)
	if err != nil {
		return openapi.SecurityEventList{}, err
	}
	cursor := next(ctx)
	if len(events) > size {
		events = events[:size]
		last := events[size-1].Place()
		cursor = next(ctx, last.At.UTC().Format(time.RFC3339Nano), formatInt(last.ID))
	}
	return openapi.SecurityEventList{Items: itemsOf(events, showAccess), NextCursor: cursor}, nil
}

// ListOwnSecurityLog handles GET /api/v1/account/security-log.
func (s *surface) ListOwnSecurityLog(ctx context.Context, request openapi.ListOwnSecurityLogRequestObject) (openapi.ListOwnSecurityLogResponseObject, error) {
	account := requestOf(ctx).account()
	filter := auth.AccessFilter{Account: account.ID}
	if account.Proven() { // otherwise the address may be another person's
		filter.Typed = account.Email
	}
	page, err := accessPage(ctx, request.Params.Limit, func(before auth.AccessPlace, limit int) ([]auth.AccessEvent, error) {
		return s.AccessEvents.AccessEvents(ctx, filter, before, limit)
	})
	return openapi.ListOwnSecurityLog200JSONResponse(page), err
}

// ListSecurityLog handles GET /api/v1/security-log.
func (s *surface) ListSecurityLog(ctx context.Context, request openapi.ListSecurityLogRequestObject) (openapi.ListSecurityLogResponseObject, error) {
	p := request.Params
	filter, err := accessFilter(p.From, p.Until, p.Kind, p.AccountId, p.Ip)
	if err != nil {
		return nil, err
	}
	filter.Email, filter.Tenant = valueOf(p.Email), valueOf(p.Tenant)
	page, err := accessPage(ctx, p.Limit, func(before auth.AccessPlace, limit int) ([]auth.AccessEvent, error) {
		return s.AccessEvents.AccessEvents(ctx, filter, before, limit)
	})
	return openapi.ListSecurityLog200JSONResponse(page), err
}

// ListTenantSecurityLog handles GET …/security-log.
func (s *surface) ListTenantSecurityLog(ctx context.Context, request openapi.ListTenantSecurityLogRequestObject) (openapi.ListTenantSecurityLogResponseObject, error) {
	p := request.Params
	filter, err := accessFilter(p.From, p.Until, p.Kind, p.AccountId, p.Ip)
	if err != nil {
		return nil, err
	}
	page, err := accessPage(ctx, p.Limit, func(before auth.AccessPlace, limit int) ([]auth.AccessEvent, error) {
		return s.AccessEvents.AccessEventsOf(ctx, requestOf(ctx).tenant.ID, filter, before, limit)
	})
	return openapi.ListTenantSecurityLog200JSONResponse(page), err
}

// VisitExportSecurityLogResponse makes a file an answer.
func (f *file) VisitExportSecurityLogResponse(w http.ResponseWriter) error { return f.send(w) }

var accessHeader = []string{
	"event_id", "at", "count", "kind", "succeeded", "account_id", "who", "typed", "key_id", "tenant", "ip", "user_agent", "detail", "request_id",
}

// ExportSecurityLog handles GET /api/v1/security-log/export.
func (s *surface) ExportSecurityLog(ctx context.Context, request openapi.ExportSecurityLogRequestObject) (openapi.ExportSecurityLogResponseObject, error) {
	p := request.Params
	filter, err := accessFilter(p.From, p.Until, p.Kind, p.AccountId, p.Ip)
	if err != nil {
		return nil, err
	}
	filter.Email, filter.Tenant = valueOf(p.Email), valueOf(p.Tenant)
	return &file{request: requestOf(ctx), mediaType: csvType, name: "security-log.csv", write: func(w io.Writer, progress func() error) error {
		out := csv.NewWriter(w)
		_ = out.Write(accessHeader) // Error reports all writes
		for before := (auth.AccessPlace{}); ; {
			events, err := s.AccessEvents.AccessEvents(ctx, filter, before, exportPage)
			if err != nil {
				return err
			}
			for i := range events {
				_ = out.Write(accessRecord(&events[i]))
			}
			out.Flush()
			if len(events) < exportPage || out.Error() != nil {
				return out.Error()
			}
			before = events[len(events)-1].Place()
			if err := progress(); err != nil {
				return err
			}
		}
	}}, nil
}

func accessRecord(e *auth.AccessEvent) []string {
	shown := showAccess(e)
	record := []string{
		shown.EventId, shown.At.Format(time.RFC3339Nano), formatInt(e.Count), shown.Kind, strconv.FormatBool(shown.Succeeded),
		cell(shown.AccountId, formatInt), e.Who, e.Typed, e.KeyID, e.Tenant, orZero(shown.Ip), e.UserAgent, e.Detail, e.RequestID,
	}
	for i := range record {
		record[i] = inert(record[i])
	}
	return record
}
