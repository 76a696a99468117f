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

	"github.com/sluicegate/sluice/internal/rules"
)

// The first load is tried again firstRetry after it failed, and each further wait is twice as long
// up to lastRetry.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// errPageLate is why a read is given up.
var errPageLate = errors.New("the next page of rows is late")

// WatcherOptions say how a Watcher reads. A duration of 0 stands for its default.
type WatcherOptions struct {
	// PollInterval is how often the Watcher reads what is newer than what it holds; default 1 s.
	PollInterval time.Duration
	// RereadInterval is how often it reads everything, to find what no revision told of; default
	// 60 s.
	RereadInterval time.Duration
	// PageTimeout bounds the wait for each page of a read, empty ones included, and for its end; default 5 s. It bounds
	// pages and not the read, so that a million rows can arrive over a slow line while a read from a database that has
	// stopped answering still ends soon.
	PageTimeout time.Duration
	// Slowed is called for buckets that fill later than before, once the Snapshot has their new limit. It must not
	// block, and can get a slowdown more than once. Overrides that expire are left out: see Snapshot.Expired. It may be
	// nil.
	Slowed func([]rules.Slowdown)
	// Logger is told when an outage begins and when it ends; default slog.Default().
	Logger *slog.Logger
}

// Watcher keeps the newest Snapshot of a Source in memory.
//
// Getting the Snapshot is one atomic load: callers never wait and never see half of a change. A failed read changes
// nothing. While the source is away the last good Snapshot stays, and Age says how old it is. Every read has a deadline,
// and no error ends the watching. Polls go on during a re-read, so large tenants do not delay changes.
//
// A key that the Watcher has seen revoked stays revoked for as long as the process lives, even if a
// later read shows it active or not at all.
type Watcher struct {
	source  Source
	options WatcherOptions
	current atomic.Pointer[Snapshot]

	// publishing is held by the one goroutine that may replace the current Snapshot, rereading by
	// the one that reads everything. They are channels of one, because waiting for a channel ends
	// with a context and waiting for a mutex does not.
	publishing, rereading chan struct{}

	mu             sync.Mutex // guards what follows
	fresh          time.Time  // when the last good read began
	err            error      // of the read, of either kind, that ended last
	polls, rereads record
}

// record is how one kind of read goes.
type record struct {
	took         time.Duration // the last good one
	failingSince time.Time
}

// NewWatcher returns a Watcher that has read nothing yet.
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
		fresh:      time.Now(),
	}
}

// Snapshot returns the newest Snapshot, or nil if none was ever loaded.
func (w *Watcher) Snapshot() *Snapshot { return w.current.Load() }

// Run keeps the Snapshot new until ctx is done.
func (w *Watcher) Run(ctx context.Context) {
	for wait := firstRetry; w.Refresh(ctx) != nil && w.Snapshot() == nil; wait = min(2*wait, lastRetry) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
	// What fails is logged and kept for LastError, and its next turn tries again.
	var rereads sync.WaitGroup
	rereads.Go(func() { every(ctx, w.options.RereadInterval, w.reread) })
	every(ctx, w.options.PollInterval, w.poll)
	rereads.Wait()
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

// Refresh reads once, now: everything if nothing was loaded yet, else what is newer.
func (w *Watcher) Refresh(ctx context.Context) error {
	if w.Snapshot() == nil {
		return w.reread(ctx)
	}
	return w.poll(ctx)
}

// poll reads what is newer.
func (w *Watcher) poll(ctx context.Context) error {
	began := time.Now()
	err := w.catchUp(ctx, w.Snapshot, news{})
	w.note(ctx, "poll", &w.polls, began, err)
	if err != nil {
		return fmt.Errorf("read newer rules: %w", err)
	}
	return nil
}

// reread reads everything. Polls publish newer Snapshots meanwhile, so at its end it reads what is
// newer than its own.
func (w *Watcher) reread(ctx context.Context) error {
	if err := enter(ctx, w.rereading); err != nil {
		return err
	}
	defer leave(w.rereading)
	began := time.Now()
	next, found, err := w.readAll(ctx)
	if err == nil {
		err = w.catchUp(ctx, func() *Snapshot { return next }, found)
	}
	w.note(ctx, "reread", &w.rereads, began, err)
	if err != nil {
		return fmt.Errorf("read all rules: %w", err)
	}
	return nil
}

// readAll returns everything and what is new, and publishes nothing. Tenants that lost rows are read anew here and
// not as part of catching up, so that polls need not wait until a large one has come.
func (w *Watcher) readAll(ctx context.Context) (next *Snapshot, found news, err error) {
	d := newDraft(cmp.Or(w.Snapshot(), new(Snapshot)), true)
	if err := w.read(ctx, nil, d); err != nil {
		return nil, found, err
	}
	next, lost := d.snapshot()
	found = d.news()
	if len(lost) == 0 {
		return next, found, nil
	}
	known := next.revisions()
	for _, id := range lost {
		delete(known, id)
	}
	d = newDraft(next, false)
	d.forget(lost)
	if err := w.read(ctx, known, d); err != nil {
		return nil, found, err
	}
	next, _ = d.snapshot()
	found.add(d.news())
	return next, found, nil
}

// catchUp publishes what from returns with all that is newer, and tells of what is new.
func (w *Watcher) catchUp(ctx context.Context, from func() *Snapshot, found news) error {
	if err := enter(ctx, w.publishing); err != nil {
		return err
	}
	defer leave(w.publishing)
	base := from()
	d := newDraft(base, false)
	if err := w.read(ctx, base.revisions(), d); err != nil {
		return err
	}
	if current := w.Snapshot(); current != nil && current != base {
		d.keepRevoked(current)
	}
	next, _ := d.snapshot()
	w.current.Store(next)
	found.add(d.news())
	w.tell(ctx, found)
	return nil
}

// tell tells of what is new in the Snapshot.
func (w *Watcher) tell(ctx context.Context, found news) {
	if len(found.slowed) > 0 && w.options.Slowed != nil {
		w.options.Slowed(found.slowed)
	}
	if len(found.unknown) > 0 {
		first := found.unknown[0]
		w.options.Logger.WarnContext(ctx, "rules have words that this process does not know; they act by their failure mode",
			"rules", len(found.unknown), "tenant_id", first.TenantID, "rule_id", first.ID, "word", first.Unknown)
	}
}

// read adds to a draft all rows that are newer than known.
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

// note records the result of a read, unless the caller gave up.
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

// Age returns the time since the last good poll or re-read began, or since the Watcher was made if there was none. Every
// change committed before then is in the Snapshot.
func (w *Watcher) Age() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.fresh)
}

// LastError returns the error of the poll or re-read that ended last, or nil if that succeeded. It tells whether the
// source is away now: a poll that succeeds clears the error of a re-read a minute ago.
func (w *Watcher) LastError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// PollDuration returns how long the last good poll took; 0 if there was none.
func (w *Watcher) PollDuration() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.polls.took
}

// RereadDuration returns how long the last good read of everything took; 0 if there was none.
func (w *Watcher) RereadDuration() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rereads.took
}
