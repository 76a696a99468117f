package adminapi

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// GetMatrix handles GET …/matrix.
func (s *surface) GetMatrix(ctx context.Context, request openapi.GetMatrixRequestObject) (openapi.GetMatrixResponseObject, error) {
	place, err := after(ctx, 2)
	if err != nil {
		return nil, err
	}
	limit := limitOf(request.Params.Limit)
	found, err := s.Stores.Matrix(ctx, visitOf(ctx).tenant.ID, rules.RuleIdentity{Pattern: place[0], Name: place[1]}, limit+1)
	if err != nil {
		return nil, err
	}
	rows := matrixRows(found)
	cursor := next(ctx)
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		cursor = next(ctx, last.KeyPattern, last.Name)
	}
	return openapi.GetMatrix200JSONResponse{Items: rows, NextCursor: cursor}, nil
}

// matrixRows puts the rules of one pattern and name, which stand together, into one row.
func matrixRows(found []rules.Rule) []openapi.MatrixRow {
	rows := []openapi.MatrixRow{}
	for i := range found {
		rule := showRule(&found[i])
		if n := len(rows); n == 0 || rows[n-1].KeyPattern != rule.KeyPattern || rows[n-1].Name != rule.Name {
			rows = append(rows, openapi.MatrixRow{KeyPattern: rule.KeyPattern, Name: rule.Name, Scope: rule.Scope})
		}
		row := &rows[len(rows)-1]
		row.Rules = append(row.Rules, rule)
	}
	return rows
}

// SaveMatrix handles POST …/matrix.
func (s *surface) SaveMatrix(ctx context.Context, request openapi.SaveMatrixRequestObject) (openapi.SaveMatrixResponseObject, error) {
	tenant := visitOf(ctx).tenant.ID
	cells := cells{tenant: tenant}
	for i := range request.Body.Cells {
		if err := s.readCell(ctx, &cells, i, &request.Body.Cells[i]); err != nil {
			return nil, err
		}
	}
	if err := cells.problem(); err != nil {
		return nil, err
	}
	isDryRun := valueOf(request.Body.DryRun)
	diff := cells.planned
	if !isDryRun {
		var err error
		diff, err = s.acting(ctx, "matrix").ChangeRules(ctx, tenant, cells.changes)
		var byCell rules.RuleChangeErrors
		if errors.As(err, &byCell) {
			for i, err := range byCell {
				cells.refuse(i, err)
			}
			return nil, cells.problem()
		}
		if err != nil {
			return nil, err
		}
	}
	answer, err := showDiff(diff)
	if err != nil {
		return nil, err
	}
	answer.DryRun = isDryRun
	return openapi.SaveMatrix200JSONResponse(answer), nil
}

// cells are those of one save: what they change, and what is wrong with them.
type cells struct {
	tenant  rules.TenantID
	changes []rules.RuleChange          // one for each cell
	planned []rules.Change[rules.Rule]  // what a dry run answers
	wrong   []httpapi.FieldError        // in the body
	taken   []httpapi.FieldError        // cells that are not empty
	lost    []httpapi.FieldError        // cells that others changed
	named   map[rules.RuleIdentity]bool // by new cells
}

// readCell turns a cell into a change.
func (s *surface) readCell(ctx context.Context, c *cells, i int, cell *openapi.MatrixCell) error {
	place := "/cells/" + strconv.Itoa(i)
	if orZero(cell.RuleId) == 0 {
		return s.readNewCell(ctx, c, place, cell)
	}
	change := rules.RuleChange{Remove: valueOf(cell.Remove), Expected: rules.Expected(orZero(cell.Version))}
	if change.Expected == 0 {
		c.wrong = append(c.wrong, httpapi.FieldError{Pointer: place + "/version", Detail: "is missing: the version of the rule that you have read"})
	}
	before, err := s.Stores.Rule(ctx, c.tenant, rules.RuleID(orZero(cell.RuleId)))
	switch {
	case errors.Is(err, rules.ErrNotFound):
		c.wrong = append(c.wrong, httpapi.FieldError{Pointer: place + "/rule_id", Detail: "is no rule of this tenant; it may have been removed"})
		return nil
	case err != nil:
		return err
	case change.Expected != 0 && !holds(change.Expected, before.Version):
		c.refuse(i, rules.ErrChanged)
	}
	change.Rule = before
	if change.Remove {
		c.plan(change, rules.Change[rules.Rule]{Before: &before})
		return nil
	}
	if cell.KeyPattern != nil || cell.Name != nil || cell.Plan.IsSpecified() {
		c.wrong = append(c.wrong, httpapi.FieldError{Pointer: place, Detail: "names a rule_id, so it takes no key_pattern, name or plan: these never change"})
	}
	fields := fieldsOfCell(cell)
	fields.patch(&change.Rule)
	wrong, err := s.wrongRule(ctx, &change.Rule, nil)
	if err != nil {
		return err
	}
	c.wrong = append(c.wrong, pointers(place, wrong)...)
	after := change.Rule
	c.plan(change, rules.Change[rules.Rule]{Before: &before, After: &after})
	return nil
}

