package enforce

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// settleTick is how often an EditSettler looks for work.
	settleTick = time.Second
	// expiryEvery is how often it looks for overrides that have expired. A bucket is kept for ten seconds
	// after it is full.
	expiryEvery = 4
	// settleFor is how long it tries. By then the buckets of fast limits are gone.
	settleFor = 5 * time.Minute
	// looksAtOnce is how many single buckets it looks at in one call, and looksPause is the pause between two.
	looksAtOnce = 200
	looksPause  = 10 * time.Millisecond
)

// SettledStore is a store that an EditSettler settles.
type SettledStore interface {
	Buckets
	Settler
}

// EditSettler has the stores settle idle buckets after each edit that makes them fill later: see Settler. It learns
// of edits from a rules.Watcher, and finds the overrides that expire by itself. A user's only bucket of a rule is
// looked at by every process, which costs next to nothing; for all other edits one process walks.
type EditSettler struct {
	snapshot func() *rules.Snapshot
	delay    time.Duration
	stores   []SettledStore
	log      *slog.Logger
	lost     atomic.Int64

	mu      sync.Mutex
	pending []slowdown
}

// slowdown is one that is to be settled.
type slowdown struct {
	rules.Slowdown
	due, until time.Time
}

// NewEditSettler returns an EditSettler of some stores. It waits after each edit for a delay in which other processes
// read it: one that has not would make buckets that expire too early.
func NewEditSettler(snapshot func() *rules.Snapshot, delay time.Duration, log *slog.Logger, stores ...SettledStore) *EditSettler {
	return &EditSettler{snapshot: snapshot, delay: delay, stores: stores, log: log}
}

// Add adds slowdowns, of which those that are known already are skipped.
func (e *EditSettler) Add(slowed []rules.Slowdown) {
	now := time.Now()
	e.add(slowed, now.Add(e.delay), now.Add(settleFor))
}

func (e *EditSettler) add(slowed []rules.Slowdown, due, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := make(map[rules.Slowdown]bool, len(e.pending))
	for i := range e.pending {
		known[e.pending[i].Slowdown] = true
	}
	for _, s := range slowed {
		if !known[s] {
			known[s] = true
			e.pending = append(e.pending, slowdown{s, due, until})
		}
	}
}

// Lost returns how many slowdowns were given up because a store could not settle them for minutes. Owners of such
// buckets may have had one burst too many.
func (e *EditSettler) Lost() int64 { return e.lost.Load() }

// Run settles buckets until ctx ends.
func (e *EditSettler) Run(ctx context.Context) {
	ended := make(chan struct{}, 1)
	var walking, failing, walksFailing bool
	tick := time.NewTicker(settleTick)
	defer tick.Stop()
	var walk sync.WaitGroup
	defer walk.Wait()
	for ticks, seen := 0, time.Now().Add(-2*expiryEvery*settleTick); ; ticks++ {
		if now := time.Now(); ticks%expiryEvery == 0 {
			if s := e.snapshot(); s != nil {
				e.add(s.Expired(seen, now), now, now.Add(settleFor))
				seen = now
			}
		}
		singles, walks := e.takeDue(time.Now(), walking)
		e.settled(ctx, singles, e.look(ctx, singles), &failing)
		if len(walks) > 0 {
			walking = true
			walk.Go(func() {
				e.settled(ctx, walks, e.walk(ctx, walks), &walksFailing)
				ended <- struct{}{}
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
			walking = false
		case <-tick.C:
		}
	}
}

// takeDue takes out what is due: single buckets, and what needs a walk unless one is under way.
func (e *EditSettler) takeDue(now time.Time, walking bool) (singles, walks []slowdown) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rest := e.pending[:0]
	for _, s := range e.pending {
		_, single := e.single(&s, now)
		switch {
		case now.Before(s.due) || !single && walking:
			rest = append(rest, s)
		case single:
			singles = append(singles, s)
		default:
			walks = append(walks, s)
		}
	}
	e.pending = rest
	return singles, walks
}

// single returns the only bucket that a slowdown is about, if there is such a one.
func (e *EditSettler) single(s *slowdown, now time.Time) (m rules.Match, ok bool) {
	if s.User == "" {
		return m, false
	}
	if tenant := e.tenant(s.Tenant); tenant != nil {
		return tenant.BucketOfUser(s.Rule, s.User, now)
	}
	return m, false
}

func (e *EditSettler) tenant(id rules.TenantID) *rules.TenantRules {
	if snapshot := e.snapshot(); snapshot != nil {
		return snapshot.Tenant(id)
	}
	return nil
}

// settled puts back what failed, for a later try, and tells how it went.
func (e *EditSettler) settled(ctx context.Context, tried []slowdown, err error, failing *bool) {
	if err == nil || len(tried) == 0 || ctx.Err() != nil {
		*failing = *failing && len(tried) == 0
		return
	}
	if !*failing {
		e.log.WarnContext(ctx, "idle buckets could not be settled after edits that slow limits; this is tried again",
			"edits", len(tried), "error", err)
	}
	*failing = true
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range tried {
		if now.After(s.until) {
			e.lost.Add(1)
			continue
		}
		s.due = now.Add(settleTick)
		e.pending = append(e.pending, s)
	}
}

// look looks at single buckets, which settles them.
func (e *EditSettler) look(ctx context.Context, singles []slowdown) error {
	asks := make([]Ask, 0, len(singles))
	for i := range singles {
		if m, ok := e.single(&singles[i], time.Now()); ok {
			tenant := singles[i].Tenant
			asks = append(asks, Ask{
				ReadAt: e.tenant(tenant).ReadAt(),
				Tiers:  []Tier{{Key: Key{Tenant: tenant, Rule: m.Rule.ID, Subject: m.Subject}, Limit: m.Limit}},
			})
		}
	}
	for len(asks) > 0 {
		some := asks[:min(len(asks), looksAtOnce)]
		asks = asks[len(some):]
		for _, store := range e.stores {
			if err := store.Take(ctx, some); err != nil {
				return err
			}
		}
		if len(asks) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(looksPause):
		}
	}
	return nil
}

// walk has all buckets of the slowed rules settled.
func (e *EditSettler) walk(ctx context.Context, walks []slowdown) error {
	start := time.Now()
	edits := make([]Edit, 0, len(walks))
	for i := range walks {
		if edit, ok := e.edit(&walks[i]); ok {
			edits = append(edits, edit)
		}
	}
	if len(edits) == 0 {
		return nil
	}
	for _, store := range e.stores {
		if err := store.Settle(ctx, edits); err != nil {
			return err
		}
	}
	e.log.InfoContext(ctx, "idle buckets are settled after edits that slow limits", "edits", len(edits), "took", time.Since(start))
	return nil
}

// edit returns a slowdown for the stores. It is not ok if the rule is gone, and its buckets with it.
func (e *EditSettler) edit(s *slowdown) (edit Edit, ok bool) {
	tenant := e.tenant(s.Tenant)
	if tenant == nil {
		return Edit{}, false
	}
	edit = Edit{Tenant: s.Tenant, Rule: s.Rule, ID: s.ID(), ReadAt: tenant.ReadAt()}
	if common, ok := tenant.CommonLimit(s.Rule); ok {
		edit.Common = &common
	}
	edit.Limit = func(subject string) (Limit, bool) {
		m, ok := tenant.Bucket(s.Rule, subject, time.Now())
		return m.Limit, ok // another user's too: to look at a bucket that was not edited changes nothing
	}
	return edit, true
}
