// Package db holds the database as files: schema.sql is the schema as it stands, migrations/ is the
// way there, queries/ is what Sluice asks. A migration is never edited once it was released, only adds, and
// holds nobody back, because it runs while the release before keeps working: see migrations/README.md.
package db

import "embed"

// Migrations holds the numbered migrations in the folder migrations.
//
//go:embed migrations/*.sql
var Migrations embed.FS