// readNewCell turns a cell that was empty into a new rule.
func (s *surface) readNewCell(ctx context.Context, c *cells, place string, cell *openapi.MatrixCell) error {
	if valueOf(cell.Remove) || orZero(cell.Version) != 0 {
		c.wrong = append(c.wrong, httpapi.FieldError{Pointer: place + "/rule_id", Detail: "is missing: the rule to change or remove"})
		return nil
	}
	rule, wrong := newRule(c.tenant, &openapi.NewRule{
		KeyPattern: valueOf(cell.KeyPattern), Name: cell.Name, Plan: cell.Plan,
		RatePerSecond: cell.RatePerSecond, RateUnit: cell.RateUnit, BurstCapacity: cell.BurstCapacity, Algorithm: cell.Algorithm,
		Mode: cell.Mode, Action: cell.Action, FailureMode: cell.FailureMode, IsActive: cell.IsActive, Description: cell.Description,
	})
	wrong, err := s.wrongRule(ctx, &rule, wrong)
	if err != nil {
		return err
	}
	c.wrong = append(c.wrong, pointers(place, wrong)...)
	if len(wrong) == 0 {
		isTaken, err := s.isTaken(ctx, &rule)
		if err != nil {
			return err
		}
		if isTaken || c.named[rule.Identity()] {
			c.refuse(len(c.changes), rules.ErrExists)
		}
	}
	if c.named == nil {
		c.named = map[rules.RuleIdentity]bool{}
	}
	c.named[rule.Identity()] = true
	c.plan(rules.RuleChange{Rule: rule}, rules.Change[rules.Rule]{After: &rule})
	return nil
}

// isTaken says whether there is a rule with this one's pattern, plan and name.
func (s *surface) isTaken(ctx context.Context, rule *rules.Rule) (bool, error) {
	filter := rules.RuleFilter{Pattern: rule.Pattern.String(), Plan: &rule.Plan}
	for after := rules.RuleID(0); ; {
		found, err := s.Stores.Rules(ctx, rule.TenantID, filter, after, maxLimit)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(found.Rules, func(r rules.Rule) bool { return r.Name == rule.Name }) {
			return true, nil
		}
		if after = found.Next; after == 0 {
			return false, nil
		}
	}
}

func fieldsOfCell(c *openapi.MatrixCell) ruleFields {
	return ruleFields{
		c.RatePerSecond, c.RateUnit, c.BurstCapacity, c.Algorithm, c.Mode, c.Action, c.FailureMode, c.IsActive, c.Description,
	}
}

func (c *cells) plan(change rules.RuleChange, planned rules.Change[rules.Rule]) {
	c.changes = append(c.changes, change)
	c.planned = append(c.planned, planned)
}

// refuse notes why the store does not, or would not, save a cell.
func (c *cells) refuse(i int, err error) {
	place := "/cells/" + strconv.Itoa(i)
	var fields rules.FieldErrors
	switch {
	case errors.As(err, &fields):
		c.wrong = append(c.wrong, pointers(place, fields)...)
	case errors.Is(err, rules.ErrExists):
		c.taken = append(c.taken, httpapi.FieldError{Pointer: place, Detail: "is not empty: a rule with this pattern, plan and name exists"})
	case errors.Is(err, rules.ErrNotFound):
		c.lost = append(c.lost, httpapi.FieldError{Pointer: place, Detail: "was removed by somebody else"})
	default:
		c.lost = append(c.lost, httpapi.FieldError{Pointer: place, Detail: "was changed by somebody else"})
	}
}

// problem is the answer to cells that cannot be saved; nil if all can.
func (c *cells) problem() error {
	for _, fields := range [][]httpapi.FieldError{c.wrong, c.lost, c.taken} {
		slices.SortStableFunc(fields, func(a, b httpapi.FieldError) int { return strings.Compare(a.Pointer, b.Pointer) })
	}
	switch {
	case len(c.wrong) > 0:
		return httpapi.BodyProblem(c.wrong)
	case len(c.lost) > 0:
		return httpapi.Changed.Problem(readAgain+" Nothing was saved.", c.lost[:min(len(c.lost), 20)]...)
	case len(c.taken) > 0:
		return httpapi.Conflict.Problem("Rules stand where errors points; nothing was saved.", c.taken[:min(len(c.taken), 20)]...)
	}
	return nil
}

// showDiff shows what changed, leaving out what stayed as it was.
func showDiff(diff []rules.Change[rules.Rule]) (openapi.MatrixDiff, error) {
	answer := openapi.MatrixDiff{Changes: []openapi.RuleChange{}}
	var changed []rules.Change[rules.Rule]
	for _, change := range diff {
		if change.Before != nil && change.After != nil && isSame(change.Before, change.After) {
			continue
		}
		changed = append(changed, change)
		shown := openapi.RuleChange{Change: openapi.ChangeKindUpdate}
		if change.Before == nil {
			shown.Change = openapi.ChangeKindCreate
		} else {
			before := showRule(change.Before)
			shown.Before = &before
		}
		if change.After == nil {
			shown.Change = openapi.ChangeKindRemove
		} else {
			after := showRule(change.After)
			shown.After = &after
		}
		answer.Changes = append(answer.Changes, shown)
	}
	var text strings.Builder
	err := rules.Changes{Rules: changed}.WriteText(&text)
	answer.Text = text.String()
	return answer, err
}

// isSame says that people see no difference.
func isSame(a, b *rules.Rule) bool {
	return a.RatePerSecond == b.RatePerSecond && a.RateUnit == b.RateUnit && a.Burst == b.Burst &&
		a.Algorithm == b.Algorithm && a.Mode == b.Mode && a.Action == b.Action && a.FailureMode == b.FailureMode &&
		a.Active == b.Active && a.Description == b.Description
}
