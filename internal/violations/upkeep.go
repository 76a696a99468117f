package violations

import "time"

// Retention is how long records are kept.
type Retention struct {
	Details time.Duration // violations, in whole days
	Counts  time.Duration // by minute and hour
	Audit   time.Duration // audit log, at least 30 days; 0 for ever
	Access  time.Duration // security log, at least 30 days; 0 for ever
}
