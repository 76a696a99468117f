package ruleset

import "fmt"

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
		planRows.changed(c.Plans), ruleRows.changed(c.Rules), overrideRows.changed(c.Overrides),
		gatewayRows.changed(c.Gateways),
	}
}

func (r rows[T, ID]) changed(changes []Change[T]) []ChangedRow {
	var all []ChangedRow
	for _, change := range changes {
		row := ChangedRow{
			Label: fmt.Sprint(r.identity(change.either())), IsNew: change.Before == nil, IsGone: change.After == nil,
		}
		var before, after []field
		if !row.IsNew {
			before = r.fields(change.Before)
		}
		if !row.IsGone {
			after = r.fields(change.After)
		}
		for i, f := range r.fields(change.either()) {
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
		all = append(all, row)
	}
	return all
}
