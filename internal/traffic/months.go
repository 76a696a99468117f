package traffic

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// UserMonth counts a user's checks in a calendar month in UTC, of a meter other than requests those that name it.
type UserMonth struct {
	Tenant          rules.TenantID
	Month           time.Time // its beginning
	User            string    // "" for checks without a user
	Meter           rules.Meter
	Allowed, Denied int64
	// Cost is that of allowed checks. Millionths are separate, because together they can exceed 64 bits.
	Cost, CostParts int64
}

// MaxUserMonths is about how many users of a tenant are counted in a month.
const MaxUserMonths = 100_000

// MonthReader reads the counts of one tenant.
type MonthReader interface {
	// UserMonths returns up to limit counts of a month, by user and meter, after a count; nil begins.
	UserMonths(ctx context.Context, tenant rules.TenantID, month time.Time, after *UserMonth, limit int) ([]UserMonth,
		error)
	MonthsOfUser(ctx context.Context, tenant rules.TenantID, user string, months []time.Time) ([]UserMonth, error)
	// KnownUsers lists users by id with a prefix. A user is known by an assigned plan, an override, a counted check in
	// a month or the one before, or one of the latest denials.
	KnownUsers(ctx context.Context, tenant rules.TenantID, prefix string, month time.Time, limit int) ([]KnownUser,
		error)
}

// KnownUser is a result of KnownUsers.
type KnownUser struct {
	ID   string
	Plan string // "" if none is assigned
}

const (
	// maxHeldMonths bounds the users and meters with unwritten counts, at about 300 bytes each.
	maxHeldMonths  = 32 << 10
	monthsPerBatch = 2000
	partsPerToken  = 1_000_000
)

type monthKey struct {
	tenant rules.TenantID
	month  int64 // since year 0
	user   string
	meter  rules.Meter
}

type monthCount struct{ allowed, denied, cost, parts int64 }

// months are unwritten counts. A tenant may use half of what others leave.
type months struct {
	dropped atomic.Int64 // counts without a place

	mu     sync.Mutex // guards the fields below
	counts map[monthKey]*monthCount
	used   map[rules.TenantID]int

	writing sync.Mutex // guards the fields below
	batches []monthBatch
	number  int64
}

// monthBatch keeps its number in all attempts, because the first may have succeeded without an answer.
type monthBatch struct {
	number int64
	counts []UserMonth
}

func newMonths() *months {
	return &months{counts: map[monthKey]*monthCount{}, used: map[rules.TenantID]int{}}
}

func decided(isDenied bool, cost int64) monthCount {
	if isDenied {
		return monthCount{denied: 1}
	}
	return monthCount{allowed: 1, parts: cost}
}

// add reports whether it is time to write. at is in milliseconds.
func (m *months) add(tenant rules.TenantID, at int64, user, meter []byte, n monthCount) (isHalfFull bool) {
	date := time.UnixMilli(at).UTC()
	month := int64(date.Year())*12 + int64(date.Month()) - 1
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.counts[monthKey{tenant, month, string(user), rules.Meter(meter)}]
	if held == nil {
		mine := m.used[tenant]
		if mine+1 > (maxHeldMonths-(len(m.counts)-mine))/2 {
			m.dropped.Add(1)
			return true
		}
		held = new(monthCount)
		m.counts[monthKey{tenant, month, string(user), rules.Meter(meter)}] = held
		m.used[tenant] = mine + 1
		isHalfFull = len(m.counts) >= maxHeldMonths/4
	}
	held.allowed += n.allowed
	held.denied += n.denied
	held.parts += n.parts
	held.cost += held.parts / partsPerToken
	held.parts %= partsPerToken
	return isHalfFull
}

// compare orders rows alike in all processes, so that they do not deadlock.
func (k monthKey) compare(other monthKey) int {
	return cmp.Or(cmp.Compare(k.tenant, other.tenant), cmp.Compare(k.month, other.month),
		strings.Compare(k.user, other.user), cmp.Compare(k.meter, other.meter))
}

// take moves the first counts into a batch, unless one is unwritten. Sorting gives a batch few tenants.
func (m *months) take() {
	if len(m.batches) > 0 {
		return
	}
	m.mu.Lock()
	keys := slices.Collect(maps.Keys(m.counts))
	m.mu.Unlock()
	slices.SortFunc(keys, monthKey.compare) // unlocked, because settlements wait for the lock; only take removes
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make([]UserMonth, 0, min(len(keys), monthsPerBatch))
	for _, key := range keys[:cap(counts)] {
		count := m.counts[key]
		counts = append(counts, UserMonth{
			Tenant: key.tenant, Month: time.Date(int(key.month/12), time.Month(key.month%12+1), 1, 0, 0, 0, 0,
				time.UTC), User: key.user, Meter: key.meter,
			Allowed: count.allowed, Denied: count.denied, Cost: count.cost, CostParts: count.parts,
		})
		delete(m.counts, key)
		if m.used[key.tenant]--; m.used[key.tenant] == 0 {
			delete(m.used, key.tenant)
		}
	}
	if len(counts) > 0 {
		m.batches = m.numbered(nil, counts)
	}
}

func (m *months) numbered(batches []monthBatch, counts []UserMonth) []monthBatch {
	m.number++
	return append(batches, monthBatch{m.number, counts})
}

// split halves the refused first batch, unless it is of one user.
func (m *months) split() bool {
	refused := m.batches[0].counts
	half := len(refused) / 2
	if half == 0 {
		return false
	}
	m.batches = append(m.numbered(m.numbered(nil, refused[:half]), refused[half:]), m.batches[1:]...)
	return true
}

// writeMonths tries the same batch first after an error. Only users that are refused alone are lost.
func (r *Recorder) writeMonths(ctx context.Context) error {
	m := r.months
	m.writing.Lock()
	defer m.writing.Unlock()
	for {
		m.take()
		if len(m.batches) == 0 {
			return nil
		}
		first := m.batches[0]
		err := r.sink.WriteUserMonths(ctx, r.writer, first.number, first.counts)
		refused := errors.Is(err, ErrRefused)
		switch {
		case refused && m.split():
			continue
		case refused:
			r.lostUsers.Add(1)
			r.log.ErrorContext(ctx, "a user's checks of a month are not counted, because the database refuses them",
				"tenant_id", first.counts[0].Tenant, "month", first.counts[0].Month.Format(time.DateOnly), "error", err)
		case err != nil:
			return err
		}
		m.batches = m.batches[1:]
	}
}
