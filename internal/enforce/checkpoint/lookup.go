package checkpoint

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// askedAtOnce caps the buckets of one query, and waitingOfTenant those of a tenant that wait.
	askedAtOnce     = 500
	waitingOfTenant = 5000
	// restAfter is the pause after a failed query, in which look-ups fail at once.
	restAfter = 250 * time.Millisecond
	// sortTimeout bounds the question which tenants are new.
	sortTimeout = 2 * time.Second
	// clocksApart is how far the clocks of a server that was lost and of its successor may be apart, in microseconds.
	clocksApart = int64(10 * time.Second / time.Microsecond)
)

var (
	errCrowded = errors.New("too many buckets of the tenant wait for their checkpoints")
	errResting = errors.New("checkpoints could not be read a moment ago")
	errLate    = errors.New("checkpoints were not read in time")
)

// Reader reads checkpoints.
type Reader interface {
	// CheckpointsOf returns the rows at some places, in any order.
	CheckpointsOf(ctx context.Context, places []rules.CheckpointPlace) ([]rules.Checkpoint, error)
	// TenantsCheckpointedBefore returns which of some tenants have a row from before a time of each.
	TenantsCheckpointedBefore(ctx context.Context, tenants []rules.TenantID, before []int64) ([]rules.TenantID, error)
}

// Known is a memory that can say which buckets it lacks; see membucket.Store.
type Known interface {
	// Unknown returns the tiers with a long limit whose bucket the memory does not have, under the keys of its buckets.
	Unknown(tiers []enforce.Tier) []enforce.Checkpoint
	Restore(enforce.Checkpoint)
	// Newest returns what the memory knows of a bucket.
	Newest(key enforce.Key) (known enforce.Checkpoint, ok bool)
}

// Lookups implements enforce.Recollection: while the shared store is away, the process's own buckets of long limits
// begin as their checkpoints have them. Lookups also implements enforce.Recovery, for when the shared store has lost
// its buckets. Many look-ups share a query, in which tenants have equal shares.
type Lookups struct {
	memory Known
	reader Reader
	budget time.Duration
	log    *slog.Logger

	mu      sync.Mutex
	lines   map[rules.TenantID][]lookup
	isBusy  bool // a goroutine asks
	restsTo time.Time
	// ages say which tenants are new. A time is asked about once.
	ages      map[rules.TenantID]age
	isSorting bool // a goroutine asks
}

// age says whether a tenant had a checkpoint before a time.
type age struct {
	before       int64
	asked, isNew bool
}

type lookup struct {
	key enforce.Key
	// full replaces a missing checkpoint in the memory, unless it is nil.
	full  *enforce.State
	index int
	done  chan<- answer // with room
}

type answer struct {
	index int
	found enforce.Checkpoint // its Stamp is 0 without one
	err   error
}

// NewLookups returns a Lookups that answers within a budget.
func NewLookups(memory Known, reader Reader, budget time.Duration, log *slog.Logger) *Lookups {
	return &Lookups{
		memory: memory, reader: reader, budget: budget, log: log, lines: map[rules.TenantID][]lookup{},
		ages: map[rules.TenantID]age{},
	}
}

// Recollect implements enforce.Recollection.
func (l *Lookups) Recollect(tiers []enforce.Tier) (unknown []enforce.Tier) {
	missing := l.memory.Unknown(tiers)
	if len(missing) == 0 {
		return nil
	}
	lookups := make([]lookup, len(missing))
	for i := range missing {
		lookups[i] = lookup{key: missing[i].Key, full: &missing[i].State}
	}
	if _, err := l.lookUp(lookups); err == nil {
		return nil
	}
	for i := range tiers {
		if len(l.memory.Unknown(tiers[i:i+1])) > 0 {
			unknown = append(unknown, tiers[i])
		}
	}
	return unknown
}

// Recover implements enforce.Recovery. The process's memory may know later states than the checkpoints.
func (l *Lookups) Recover(keys []enforce.Key, before int64) (known []enforce.Checkpoint, isNew bool, err error) {
	if len(keys) == 0 || l.isNew(keys[0].Tenant, before) {
		return nil, true, nil
	}
	lookups := make([]lookup, len(keys))
	for i := range keys {
		lookups[i].key = keys[i]
		lookups[i].key.Subject = strings.Clone(keys[i].Subject) // it outlives the request
	}
	if known, err = l.lookUp(lookups); err != nil {
		return nil, false, err
	}
	for i := range known {
		if own, ok := l.memory.Newest(keys[i]); ok && (own.Stamp > known[i].Stamp ||
			own.Stamp == known[i].Stamp && own.State.Level.Micros < known[i].State.Level.Micros) {
			known[i] = own
		}
	}
	return known, false, nil
}

