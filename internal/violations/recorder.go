package violations

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"hash/maphash"
	"log/slog"
	mathrand "math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

// Options bound a Recorder. A zero value means the default.
type Options struct {
	// FlushInterval is the pause between two flushes; default 1 s. A slow flush makes it longer, to spare the store.
	FlushInterval time.Duration
	// MaxBytes bounds, roughly, the memory of counts, half of it for batches being written; default 64 MiB. A quarter
	// more caches crossings, and an eighth more is for callers.
	MaxBytes int
	// DetailsPerSecond bounds the detail rows of a rule and subject in a second; default 3; negative: none.
	DetailsPerSecond int
	// MaxDetails bounds the unwritten rows; default 4096.
	MaxDetails int
	// Observe is called after each attempt to write a batch; may be nil.
	Observe func(took time.Duration, err error)
	Logger  *slog.Logger
}

const (
	shards = 16

	// A process uses the store at most 1/busyPart of the time, unless its pause would exceed maxPause.
	busyPart   = 16
	maxPause   = 10 * time.Second
	smallFlush = 5 // of each kind
	// countsPause delays decision counts that fill more than a batch, because violations are more urgent.
	countsPause = 10 * time.Second

	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// Recorder counts checks and violations in memory and writes them to a Sink. Safe for concurrent use.
type Recorder struct {
	sink    Sink
	options Options
	log     *slog.Logger
	writer  string
	seed    maphash.Seed

	// There is one for each processor, because each comes to contain every rule, and more would use more cache.
	counters []*counters
	shards   [shards]*shard
	recents  recents
	callers  allCallers

	recorded, dropped, refused, countsLost atomic.Int64
	waiting                                atomic.Int64 // batches
	writtenAt                              atomic.Int64 // Unix nanoseconds; everything until then is written

	flushing     sync.Mutex  // guards the fields below
	batch        []*Batch    // unwritten, by number
	held         sums        // not in a batch yet
	maxHeld      int         // bound of held
	countedAt    time.Time   // when held last went into a batch
	lastWasLarge atomic.Bool // of the last flush
	written      int64       // last batch number
}

// NewRecorder returns a Recorder; call Run to write.
func NewRecorder(sink Sink, options Options) *Recorder {
	options.FlushInterval = cmp.Or(options.FlushInterval, time.Second)
	options.MaxBytes = cmp.Or(options.MaxBytes, 64<<20)
	options.DetailsPerSecond = cmp.Or(options.DetailsPerSecond, 3)
	options.MaxDetails = cmp.Or(options.MaxDetails, 4096)
	if options.Observe == nil {
		options.Observe = func(time.Duration, error) {}
	}
	r := &Recorder{
		sink: sink, options: options, log: cmp.Or(options.Logger, slog.New(slog.DiscardHandler)),
		writer: rand.Text(), seed: maphash.MakeSeed(), held: sums{},
	}
	// Half of the memory fills while the other half is written. Decisions and recent denials get a quarter of each
	// half.
	half := options.MaxBytes / 2
	r.maxHeld = half / 4 / verdictsBytes
	processors := min(shards, runtime.GOMAXPROCS(0))
	for range processors {
		r.counters = append(r.counters, newCounters(half/4/processors))
	}
	for i := range shards {
		r.shards[i] = newShard(half/2/shards, max(1, options.MaxDetails/shards), half/4/shards)
	}
	r.recents = newRecents(half / 4)
	r.callers = newCallers(half / 4)
	r.countedAt = time.Now()
	r.writtenAt.Store(r.countedAt.UnixNano())
	return r
}

// Record counts a decided check, without waiting for the sink.
func (r *Recorder) Record(now time.Time, c *Check) {
	if c.Cost == 0 && !c.HasCosts {
		return
	}
	random, minute := mathrand.Uint64(), now.Unix()/60
	r.counters[random>>32*uint64(len(r.counters))>>32].add(minute, c)
	if c.times() >= callerSample {
		r.callers.add(c, callerSlot(now), c.times())
	} else if random%callerSample == 0 {
		r.callers.add(c, callerSlot(now), callerSample*c.times())
	}
	switch {
	case !c.Allowed:
		r.add(c, &c.Tiers[c.Deciding], now)
	case !c.Bypassed:
		for i := range c.Tiers {
			if t := &c.Tiers[i]; !t.Allowed && t.Mode == rules.ModeShadow {
				r.add(c, t, now)
			}
		}
	}
}

func (r *Recorder) add(c *Check, t *Tier, now time.Time) {
	r.recorded.Add(c.times())
	// The store has whole microseconds and no monotonic part.
	now = now.Round(0).Truncate(time.Microsecond)
	r.recents.add(c, t, now)
	if r.shardOf(t.Subject, t.Rule.ID).add(c, t, now, r.options.DetailsPerSecond) {
		r.dropped.Add(c.times())
	}
}

func (r *Recorder) shardOf(subject string, rule rules.RuleID) *shard {
	return r.shards[(maphash.String(r.seed, subject)^uint64(rule))%shards]
}

// Run flushes at each interval until ctx ends, then writes the rest within grace, and logs losses.
func (r *Recorder) Run(ctx context.Context, grace time.Duration) {
	panics.Loop(ctx, r.log, "the recorder of violations", r.flushUntil)
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := panics.Do(r.log, "the last write of violations", func() error { return r.drain(final) })
	if err != nil {
		r.log.ErrorContext(final, "violations are lost: they could not be written before the process ended",
			"violations", r.unwritten(), "error", err)
	}
}

func (r *Recorder) flushUntil(ctx context.Context) {
	pause := r.options.FlushInterval
	due, next := time.Now().Add(pause), min(pause, recentEvery)
	for away := time.Duration(0); wait(ctx, next); {
		began := time.Now()
		isDue := !began.Before(due)
		err := r.flush(ctx, isDue, countsPause-pause) // the next flush might be a pause late
		took := time.Since(began)
		switch {
		case err == nil:
			if away > 0 {
				r.log.InfoContext(ctx, "violations are written again")
			}
			away = 0
			if isDue {
				pause = r.options.FlushInterval
				if r.lastWasLarge.Load() {
					pause = max(pause, min((busyPart-1)*took, maxPause))
				}
				due = time.Now().Add(pause)
			}
			next = min(time.Until(due), recentEvery)
		case ctx.Err() == nil:
			if away == 0 {
				r.log.ErrorContext(ctx, "violations cannot be written; they are counted in memory meanwhile", "error",
					err)
			}
			away = max(minBackoff, min(2*away, maxBackoff))
			next = away/2 + mathrand.N(away/2+1)
		}
	}
}

func (r *Recorder) drain(ctx context.Context) error {
	err := r.Flush(ctx) // may only write an earlier batch
	for {
		if err == nil {
			if err = r.Flush(ctx); err == nil {
				return nil
			}
		}
		if !wait(ctx, minBackoff) {
			return err
		}
		err = r.Flush(ctx)
	}
}

func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Flush writes all counts, or only an older batch if that fails again.
func (r *Recorder) Flush(ctx context.Context) error { return r.flush(ctx, true, 0) }

// flush writes recent denials, callers of ended slots and, if isDue, the rest. Decisions that fill more than a batch
// wait until hold has passed since the last ones.
func (r *Recorder) flush(ctx context.Context, isDue bool, hold time.Duration) error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	if len(r.batch) == 0 {
		r.batch = r.recentBatches(r.recents.take(time.Now()), r.callers.take(time.Now()))
		if isDue {
			r.collect(hold)
		}
	}
	for len(r.batch) > 0 {
		r.waiting.Store(int64(len(r.batch)))
		began := time.Now()
		err := r.sink.WriteViolations(ctx, r.batch[0])
		r.options.Observe(time.Since(began), err)
		switch {
		case err == nil:
			r.batch = r.batch[1:]
		case errors.Is(err, ErrRefused):
			r.refuse(ctx, err)
		default:
			return err
		}
	}
	r.batch = nil
	r.waiting.Store(0)
	r.writtenAt.Store(r.countedAt.UnixNano())
	return nil
}

