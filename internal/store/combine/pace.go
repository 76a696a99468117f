package combine

import "time"

const (
	minBatch = 16
	// slackShare of the budget above the quickest shrinks batches.
	slackShare = 20
	// relearnAfter slow small batches in a row set a new quickest.
	relearnAfter = 16
)

// pace limits batches by their duration, like a LEDBAT window (RFC 6817): it grows while checks queue and the store is
// quick. Redis executes batches in turn: under overload larger ones decide no more checks a second, and all tenants
// wait longer.
type pace struct {
	size           int // the limit, in tiers
	most           int // the largest limit
	isFixed        bool
	slack          time.Duration // by which a batch may be slower than the quickest
	quickest       time.Duration // 0 before the first
	shrunkAt       time.Time
	slowStreak     int           // slow small batches in a row
	streakQuickest time.Duration // of the slow streak
}

func newPace(options Options) pace {
	return pace{
		size: options.FirstBatch, most: options.MaxBatch, isFixed: options.FirstBatch == options.MaxBatch,
		slack: options.Budget / slackShare,
	}
}

func (p *pace) record(tiers int, full bool, sent, now time.Time) {
	if p.isFixed {
		return
	}
	took := now.Sub(sent)
	if p.quickest == 0 || took < p.quickest {
		p.quickest = took
	}
	switch slow := took > p.quickest+max(p.slack, p.quickest/2); {
	case !slow:
		p.slowStreak = 0
		if full {
			p.size = min(p.size+2*minBatch, p.most)
		}
	case tiers > minBatch:
		p.slowStreak = 0
		if sent.After(p.shrunkAt) { // batches in flight at that time say nothing new
			p.size, p.shrunkAt = max(p.size*3/4, minBatch), now
		}
	default: // size is not the cause: the store is farther away now, or busy with other clients
		if p.slowStreak == 0 || took < p.streakQuickest {
			p.streakQuickest = took
		}
		if p.slowStreak++; p.slowStreak == relearnAfter {
			p.quickest, p.slowStreak = p.streakQuickest, 0
		}
	}
}
