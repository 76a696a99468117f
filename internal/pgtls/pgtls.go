// Package pgtls reads the TLS files of a database's URL (sslrootcert, sslcert, sslkey) again for each new connection, so that
// renewed certificates need no restart. Open connections keep theirs until the pool replaces them, by default within an hour.
//
// Files that cannot be used, as when only one of two has been replaced yet, leave the last good ones in force; the log says
// why, once for each cause. Reading costs a new connection well under a millisecond.
package pgtls

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Reload has the new connections of a pool use the files as they are then. The config must be parsed from databaseURL. log
// may be nil, where another pool of the same URL logs.
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
	last    *pgx.ConnConfig // the latest whose files could be used
	problem string          // what was logged last, or "" if all is well
}

// apply sets the TLS of a connection that is about to be opened.
func (r *reloader) apply(_ context.Context, c *pgx.ConnConfig) error {
	fresh, err := pgx.ParseConfig(r.url)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.last, r.problem = fresh, ""
	} else if problem := err.Error(); problem != r.problem { // it has no password
		r.problem = problem
		r.log.Error("the database's TLS files have changed and cannot be used; the last good ones stay in force", "option", "SLUICE_DATABASE_URL", "error", err)
	}
	// The fallbacks are other hosts, and the other ways to connect that an sslmode allows. Each has its own TLS.
	last := r.last.Copy()
	c.TLSConfig, c.Fallbacks = last.TLSConfig, last.Fallbacks
	return nil
}