func (r *Recorder) collect(hold time.Duration) {
	now := time.Now()
	for _, c := range r.counters {
		r.held.add(c.take())
	}
	var counts []DecisionCount
	if few := len(r.held) <= maxBatchRows; few || len(r.held) >= r.maxHeld || now.Sub(r.countedAt) >= hold {
		counts = r.held.decisions()
		r.held, r.countedAt = sums{}, now
	}
	tallies, crossings := takeAll(r.shards[:], now)
	r.batch = append(r.batch, r.batches(counts, tallies, crossings)...)
	r.lastWasLarge.Store(len(r.batch) > smallFlush)
}

func (r *Recorder) refuse(ctx context.Context, err error) {
	parts, countsLost := r.split(r.batch[0])
	r.batch = append(parts, r.batch[1:]...)
	if len(parts) < 2 { // a single row was refused
		r.refused.Add(1)
		r.log.ErrorContext(ctx, "a row of violations was refused", "lost", countsLost, "error", err)
	}
	r.countsLost.Add(countsLost)
}

func (r *Recorder) unwritten() (n int64) {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	if len(r.batch) == 0 {
		r.collect(0)
	}
	for _, b := range r.batch {
		for i := range b.Tallies {
			n += b.Tallies[i].Denied
		}
	}
	return n
}

// Stats describe a Recorder.
type Stats struct {
	Subjects int // counts by subject, rule and minute in memory
	Details  int // rows in memory
	Bytes    int // approximate memory of both
	Batches  int // unwritten

	Recorded   int64         // violations, since the start
	Dropped    int64         // of them, without a detail row
	Refused    int64         // rows
	CountsLost int64         // checks or violations whose count was refused
	Lag        time.Duration // the age of the oldest unwritten record
}

// Stats returns the present state.
func (r *Recorder) Stats() Stats {
	s := Stats{
		Batches: int(r.waiting.Load()), Recorded: r.recorded.Load(), Dropped: r.dropped.Load(),
		Refused: r.refused.Load(), CountsLost: r.countsLost.Load(),
		Lag: time.Since(time.Unix(0, r.writtenAt.Load())),
	}
	for _, shard := range r.shards {
		shard.mu.Lock()
		s.Subjects += len(shard.tallies)
		s.Details += shard.details.used
		s.Bytes += shard.bytes.used
		shard.mu.Unlock()
	}
	return s
}
