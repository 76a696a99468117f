package redisbucket

import "time"

const (
	// maxBatch is how many tiers the checks of one pipeline have at most, unless it is a single check: a few
	// milliseconds of Redis's time.
	maxBatch = 4 * maxKeys
	// firstBatch is how many they may have before anything is known: sixteen checks of four.
	firstBatch = 64
	// minBatch is how many they may have however slow Redis is.
	minBatch = 16
	// slackShare is the part of the budget by which a pipeline may be slower than the quickest before they become smaller.
	slackShare = 20
	// relearnAfter is how many small pipelines in a row are slow before that is how quick Redis is.
	relearnAfter = 16
)

// pace chooses how large pipelines are, by how long they take: they grow while more calls wait than fit and Redis is
// quick, and shrink when it is slow, as a sender's window does in LEDBAT (RFC 6817). Redis executes pipelines one after
// the other. When it is asked for more than it can do, a larger one decides no more checks a second; it makes those of
// all tenants wait.
type pace struct {
	size     int           // of pipelines at most, in tiers
	slack    time.Duration // by which one may be slower than the quickest
	quickest time.Duration // lately; 0 before the first
	cut      time.Time     // when size was last decreased
	slow     int           // small pipelines in a row that were slow
	floor    time.Duration // how long the quickest of these took
}

func newPace(budget time.Duration) pace { return pace{size: firstBatch, slack: budget / slackShare} }

// learn takes note of how long a pipeline took, and whether more waited than it had room for.
func (p *pace) learn(tiers int, full bool, sent, now time.Time) {
	took := now.Sub(sent)
	if p.quickest == 0 || took < p.quickest {
		p.quickest = took
	}
	switch slow := took > p.quickest+max(p.slack, p.quickest/2); {
	case !slow:
		p.slow = 0
		if full {
			p.size = min(p.size+2*minBatch, maxBatch)
		}
	case tiers > minBatch:
		p.slow = 0
		if sent.After(p.cut) { // those that were in flight then say nothing new
			p.size, p.cut = max(p.size*3/4, minBatch), now
		}
	default: // not because of its size: Redis is farther away now, or busy with others
		if p.slow == 0 || took < p.floor {
			p.floor = took
		}
		if p.slow++; p.slow == relearnAfter {
			p.quickest, p.slow = p.floor, 0
		}
	}
}
