package combine

import "time"

const (
	minBatch = 16
	// slackShare is the part of the budget that a batch may take longer than the quickest before batches shrink.
	slackShare = 20
	// relearnAfter is the number of slow small batches in a row that make their duration the new quickest.
	relearnAfter = 16
)

// pace limits the size of batches by their duration, as LEDBAT does with a sender's window (RFC 6817). The limit grows
// while checks queue and the store is quick, and shrinks when it is slow. Redis executes batches one after the other:
// under overload a larger batch decides no more checks a second, and all tenants wait longer.
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

// record adjusts the limit to the duration of a batch. full: more checks were queued than fit.
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
