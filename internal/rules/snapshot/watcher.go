package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

// The first load is retried with exponential back-off.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// digestsWithin: see BenchmarkReread of pgstore.
	digestsWithin = 30 * time.Second
)

var errPageLate = errors.New("the next page of rows is late")

// WatcherOptions configure a Watcher; a duration of 0 means the default.
type WatcherOptions struct {
	// PollInterval is the time between reads of newer rows; default 1 s.
	PollInterval time.Duration
	// RereadInterval is for changes without a new revision; default 60 s. A reread reads digests of all tenants, and
	// those that changed in full.
	RereadInterval time.Duration
	// PageTimeout bounds the wait for each page; default 5 s. There is no bound for a whole read: a million rows may
	// arrive over a slow line.
	PageTimeout time.Duration
	// Slowed receives buckets that fill later than before, once the Snapshot has their new limit; it must not block,
	// and may get one twice. Expired overrides are left out.
	Slowed func([]rules.Slowdown)
	Logger *slog.Logger
}

// Watcher keeps the newest Snapshot of a Source in memory; a failed read changes nothing. Polls continue during a
// reread, so that large tenants do not delay changes.
//
// A key that was once seen revoked stays revoked for the life of the process.
type Watcher struct {
	source  Source
	options WatcherOptions
	current atomic.Pointer[Snapshot]

	// publishing and rereading are locks, as channels, because waiting for a mutex cannot be canceled.
	publishing, rereading chan struct{}
	loaded                chan struct{}             // closed once there is a Snapshot
	digests               map[rules.TenantID]Digest // of the last good reread, which guards them

	mu             sync.Mutex // guards the fields below
	fresh          time.Time  // start of the last good read
	err            error      // of the last finished poll or reread
	polls, rereads record
}

type record struct {
	took         time.Duration // of the last good read
	failingSince time.Time
}

// NewWatcher returns a Watcher that has not read yet.
func NewWatcher(source Source, options WatcherOptions) *Watcher {
	options.PollInterval = cmp.Or(options.PollInterval, time.Second)
	options.RereadInterval = cmp.Or(options.RereadInterval, time.Minute)
	options.PageTimeout = cmp.Or(options.PageTimeout, 5*time.Second)
	options.Logger = cmp.Or(options.Logger, slog.Default())
	return &Watcher{
		source:     source,
		options:    options,
		publishing: make(chan struct{}, 1),
		rereading:  make(chan struct{}, 1),
		loaded:     make(chan struct{}),
		fresh:      time.Now(),
	}
}

// Snapshot returns the newest Snapshot, or nil before the first load.
func (w *Watcher) Snapshot() *Snapshot { return w.current.Load() }

// Loaded returns a channel that is closed once Snapshot returns one.
func (w *Watcher) Loaded() <-chan struct{} { return w.loaded }

// Run keeps the Snapshot up to date until ctx is done.
func (w *Watcher) Run(ctx context.Context) {
	for wait := firstRetry; w.safely(w.Refresh)(ctx) != nil && w.Snapshot() == nil; wait = min(2*wait, lastRetry) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
	var rereads panics.Group
	rereads.Loop(ctx, w.options.Logger, "reading all rules",
		func(ctx context.Context) { every(ctx, w.options.RereadInterval, w.safely(w.reread)) })
	every(ctx, w.options.PollInterval, w.safely(w.poll))
	_ = rereads.Wait()
}

func (w *Watcher) safely(read func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		return panics.Do(w.options.Logger, "a read of rules", func() error { return read(ctx) })
	}
}

func every(ctx context.Context, interval time.Duration, read func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = read(ctx)
		}
	}
}

// Refresh reads once: everything before the first load, else newer rows.
func (w *Watcher) Refresh(ctx context.Context) error {
	if w.Snapshot() == nil {
		return w.reread(ctx)
	}
	return w.poll(ctx)
}

func (w *Watcher) poll(ctx context.Context) error {
	began := time.Now()
	err := w.catchUp(ctx, w.Snapshot, news{})
	w.note(ctx, "poll", &w.polls, began, err)
	if err != nil {
		return fmt.Errorf("read newer rules: %w", err)
	}
	return nil
}

// Polls publish newer Snapshots during a reread, so a final poll brings this one up to date.
func (w *Watcher) reread(ctx context.Context) error {
	if err := enter(ctx, w.rereading); err != nil {
		return err
	}
	defer leave(w.rereading)
	began := time.Now()
	next, digests, found, err := w.readChanged(ctx)
	if err == nil {
		err = w.catchUp(ctx, func() *Snapshot { return next }, found)
	}
	if err == nil {
		w.digests = digests
	}
	w.note(ctx, "reread", &w.rereads, began, err)
	if err != nil {
		return fmt.Errorf("read all rules: %w", err)
	}
	return nil
}

