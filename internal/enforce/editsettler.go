package enforce

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

const (
	settleTick = time.Second
	// expiryEvery is how often it looks for expired overrides. It is well below the ten seconds that a full bucket is kept.
	expiryEvery = 3500 * time.Millisecond
	// settleFor is how long it retries a slowdown. By then the buckets of fast limits are forgotten.
	settleFor = 5 * time.Minute
	// looksPerCall is how many single buckets it looks at in one Take; looksPause is the pause after each.
	looksPerCall = 200
	looksPause   = 10 * time.Millisecond
	// looksPerTurn is how many single buckets of one tenant it looks at before it goes on to other tenants.
	looksPerTurn = 10 * looksPerCall
	// maxEdits caps the edits of one rule in a Settle. More become one edit, so that a tenant that edits a million
	// overrides does not fill Redis with a million marks.
	maxEdits = 64
)

// SettledStore is a store whose idle buckets an EditSettler settles.
type SettledStore interface {
	Buckets
	Settler
}

// EditSettler has the stores settle idle buckets after each edit that makes them fill later: see Settler. It learns
// of edits from a snapshot.Watcher, and finds the overrides that expire by itself. A user's only bucket of a rule is
// looked at by every process, which costs next to nothing; for all other edits one process walks.
type EditSettler struct {
	snapshot  func() *snapshot.Snapshot
	delay     time.Duration
	stores    []SettledStore
	log       *slog.Logger
	abandoned atomic.Int64

	mu        sync.Mutex
	pending   map[rules.TenantID][]slowdown
	isPending map[rules.Slowdown]bool
}

// slowdown is settled once it is due, and retried until a time.
type slowdown struct {
	rules.Slowdown
	due, until time.Time
}

// NewEditSettler returns an EditSettler of some stores. It waits for a delay after each edit, until other processes have
// read it: one that has not would write buckets that expire too early.
func NewEditSettler(snapshot func() *snapshot.Snapshot, delay time.Duration, log *slog.Logger, stores ...SettledStore) *EditSettler {
	return &EditSettler{
		snapshot: snapshot, delay: delay, stores: stores, log: log,
		pending: map[rules.TenantID][]slowdown{}, isPending: map[rules.Slowdown]bool{},
	}
}

// Add adds slowdowns, except those that are pending.
func (e *EditSettler) Add(slowed []rules.Slowdown) {
	now := time.Now()
	e.add(slowed, now.Add(e.delay), now.Add(settleFor))
}

func (e *EditSettler) add(slowed []rules.Slowdown, due, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range slowed {
		e.put(slowdown{s, due, until})
	}
}

// put adds a slowdown unless it is pending. mu must be held.
func (e *EditSettler) put(s slowdown) {
	if !e.isPending[s.Slowdown] {
		e.isPending[s.Slowdown] = true
		e.pending[s.Tenant] = append(e.pending[s.Tenant], s)
	}
}

// Abandoned counts the slowdowns that no try within settleFor could settle. The owners of such buckets may have had one
// burst too many.
func (e *EditSettler) Abandoned() int64 { return e.abandoned.Load() }

// Run settles buckets until ctx ends.
func (e *EditSettler) Run(ctx context.Context) {
	ended := make(chan struct{}, 1)
	var walking, failing, walksFailing bool
	tick := time.NewTicker(settleTick)
	defer tick.Stop()
	var walk sync.WaitGroup
	defer walk.Wait()
	for seen := time.Now().Add(-2 * expiryEvery); ; {
		if now := time.Now(); now.Sub(seen) >= expiryEvery {
			if s := e.snapshot(); s != nil {
				e.add(s.Expired(seen, now), now, now.Add(settleFor))
				seen = now
			}
		}
		singles, walks, more := e.popDue(time.Now(), walking)
		failed, err := e.look(ctx, singles)
		e.settled(ctx, len(singles), failed, err, &failing)
		if len(walks) > 0 {
			walking = true
			walk.Go(func() {
				if err := e.walk(ctx, walks); err != nil {
					e.settled(ctx, len(walks), walks, err, &walksFailing)
				} else {
					e.settled(ctx, len(walks), nil, nil, &walksFailing)
				}
				ended <- struct{}{}
			})
		}
		var again <-chan time.Time
		if more {
			again = time.After(0)
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
			walking = false
		case <-again:
		case <-tick.C:
		}
	}
}

// popDue removes and returns due slowdowns: at most looksPerTurn single buckets of each tenant and, unless a walk is under
// way, all that need one. more reports whether others may be due.
func (e *EditSettler) popDue(now time.Time, walking bool) (singles, walks []slowdown, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for tenant, queue := range e.pending {
		kept := queue[:0]
		seen, looks := 0, 0
		for ; seen < len(queue) && looks < looksPerTurn; seen++ {
			s := queue[seen]
			single := false
			if !now.Before(s.due) {
				_, single = e.single(&s, now)
			}
			switch {
			case single:
				singles = append(singles, s)
				looks++
			case now.Before(s.due) || walking:
				kept = append(kept, s)
				continue
			default:
				walks = append(walks, s)
			}
			delete(e.isPending, s.Slowdown)
		}
		more = more || seen < len(queue)
		rest := queue[seen-len(kept):]
		copy(rest, kept)
		if e.pending[tenant] = rest; len(rest) == 0 {
			delete(e.pending, tenant)
		}
	}
	return singles, walks, more
}

