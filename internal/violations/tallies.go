package violations

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

type shard struct {
	mu      sync.Mutex
	tallies map[tallyKey]*tally
	others  map[ruleKey][]otherTally
	bytes   room // of all tallies and crossings
	details room // a crossing counts as one

	crossings []Crossing
	noted     notedShares
}

type tallyKey struct {
	ruleKey
	minute  int64 // since the Unix epoch
	subject string
}

type tally struct {
	subject         string
	denied, dropped int64
	second          int64 // of the latest row, since the Unix epoch
	inSecond        int   // rows in that second
	details         []*Violation
}

type otherTally struct{ minute, denied int64 }

const (
	// Approximate memory without texts, with a share of maps and lists (measured by TestMemoryStaysWithinItsBound).
	tallyBytes  = 240
	detailBytes = 480
)

// room is an amount that tenants share: each may use half of what the others leave.
type room struct {
	most, used int
	by         map[rules.TenantID]int
}

func newRoom(most int) room { return room{most: most, by: map[rules.TenantID]int{}} }

func (r *room) take(tenant rules.TenantID, amount int) bool {
	if r.by[tenant]+amount > r.most-r.used {
		return false
	}
	r.used += amount
	r.by[tenant] += amount
	return true
}

func (r *room) give(tenant rules.TenantID, amount int) {
	r.used -= amount
	if r.by[tenant] -= amount; r.by[tenant] == 0 {
		delete(r.by, tenant)
	}
}

func newShard(maxBytes, maxDetails, maxNotedBytes int) *shard {
	s := &shard{bytes: newRoom(maxBytes), details: newRoom(maxDetails), noted: newNotedShares(maxNotedBytes)}
	s.reset(0)
	return s
}

func (s *shard) reset(size int) {
	s.tallies, s.others, s.crossings = make(map[tallyKey]*tally, size), map[ruleKey][]otherTally{}, nil
	s.bytes, s.details = newRoom(s.bytes.most), newRoom(s.details.most)
}

// add counts a violation, and reports whether its detail was dropped. A subject gets perSecond rows in a second.
func (s *shard) add(c *Check, t *Tier, now time.Time, perSecond int) (dropped bool) {
	second := now.Unix()
	key := tallyKey{ruleKey{c.Tenant, t.Rule.ID}, second / 60, t.Subject}
	s.mu.Lock()
	defer s.mu.Unlock()
	y, ok := s.tallies[key]
	if !ok {
		if !s.bytes.take(c.Tenant, tallyBytes+len(key.subject)) {
			s.addOther(key, c.times())
			return true
		}
		key.subject = strings.Clone(key.subject) // the caller's may be part of a large request
		y = &tally{subject: key.subject}
		s.tallies[key] = y
	}
	y.denied += c.times()
	if second > y.second {
		y.second, y.inSecond = second, 0
	}
	if row := y.same(c, t); row != nil {
		row.Count += c.times()
		if now.After(row.LastAt) {
			row.LastAt = now
		}
		return false
	}
	if y.inSecond >= perSecond || !s.details.take(c.Tenant, 1) ||
		!s.bytes.take(c.Tenant, detailBytes+len(c.Request.UserID)+len(c.Request.Endpoint)+len(c.Request.Method)) {
		y.dropped += c.times()
		return true
	}
	y.inSecond++
	y.details = append(y.details, c.violation(t, y.subject, now))
	return false
}

// same returns an equal row of the latest second, or nil.
func (y *tally) same(c *Check, t *Tier) *Violation {
	for i := len(y.details) - 1; i >= 0 && y.details[i].ID.At.Unix() == y.second; i-- {
		if y.details[i].sameAs(c, t) {
			return y.details[i]
		}
	}
	return nil
}

// addOther counts a violation of a subject without memory, after maxOtherMinutes in the last minute.
func (s *shard) addOther(key tallyKey, times int64) {
	minutes := s.others[key.ruleKey]
	last := len(minutes) - 1
	if last < 0 || minutes[last].minute < key.minute && last < maxOtherMinutes {
		minutes = append(minutes, otherTally{minute: key.minute})
		last++
	}
	minutes[last].denied += times
	s.others[key.ruleKey] = minutes
}

// maxOtherMinutes bounds the memory of an outage for each rule.
const maxOtherMinutes = 60

func (s *shard) take(now time.Time) (map[tallyKey]*tally, map[ruleKey][]otherTally, []Crossing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tallies, others, crossings := s.tallies, s.others, s.crossings
	s.reset(len(tallies))
	s.noted.turn(now)
	return tallies, others, crossings
}

func takeAll(shards []*shard, now time.Time) (all []Tally, crossings []Crossing) {
	others := map[tallyKey]int64{}
	for _, s := range shards {
		taken, takenOthers, takenCrossings := s.take(now)
		crossings = append(crossings, takenCrossings...)
		all = slices.Grow(all, len(taken))
		for key, y := range taken {
			all = append(all, Tally{
				Tenant: key.tenant, Rule: key.rule, Minute: minuteTime(key.minute),
				Subject: rules.StoredSubject(key.subject),
				Denied:  y.denied, DetailDropped: y.dropped, Details: y.details,
			})
		}
		for key, minutes := range takenOthers {
			for _, other := range minutes {
				others[tallyKey{ruleKey: key, minute: other.minute}] += other.denied
			}
		}
	}
	for key, denied := range others {
		all = append(all, Tally{
			Tenant: key.tenant, Rule: key.rule, Minute: minuteTime(key.minute), Other: true,
			Denied: denied, DetailDropped: denied,
		})
	}
	slices.SortFunc(all, compareTallies)
	return all, crossings
}

func compareTallies(a, b Tally) int {
	return cmp.Or(
		cmp.Compare(a.Tenant, b.Tenant), a.Minute.Compare(b.Minute), cmp.Compare(a.Rule, b.Rule),
		cmp.Compare(a.Subject, b.Subject),
	)
}
