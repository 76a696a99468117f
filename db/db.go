// Package db holds the database as files: schema.sql is the schema as it stands, migrations/ is the
// way there, queries/ is what Sluice asks. A migration is never edited once it was released, and only
// adds, so that binaries of the release before keep working while the next one is rolled out.
package db

import "embed"

// Migrations holds the numbered migrations in the folder migrations.
//
//go:embed migrations/*.sql
var Migrations embed.FS
