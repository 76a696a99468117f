// Package db holds the database as files: schema.sql is the schema as it stands, before.sql has the names that the
// release before knows, migrations/ leads there, and queries/ is what Sluice asks. A released migration is never
// edited. It only adds and blocks nobody, because the release before keeps working meanwhile: see migrations/README.md.
package db

import "embed"

// Migrations holds the numbered migrations in the folder migrations.
//
//go:embed migrations/*.sql
var Migrations embed.FS
