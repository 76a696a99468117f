package db_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Building an index on smallTables takes milliseconds.
var smallTables = []string{
	"tenant", "plan", "plan_use", "api_key", "api_key_use", "account", "member", "invitation", "alert", "api_process",
}

func TestMigrationsHoldNobodyBack(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d migrations were found: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, message := range blocking(string(text)) {
			t.Errorf("%s: %s; see migrations/README.md", file, message)
		}
	}
}

func TestMigrationsThatBlockAreFound(t *testing.T) {
	t.Parallel()
	const patient = "-- +goose Up\nSET LOCAL lock_timeout = '2s';\n"
	const alone = "-- +goose NO TRANSACTION\n-- +goose Up\n"
	tests := map[string]struct {
		migration string
		wrong     int
	}{
		"no timeout": {"-- +goose Up\nALTER TABLE plan ADD COLUMN colour text;", 1},
		"a timeout in a comment": {"-- +goose Up\n-- SET LOCAL lock_timeout = '2s';\nALTER TABLE plan ADD " +
			"COLUMN colour text;", 1},
		"a timeout after the fact": {"-- +goose Up\nALTER TABLE plan ADD COLUMN colour text;\nSET LOCAL " +
			"lock_timeout = '2s';", 1},
		"a timeout that is too long": {"-- +goose Up\nSET LOCAL lock_timeout = '60s';", 1},
		"a timeout for the session":  {"-- +goose Up\nSET lock_timeout = '2s';", 1},
		"an index on a large table":  {patient + "CREATE INDEX i ON plan_assignment (tenant_id);", 1},
		"a unique index on one": {
			patient + "CREATE UNIQUE INDEX i\n    ON public.audit_event (tenant_id);",
			1,
		},
		"an index on a partition's table": {patient + "CREATE INDEX i ON rate_limit_violation (tenant_id);", 1},
		"an index in a transaction":       {patient + "CREATE INDEX CONCURRENTLY i ON plan_assignment (tenant_id);", 1},
		"an index that cannot be retried": {alone + "CREATE INDEX CONCURRENTLY i ON plan_assignment (tenant_id);", 1},
		"two indexes at once": {
			alone + "DROP INDEX CONCURRENTLY IF EXISTS i;\nCREATE INDEX CONCURRENTLY i ON plan (a);\nCREATE INDEX " +
				"CONCURRENTLY j ON plan (b);", 1,
		},
		"a table without a transaction": {alone + "CREATE TABLE new (a int);", 1},
		"a type":                        {patient + "ALTER TABLE plan ALTER COLUMN name TYPE varchar(9);", 1},
		"a random default": {patient +
			"ALTER TABLE session ADD COLUMN tag uuid NOT NULL DEFAULT gen_random_uuid();", 1},
		"a computed column": {patient +
			"ALTER TABLE session ADD COLUMN n int GENERATED ALWAYS AS (1) STORED;", 1},
		"a check of all rows": {patient +
			"ALTER TABLE audit_event ADD CONSTRAINT c CHECK (at > '2020-01-01');", 1},
		"a foreign key of all rows": {patient +
			"ALTER TABLE plan_assignment ADD CONSTRAINT c FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id);", 1},
		"a unique constraint": {patient +
			"ALTER TABLE plan_assignment ADD CONSTRAINT c UNIQUE (tenant_id, plan);", 1},
		"a column that is not null":  {patient + "ALTER TABLE plan_assignment ALTER COLUMN plan SET NOT NULL;", 1},
		"an update":                  {patient + "UPDATE plan_assignment SET plan = 'free';", 1},
		"a deletion":                 {patient + "DELETE FROM rate_limit_override;", 1},
		"a table that goes":          {patient + "DROP TABLE plan_use;", 1},
		"a column that goes":         {patient + "ALTER TABLE plan DROP COLUMN description;", 1},
		"a column with another name": {patient + "ALTER TABLE plan RENAME COLUMN description TO text;", 1},
		"a table with another name":  {patient + "ALTER TABLE plan RENAME TO tier;", 1},
		"a lock":                     {patient + "LOCK TABLE plan;", 1},
		"a reindex":                  {patient + "REINDEX TABLE plan_assignment;", 1},
		"a new table": {patient +
			"CREATE TABLE new (a int UNIQUE);\nCREATE INDEX i ON new (a);\nUPDATE new SET a = 1;", 0},
		"a new column": {
			patient + "ALTER TABLE plan_assignment ADD COLUMN a int NOT NULL DEFAULT 0;",
			0,
		},
		"a time of the migration": {patient +
			"ALTER TABLE plan_assignment ADD COLUMN at timestamptz NOT NULL DEFAULT now();", 0},
		"an index on a small table": {patient + "CREATE INDEX i ON alert (name);", 0},
		"an index of days to come": {
			patient + "CREATE INDEX i ON ONLY rate_limit_violation (tenant_id, plan);",
			0,
		},
		"an index built concurrently": {alone +
			"DROP INDEX CONCURRENTLY IF EXISTS i;\nCREATE INDEX CONCURRENTLY i ON plan_assignment (a);", 0},
		"an index that goes": {alone + "DROP INDEX CONCURRENTLY IF EXISTS i;", 0},
		"a constraint for new rows": {patient +
			"ALTER TABLE plan_assignment ADD CONSTRAINT c CHECK (plan <> '') NOT VALID;", 0},
		"what a function will do": {
			patient + "-- +goose StatementBegin\nCREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN " +
				"UPDATE plan_assignment SET plan = ''; END $$;\n-- +goose StatementEnd", 0,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if wrong := blocking(test.migration); len(wrong) != test.wrong {
				t.Errorf("found %q, want %d of them", wrong, test.wrong)
			}
		})
	}
}

