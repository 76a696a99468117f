package adminapi

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func (s *surface) GetMatrix(ctx context.Context,
	request openapi.GetMatrixRequestObject,
) (openapi.GetMatrixResponseObject, error) {
	place, err := after[rules.RuleIdentity](ctx)
	if err != nil {
		return nil, err
	}
	// The tenant was read first, so a page is never older than its ETag.
	tenant := requestOf(ctx).tenant
	tag := etag(tenant.Revision)
	if strings.TrimPrefix(valueOf(request.Params.IfNoneMatch), "W/") == tag { // proxies that compress make ETags weak
		return openapi.GetMatrix304Response{Headers: openapi.GetMatrix304ResponseHeaders{ETag: tag}}, nil
	}
	page, err := s.Stores.Matrix(ctx, tenant.ID, place, limitOf(request.Params.Limit))
	if err != nil {
		return nil, err
	}
	return openapi.GetMatrix200JSONResponse{
		Body:    openapi.Matrix{Items: matrixRows(page.Rules), NextCursor: next(ctx, page.Next)},
		Headers: openapi.GetMatrix200ResponseHeaders{ETag: tag},
	}, nil
}

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

func (s *surface) SaveMatrix(ctx context.Context,
	request openapi.SaveMatrixRequestObject,
) (openapi.SaveMatrixResponseObject, error) {
	tenant := requestOf(ctx).tenant.ID
	stored, err := s.rulesOfCells(ctx, tenant, request.Body.Cells)
	if err != nil {
		return nil, err
	}
	var refused refusals
	changes := make([]ruleset.RuleChange, len(request.Body.Cells))
	for i := range request.Body.Cells {
		cell := &request.Body.Cells[i]
		if orZero(cell.RuleID) == 0 {
			changes[i] = refused.readNewCell(tenant, i, cell)
		} else {
			changes[i] = refused.readCell(stored, i, cell)
		}
	}
	if err := refused.ofMatrix(); err != nil {
		return nil, err
	}
	isDryRun := valueOf(request.Body.DryRun)
	diff, err := s.acting(ctx, "matrix").ChangeRules(ctx, tenant, changes, isDryRun)
	var byCell ruleset.RuleChangeErrors
	if errors.As(err, &byCell) {
		for i, err := range byCell {
			refused.add(cellPointer(i), err)
		}
		return nil, refused.ofMatrix()
	}
	if err != nil {
		return nil, err
	}
	answer, err := showDiff(diff)
	if err != nil {
		return nil, err
	}
	answer.DryRun = isDryRun
	saved := openapi.SaveMatrix200JSONResponse{Body: answer}
	if revision := revisionOf(diff); revision > 0 && !isDryRun {
		saved.Headers.ETag = new(etag(revision))
	}
	return saved, nil
}

// revisionOf returns 0 if nothing changed, or if a rule was removed: its candidates went with it and are not in the
// diff.
func revisionOf(diff []ruleset.RuleChanged) (revision int64) {
	for i := range diff {
		before, after := diff[i].Before, diff[i].After
		if after == nil {
			return 0
		}
		if before == nil || before.Version != after.Version {
			revision = after.Revision
		}
	}
	return revision
}

func (s *surface) rulesOfCells(ctx context.Context, tenant rules.TenantID,
	cells []openapi.MatrixCell,
) (map[rules.RuleID]rules.Rule, error) {
	var ids []rules.RuleID
	for i := range cells {
		if id := orZero(cells[i].RuleID); id != 0 {
			ids = append(ids, rules.RuleID(id))
		}
	}
	found, err := s.Stores.RulesByID(ctx, tenant, ids)
	if err != nil {
		return nil, err
	}
	stored := make(map[rules.RuleID]rules.Rule, len(found))
	for i := range found {
		stored[found[i].ID] = found[i]
	}
	return stored, nil
}

func (r *refusals) readCell(stored map[rules.RuleID]rules.Rule, i int, cell *openapi.MatrixCell) ruleset.RuleChange {
	pointer := cellPointer(i)
	change := ruleset.RuleChange{Remove: cell.Remove, Expected: rules.Expected(orZero(cell.Version))}
	if change.Expected <= 0 {
		r.wrong = append(r.wrong, httpapi.FieldError{
			Pointer: pointer + "/version",
			Detail:  "is missing; send the version that you have read",
		})
		return change
	}
	rule, found := stored[rules.RuleID(orZero(cell.RuleID))]
	switch {
	case !found:
		r.add(pointer, rules.ErrNotFound)
		return change
	case !holds(change.Expected, rule.Version):
		r.add(pointer, rules.ErrChanged)
		return change
	}
	change.Rule = rule
	if change.Remove {
		return change
	}
	if cell.KeyPattern != nil || cell.Name != nil || cell.Plan.IsSpecified() {
		r.wrong = append(r.wrong, httpapi.FieldError{
			Pointer: pointer,
			Detail:  "names a rule_id, so it takes no key_pattern, name or plan: these never change",
		})
	}
	wrong := change.Rule.Patch(cell.Fields)
	r.wrong = append(r.wrong, pointers(pointer, allWrong(&change.Rule, wrong, map[string]bool{rule.Plan: true}))...)
	return change
}

func (r *refusals) readNewCell(tenant rules.TenantID, i int, cell *openapi.MatrixCell) ruleset.RuleChange {
	pointer := cellPointer(i)
	if cell.Remove || orZero(cell.Version) != 0 {
		r.wrong = append(r.wrong, httpapi.FieldError{
			Pointer: pointer + "/rule_id",
			Detail:  "is missing: the rule to change or remove",
		})
		return ruleset.RuleChange{}
	}
	rule, wrong := newRule(tenant, cell)
	r.wrong = append(r.wrong, pointers(pointer, allWrong(&rule, wrong, map[string]bool{rule.Plan: true}))...)
	return ruleset.RuleChange{Rule: rule}
}

func cellPointer(i int) string { return "/cells/" + strconv.Itoa(i) }

func (r *refusals) ofMatrix() error {
	return r.problem("Nothing was saved.", "The rules listed in errors exist; nothing was saved.")
}

func showDiff(diff []ruleset.RuleChanged) (openapi.MatrixDiff, error) {
	answer := openapi.MatrixDiff{Changes: []openapi.RuleChange{}}
	var changed []ruleset.Change[rules.Rule]
	for _, change := range diff {
		if change.Before != nil && change.After != nil && change.Before.Version == change.After.Version {
			continue
		}
		changed = append(changed, change.Change)
		shown := openapi.RuleChange{Change: openapi.ChangeKindUpdate}
		if change.Before == nil {
			shown.Change = openapi.ChangeKindCreate
		} else {
			before := showRule(change.Before)
			shown.Before = &before
		}
		if change.After == nil {
			shown.Change = openapi.ChangeKindRemove
			shown.Overrides = showOverridesOfRemoved(&change)
		} else {
			after := showRule(change.After)
			shown.After = &after
		}
		answer.Changes = append(answer.Changes, shown)
	}
	var text strings.Builder
	err := ruleset.Changes{Rules: changed}.WriteText(&text)
	answer.Text = text.String()
	return answer, err
}

const maxRemovedUsers = 20

func showOverridesOfRemoved(change *ruleset.RuleChanged) *openapi.OverridesOfRemoved {
	moved, removed := change.OverridesMoved, change.OverridesRemoved
	if len(moved)+len(removed) == 0 {
		return nil
	}
	return &openapi.OverridesOfRemoved{
		Moved: int64(len(moved)), Removed: int64(len(removed)),
		RemovedUsers: append([]string{}, removed[:min(len(removed), maxRemovedUsers)]...),
	}
}
