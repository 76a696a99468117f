// Package db holds the database as files: migrations/ makes the schema, and queries/ is what Sluice asks.
package db

import "embed"

// Migrations holds the numbered migrations in the folder migrations.
//
//go:embed migrations/*.sql
var Migrations embed.FS