var (
	functionBody = regexp.MustCompile(`(?s)\$(\w*)\$.*?\$(\w*)\$`)
	space        = regexp.MustCompile(`\s+`)
	lockTimeout  = regexp.MustCompile(`^set local lock_timeout = '[1-5]s'$`)
	tableCreated = regexp.MustCompile(`^create (?:unlogged )?table (?:if not exists )?(?:public\.)?(\w+)`)
	indexDropped = regexp.MustCompile(`^drop index concurrently if exists (\w+)$`)
	indexAlone   = regexp.MustCompile(`^create (?:unique )?index concurrently (\w+) on `)
	indexCreated = regexp.MustCompile(`^create (?:unique )?index (?:if not exists )?\w+ on (only )?(?:public\.)?(\w+)`)
	tableChanged = regexp.MustCompile(`^alter table (?:if exists )?(?:only )?(?:public\.)?(\w+) (.*)`)
	rowsChanged  = regexp.MustCompile(`^(?:update|delete from) (?:only )?(?:public\.)?(\w+)`)
	takenAway    = regexp.MustCompile(`^drop (table|schema|column)\b|^alter table .*\b(drop column|rename)\b`)
	wholeTable   = regexp.MustCompile(`^(lock|reindex|cluster|vacuum|truncate)\b`)
	typeChanged  = regexp.MustCompile(`\balter (column )?\w+ (set data )?type\b`)
	rewriting    = regexp.MustCompile(
		`\badd column\b.*(\bgenerated (always|by default) as\b|` +
			`\bdefault (gen_random_uuid|random|clock_timestamp|timeofday|nextval)\b)|\bset (un)?logged\b`)
	scanning = regexp.MustCompile(
		`\bset not null\b|\badd (constraint|check|foreign key|unique|primary key|exclude)\b|` +
			`\badd column\b.*\b(references|check|unique|primary key)\b`)
	notScanning   = regexp.MustCompile(`\bnot valid$|\busing index\b`)
	noTransaction = regexp.MustCompile(`(?m)^-- \+goose NO TRANSACTION`)
)

func blocking(migration string) (wrong []string) {
	statements := statementsOf(migration)
	if noTransaction.MatchString(migration) {
		return blockingAlone(statements)
	}
	if len(statements) == 0 || !lockTimeout.MatchString(statements[0]) {
		wrong = append(wrong, "it does not begin with SET LOCAL lock_timeout = '2s'")
	}
	empty := map[string]bool{} // tables that the migration creates
	for _, statement := range statements {
		if created := tableCreated.FindStringSubmatch(statement); created != nil {
			empty[created[1]] = true
		}
		isLarge := func(table string) bool { return !empty[table] && !slices.Contains(smallTables, table) }
		if message := blockingStatement(statement, isLarge); message != "" {
			wrong = append(wrong, message+": "+statement)
		}
	}
	return wrong
}

func blockingStatement(statement string, isLarge func(table string) bool) string {
	index := indexCreated.FindStringSubmatch(statement)
	table := tableChanged.FindStringSubmatch(statement)
	rows := rowsChanged.FindStringSubmatch(statement)
	switch {
	case strings.Contains(statement, "index concurrently"):
		return "an index is built concurrently outside of a transaction only"
	case takenAway.MatchString(statement):
		return "processes of the previous release may still use this"
	case wholeTable.MatchString(statement):
		return "this locks a whole table"
	case len(index) > 2 && index[1] == "" && isLarge(index[2]):
		return "building an index holds writers back"
	case len(rows) > 1 && isLarge(rows[1]):
		return "this holds every row that it changes"
	case table == nil:
		return ""
	case typeChanged.MatchString(table[2]):
		return "a column changes its type"
	case isLarge(table[1]) && rewriting.MatchString(table[2]):
		return "this rewrites the table"
	case isLarge(table[1]) && scanning.MatchString(table[2]) && !notScanning.MatchString(table[2]):
		return "this reads the table under a lock"
	}
	return ""
}

func blockingAlone(statements []string) (wrong []string) {
	if len(statements) > 0 {
		dropped := indexDropped.FindStringSubmatch(statements[0])
		switch {
		case dropped != nil && len(statements) == 1:
			return nil
		case dropped != nil && len(statements) == 2:
			if built := indexAlone.FindStringSubmatch(statements[1]); len(built) > 1 && built[1] == dropped[1] {
				return nil
			}
		}
	}
	return []string{"without a transaction a migration drops one index if it exists, and may then build it; both " +
		"concurrently"}
}

func statementsOf(migration string) (statements []string) {
	text := functionBody.ReplaceAllString(comment.ReplaceAllString(migration, ""), "''")
	for statement := range strings.SplitSeq(text, ";") {
		if statement = strings.TrimSpace(space.ReplaceAllString(strings.ToLower(statement), " ")); statement != "" {
			statements = append(statements, statement)
		}
	}
	return statements
}
