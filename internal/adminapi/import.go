package adminapi

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

var usersHeader = []string{"user_id", "plan"}

func (s *surface) ImportUsers(ctx context.Context,
	request openapi.ImportUsersRequestObject,
) (openapi.ImportUsersResponseObject, error) {
	tenant := requestOf(ctx).tenant.ID
	plans, err := s.planNames(ctx)
	if err != nil {
		return nil, err
	}
	assignments, err := readUsers(request.Body, tenant, plans)
	if err != nil {
		return nil, err
	}
	answer := openapi.ImportUsers200JSONResponse{DryRun: valueOf(request.Params.DryRun), Lines: len(assignments)}
	if answer.DryRun {
		answer.Changed, err = s.countMoves(ctx, tenant, assignments)
	} else {
		answer.Changed, err = s.acting(ctx, "import").AssignAll(ctx, tenant, assignments)
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (s *surface) planNames(ctx context.Context) (map[string]bool, error) {
	names := map[string]bool{"": true}
	for after := ""; ; {
		plans, err := s.Stores.Plans(ctx, requestOf(ctx).tenant.ID, after, maxLimit)
		if err != nil {
			return nil, err
		}
		for _, plan := range plans {
			names[plan.Name] = true
		}
		if len(plans) < maxLimit {
			return names, nil
		}
		after = plans[len(plans)-1].Name
	}
}

// Each user of a file needs far more memory than its line.
const maxUserLines = 500_000

func readUsers(body io.Reader, tenant rules.TenantID, plans map[string]bool) ([]rules.Assignment, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	in := csv.NewReader(bytes.NewReader(data))
	in.FieldsPerRecord = len(usersHeader)
	in.ReuseRecord = true
	header, err := in.Read()
	if err == nil {
		header[0] = strings.TrimPrefix(header[0], "\uFEFF") // spreadsheets begin files with it
	}
	if err != nil && !errors.As(err, new(*csv.ParseError)) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err != nil || header[0] != usersHeader[0] || header[1] != usersHeader[1] {
		return nil, wrongBody("/lines/1", "must be the header user_id,plan")
	}
	var assignments []rules.Assignment
	var wrong []httpapi.FieldError
	lines := map[string]int{} // by user
	for len(wrong) < httpapi.MaxFieldErrors {
		start := in.InputOffset()
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			return assignments, httpapi.BodyProblem(wrong)
		}
		var syntax *csv.ParseError
		if errors.As(err, &syntax) {
			// Reading ends here, since it is unclear where the line ends.
			return nil, httpapi.BodyProblem(append(wrong,
				httpapi.FieldError{Pointer: linePointer(syntax.Line), Detail: "is not CSV with two values: " +
					syntax.Err.Error()}))
		}
		if err != nil {
			return nil, err
		}
		line, _ := in.FieldPos(0)
		if len(assignments) == maxUserLines {
			wrong = append(wrong, httpapi.FieldError{
				Pointer: linePointer(line),
				Detail:  fmt.Sprintf("is one too many; a file has at most %d users", maxUserLines),
			})
			break
		}
		if breaksLine(record, data[start:in.InputOffset()]) {
			wrong = append(wrong, httpapi.FieldError{
				Pointer: linePointer(line),
				Detail: "has a value with the line break CR LF, which CSV cannot tell from LF; change this user by " +
					"hand",
			})
			continue
		}
		one := rules.Assignment{
			TenantID: tenant, UserID: strings.Clone(unescapeFormulas(record[0])),
			Plan: strings.Clone(unescapeFormulas(record[1])),
		}
		wrong = append(wrong, pointers(linePointer(line), one.Validate(plans))...)
		if earlier := lines[one.UserID]; earlier != 0 {
			wrong = append(wrong, httpapi.FieldError{
				Pointer: linePointer(line) + "/user_id",
				Detail:  fmt.Sprintf("is also in line %d", earlier),
			})
		}
		lines[one.UserID] = line
		assignments = append(assignments, one)
	}
	return nil, httpapi.BodyProblem(wrong)
}

// breaksLine reports a line break in a value that is CR LF in the file and LF to the reader.
func breaksLine(record []string, raw []byte) bool {
	return strings.Contains(record[0]+record[1], "\n") && bytes.Contains(bytes.TrimRight(raw, "\r\n"), []byte("\r\n"))
}

func linePointer(line int) string { return "/lines/" + strconv.Itoa(line) }

// countMoves compares with the rules in memory, seconds old at most, and refuses what the tenant's capacity would.
func (s *surface) countMoves(ctx context.Context, tenant rules.TenantID, assignments []rules.Assignment) (moves int64,
	err error,
) {
	inMemory, err := s.tenantRules(tenant)
	if err != nil {
		return 0, err
	}
	var added int64
	for _, one := range assignments {
		plan, _ := inMemory.AssignedPlan(one.UserID)
		switch {
		case plan == one.Plan:
			continue
		case plan == "":
			added++
		case one.Plan == "":
			added--
		}
		moves++
	}
	return moves, s.requireRoom(ctx, map[rules.Thing]int64{rules.ThingUsers: added})
}

func (s *surface) tenantRules(tenant rules.TenantID) (*snapshot.Tenant, error) {
	snapshot := s.Snapshots.Snapshot()
	if snapshot == nil || snapshot.Tenant(tenant) == nil {
		return nil, httpapi.Unavailable.Problem("The tenant's rules were not loaded yet; try again in a second.")
	}
	return snapshot.Tenant(tenant), nil
}

func (s *surface) ImportConfig(ctx context.Context,
	request openapi.ImportConfigRequestObject,
) (openapi.ImportConfigResponseObject, error) {
	tenant := requestOf(ctx).tenant.ID
	current, err := s.Stores.Config(ctx, tenant)
	if err != nil {
		return nil, err
	}
	plans := itemsOf(current.Plans, func(p *rules.Plan) string { return p.Name })
	desired, err := ruleset.Decode(request.Body, "", plans)
	var mistakes ruleset.Errors
	if errors.As(err, &mistakes) {
		return nil, httpapi.BodyProblem(mistakesOf("", mistakes))
	}
	if err != nil {
		return nil, err
	}
	options := ruleset.DiffOptions{Prune: valueOf(request.Params.Prune), Now: s.Now()}
	var contradiction error // between the file and what is stored
	diff := func(current ruleset.Config) (ruleset.Changes, error) {
		var changes ruleset.Changes
		changes, contradiction = ruleset.Diff(current, desired, options)
		return changes, contradiction
	}
	isDryRun := valueOf(request.Params.DryRun)
	var changes ruleset.Changes
	if isDryRun {
		if changes, err = diff(current); err == nil {
			err = errors.Join(s.Stores.RequireKnown(ctx, changes.Written()), s.requireRoom(ctx, growth(&changes)))
		}
	} else {
		changes, err = s.acting(ctx, "import").ChangeConfig(ctx, tenant, diff)
	}
	switch {
	case contradiction != nil:
		return nil, wrongBody("", contradiction.Error())
	case err != nil:
		return nil, err
	}
	return showConfigDiff(changes, isDryRun)
}

func growth(changes *ruleset.Changes) map[rules.Thing]int64 {
	return map[rules.Thing]int64{
		rules.ThingPlans: grown(changes.Plans), rules.ThingRules: grown(changes.Rules),
		rules.ThingOverrides: grown(changes.Overrides),
	}
}

func grown[Row any](changes []ruleset.Change[Row]) (n int64) {
	for i := range changes {
		switch {
		case changes[i].Before == nil:
			n++
		case changes[i].After == nil:
			n--
		}
	}
	return n
}

func mistakesOf(pointer string, mistakes ruleset.Errors) (fields []httpapi.FieldError) {
	for _, mistake := range mistakes {
		field := httpapi.FieldError{Pointer: pointer, Detail: mistake.Message}
		if mistake.Line > 0 {
			field.Pointer = pointer + linePointer(mistake.Line)
		}
		if mistake.Field != "" {
			field.Detail = mistake.Field + ": " + mistake.Message
		}
		fields = append(fields, field)
	}
	return fields
}

func showConfigDiff(changes ruleset.Changes, isDryRun bool) (openapi.ImportConfig200JSONResponse, error) {
	var text strings.Builder
	if err := changes.WriteText(&text); err != nil {
		return openapi.ImportConfig200JSONResponse{}, err
	}
	rows := changes.Rows()
	return openapi.ImportConfig200JSONResponse{
		DryRun: isDryRun, Text: text.String(),
		Plans: itemsOf(rows.Plans, showRow), Rules: itemsOf(rows.Rules, showRow),
		Overrides: itemsOf(rows.Overrides, showRow),
		Gateways:  itemsOf(rows.Gateways, showRow),
	}, nil
}

func showRow(row *ruleset.ChangedRow) openapi.ConfigChange {
	kind := openapi.ChangeKindUpdate
	switch {
	case row.IsNew:
		kind = openapi.ChangeKindCreate
	case row.IsGone:
		kind = openapi.ChangeKindRemove
	}
	return openapi.ConfigChange{
		Change: kind, Label: row.Label,
		Fields: itemsOf(row.Fields, func(f *ruleset.ChangedField) openapi.ConfigFieldChange {
			shown := openapi.ConfigFieldChange{Field: f.Name, Before: &f.Before, After: &f.After}
			if row.IsNew {
				shown.Before = nil
			}
			if row.IsGone {
				shown.After = nil
			}
			return shown
		}),
	}
}

const importTimeout = 2 * time.Minute

func allowTime(w http.ResponseWriter) {
	controller := http.NewResponseController(w)
	// A writer without deadlines, such as a test's recorder, needs none.
	_ = controller.SetReadDeadline(time.Now().Add(importTimeout))
	_ = controller.SetWriteDeadline(time.Now().Add(importTimeout + httpapi.WriteTimeout))
}
