package ruleset

import "github.com/sluicegate/sluice/internal/rules"

// ChangedRows has the content of WriteText for programs.
type ChangedRows struct {
	Plans, Rules, Overrides, Gateways []ChangedRow
}

// ChangedRow is a row that changes.
type ChangedRow struct {
	Label         string // for people
	IsNew, IsGone bool
	Fields        []ChangedField // the fields that differ; all fields if the row is new or gone
}

// ChangedField is a field before and after; a new row has no Before, a removed one no After.
type ChangedField struct{ Name, Before, After string }

// Rows returns the changes in order.
func (c Changes) Rows() ChangedRows {
	return ChangedRows{
		Plans: changedRows(c.Plans, planFields, func(p *rules.Plan) string { return p.Name }),
		Rules: changedRows(c.Rules, ruleFields, func(r *rules.Rule) string { return r.Identity().String() }),
		Overrides: changedRows(c.Overrides, overrideFields,
			func(o *ConfigOverride) string { return o.Identity().String() }),
		Gateways: changedRows(c.Gateways, gatewayFields, func(g *rules.Gateway) string { return string(g.Kind) }),
	}
}

func changedRows[T any](changes []Change[T], fields func(*T) []field, label func(*T) string) []ChangedRow {
	var rows []ChangedRow
	for _, change := range changes {
		row := ChangedRow{Label: label(change.either()), IsNew: change.Before == nil, IsGone: change.After == nil}
		var before, after []field
		if !row.IsNew {
			before = fields(change.Before)
		}
		if !row.IsGone {
			after = fields(change.After)
		}
		for i, f := range fields(change.either()) {
			shown := ChangedField{Name: f.name}
			if !row.IsNew {
				shown.Before = before[i].value
			}
			if !row.IsGone {
				shown.After = after[i].value
			}
			only := shown.Before + shown.After // of a new or removed row
			if (row.IsNew || row.IsGone) && only != none || !row.IsNew && !row.IsGone && shown.Before != shown.After {
				row.Fields = append(row.Fields, shown)
			}
		}
		rows = append(rows, row)
	}
	return rows
}
