package violations

import (
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Use is the usage of a fixed window after a check or after the end of a reservation.
type Use struct {
	Tenant rules.TenantID
	Rule   *rules.Rule
	// Mode is the rule's own, or shadow while its tenant is in shadow.
	Mode    rules.Mode
	Subject string
	// Limit is the limit in force, of a fixed window.
	Limit rules.Limit
	// Used is the window's usage, and Taken the part of it that the check or reservation took.
	Used, Taken Tokens
	// At is in microseconds since the Unix epoch, on the buckets' clock.
	At int64
}

// Crossing is the moment when the usage of a window reached a share of its limit: at most one for each bucket, window
// and share.
type Crossing struct {
	// Number is above 0, and higher in later rows.
	Number  int64
	Tenant  rules.TenantID
	Rule    rules.RuleID
	Subject string // a long one ends in a digest
	// WindowStart is inclusive, WindowEnd exclusive.
	WindowStart, WindowEnd time.Time
	Share                  int // percent of Burst
	At                     time.Time

	// Used, Burst and Mode are those at that time.
	Used     Tokens
	Burst    int64
	Mode     rules.Mode
	RuleName string
	Pattern  string
	Meter    rules.Meter
	// UserID owns the bucket; "" for a shared bucket.
	UserID string
}

// CrossingFilter selects crossings. A zero field selects all.
type CrossingFilter struct {
	Rule   rules.RuleID
	UserID string
}

// CrossingPlace is a cursor in a list of crossings, which is sorted by At and Number, latest first.
type CrossingPlace struct {
	At time.Time
	// Number is above 0, and higher in later rows.
	Number int64
}

// Place returns the crossing's cursor.
func (c *Crossing) Place() CrossingPlace { return CrossingPlace{c.At, c.Number} }

// Note records the shares that the usage has reached, once for each bucket, window and share, without waiting for the
// sink. If the record of the crossing check is lost, a later check of the window records it; the sink keeps the
// earliest.
func (r *Recorder) Note(u *Use) {
	if shares := u.Rule.NotifyAt; len(shares) == 0 || !reaches(u.Used, shares[0], u.Limit.Burst) {
		return
	}
	r.shardOf(u.Subject, u.Rule.ID).note(u)
}

func reaches(used Tokens, share int, burst int64) bool {
	return used*100 >= Tokens(share)*Tokens(burst)*Token // at most 1e17
}

// note appends unknown crossings. Tenants share their memory as for details.
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
		if shares.has(share) && !crosses { // with concurrent callers the crossing check may be noted after a later one
			continue
		}
		if !isKept {
			key.subject = strings.Clone(key.subject) // the caller's may be part of a large request
			isKept = s.noted.keep(key, shares)
		}
		if !isKept && !crosses {
			continue // otherwise every later check would note it
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

// crossingBytes approximates the memory of a crossing, without its subject.
const crossingBytes = 256

func (u *Use) crossing(subject string, share int, start, end int64) Crossing {
	c := Crossing{
		Tenant: u.Tenant, Rule: u.Rule.ID, Subject: rules.StoredSubject(subject), Share: share,
		WindowStart: time.UnixMicro(start).UTC(), WindowEnd: time.UnixMicro(end).UTC(), At: time.UnixMicro(u.At).UTC(),
		Used: u.Used, Burst: u.Limit.Burst, Mode: u.Mode, RuleName: u.Rule.Name, Pattern: u.Rule.Pattern.String(),
		Meter: u.Rule.Meter,
	}
	c.UserID = u.Rule.Pattern.OwnerOf(subject)
	return c
}

type windowKey struct {
	ruleKey
	start   int64 // in microseconds since the Unix epoch
	subject string
}

type shareSet [2]uint64

func (s *shareSet) add(share int)     { s[share/64] |= 1 << (share % 64) }
func (s shareSet) has(share int) bool { return s[share/64]&(1<<(share%64)) != 0 }

// notedShares caches the recorded shares of windows in use. Windows unused for notedFor are evicted. Tenants share the
// memory.
type notedShares struct {
	current, former map[windowKey]shareSet
	room            room // bytes of current
	turnedAt        time.Time
}

const (
	notedFor   = time.Hour
	notedBytes = 160
)

func newNotedShares(maxBytes int) notedShares {
	return notedShares{current: map[windowKey]shareSet{}, room: newRoom(maxBytes)}
}

// find returns the recorded shares of a window; ok is false for an unknown one.
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

func (n *notedShares) keep(key windowKey, shares shareSet) bool {
	if !n.room.take(key.tenant, notedBytes+len(key.subject)) {
		return false
	}
	n.current[key] = shares
	return true
}

// turn evicts windows that were not used since the last turn.
func (n *notedShares) turn(now time.Time) {
	if now.Sub(n.turnedAt) < notedFor {
		return
	}
	n.turnedAt, n.former, n.current = now, n.current, make(map[windowKey]shareSet, len(n.current))
	n.room = newRoom(n.room.most)
}
