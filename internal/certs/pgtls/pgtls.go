// Package pgtls rereads the TLS files of a database URL (sslrootcert, sslcert, sslkey) for each new connection, so that
// renewed certificates need no restart. Unusable files leave the last good ones in force and are logged once for each
// cause.
package pgtls

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Reload makes new connections of a pool read the files of databaseURL, which config was parsed from. log may be
// nil if another pool of the same URL logs.
func Reload(config *pgxpool.Config, databaseURL string, log *slog.Logger) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &reloader{url: databaseURL, log: log, last: config.ConnConfig}
	config.BeforeConnect = r.apply
}

type reloader struct {
	url string
	log *slog.Logger

	mu      sync.Mutex
	last    *pgx.ConnConfig // the last usable one
	problem string          // the last one logged, or ""
}

func (r *reloader) apply(_ context.Context, c *pgx.ConnConfig) error {
	fresh, err := pgx.ParseConfig(r.url)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.last, r.problem = fresh, ""
	} else if problem := err.Error(); problem != r.problem { // pgx leaves the password out
		r.problem = problem
		r.log.Error("the database's TLS files have changed and cannot be used; the last good ones stay in force",
			"option", "SLUICE_DATABASE_URL", "error", err)
	}
	// The fallbacks are other hosts, and the alternatives of an sslmode. Each has its own TLS.
	last := r.last.Copy()
	c.TLSConfig, c.Fallbacks = last.TLSConfig, last.Fallbacks
	return nil
}
