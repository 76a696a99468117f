package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const longestKept = 401 * 24 * time.Hour

func (s *surface) ExportUserData(ctx context.Context, request openapi.ExportUserDataRequestObject,
) (openapi.ExportUserDataResponseObject, error) {
	if err := wrongUser(request.UserId); err != nil {
		return nil, err
	}
	e := s.newExport(ctx, exportUserData, "", jsonType)
	e.UserID, e.Name = request.UserId, "user-"+plainName(request.UserId)+".json"
	started, err := s.start(ctx, e)
	return openapi.ExportUserData202JSONResponse{ExportStartedJSONResponse: started}, err
}

// userLists are in the order of the file. Positions are "" at the beginning and the end.
var userLists = []struct {
	name string
	page func(x *exporter, ctx context.Context, tenant rules.TenantID, e *exportRequest, place string) (items []any,
		next string, err error)
}{
	{"overrides", (*exporter).overridesOfUser},
	{"violations", (*exporter).violationsOfUser},
	{"crossings", (*exporter).crossingsOfUser},
	{"counts", (*exporter).countsOfUser},
	{"usage", (*exporter).usageOfUser},
	{"checkpoints", (*exporter).checkpointsOfUser},
	{"audit", (*exporter).auditOfUser},
}

// userPlace is in a list, after some items or none.
type userPlace struct {
	List     int
	At       string
	HasItems bool
}

func (x *exporter) userData(ctx context.Context, tenant rules.TenantID, e *exportRequest, w io.Writer, place string) (
	rows int, next string, err error,
) {
	at, err := placeFrom[userPlace](place)
	if err != nil {
		return 0, "", err
	}
	list := userLists[at.List]
	items, nextAt, err := list.page(x, ctx, tenant, e, at.At)
	if err != nil {
		return 0, "", err
	}
	text := []byte{}
	add := func(value any) {
		encoded, failed := json.Marshal(value)
		text, err = append(text, encoded...), errors.Join(err, failed)
	}
	if place == "" {
		assignment, failed := x.Assignment(ctx, tenant, e.UserID)
		if failed != nil && !errors.Is(failed, rules.ErrNotFound) {
			return 0, "", failed
		}
		text = append(text, `{"user_id":`...)
		add(e.UserID)
		text = append(text, `,"exported_at":`...)
		add(e.At)
		text = append(text, `,"plan":`...)
		add(orNull(assignment.Plan))
	}
	if at.At == "" {
		text = append(text, ",\n"...)
		add(list.name)
		text = append(text, ":["...)
	}
	for _, item := range items {
		if at.HasItems {
			text = append(text, ',')
		}
		text, at.HasItems = append(text, '\n'), true
		add(item)
	}
	if at.At = nextAt; at.At == "" {
		text = append(text, ']')
		at = userPlace{List: at.List + 1}
	}
	if at.List == len(userLists) {
		text, at = append(text, "}\n"...), userPlace{}
	}
	if err != nil {
		return 0, "", err
	}
	if _, err := w.Write(text); err != nil {
		return 0, "", err
	}
	next, err = placeText(at)
	return len(items), next, err
}

func anyOf[Row, Item any](rows []Row, show func(*Row) Item) []any {
	return itemsOf(rows, func(row *Row) any { return show(row) })
}

// userPage reads a page of a list, and returns the position of its last row unless the list ends there.
func userPage[Row, Item any, Place comparable](
	place string, read func(after Place) ([]Row, error), placeOf func(*Row) Place, show func(*Row) Item,
) (items []any, next string, err error) {
	after, err := placeFrom[Place](place)
	if err != nil {
		return nil, "", err
	}
	rows, err := read(after)
	if err == nil && len(rows) == exportPage {
		next, err = placeText(placeOf(&rows[len(rows)-1]))
	}
	return anyOf(rows, show), next, err
}

func (x *exporter) overridesOfUser(ctx context.Context, tenant rules.TenantID, e *exportRequest, place string) (
	items []any, next string, err error,
) {
	return userPage(place, func(after rules.RuleID) ([]rules.Override, error) {
		return x.OverridesOfUser(ctx, tenant, e.UserID, after, exportPage)
	}, func(o *rules.Override) rules.RuleID { return o.RuleID },
		func(o *rules.Override) openapi.Override { return overrideAt(o, e.At) })
}

