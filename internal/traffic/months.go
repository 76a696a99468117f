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
	batch   []UserMonth
	number  int64
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

// take moves the first counts into the batch, unless an earlier batch is not written yet. Counts are sorted by tenant, because each
// batch makes the database look up how many users each of its tenants has.
func (m *months) take() {
	if len(m.batch) > 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(m.counts), monthKey.compare)
	for _, key := range keys[:min(len(keys), monthsPerBatch)] {
		count := m.counts[key]
		m.batch = append(m.batch, UserMonth{
			Tenant: key.tenant, Month: time.Date(int(key.month/12), time.Month(key.month%12+1), 1, 0, 0, 0, 0, time.UTC), User: key.user,
			Allowed: count.allowed, Denied: count.denied, Cost: count.cost + count.parts/partsPerToken, CostParts: count.parts % partsPerToken,
		})
		delete(m.counts, key)
		if m.used[key.tenant]--; m.used[key.tenant] == 0 {
			delete(m.used, key.tenant)
		}
	}
	if len(m.batch) > 0 {
		m.number++
	}
}

// writeMonths writes the counts of users. After an error they wait, and the same batch is written first.
func (r *Recorder) writeMonths(ctx context.Context) error {
	r.months.writing.Lock()
	defer r.months.writing.Unlock()
	for {
		r.months.take()
		if len(r.months.batch) == 0 {
			return nil
		}
		err := r.sink.WriteUserMonths(ctx, r.writer, r.months.number, r.months.batch)
		if errors.Is(err, ErrRefused) {
			r.log.ErrorContext(ctx, "counts of users' checks were refused, and are lost", "users", len(r.months.batch), "error", err)
		} else if err != nil {
			return err
		}
		r.months.batch = r.months.batch[:0]
	}
}
