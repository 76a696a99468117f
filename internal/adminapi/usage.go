package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	monthForm     = "2006-01"
	defaultMonths = 13
	maxMonths     = 37
)

const (
	usageOfAll       = "all"
	usageOfRule      = "rule"
	usageOfUser      = "user"
	usageWithoutUser = "no_user"
	usageNotCounted  = "not_counted"
)

func (f *file) VisitExportUsageResponse(w http.ResponseWriter) error { return f.send(w) }

var (
	ruleUsageHeader = []string{
		"month", "kind", "rule_id", "name", "key_pattern", "plan", "mode", "meter", "allowed", "denied",
		"bypassed", "degraded", "cost",
	}
	userUsageHeader = []string{"month", "kind", "user_id", "meter", "allowed", "denied", "cost"}
)

func (s *surface) ExportUsage(ctx context.Context,
	request openapi.ExportUsageRequestObject,
) (openapi.ExportUsageResponseObject, error) {
	p := request.Params
	e, err := s.usageExport(ctx, string(valueOf(p.By)), p.UserId, p.From, p.To)
	if err != nil {
		return nil, err
	}
	return s.exported(ctx, e), nil
}

func (s *surface) usageExport(ctx context.Context, by string, user, from, to *string) (*exportRequest, error) {
	e := s.newExport(ctx, exportRuleUsage, "", csvType)
	name := "rules"
	e.UserID = valueOf(user)
	if by == "user" {
		e.What, name = exportUserUsage, "users"
	} else if e.UserID != "" {
		return nil, wrongQuery("user_id", "needs by=user")
	}
	var err error
	if e.Months, err = s.months(from, to); err != nil {
		return nil, err
	}
	e.Name = usageName(requestOf(ctx).tenant.Slug, name, e.UserID, e.Months, e.At)
	return e, nil
}

func (s *surface) GetUserUsage(ctx context.Context,
	request openapi.GetUserUsageRequestObject,
) (openapi.GetUserUsageResponseObject, error) {
	if err := wrongUser(request.UserId); err != nil {
		return nil, err
	}
	months, err := s.months(request.Params.From, request.Params.To)
	if err != nil {
		return nil, err
	}
	asOf := s.Now()
	usage, err := s.Stores.MonthsOfUser(ctx, requestOf(ctx).tenant.ID, request.UserId, months)
	if err != nil {
		return nil, err
	}
	return openapi.GetUserUsage200JSONResponse{Items: showUserMonths(usage), AsOf: asOf.UTC()}, nil
}

func showUserMonths(of []traffic.UserMonth) []openapi.UserMonth {
	items := []openapi.UserMonth{}
	for i := range of {
		m := &of[i]
		month, cost := m.Month.Format(monthForm), float64(m.Cost)+violations.Tokens(m.CostParts).Float()
		if n := len(items); n == 0 || items[n-1].Month != month {
			items = append(items, openapi.UserMonth{Month: month, Costs: map[string]float64{}})
		}
		item := &items[len(items)-1]
		if m.Meter == "" {
			item.Allowed, item.Denied, item.Cost = m.Allowed, m.Denied, cost
		} else {
			item.Costs[string(m.Meter)] = cost
		}
	}
	return items
}

// usageName returns "usage-acme-users-2025-12.csv" or "usage-acme-user-42-2025-01-to-2025-12.csv", with "-so-far" if
// the last month is not over.
func usageName(tenant, by, user string, months []time.Time, now time.Time) string {
	if user != "" {
		by = "user-" + plainName(user)
	}
	name := "usage-" + tenant + "-" + by + "-" + months[0].Format(monthForm)
	last := months[len(months)-1]
	if len(months) > 1 {
		name += "-to-" + last.Format(monthForm)
	}
	if !last.Before(monthOf(now)) {
		name += "-so-far"
	}
	return name + ".csv"
}

func plainName(text string) string {
	plain := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r == '_' || r == '@' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r &&
			r <= 'Z' {
			return r
		}
		return '_'
	}, text)
	return plain[:min(len(plain), 64)]
}

