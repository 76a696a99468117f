package violations

import (
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Use is how much of a window's limit a bucket has used after a check or a settlement.
type Use struct {
	Tenant rules.TenantID
	Rule   *rules.Rule
	// Mode is the rule's own, or shadow while its tenant is in shadow.
	Mode    rules.Mode
	Subject string
	// Limit is the one in force, of a fixed window.
	Limit rules.Limit
	// Used is what the window has used, and Taken what the check or settlement took of it.
	Used, Taken Tokens
	// At is when, in microseconds since the Unix epoch on the buckets' clock.
	At int64
}

// Crossing is the moment when the use of a bucket's window reached a share of its limit. There is at most one for each
// bucket, window and share.
type Crossing struct {
	// Number is above 0, and higher in rows that were written later.
	Number  int64
	Tenant  rules.TenantID
	Rule    rules.RuleID
	Subject string // a long one ends in its digest
	// WindowStart is included and WindowEnd is not.
	WindowStart, WindowEnd time.Time
	Share                  int // of Burst, in percent
	At                     time.Time

	// Used is what the window had used, Burst its limit, and Mode the rule's, all at that time. RuleName and Pattern are
	// the rule's.
	Used     Tokens
	Burst    int64
	Mode     rules.Mode
	RuleName string
	Pattern  string
	// UserID is whose bucket it is; "" for a bucket that users share.
	UserID string
}

// CrossingFilter selects crossings. A zero field selects all.
type CrossingFilter struct {
	Rule   rules.RuleID
	UserID string
}

// CrossingPlace is a place in a list of crossings, which is in the order of At and Number, the latest first.
type CrossingPlace struct {
	At     time.Time
	Number int64
}

// Place returns where the crossing is in a list.
func (c *Crossing) Place() CrossingPlace { return CrossingPlace{c.At, c.Number} }

// Note records which of the rule's shares the use has reached, once for each bucket, window and share. It never waits
// for the sink.
//
// The check that crosses a share notes it. If that record is lost, because its process was killed or had no room, a later
// check of the same window notes it. A process remembers what it has noted, so that this happens once. The sink keeps the
// earliest of several records of one crossing.
func (r *Recorder) Note(u *Use) {
	if shares := u.Rule.NotifyAt; len(shares) == 0 || !reaches(u.Used, shares[0], u.Limit.Burst) {
		return
	}
	r.shardOf(u.Subject, u.Rule.ID).note(u)
}

// reaches reports whether a use is at least a share of a limit.
func reaches(used Tokens, share int, burst int64) bool {
	return used*100 >= Tokens(share)*Tokens(burst)*Token // at most 1e17
}

// note appends the crossings that the use shows and that are not known yet. Crossings are divided among tenants as
// details are.
func (s *shard) note(u *Use) {
	start, end := u.Limit.WindowAt(u.At)
	key := windowKey{ruleKey{u.Tenant, u.Rule.ID}, start, u.Subject}
	s.mu.Lock()
	defer s.mu.Unlock()
	shares, isKept := s.noted.find(key)
	for _, share := range u.Rule.NotifyAt {
		if !reaches(u.Used, share, u.Limit.Burst) {
			return
		}
		crosses := !reaches(u.Used-u.Taken, share, u.Limit.Burst)
		if shares.has(share) && !crosses { // the check that crosses may come after a later one of another caller
			continue
		}
		if !isKept {
			key.subject = strings.Clone(key.subject) // the caller's may be a slice of a large request
			isKept = s.noted.keep(key, shares)
		}
		if !isKept && !crosses {
			continue // nothing would keep every later check from noting it too
		}
		if !s.details.take(u.Tenant, 1) || !s.bytes.take(u.Tenant, crossingBytes+len(key.subject)) {
			return // a later check notes it
		}
		s.crossings = append(s.crossings, u.crossing(key.subject, share, start, end))
		if shares.add(share); isKept {
			s.noted.current[key] = shares
		}
	}
}

// crossingBytes is about the memory of a crossing, without its subject.
const crossingBytes = 256

func (u *Use) crossing(subject string, share int, start, end int64) Crossing {
	c := Crossing{
		Tenant: u.Tenant, Rule: u.Rule.ID, Subject: storedSubject(subject), Share: share,
		WindowStart: time.UnixMicro(start).UTC(), WindowEnd: time.UnixMicro(end).UTC(), At: time.UnixMicro(u.At).UTC(),
		Used: u.Used, Burst: u.Limit.Burst, Mode: u.Mode, RuleName: u.Rule.Name, Pattern: u.Rule.Pattern.String(),
	}
	c.UserID = u.Rule.Pattern.OwnerOf(subject)
	return c
}

// windowKey names a window of a bucket.
type windowKey struct {
	ruleKey
	start   int64 // in microseconds since the Unix epoch
	subject string
}

// shareSet is a set of percents.
type shareSet [2]uint64

func (s *shareSet) add(share int)     { s[share/64] |= 1 << (share % 64) }
func (s shareSet) has(share int) bool { return s[share/64]&(1<<(share%64)) != 0 }

// notedShares remember what was noted of the windows in use. Every notedFor the windows that nobody used since the last
// time are forgotten. Tenants share the room.
type notedShares struct {
	current, former map[windowKey]shareSet
	room            room // bytes, of current
	turnedAt        time.Time
}

const (
	notedFor = time.Hour
	// notedBytes is about the memory of one entry, without its subject.
	notedBytes = 160
)

func newNotedShares(maxBytes int) notedShares {
	return notedShares{current: map[windowKey]shareSet{}, room: newRoom(maxBytes)}
}

// find returns what was noted of a window; ok is false if nothing is kept of it.
func (n *notedShares) find(key windowKey) (shares shareSet, ok bool) {
	if shares, ok = n.current[key]; ok {
		return shares, true
	}
	if shares, ok = n.former[key]; ok {
		key.subject = strings.Clone(key.subject)
		ok = n.keep(key, shares)
	}
	return shares, ok
}

// keep keeps what was noted of a window, if there is room.
func (n *notedShares) keep(key windowKey, shares shareSet) bool {
	if !n.room.take(key.tenant, notedBytes+len(key.subject)) {
		return false
	}
	n.current[key] = shares
	return true
}

// turn forgets the windows that were not used for long.
func (n *notedShares) turn(now time.Time) {
	if now.Sub(n.turnedAt) < notedFor {
		return
	}
	n.turnedAt, n.former, n.current = now, n.current, make(map[windowKey]shareSet, len(n.current))
	n.room = newRoom(n.room.most)
}
