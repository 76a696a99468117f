package pgstore

import (
	"context"
	"time"
)

// A class bounds the time of PostgreSQL's work. The client gives up at the timeout and the server serverGrace later, so
// that a query ends even if its process has gone.
type class string

const (
	classRead       class = "read"       // one row by its key, or a page of a list
	classHeavy      class = "heavy"      // charts, tops, exports and logs: many rows for one answer
	classWrite      class = "write"      // a change by one request
	classBulk       class = "bulk"       // a change of many rows, such as an import
	classRecord     class = "record"     // counts, violations, recorded checks, reports of processes and backends
	classBackground class = "background" // claims of queued work, alerts, leadership
	classNotice     class = "notice"     // looking through all keys for some to tell people about
	classLoad       class = "load"       // all rules at once: the Watcher, exports of rules, replays, erasing a user
	classUpkeep     class = "upkeep"     // one step of retention; moving a day out of a default partition takes longest
)

// docs/operations.md lists these, and a test compares.
//
//nolint:gochecknoglobals // a constant
var timeouts = map[class]time.Duration{
	classRead:       5 * time.Second,
	classHeavy:      5 * time.Second,
	classWrite:      5 * time.Second,
	classBulk:       time.Minute,
	classRecord:     5 * time.Second,
	classBackground: 5 * time.Second,
	classNotice:     time.Minute,
	classLoad:       5 * time.Minute,
	classUpkeep:     10 * time.Minute,
}

func (s *Store) within(ctx context.Context, of class) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeouts[of])
}