func (x *exporter) ruleUsage(ctx context.Context, tenant rules.TenantID, e *exportRequest, out *rowWriter,
	place string,
) (next string, err error) {
	at, err := placeFrom[int](place)
	if err != nil {
		return "", err
	}
	month := e.Months[at]
	totals, err := x.TotalsOfDays(ctx, tenant, month, month.AddDate(0, 1, 0))
	if err != nil {
		return "", err
	}
	byID, err := rulesEver(ctx, x.Stores, tenant,
		itemsOf(totals, func(t *violations.RuleVerdicts) rules.RuleID { return t.Rule }))
	if err != nil {
		return "", err
	}
	for i := range totals {
		t := &totals[i]
		kind, id, rule := usageOfRule, formatInt(int64(t.Rule)), byID[t.Rule]
		if t.Rule == 0 {
			kind, id = usageOfAll, ""
		}
		if rule == nil { // all checks, or a rule whose row is gone
			rule = &rules.Rule{}
		}
		pattern := ""
		if rule.ID != 0 {
			pattern = rule.Pattern.String()
		}
		out.put([]string{
			month.Format(monthForm), kind, id, rule.Name, pattern, rule.Plan, string(rule.Mode), rule.Meter.Word(),
			formatInt(t.Allowed), formatInt(t.Denied), formatInt(t.Bypassed), formatInt(t.Degraded),
			formatCost(t.Taken, int64(t.TakenParts)),
		}, nil)
	}
	if at++; at == len(e.Months) {
		return "", nil
	}
	return placeText(at)
}

// usagePlace has the checks of the month's users so far.
type usagePlace struct {
	Month           int
	HasUsers        bool
	User            string
	Meter           rules.Meter
	Allowed, Denied int64
}

// userUsage ends each month with the checks that are counted for no user.
func (x *exporter) userUsage(ctx context.Context, tenant rules.TenantID, e *exportRequest, out *rowWriter,
	place string,
) (next string, err error) {
	if e.UserID != "" {
		counts, err := x.MonthsOfUser(ctx, tenant, e.UserID, e.Months)
		for i := range counts {
			out.put(userLine(&counts[i]), nil)
		}
		return "", err
	}
	at, err := placeFrom[usagePlace](place)
	if err != nil {
		return "", err
	}
	month := e.Months[at.Month]
	var after *traffic.UserMonth
	if at.HasUsers {
		after = &traffic.UserMonth{User: at.User, Meter: at.Meter}
	}
	page, err := x.UserMonths(ctx, tenant, month, after, exportPage)
	if err != nil {
		return "", err
	}
	for i := range page {
		m := &page[i]
		out.put(userLine(m), nil)
		if at.User, at.Meter = m.User, m.Meter; m.Meter == "" {
			at.Allowed, at.Denied = at.Allowed+m.Allowed, at.Denied+m.Denied
		}
	}
	if at.HasUsers = true; len(page) == exportPage {
		return placeText(at)
	}
	totals, err := x.TotalsOfDays(ctx, tenant, month, month.AddDate(0, 1, 0))
	if err != nil {
		return "", err
	}
	if len(totals) > 0 && totals[0].Rule == 0 {
		allowed, denied := totals[0].Allowed+totals[0].Bypassed-at.Allowed, totals[0].Denied-at.Denied
		if allowed > 0 || denied > 0 {
			out.put([]string{
				month.Format(monthForm), usageNotCounted, "", "", formatInt(max(0, allowed)),
				formatInt(max(0, denied)), "",
			}, nil)
		}
	}
	if at = (usagePlace{Month: at.Month + 1}); at.Month == len(e.Months) {
		return "", nil
	}
	return placeText(at)
}

func userLine(m *traffic.UserMonth) []string {
	kind := usageOfUser
	if m.User == "" {
		kind = usageWithoutUser
	}
	return []string{
		m.Month.Format(monthForm), kind, m.User, m.Meter.Word(), formatInt(m.Allowed), formatInt(m.Denied),
		formatCost(m.Cost, m.CostParts),
	}
}

func formatCost(whole, parts int64) string {
	if parts == 0 {
		return formatInt(whole)
	}
	return formatInt(whole) + "." + strings.TrimRight(fmt.Sprintf("%06d", parts), "0")
}

func (s *surface) months(from, to *string) ([]time.Time, error) {
	last := monthOf(s.Now())
	if to != nil {
		var err error
		if last, err = time.Parse(monthForm, *to); err != nil {
			return nil, wrongQuery("to", "must be a month such as 2026-11")
		}
	}
	first := last.AddDate(0, 1-defaultMonths, 0)
	if from != nil {
		var err error
		if first, err = time.Parse(monthForm, *from); err != nil {
			return nil, wrongQuery("from", "must be a month such as 2026-11")
		}
	}
	if first.After(last) {
		return nil, wrongQuery("from", "must not be after to")
	}
	if first.AddDate(0, maxMonths, 0).Before(last.AddDate(0, 1, 0)) {
		return nil, wrongQuery("from", "must be at most 36 months before to")
	}
	return monthsUntil(first, last), nil
}

func monthsUntil(first, last time.Time) (months []time.Time) {
	for month := first; !month.After(last); month = month.AddDate(0, 1, 0) {
		months = append(months, month)
	}
	return months
}

func monthOf(at time.Time) time.Time {
	year, month, _ := at.UTC().Date()
	return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
}
