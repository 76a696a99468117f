package checkpoint

import (
	"context"
	"errors"
	"log/slog"
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
)

var (
	errCrowded = errors.New("too many buckets of the tenant wait for their checkpoints")
	errResting = errors.New("checkpoints could not be read a moment ago")
)

// Reader reads checkpoints.
type Reader interface {
	// CheckpointsOf returns the rows at some places, in any order.
	CheckpointsOf(ctx context.Context, places []rules.CheckpointPlace) ([]rules.Checkpoint, error)
}

// Known is a memory that can say which buckets it lacks; see membucket.Store.
type Known interface {
	// Unknown returns the tiers with a long limit whose bucket the memory does not have, under the keys of its buckets.
	Unknown(tiers []enforce.Tier) []enforce.Checkpoint
	Restore(enforce.Checkpoint)
}

// Lookups implements enforce.Recollection: while the shared store is away, the process's own buckets of long limits
// begin as their checkpoints have them. Many look-ups share a query, in which tenants have equal shares.
type Lookups struct {
	memory Known
	reader Reader
	budget time.Duration
	log    *slog.Logger

	mu      sync.Mutex
	lines   map[rules.TenantID][]lookup
	isBusy  bool // a goroutine asks
	restsTo time.Time
}

// lookup is a full bucket, which replaces a missing checkpoint, and who waits for it.
type lookup struct {
	full enforce.Checkpoint
	done chan<- error // with room
}

// NewLookups returns a Lookups that answers within a budget.
func NewLookups(memory Known, reader Reader, budget time.Duration, log *slog.Logger) *Lookups {
	return &Lookups{memory: memory, reader: reader, budget: budget, log: log, lines: map[rules.TenantID][]lookup{}}
}

// Recollect implements enforce.Recollection.
func (l *Lookups) Recollect(tiers []enforce.Tier) (unknown []enforce.Tier) {
	missing := l.memory.Unknown(tiers)
	if len(missing) == 0 {
		return nil
	}
	done := make(chan error, len(missing))
	if l.ask(missing, done) == nil {
		late := time.NewTimer(l.budget)
		defer late.Stop()
		for range missing {
			select {
			case err := <-done:
				if err == nil {
					continue
				}
			case <-late.C:
			}
			break
		}
	}
	for i := range tiers {
		if len(l.memory.Unknown(tiers[i:i+1])) > 0 {
			unknown = append(unknown, tiers[i])
		}
	}
	return unknown
}

func (l *Lookups) ask(missing []enforce.Checkpoint, done chan<- error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	tenant := missing[0].Key.Tenant
	switch {
	case len(l.lines[tenant]) >= waitingOfTenant:
		return errCrowded
	case time.Now().Before(l.restsTo):
		return errResting
	}
	for i := range missing {
		l.lines[tenant] = append(l.lines[tenant], lookup{missing[i], done})
	}
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
		err := panics.Do(l.log, "the look-up of checkpoints", func() error { return l.read(batch) })
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
			batch[i].done <- err
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

func (l *Lookups) read(batch []lookup) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.budget)
	defer cancel()
	places := make([]rules.CheckpointPlace, len(batch))
	for i := range batch {
		places[i] = placeOf(batch[i].full.Key)
	}
	rows, err := l.reader.CheckpointsOf(ctx, places)
	if err != nil {
		return err
	}
	for i := range rows {
		if c, ok := checkpointOf(&rows[i]); ok {
			l.memory.Restore(c)
		}
	}
	for i := range batch { // the others have taken less than 2 % of their limits
		l.memory.Restore(batch[i].full)
	}
	return nil
}