func (x *exporter) violationsOfUser(ctx context.Context, tenant rules.TenantID, e *exportRequest, place string) (
	items []any, next string, err error,
) {
	before, err := placeFrom[violations.ID](place)
	if err != nil {
		return nil, "", err
	}
	filter := violations.Filter{Since: e.At.Add(-longestKept), Until: e.At.Add(time.Hour), UserID: e.UserID}
	page, err := x.Violations(ctx, tenant, &filter, before, exportPage)
	if err == nil {
		next, err = placeText(page.Next)
	}
	return anyOf(page.Violations, showViolation), next, err
}

func (x *exporter) crossingsOfUser(ctx context.Context, tenant rules.TenantID, e *exportRequest, place string) (
	items []any, next string, err error,
) {
	return userPage(place, func(before violations.CrossingPlace) ([]violations.Crossing, error) {
		return x.Crossings(ctx, tenant, violations.CrossingFilter{UserID: e.UserID}, before, exportPage)
	}, (*violations.Crossing).Place, showCrossing)
}

func (x *exporter) countsOfUser(ctx context.Context, tenant rules.TenantID, e *exportRequest, place string) (
	items []any, next string, err error,
) {
	since := time.Unix(0, 0)
	if place != "" {
		if since, err = time.Parse(time.RFC3339, place); err != nil {
			return nil, "", err
		}
	}
	rows, day, err := x.CountsOfUser(ctx, tenant, e.UserID, since)
	if !day.IsZero() {
		next = day.Format(time.RFC3339)
	}
	return anyOf(rows, func(c *rules.SubjectCount) openapi.SubjectCount {
		return openapi.SubjectCount{
			RuleId: openapi.ID(c.Rule), Subject: c.Subject, FirstAt: c.First, LastAt: c.Last, Denied: c.Denied,
		}
	}), next, err
}

func (x *exporter) usageOfUser(ctx context.Context, tenant rules.TenantID, e *exportRequest, _ string) (
	items []any, next string, err error,
) {
	last := monthOf(e.At)
	rows, err := x.MonthsOfUser(ctx, tenant, e.UserID, monthsUntil(last.AddDate(0, 1-maxMonths, 0), last))
	return anyOf(showUserMonths(rows), func(m *openapi.UserMonth) openapi.UserMonth { return *m }), "", err
}

func (x *exporter) checkpointsOfUser(ctx context.Context, tenant rules.TenantID, e *exportRequest, place string) (
	items []any, next string, err error,
) {
	return userPage(place, func(after rules.CheckpointPlace) ([]rules.Checkpoint, error) {
		return x.CheckpointsOfUser(ctx, tenant, e.UserID, after, exportPage)
	}, func(c *rules.Checkpoint) rules.CheckpointPlace { return c.CheckpointPlace }, showCheckpoint)
}

func showCheckpoint(c *rules.Checkpoint) openapi.Checkpoint {
	shown := openapi.Checkpoint{
		RuleId: openapi.ID(max(c.Rule, -c.Rule)), Subject: c.Subject, At: time.UnixMicro(c.Stamp).UTC(),
	}
	if state, _, ok := enforce.ParseState(c.State); ok {
		shown.Remaining = float64(state.View().Level.Micros) / float64(enforce.Token)
	}
	return shown
}

func (x *exporter) auditOfUser(ctx context.Context, tenant rules.TenantID, e *exportRequest, place string) (
	items []any, next string, err error,
) {
	after, err := placeFrom[auth.AuditID](place)
	if err != nil {
		return nil, "", err
	}
	entries, last, err := x.AuditOfUser(ctx, tenant, e.UserID, after)
	if err != nil {
		return nil, "", err
	}
	shown, err := tryItems(entries, showEntry)
	if err != nil {
		return nil, "", err
	}
	next, err = placeText(last)
	return anyOf(shown, func(entry *openapi.AuditEntry) openapi.AuditEntry { return *entry }), next, err
}