// single returns the bucket of a slowdown that affects only one.
func (e *EditSettler) single(s *slowdown, now time.Time) (m rules.Match, ok bool) {
	if s.User == "" {
		return m, false
	}
	if tenant := e.tenant(s.Tenant); tenant != nil {
		return tenant.BucketOfUser(s.Rule, s.User, now)
	}
	return m, false
}

func (e *EditSettler) tenant(id rules.TenantID) *snapshot.Tenant {
	if snapshot := e.snapshot(); snapshot != nil {
		return snapshot.Tenant(id)
	}
	return nil
}

// settled logs the first of several failures, and puts failed slowdowns back for a retry.
func (e *EditSettler) settled(ctx context.Context, tried int, failed []slowdown, err error, failing *bool) {
	if err == nil || ctx.Err() != nil {
		*failing = *failing && tried == 0
		return
	}
	if !*failing {
		e.log.WarnContext(ctx, "idle buckets could not be settled after edits that slow limits; retrying",
			"edits", len(failed), "error", err)
	}
	*failing = true
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range failed {
		if now.After(s.until) {
			e.abandoned.Add(1)
			continue
		}
		s.due = now.Add(settleTick)
		e.put(s)
	}
}

// look settles single buckets by looking at them, and returns the slowdowns that failed.
func (e *EditSettler) look(ctx context.Context, singles []slowdown) (failed []slowdown, err error) {
	for chunk := range slices.Chunk(singles, looksPerCall) {
		missed, missing := e.lookAtChunk(ctx, chunk)
		failed, err = append(failed, missed...), cmp.Or(err, missing)
		select {
		case <-ctx.Done():
			return failed, context.Cause(ctx)
		case <-time.After(looksPause):
		}
	}
	return failed, err
}

func (e *EditSettler) lookAtChunk(ctx context.Context, chunk []slowdown) (failed []slowdown, err error) {
	checks := make([]BucketCheck, 0, len(chunk))
	slowdowns := make([]slowdown, 0, len(chunk)) // of each check
	for i := range chunk {
		if m, ok := e.single(&chunk[i], time.Now()); ok {
			tenant := e.tenant(chunk[i].Tenant)
			checks = append(checks, BucketCheck{
				ReadAt: tenant.ReadAt(),
				Tiers:  []Tier{{Key: KeyOf(&tenant.Tenant, &m), Limit: m.Limit}},
			})
			slowdowns = append(slowdowns, chunk[i])
		}
	}
	missed := make([]bool, len(checks))
	for _, store := range e.stores {
		for i := range checks {
			checks[i].Answered = false
		}
		missing := store.Take(ctx, checks)
		err = cmp.Or(err, missing)
		for i := range checks {
			missed[i] = missed[i] || missing != nil && !checks[i].Answered
		}
	}
	for i := range missed {
		if missed[i] {
			failed = append(failed, slowdowns[i])
		}
	}
	return failed, err
}

func (e *EditSettler) walk(ctx context.Context, walks []slowdown) error {
	start := time.Now()
	edits := e.edits(walks)
	if len(edits) == 0 {
		return nil
	}
	for _, store := range e.stores {
		if err := store.Settle(ctx, edits); err != nil {
			return err
		}
	}
	e.log.InfoContext(ctx, "idle buckets were settled after edits that slow limits", "edits", len(edits), "took", time.Since(start))
	return nil
}

// edits returns slowdowns as edits, without those of deleted rules.
func (e *EditSettler) edits(slowed []slowdown) (edits []Edit) {
	idsOf := map[Key][]string{} // by rule
	var edited []Key            // its keys, in order
	for i := range slowed {
		rule := Key{Tenant: slowed[i].Tenant, Rule: slowed[i].Rule}
		if idsOf[rule] == nil {
			edited = append(edited, rule)
		}
		idsOf[rule] = append(idsOf[rule], slowed[i].ID())
	}
	for _, rule := range edited {
		ids := idsOf[rule]
		if len(ids) > maxEdits {
			slices.Sort(ids) // every process must compute the same sum
			sum := sha256.Sum256([]byte(strings.Join(ids, "\x00")))
			ids = []string{hex.EncodeToString(sum[:])}
		}
		edit, ok := e.edit(rule)
		for i := 0; ok && i < len(ids); i++ {
			edit.ID = ids[i]
			edits = append(edits, edit)
		}
	}
	return edits
}

// edit returns an edit of a rule, without an ID; ok is false if the rule is deleted.
func (e *EditSettler) edit(rule Key) (edit Edit, ok bool) {
	tenant := e.tenant(rule.Tenant)
	if tenant == nil {
		return Edit{}, false
	}
	edit = Edit{Tenant: rule.Tenant, IsSpread: tenant.Tenant.Spread, Rule: rule.Rule, ReadAt: tenant.ReadAt()}
	if common, ok := tenant.CommonLimit(rule.Rule); ok {
		edit.Common = &common
	}
	edit.Limit = func(subject string) (Limit, bool) {
		m, ok := tenant.Bucket(rule.Rule, subject, time.Now())
		return m.Limit, ok // settling a bucket that was not edited changes nothing
	}
	return edit, true
}
