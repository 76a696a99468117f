package checkpoint

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	askedAtOnce     = 500
	waitingOfTenant = 5000
	// restAfter: look-ups fail at once for this long after a failed query.
	restAfter = 250 * time.Millisecond
)

var (
	errCrowded = errors.New("too many buckets of the tenant wait for their checkpoints")
	errResting = errors.New("checkpoints could not be read a moment ago")
	errLate    = errors.New("checkpoints were not read in time")
)

// Reader reads checkpoints.
type Reader interface {
	CheckpointsOf(ctx context.Context, places []rules.CheckpointPlace) ([]rules.Checkpoint, error)
	TenantsWithCheckpoints(ctx context.Context, tenants []rules.TenantID) ([]rules.TenantID, error)
}

// Known is a memory that can say which buckets others may know better.
type Known interface {
	// Unknown returns the bounded keys and states of tiers to ask for; Stamp is 0 for a bucket that it does not have.
	Unknown(tiers []enforce.Tier) []enforce.Checkpoint
	Restore(enforce.Checkpoint)
	Newest(key enforce.Key) (known enforce.Checkpoint, ok bool)
	HasKnown(before map[rules.TenantID]int64) map[rules.TenantID]bool
}

// Lookups restores buckets of long limits from checkpoints: own ones while the shared store is away, shared ones after
// it lost data. Look-ups share queries, with equal shares for tenants.
type Lookups struct {
	memory Known
	reader Reader
	budget time.Duration
	log    *slog.Logger

	mu        sync.Mutex
	lines     map[rules.TenantID][]lookup
	isBusy    bool // a goroutine asks
	restsTo   time.Time
	isFinding bool // a goroutine finds new tenants
	known     map[rules.TenantID]tenantEra
}

type tenantEra struct {
	began int64
	isNew bool // had no checkpoint, and no bucket in the memory
}

type lookup struct {
	key   enforce.Key
	era   int64 // when it began; 0 for a look-up while the store is away
	held  *enforce.State
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
		known: map[rules.TenantID]tenantEra{},
	}
}

// RestoreLocal implements enforce.LocalRestorer.
func (l *Lookups) RestoreLocal(tiers []enforce.Tier) (unknown []enforce.Tier) {
	asked := l.memory.Unknown(tiers)
	if len(asked) == 0 {
		return nil
	}
	lookups := make([]lookup, len(asked))
	for i := range asked {
		lookups[i] = lookup{key: asked[i].Key, held: &asked[i].State}
	}
	if _, err := l.lookUp(lookups); err == nil {
		return nil
	}
	for i := range tiers {
		if still := l.memory.Unknown(tiers[i : i+1]); len(still) > 0 && still[0].Stamp == 0 {
			unknown = append(unknown, tiers[i])
		}
	}
	return unknown
}

// Recover implements enforce.Recovery.
func (l *Lookups) Recover(keys []enforce.Key, era int64) (known []enforce.Checkpoint, isNew bool, err error) {
	if len(keys) == 0 || l.isNew(keys[0].Tenant, era) {
		return nil, true, nil
	}
	lookups := make([]lookup, len(keys))
	for i := range keys {
		lookups[i].key, lookups[i].era = keys[i], era
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

func (l *Lookups) isNew(tenant rules.TenantID, era int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[tenant] == tenantEra{era, true}
}

// findNew marks, once per era, the tenants of a batch that have no known bucket, to save later look-ups. If busy or
// failed, the tenant's next look-up repeats it.
func (l *Lookups) findNew(batch []lookup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	eras := map[rules.TenantID]int64{}
	for i := range batch {
		if one := &batch[i]; one.era > 0 && l.known[one.key.Tenant].began != one.era {
			eras[one.key.Tenant] = one.era
		}
	}
	if len(eras) == 0 || l.isFinding {
		return
	}
	l.isFinding = true
	panics.Go(l.log, "the look-up of new tenants", func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.isFinding = false
		}()
		if err := l.askNew(eras); err != nil {
			l.log.Warn("could not find out which tenants have checkpoints; trying again with the next look-up",
				"error", err)
		}
	})
}

func (l *Lookups) askNew(eras map[rules.TenantID]int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.budget)
	defer cancel()
	with, err := l.reader.TenantsWithCheckpoints(ctx, slices.Collect(maps.Keys(eras)))
	if err != nil {
		return err
	}
	held := l.memory.HasKnown(eras)
	l.mu.Lock()
	defer l.mu.Unlock()
	for tenant, era := range eras {
		l.known[tenant] = tenantEra{era, !held[tenant] && !slices.Contains(with, tenant)}
	}
	return nil
}

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
		if err == nil {
			l.findNew(batch)
		}
	}
}

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
		if batch[i].held != nil {
			l.memory.Restore(enforce.Checkpoint{Key: batch[i].key, State: *batch[i].held})
		}
	}
	return found, nil
}