// readChanged also reads the tenants again that lost rows, because polls would have to wait if catchUp did.
func (w *Watcher) readChanged(ctx context.Context) (next *Snapshot, digests map[rules.TenantID]Digest, found news,
	err error,
) {
	from := cmp.Or(w.Snapshot(), new(Snapshot))
	at, digests, err := w.readDigests(ctx)
	if err != nil {
		return nil, nil, found, err
	}
	known, same := from.revisions(), map[rules.TenantID]bool{}
	for id, revision := range known {
		// A failover can undo a polled change and restore the digest.
		if digest, ok := digests[id]; ok && digest == w.digests[id] && digest.Revision == revision {
			same[id] = true
		} else {
			delete(known, id)
		}
	}
	d := newReread(from, same, at)
	if err := w.read(ctx, known, d); err != nil {
		return nil, nil, found, err
	}
	next, lost := d.snapshot()
	found = d.news()
	if len(lost) == 0 {
		return next, digests, found, nil
	}
	known = next.revisions()
	for _, id := range lost {
		delete(known, id)
	}
	d = newDraft(next)
	d.forget(lost)
	if err := w.read(ctx, known, d); err != nil {
		return nil, nil, found, err
	}
	next, _ = d.snapshot()
	found.add(d.news())
	return next, digests, found, nil
}

// readDigests: without digests, as when the database is too slow for them, everything is read.
func (w *Watcher) readDigests(ctx context.Context) (at time.Time, digests map[rules.TenantID]Digest, err error) {
	at = time.Now() // overrides expire by this process's clock; if that is behind, it is the bound
	limited, cancel := context.WithTimeout(ctx, digestsWithin)
	defer cancel()
	read, digests, err := w.source.Digests(limited)
	switch {
	case err == nil && read.Before(at):
		at = read
	case err != nil && ctx.Err() == nil:
		w.options.Logger.WarnContext(ctx, "the digests of tenants could not be read, so every tenant is read",
			"error", err)
		return at, nil, nil
	}
	return at, digests, err
}

func (w *Watcher) catchUp(ctx context.Context, from func() *Snapshot, found news) error {
	if err := enter(ctx, w.publishing); err != nil {
		return err
	}
	defer leave(w.publishing)
	base := from()
	d := newDraft(base)
	if err := w.read(ctx, base.revisions(), d); err != nil {
		return err
	}
	current := w.Snapshot()
	if current != nil && current != base {
		d.keepRevoked(current)
	}
	next, _ := d.snapshot()
	w.current.Store(next)
	if current == nil {
		close(w.loaded)
	}
	found.add(d.news())
	w.report(ctx, found)
	return nil
}

func (w *Watcher) report(ctx context.Context, found news) {
	if len(found.slowed) > 0 && w.options.Slowed != nil {
		w.options.Slowed(found.slowed)
	}
	if len(found.unknown) > 0 {
		first := found.unknown[0]
		w.options.Logger.WarnContext(ctx,
			"rules have words that this process does not know; they act by their failure mode",
			"rules", len(found.unknown), "tenant_id", first.TenantID, "rule_id", first.ID, "word", first.Unknown)
	}
}

func (w *Watcher) read(ctx context.Context, known map[rules.TenantID]int64, d *draft) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(w.options.PageTimeout, func() { cancel(errPageLate) })
	defer late.Stop()
	err := w.source.Read(ctx, known, func(rows Rows) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		d.add(&rows)
		late.Reset(w.options.PageTimeout)
		return nil
	})
	if err != nil && errors.Is(context.Cause(ctx), errPageLate) {
		return fmt.Errorf("%w: waited %v: %w", errPageLate, w.options.PageTimeout, err)
	}
	return err
}

func enter(ctx context.Context, room chan struct{}) error {
	select {
	case room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the read before this one: %w", context.Cause(ctx))
	}
}

func leave(room chan struct{}) { <-room }

func (w *Watcher) note(ctx context.Context, kind string, r *record, began time.Time, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.options.Logger.With("read", kind)
	w.err = err
	switch {
	case err == nil:
		r.took = time.Since(began)
		if began.After(w.fresh) {
			w.fresh = began
		}
		if !r.failingSince.IsZero() {
			log.InfoContext(ctx, "rules can be read again", "outage", time.Since(r.failingSince))
			r.failingSince = time.Time{}
		}
	case r.failingSince.IsZero():
		r.failingSince = began
		message := "rules cannot be read; the last good ones stay in force"
		if w.Snapshot() == nil {
			message = "rules cannot be read; there are none to check by yet"
		}
		log.ErrorContext(ctx, message, "error", err)
	}
}

// Age returns the time since the start of the last good read: every change committed before it is in the Snapshot.
func (w *Watcher) Age() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.fresh)
}

// LastError returns the error of the last finished read. A good poll clears that of an earlier reread.
func (w *Watcher) LastError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// PollDuration returns the duration of the last good poll; 0 if there was none.
func (w *Watcher) PollDuration() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.polls.took
}

// RereadDuration returns the duration of the last good reread; 0 if there was none.
func (w *Watcher) RereadDuration() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rereads.took
}
