package violations

import (
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Use is the usage of a fixed window after a check or after the end of a reservation.
type Use struct {
	Tenant      rules.TenantID
	Rule        *rules.Rule
	Mode        rules.Mode // shadow while the tenant is in shadow
	Subject     string
	Limit       rules.Limit // in force, of a fixed window
	Used, Taken Tokens      // Taken by this check or reservation
	At          int64       // microseconds since the Unix epoch, on the buckets' clock
}

// Crossing is when the usage of a window reached a share of its limit, once for each bucket, window and share.
type Crossing struct {
	Number                 int64 // above 0, and higher in later rows
	Tenant                 rules.TenantID
	Rule                   rules.RuleID
	Subject                string    // a long one ends in a digest
	WindowStart, WindowEnd time.Time // the end is exclusive
	Share                  int       // percent of Burst
	At                     time.Time

	Used     Tokens // these are as they were At
	Burst    int64
	Mode     rules.Mode
	RuleName string
	Pattern  string
	Meter    rules.Meter
	UserID   string // who owns the bucket; "" for a shared bucket
}

// CrossingFilter selects crossings. A zero field selects all.
type CrossingFilter struct {
	Rule   rules.RuleID
	UserID string
}

// CrossingPlace is a cursor in a list of crossings, sorted by At and Number, latest first.
type CrossingPlace struct {
	At     time.Time
	Number int64
}

// Place returns the crossing's cursor.
func (c *Crossing) Place() CrossingPlace { return CrossingPlace{c.At, c.Number} }

// Note records the shares that the usage has reached, without waiting for the sink. A later check of the window repeats
// a record that was lost.
func (r *Recorder) Note(u *Use) {
	if shares := u.Rule.NotifyAt; len(shares) == 0 || !reaches(u.Used, shares[0], u.Limit.Burst) {
		return
	}
	r.shardOf(u.Subject, u.Rule.ID).note(u)
}

func reaches(used Tokens, share int, burst int64) bool {
	return used*100 >= Tokens(share)*Tokens(burst)*Token // at most 1e17
}

// note appends unknown crossings. Tenants share the memory like that of details.
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

// notedShares caches the recorded shares of windows, and evicts those unused for notedFor. Tenants share the memory.
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
