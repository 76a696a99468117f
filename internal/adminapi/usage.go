package adminapi

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
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
	// maxMonths is as long as counts can be kept.
	maxMonths = 37
)

// What a line of a usage file counts.
const (
	usageOfAll       = "all"
	usageOfRule      = "rule"
	usageOfUser      = "user"
	usageWithoutUser = "no_user"
	usageNotCounted  = "not_counted"
)

// usageFile writes lines of CSV. Its first error ends it.
type usageFile struct {
	out      *csv.Writer
	progress func() error
	lines    int
}

func (f *usageFile) line(cells ...string) error {
	for i := range cells {
		cells[i] = inert(cells[i])
	}
	if err := f.out.Write(cells); err != nil {
		return err
	}
	if f.lines++; f.lines%exportPage == 0 {
		return f.progress()
	}
	return nil
}

// VisitExportUsageResponse makes a file an answer.
func (f *file) VisitExportUsageResponse(w http.ResponseWriter) error { return f.send(w) }

// ExportUsage handles GET …/usage/export.
func (s *surface) ExportUsage(ctx context.Context,
	request openapi.ExportUsageRequestObject,
) (openapi.ExportUsageResponseObject, error) {
	q, p := requestOf(ctx), request.Params
	byUser, user := valueOf(p.By) == openapi.ExportUsageParamsByUser, valueOf(p.UserId)
	if user != "" && !byUser {
		return nil, wrongQuery("user_id", "needs by=user")
	}
	months, err := s.months(p.From, p.To)
	if err != nil {
		return nil, err
	}
	header, name := []string{
		"month", "kind", "rule_id", "name", "key_pattern", "plan", "mode", "allowed", "denied",
		"bypassed", "degraded", "cost",
	}, "rules"
	if byUser {
		header, name = []string{"month", "kind", "user_id", "allowed", "denied", "cost"}, "users"
	}
	return &file{
		request: q, mediaType: csvType, name: usageName(q.tenant.Slug, name, user, months, s.Now()),
		write: func(w io.Writer, progress func() error) error {
			f := &usageFile{out: csv.NewWriter(w), progress: progress}
			_ = f.out.Write(header) // Error reports all writes
			err := s.writeUsage(ctx, f, months, byUser, user)
			f.out.Flush()
			return errors.Join(err, f.out.Error())
		},
	}, nil
}

// GetUserUsage handles GET …/users/{user_id}/usage.
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
	return openapi.GetUserUsage200JSONResponse{Items: itemsOf(usage, showUserMonth), AsOf: asOf.UTC()}, nil
}

func showUserMonth(m *traffic.UserMonth) openapi.UserMonth {
	return openapi.UserMonth{
		Month: m.Month.Format(monthForm), Allowed: m.Allowed, Denied: m.Denied,
		Cost: float64(m.Cost) + violations.Tokens(m.CostParts).Float(),
	}
}

// usageName names a file after what is in it: "usage-acme-users-2025-12.csv",
// "usage-acme-user-42-2025-01-to-2025-12.csv". The name ends in "-so-far" if the last month is not over. Its lines have
// no such mark, because programs read them.
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

// plainName replaces what file systems or headers may not take, and keeps 64 characters.
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

func (s *surface) writeUsage(ctx context.Context, f *usageFile, months []time.Time, byUser bool, user string) error {
	if user != "" {
		counts, err := s.Stores.MonthsOfUser(ctx, requestOf(ctx).tenant.ID, user, months)
		for i := 0; i < len(counts) && err == nil; i++ {
			err = f.line(userLine(&counts[i])...)
		}
		return err
	}
	for _, month := range months {
		totals, err := s.Violations.TotalsOfDays(ctx, requestOf(ctx).tenant.ID, month, month.AddDate(0, 1, 0))
		switch {
		case err != nil:
		case byUser:
			err = s.writeUsers(ctx, f, month, totals)
		default:
			err = s.writeRules(ctx, f, month, totals)
		}
		if err == nil {
			err = f.progress()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *surface) writeRules(ctx context.Context, f *usageFile, month time.Time,
	totals []violations.RuleVerdicts,
) error {
	ids := make([]rules.RuleID, len(totals))
	for i := range totals {
		ids[i] = totals[i].Rule
	}
	found, err := s.Stores.RulesEver(ctx, requestOf(ctx).tenant.ID, ids)
	if err != nil {
		return fmt.Errorf("name the rules of a month: %w", err)
	}
	byID := make(map[rules.RuleID]*rules.Rule, len(found))
	for i := range found {
		byID[found[i].ID] = &found[i]
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
		err := f.line(month.Format(monthForm), kind, id, rule.Name, pattern, rule.Plan, string(rule.Mode),
			formatInt(t.Allowed), formatInt(t.Denied), formatInt(t.Bypassed), formatInt(t.Degraded),
			formatCost(t.Taken, int64(t.TakenParts)))
		if err != nil {
			return err
		}
	}
	return nil
}

// writeUsers writes a month's users, and what all checks are more than theirs.
func (s *surface) writeUsers(ctx context.Context, f *usageFile, month time.Time,
	totals []violations.RuleVerdicts,
) error {
	var allowed, denied int64
	if len(totals) > 0 && totals[0].Rule == 0 {
		allowed, denied = totals[0].Allowed+totals[0].Bypassed, totals[0].Denied
	}
	for after, isFirst := "", true; ; isFirst = false {
		page, err := s.Stores.UserMonths(ctx, requestOf(ctx).tenant.ID, month, after, isFirst, exportPage)
		if err != nil {
			return err
		}
		for i := range page {
			if err := f.line(userLine(&page[i])...); err != nil {
				return err
			}
			allowed -= page[i].Allowed
			denied -= page[i].Denied
			after = page[i].User
		}
		if len(page) < exportPage {
			break
		}
	}
	if allowed <= 0 && denied <= 0 {
		return nil
	}
	return f.line(month.Format(monthForm), usageNotCounted, "", formatInt(max(0, allowed)), formatInt(max(0, denied)),
		"")
}

func userLine(m *traffic.UserMonth) []string {
	kind := usageOfUser
	if m.User == "" {
		kind = usageWithoutUser
	}
	return []string{
		m.Month.Format(monthForm), kind, m.User, formatInt(m.Allowed), formatInt(m.Denied),
		formatCost(m.Cost, m.CostParts),
	}
}

// formatCost writes whole tokens and millionths without rounding.
func formatCost(whole, parts int64) string {
	if parts == 0 {
		return formatInt(whole)
	}
	return formatInt(whole) + "." + strings.TrimRight(fmt.Sprintf("%06d", parts), "0")
}

// months returns the first moments of the months that a request asks for.
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

// monthOf returns when a time's month began.
func monthOf(at time.Time) time.Time {
	year, month, _ := at.UTC().Date()
	return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
}