// isNew reports whether a tenant is known to have had no checkpoint before a time, and else has that found out once.
func (l *Lookups) isNew(tenant rules.TenantID, before int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.ages[tenant]
	if ok && known.before == before {
		return known.isNew
	}
	l.ages[tenant] = age{before: before}
	if !l.isSorting {
		l.isSorting = true
		panics.Go(l.log, "the look-up of new tenants", l.sort)
	}
	return false
}

// sort asks which tenants are new, until all are known.
func (l *Lookups) sort() {
	for {
		var tenants []rules.TenantID
		var before []int64
		l.mu.Lock()
		for tenant, known := range l.ages {
			if !known.asked {
				known.asked = true
				l.ages[tenant] = known
				tenants, before = append(tenants, tenant), append(before, known.before+clocksApart)
			}
		}
		l.isSorting = len(tenants) > 0
		l.mu.Unlock()
		if len(tenants) == 0 {
			return
		}
		err := panics.Do(l.log, "the look-up of new tenants", func() error {
			ctx, cancel := context.WithTimeout(context.Background(), sortTimeout)
			defer cancel()
			old, err := l.reader.TenantsCheckpointedBefore(ctx, tenants, before)
			if err != nil {
				return err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			for i, tenant := range tenants {
				if known := l.ages[tenant]; known.before+clocksApart == before[i] {
					known.isNew = !slices.Contains(old, tenant)
					l.ages[tenant] = known
				}
			}
			return nil
		})
		if err != nil { // their buckets are looked up one by one
			l.log.Warn("could not find out which tenants have checkpoints", "error", err)
		}
	}
}

// lookUp returns the checkpoints of buckets of a tenant; the Stamp of a missing one is 0.
func (l *Lookups) lookUp(lookups []lookup) (found []enforce.Checkpoint, err error) {
	done := make(chan answer, len(lookups))
	for i := range lookups {
		lookups[i].index, lookups[i].done = i, done
	}
	if err := l.ask(lookups); err != nil {
		return nil, err
	}
	late := time.NewTimer(l.budget)
	defer late.Stop()
	found = make([]enforce.Checkpoint, len(lookups))
	for range lookups {
		select {
		case a := <-done:
			if a.err != nil {
				return nil, a.err
			}
			found[a.index] = a.found
		case <-late.C:
			return nil, errLate
		}
	}
	return found, nil
}

func (l *Lookups) ask(lookups []lookup) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	tenant := lookups[0].key.Tenant
	switch {
	case len(l.lines[tenant]) >= waitingOfTenant:
		return errCrowded
	case time.Now().Before(l.restsTo):
		return errResting
	}
	l.lines[tenant] = append(l.lines[tenant], lookups...)
	if !l.isBusy {
		l.isBusy = true
		panics.Go(l.log, "the look-up of checkpoints", l.run)
	}
	return nil
}

// run asks until nobody waits.
func (l *Lookups) run() {
	for {
		batch := l.next()
		if len(batch) == 0 {
			return
		}
		var found map[rules.CheckpointPlace]enforce.Checkpoint
		err := panics.Do(l.log, "the look-up of checkpoints", func() (err error) {
			found, err = l.read(batch)
			return err
		})
		if err != nil {
			l.mu.Lock()
			l.restsTo = time.Now().Add(restAfter)
			for tenant, line := range l.lines {
				batch = append(batch, line...)
				delete(l.lines, tenant)
			}
			l.mu.Unlock()
		}
		for i := range batch {
			batch[i].done <- answer{batch[i].index, found[placeOf(batch[i].key)], err}
		}
	}
}

// next takes one look-up of each tenant in turn.
func (l *Lookups) next() (batch []lookup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.lines) > 0 && len(batch) < askedAtOnce {
		for tenant, line := range l.lines { // in a random order
			if len(batch) == askedAtOnce {
				break
			}
			batch = append(batch, line[0])
			if line = line[1:]; len(line) > 0 {
				l.lines[tenant] = line
			} else {
				delete(l.lines, tenant)
			}
		}
	}
	l.isBusy = len(batch) > 0
	return batch
}

func (l *Lookups) read(batch []lookup) (found map[rules.CheckpointPlace]enforce.Checkpoint, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.budget)
	defer cancel()
	places := make([]rules.CheckpointPlace, len(batch))
	for i := range batch {
		places[i] = placeOf(batch[i].key)
	}
	rows, err := l.reader.CheckpointsOf(ctx, places)
	if err != nil {
		return nil, err
	}
	found = make(map[rules.CheckpointPlace]enforce.Checkpoint, len(rows))
	for i := range rows {
		if c, ok := checkpointOf(&rows[i]); ok {
			found[rows[i].CheckpointPlace] = c
			l.memory.Restore(c)
		}
	}
	for i := range batch { // the others have taken less than 2 % of their limits
		if batch[i].full != nil {
			l.memory.Restore(enforce.Checkpoint{Key: batch[i].key, State: *batch[i].full})
		}
	}
	return found, nil
}
