// Package db holds the database as files: migrations/ makes the schema, and queries/ is what Sluice asks. A released
// migration is never edited. It only adds and blocks nobody, because processes of the previous release keep working
// meanwhile: see migrations/README.md.
package db

import "embed"

// Migrations holds the numbered migrations in the folder migrations.
//
//go:embed migrations/*.sql
var Migrations embed.FS
