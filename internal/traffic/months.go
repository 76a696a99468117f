package traffic

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// UserMonth counts one user's recorded checks of a calendar month in UTC.
type UserMonth struct {
	Tenant          rules.TenantID
	Month           time.Time // when it began
	User            string    // "" for checks without a user
	Allowed, Denied int64
	// Cost is what the allowed checks cost, in whole tokens and millionths, because both together can exceed 64 bits.
	Cost, CostParts int64
}

// MaxUserMonths is about how many users of a tenant are counted in one month. Those who come later are not counted.
const MaxUserMonths = 100_000

// MonthReader reads counted checks of one tenant.
type MonthReader interface {
	// UserMonths returns up to limit users of a month, by id, after an id. The first page begins with the checks without a
	// user if isFirst is set.
	UserMonths(ctx context.Context, tenant rules.TenantID, month time.Time, after string, isFirst bool, limit int) ([]UserMonth, error)
	// MonthsOfUser returns the counts of one user in the given months, without months that have none.
	MonthsOfUser(ctx context.Context, tenant rules.TenantID, user string, months []time.Time) ([]UserMonth, error)
	// KnownUsers lists by id the users whose id has a prefix and who have a plan or an override of their own, a check that was
	// counted in a month or the one before, or one of the latest denials.
	KnownUsers(ctx context.Context, tenant rules.TenantID, prefix string, month time.Time, limit int) ([]KnownUser, error)
}

// KnownUser is a user of whom something is known.
type KnownUser struct {
	ID   string
	Plan string // "" if none is assigned
}

const (
	// maxHeldMonths bounds the users whose counts are not written yet; each takes about 300 bytes.
	maxHeldMonths = 32 << 10
	// monthsPerBatch are written in one transaction.
	monthsPerBatch = 2000
	partsPerToken  = 1_000_000
)

type monthKey struct {
	tenant rules.TenantID
	month  int64 // since year 0
	user   string
}

type monthCount struct{ allowed, denied, cost, parts int64 }

// months counts checks by user and month until they are written. A tenant may use half of the places that others leave.
type months struct {
	mu     sync.Mutex
	counts map[monthKey]*monthCount
	used   map[rules.TenantID]int

	writing sync.Mutex // guards what follows
	batches []monthBatch
	number  int64
}

// monthBatch is written in one transaction. Its number stays for all attempts, because the first may have succeeded without an
// answer.
type monthBatch struct {
	number int64
	counts []UserMonth
}

func newMonths() *months {
	return &months{counts: map[monthKey]*monthCount{}, used: map[rules.TenantID]int{}}
}

// add counts a check, and reports whether it is time to write. at is in milliseconds.
func (m *months) add(tenant rules.TenantID, at int64, user []byte, isDenied bool, cost int64) (isHalfFull bool) {
	date := time.UnixMilli(at).UTC()
	month := int64(date.Year())*12 + int64(date.Month()) - 1
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.counts[monthKey{tenant, month, string(user)}]
	if held == nil {
		mine := m.used[tenant]
		if mine+1 > (maxHeldMonths-(len(m.counts)-mine))/2 {
			return true
		}
		held = new(monthCount)
		m.counts[monthKey{tenant, month, string(user)}] = held
		m.used[tenant] = mine + 1
		isHalfFull = len(m.counts) >= maxHeldMonths/4
	}
	if isDenied {
		held.denied++
		return isHalfFull
	}
	held.allowed++
	held.cost += cost / partsPerToken
	held.parts += cost % partsPerToken
	return isHalfFull
}

// compare orders by tenant, month and user. Processes that write the same rows do so in the same order.
func (k monthKey) compare(other monthKey) int {
	return cmp.Or(cmp.Compare(k.tenant, other.tenant), cmp.Compare(k.month, other.month), strings.Compare(k.user, other.user))
}

// take moves the first counts into a batch, unless an earlier one is not written yet. Counts are sorted by tenant, so that each batch is
// of few tenants.
func (m *months) take() {
	if len(m.batches) > 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(m.counts), monthKey.compare)
	counts := make([]UserMonth, 0, min(len(keys), monthsPerBatch))
	for _, key := range keys[:cap(counts)] {
		count := m.counts[key]
		counts = append(counts, UserMonth{
			Tenant: key.tenant, Month: time.Date(int(key.month/12), time.Month(key.month%12+1), 1, 0, 0, 0, 0, time.UTC), User: key.user,
			Allowed: count.allowed, Denied: count.denied, Cost: count.cost + count.parts/partsPerToken, CostParts: count.parts % partsPerToken,
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

// numbered appends a new batch.
func (m *months) numbered(batches []monthBatch, counts []UserMonth) []monthBatch {
	m.number++
	return append(batches, monthBatch{m.number, counts})
}

// split puts the halves of the first batch, which was refused and so has written nothing, in its place. A batch of one user cannot be
// split.
func (m *months) split() bool {
	refused := m.batches[0].counts
	half := len(refused) / 2
	if half == 0 {
		return false
	}
	m.batches = append(m.numbered(m.numbered(nil, refused[:half]), refused[half:]), m.batches[1:]...)
	return true
}

// writeMonths writes the counts of users. After an error they wait, and the same batch is written first. Of a batch that the sink
// refuses only the users that it refuses by themselves are lost.
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
