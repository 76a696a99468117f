package db_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// platformFile alone may cross tenants.
const platformFile = "platform.sql"

func TestEveryQueryNamesItsTenant(t *testing.T) {
	t.Parallel()
	owned := tenantOwnedTables(t)
	files, err := filepath.Glob("queries/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, file := range files {
		if filepath.Base(file) == platformFile {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range strings.Split(string(text), "-- name: ")[1:] {
			queries++
			name, _, _ := strings.Cut(query, " ")
			for _, wrong := range crossings("-- name: "+query, owned) {
				t.Errorf("%s: %s: %s", file, name, wrong)
			}
		}
	}
	if queries < 20 {
		t.Errorf("only %d queries were found", queries)
	}
}

func TestQueriesThatCrossTenantsAreFound(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		query string
		wrong int
	}{
		"all rows":                        {"SELECT * FROM plan", 1},
		"a row by its own id":             {"SELECT * FROM plan WHERE name = $1", 1},
		"a tenant in a comment":           {"SELECT * FROM plan -- WHERE tenant_id = $1", 1},
		"a tenant in a string":            {"SELECT * FROM plan WHERE name = ' AND tenant_id = $1'", 1},
		"a constant for the tenant":       {"SELECT * FROM plan WHERE tenant_id = 1", 1},
		"the tenant compared with itself": {"SELECT * FROM plan WHERE tenant_id = tenant_id", 1},
		"any of some tenants":             {"SELECT * FROM plan WHERE tenant_id = ANY ($1)", 1},
		"every other tenant":              {"SELECT * FROM plan WHERE tenant_id <> $1", 1},
		"not the tenant":                  {"SELECT * FROM plan WHERE NOT tenant_id = $1", 1},
		"a way around the tenant":         {"SELECT * FROM plan WHERE tenant_id = $1 OR name = $2", 1},
		"a way around it, further on":     {"SELECT * FROM plan WHERE tenant_id = $1 AND name = $2 OR true", 1},
		"the tenant of one of two tables": {"SELECT * FROM plan p, plan_assignment u WHERE p.tenant_id = $1 AND " +
			"u.plan = p.name", 1},
		"two tables of the same unnamed tenant": {
			"SELECT * FROM plan p JOIN plan_assignment u ON u.tenant_id = p.tenant_id AND u.plan = p.name", 2,
		},
		"a subquery without the tenant": {
			"SELECT * FROM plan WHERE tenant_id = $1 AND EXISTS (SELECT FROM plan_assignment u WHERE u.plan = name)", 1,
		},
		"an update of all":           {"UPDATE plan SET tenant_id = $1", 2},
		"an update by name":          {"UPDATE plan SET description = '' WHERE name = $1", 1},
		"a deletion by id":           {"DELETE FROM rate_limit_rule WHERE rule_id = $1", 1},
		"an insert without a tenant": {"INSERT INTO plan (name) VALUES ($1)", 1},
		"an insert from all tenants": {"INSERT INTO plan (tenant_id, name) SELECT tenant_id, plan FROM " +
			"plan_assignment", 2},
		"an insert of a row's tenant": {
			"INSERT INTO plan (tenant_id, name) SELECT other.owner, other.name FROM other",
			1,
		},
		"an insert of one of several": {"INSERT INTO plan (name, tenant_id) SELECT name, unnest($1::bigint[]) FROM " +
			"other", 1},
		"an insert of a fixed tenant": {"INSERT INTO plan (tenant_id, name) VALUES ($1, $2), (1, $2)", 1},
		"an insert beside the tenant": {"INSERT INTO plan (tenant_id, name) SELECT $1 + 1, $2", 1},
		"a comma after a join": {
			"SELECT * FROM tenant t JOIN plan p ON p.tenant_id = $1, plan_assignment u WHERE u.plan = p.name", 1,
		},
		"a partition":               {"SELECT * FROM rate_limit_violation_default WHERE user_id = $1", 1},
		"a quoted table":            {`SELECT * FROM "plan" WHERE name = $1`, 1},
		"a table in its schema":     {"SELECT * FROM public.plan WHERE name = $1", 1},
		"a common table expression": {"WITH p AS (SELECT * FROM plan) SELECT * FROM p WHERE p.tenant_id = $1", 1},
		"an outer join's condition": {"SELECT * FROM plan p LEFT JOIN plan_assignment u ON p.tenant_id = $1 AND " +
			"u.tenant_id = $1", 1},
		"a deletion using a table": {"DELETE FROM plan USING plan_assignment u WHERE plan.tenant_id = $1 AND " +
			"u.plan = plan.name", 1},
		"a table and only it":        {"SELECT * FROM ONLY plan", 1},
		"a row moved to a tenant":    {"UPDATE plan SET tenant_id = $2 WHERE tenant_id = $1", 1},
		"the tenant before this one": {"SELECT * FROM plan WHERE tenant_id = $1 - 1", 1},
		"a merge": {"MERGE INTO plan p USING plan_assignment u ON p.tenant_id = $1 WHEN MATCHED " +
			"THEN DELETE", 3},
		"one tenant":          {"SELECT * FROM plan WHERE tenant_id = $1 AND name = $2", 0},
		"one tenant, by name": {"SELECT * FROM plan WHERE tenant_id = sqlc.arg(tenant_id) AND (a OR b)", 0},
		"one tenant through a join": {"SELECT * FROM plan AS p JOIN plan_assignment u ON u.tenant_id = p.tenant_id " +
			"WHERE p.tenant_id = $1", 0},
		"one tenant in a subquery": {"SELECT * FROM plan p WHERE p.tenant_id = $1 AND EXISTS (SELECT FROM " +
			"plan_assignment u WHERE u.tenant_id = p.tenant_id)", 0},
		"an insert with the tenant": {"INSERT INTO plan (tenant_id, name) VALUES ($1, $2) ON CONFLICT (tenant_id, " +
			"name) DO NOTHING", 0},
		"an insert of the held tenant": {
			"INSERT INTO plan (name, tenant_id) SELECT DISTINCT u.plan, u.tenant_id FROM plan_assignment u WHERE " +
				"u.tenant_id = $1", 0,
		},
		"an insert of many rows": {"INSERT INTO plan (tenant_id, name) SELECT sqlc.arg(tenant_id)::bigint, name " +
			"FROM unnest($2::text[]) AS name", 0},
		"an update of one tenant":     {"UPDATE plan AS p SET description = '' WHERE p.tenant_id = $1", 0},
		"a table that nobody owns":    {"SELECT * FROM tenant WHERE slug = $1", 0},
		"a function that reads a row": {"SELECT extract(epoch FROM plan.created_at) FROM plan WHERE tenant_id = $1", 0},
	}
	owned := tenantOwnedTables(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if wrong := crossings(test.query, owned); len(wrong) != test.wrong {
				t.Errorf("found %q, want %d of them", wrong, test.wrong)
			}
		})
	}
}

var (
	createTable     = regexp.MustCompile(`(?s)CREATE TABLE (\w+) \((.*?)\n\)`)
	createPartition = regexp.MustCompile(`CREATE TABLE (\w+) PARTITION OF (\w+)`)
)

func tenantOwnedTables(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	var schema strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		schema.Write(text)
	}
	var owned []string
	for _, table := range createTable.FindAllStringSubmatch(schema.String(), -1) {
		if table[1] != "tenant" && strings.Contains(table[2], "\n    tenant_id ") {
			owned = append(owned, table[1])
		}
	}
	for _, partition := range createPartition.FindAllStringSubmatch(schema.String(), -1) {
		if slices.Contains(owned, partition[2]) {
			owned = append(owned, partition[1])
		}
	}
	if !slices.Contains(owned, "plan") || !slices.Contains(owned, "api_key") {
		t.Fatalf("the tables that tenants own were not found in the schema, but %q", owned)
	}
	return owned
}
