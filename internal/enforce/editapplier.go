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

	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

const (
	applyTick = time.Second
	// expiryEvery is how often expired overrides are looked for; stores keep a full bucket for ten seconds.
	expiryEvery = 3500 * time.Millisecond
	applyFor    = 5 * time.Minute
	// stepsEvery: all tenants' steps share one walk, because a walk reads every bucket. A bucket forgotten before it
	// gains at most what the former share earns until then.
	stepsEvery   = time.Minute
	looksPerCall = 200
	looksPause   = 10 * time.Millisecond
	looksPerTurn = 10 * looksPerCall
	// maxEdits caps a rule's edits in a call; more become one, because each leaves a mark in Redis.
	maxEdits = 64
)

// EditableStore is a store that an EditApplier serves.
type EditableStore interface {
	Buckets
	EditStore
}

// EditApplier applies edits that make idle buckets fill later; see EditStore. Slowdowns come from a snapshot.Watcher
// and from overrides that expire.
type EditApplier struct {
	snapshot  func() *snapshot.Snapshot
	delay     time.Duration
	stores    []EditableStore
	log       *slog.Logger
	abandoned atomic.Int64

	mu        sync.Mutex
	pending   map[rules.TenantID][]slowdown
	isPending map[rules.Slowdown]bool
}

type slowdown struct {
	rules.Slowdown
	due, until time.Time
}

// NewEditApplier returns an EditApplier that waits for delay, until no process writes buckets by the former limit.
func NewEditApplier(snapshot func() *snapshot.Snapshot, delay time.Duration, log *slog.Logger,
	stores ...EditableStore,
) *EditApplier {
	return &EditApplier{
		snapshot: snapshot, delay: delay, stores: stores, log: log,
		pending: map[rules.TenantID][]slowdown{}, isPending: map[rules.Slowdown]bool{},
	}
}

// Add queues slowdowns, each once.
func (e *EditApplier) Add(slowed []rules.Slowdown) {
	now := time.Now()
	e.add(slowed, now.Add(e.delay), now.Add(applyFor))
}

func (e *EditApplier) add(slowed []rules.Slowdown, due, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range slowed {
		of := slowdown{s, due, until}
		if s.IsStep {
			of.due = due.Truncate(stepsEvery).Add(stepsEvery)
		}
		e.put(of)
	}
}

// mu must be held.
func (e *EditApplier) put(s slowdown) {
	if !e.isPending[s.Slowdown] {
		e.isPending[s.Slowdown] = true
		e.pending[s.Tenant] = append(e.pending[s.Tenant], s)
	}
}

// Abandoned counts the slowdowns not applied within applyFor, whose users may have had one burst too many.
func (e *EditApplier) Abandoned() int64 { return e.abandoned.Load() }

// Run applies edits until ctx ends.
func (e *EditApplier) Run(ctx context.Context) {
	ended := make(chan struct{}, 1)
	var walking, failing, walksFailing bool
	tick := time.NewTicker(applyTick)
	defer tick.Stop()
	var walk panics.Group
	defer func() { _ = walk.Wait() }()
	for seen := time.Now().Add(-2 * expiryEvery); ; {
		if now := time.Now(); now.Sub(seen) >= expiryEvery {
			if s := e.snapshot(); s != nil {
				e.add(s.Expired(seen, now), now, now.Add(applyFor))
				seen = now
			}
		}
		singles, walks, more := e.popDue(time.Now(), walking)
		failed, err := e.look(ctx, singles)
		e.concluded(ctx, len(singles), failed, err, &failing)
		if len(walks) > 0 {
			walking = true
			walk.Go(e.log, "a walk over idle buckets", func() {
				err := panics.Do(e.log, "a walk over idle buckets", func() error { return e.walk(ctx, walks) })
				if err != nil {
					e.concluded(ctx, len(walks), walks, err, &walksFailing)
				} else {
					e.concluded(ctx, len(walks), nil, nil, &walksFailing)
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

// popDue removes due slowdowns: at most looksPerTurn single buckets of a tenant and, unless walking, all walks.
func (e *EditApplier) popDue(now time.Time, walking bool) (singles, walks []slowdown, more bool) {
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

func (e *EditApplier) single(s *slowdown, now time.Time) (m rules.Match, ok bool) {
	if s.User == "" {
		return m, false
	}
	if tenant := e.tenant(s.Tenant); tenant != nil {
		return tenant.BucketOfUser(s.Rule, s.User, now)
	}
	return m, false
}

func (e *EditApplier) tenant(id rules.TenantID) *snapshot.Tenant {
	if snapshot := e.snapshot(); snapshot != nil {
		return snapshot.Tenant(id)
	}
	return nil
}

func (e *EditApplier) concluded(ctx context.Context, tried int, failed []slowdown, err error, failing *bool) {
	if err == nil || ctx.Err() != nil {
		*failing = *failing && tried == 0
		return
	}
	if !*failing {
		e.log.WarnContext(ctx, "could not apply slower limits to idle buckets; retrying",
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
		s.due = now.Add(applyTick)
		e.put(s)
	}
}

func (e *EditApplier) look(ctx context.Context, singles []slowdown) (failed []slowdown, err error) {
	for chunk := range slices.Chunk(singles, looksPerCall) {
		missed := chunk
		missing := panics.Do(e.log, "a look at idle buckets", func() (err error) {
			missed, err = e.lookAtChunk(ctx, chunk)
			return err
		})
		failed, err = append(failed, missed...), cmp.Or(err, missing)
		select {
		case <-ctx.Done():
			return failed, context.Cause(ctx)
		case <-time.After(looksPause):
		}
	}
	return failed, err
}

func (e *EditApplier) lookAtChunk(ctx context.Context, chunk []slowdown) (failed []slowdown, err error) {
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

func (e *EditApplier) walk(ctx context.Context, walks []slowdown) error {
	start := time.Now()
	edits := e.edits(walks)
	if len(edits) == 0 {
		return nil
	}
	for _, store := range e.stores {
		if err := store.ApplyEdits(ctx, edits); err != nil {
			return err
		}
	}
	e.log.InfoContext(ctx, "applied slower limits to idle buckets", "edits", len(edits), "took",
		time.Since(start))
	return nil
}

func (e *EditApplier) edits(slowed []slowdown) (edits []Edit) {
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

func (e *EditApplier) edit(rule Key) (edit Edit, ok bool) {
	tenant := e.tenant(rule.Tenant)
	if tenant == nil {
		return Edit{}, false
	}
	edit = Edit{Tenant: rule.Tenant, Rule: rule.Rule, ReadAt: tenant.ReadAt()}
	if common, ok := tenant.CommonLimit(rule.Rule, time.Now()); ok {
		edit.Common = &common
	}
	edit.Limit = func(subject string) (Limit, bool) {
		m, ok := tenant.Bucket(rule.Rule, subject, time.Now())
		return m.Limit, ok // advancing a bucket that was not edited changes nothing
	}
	return edit, true
}
