package traffic

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

// Check is a decided check. The Recorder keeps no reference to it.
type Check struct {
	Tenant      rules.TenantID
	Settings    *rules.Settings
	Request     *rules.Request
	Plan        string // plan of the decision
	Cost        int64  // of requests, in millionths
	Costs       []Cost // of other meters, by their names, at most rules.MaxMeters
	At          int64  // in microseconds since the Unix epoch, if possible on the buckets' clock
	Times       int64  // of equal checks, spread over Span until At; 0 is one
	Span        time.Duration
	Named       func(attribute string) bool // whether a rule names an attribute; others are not recorded
	Denied      bool
	Decider     rules.RuleID // the rule that denied the check
	DeniedAlone bool         // the bucket of that rule is the user's or address's own
	Proxied     bool
	// Reserves means that a reservation was requested, so the check is only counted. IsReserved means that it was
	// granted.
	Reserves, IsReserved bool
	Record               bool // charged what had happened, and could not be denied
}

// Cost is the cost of a check for rules that count a meter.
type Cost struct {
	Meter  rules.Meter
	Amount int64 // in millionths
	// IsCounted means that a rule counts the meter, and so do months. Callers can name any other meter.
	IsCounted bool
}

// Options bound a Recorder. A zero value means the default.
type Options struct {
	Budget   Budget
	MaxBytes int // roughly, of unwritten checks; default 32 MiB
	// MaxAge is how long a busy tenant's checks wait to be packed; default a minute. A quiet tenant's wait five times
	// as long, so that a block is worth its row.
	MaxAge time.Duration
	Now    func() time.Time // nil is time.Now
	Logger *slog.Logger
}

const (
	defaultMaxBytes  = 32 << 20
	defaultPerTenant = 512 << 20
	defaultTotal     = 8 << 30

	busyChecks = 1000
	fewFactor  = 5

	packEvery     = 200 * time.Millisecond
	usageEvery    = 30 * time.Second
	writeRetry    = 2 * time.Second
	bytesPerWrite = 4 << 20
)

// Recorder packs checks and writes them to a Sink. Safe for concurrent use.
type Recorder struct {
	sink    Sink
	options Options
	log     *slog.Logger
	writer  string
	shards  []*shard
	levels  atomic.Pointer[map[rules.TenantID]int]
	stored  atomic.Int64  // bytes of all tenants when last read
	full    chan struct{} // signals a half full buffer
	packed  chan struct{} // signals a waiting block
	months  *months
	monthly chan struct{} // signals that months has many users

	recorded, dropped, lost, written, lostUsers atomic.Int64

	packing sync.Mutex // guards the fields below
	packs   map[packKey]*pack
	tallies map[rules.TenantID]*Counts // not in a block yet
	bytes   int                        // approximate memory of packs
	number  int64

	queue     sync.Mutex // guards the fields below
	waiting   []Block
	waitBytes int
}

// NewRecorder returns a Recorder; Run must be called.
func NewRecorder(sink Sink, options Options) *Recorder {
	options.MaxBytes = cmp.Or(options.MaxBytes, defaultMaxBytes)
	options.MaxAge = cmp.Or(options.MaxAge, time.Minute)
	options.Budget.PerTenant = cmp.Or(options.Budget.PerTenant, defaultPerTenant)
	options.Budget.Total = cmp.Or(options.Budget.Total, defaultTotal)
	if options.Now == nil {
		options.Now = time.Now
	}
	r := &Recorder{
		sink: sink, options: options, log: cmp.Or(options.Logger, slog.New(slog.DiscardHandler)), writer: rand.Text(),
		full: make(chan struct{}, 1), packed: make(chan struct{}, 1),
		months: newMonths(), monthly: make(chan struct{}, 1),
		packs: map[packKey]*pack{}, tallies: map[rules.TenantID]*Counts{},
	}
	r.levels.Store(&map[rules.TenantID]int{})
	n := min(16, runtime.GOMAXPROCS(0))
	for range n {
		r.shards = append(r.shards, &shard{
			max: options.MaxBytes / 4 / 2 / n, used: map[rules.TenantID]int{},
			counts: map[rules.TenantID]Counts{},
		})
	}
	return r
}

// Drop counts checks that are too many to record.
func (r *Recorder) Drop(tenant rules.TenantID, n int64) {
	if n == 0 {
		return
	}
	s := r.shards[mathrand.IntN(len(r.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := s.counts[tenant]
	counts.Seen += n
	counts.Dropped += n
	s.counts[tenant] = counts
	r.dropped.Add(n)
}

// Record copies a check, without waiting for the sink. The caller bounds Times, because the work grows with it.
func (r *Recorder) Record(c *Check) {
	level := (*r.levels.Load())[c.Tenant]
	// A random choice needs no shared memory.
	s := r.shards[mathrand.IntN(len(r.shards))]
	s.mu.Lock()
	counts, n := s.counts[c.Tenant], max(1, c.Times)
	counts.Seen += n
	half := false
	switch {
	case c.Reserves:
		counts.LeftOut += n
	case level >= Stopped:
		counts.Dropped += n
	default:
		before := len(s.buffer)
		if dropped := n - s.addAll(c, level, n); dropped > 0 {
			counts.Dropped += dropped
			r.dropped.Add(dropped)
		}
		half = before < s.max/2 && len(s.buffer) >= s.max/2
	}
	s.counts[c.Tenant] = counts
	s.mu.Unlock()
	if half {
		signal(r.full)
	}
	if c.Reserves || c.IsReserved {
		r.count(c)
	}
}

// Settle adds to the cost of a reserved check in the month of its time, in millionths.
func (r *Recorder) Settle(tenant rules.TenantID, at int64, user string, meter rules.Meter, more int64) {
	if r.months.add(tenant, at/1000, []byte(user), []byte(meter), monthCount{parts: more}) {
		signal(r.monthly)
	}
}

// count adds a check to its user's month, also outside of the sample.
func (r *Recorder) count(c *Check) {
	var meters [rules.MaxMeters][]byte
	costs := append(make([]int64, 0, 1+rules.MaxMeters), c.Cost)
	for i := range c.Costs {
		costs = append(costs, c.Costs[i].Amount)
		if c.Costs[i].IsCounted {
			meters[i] = []byte(c.Costs[i].Meter)
		}
	}
	if r.countUser(c.Tenant, c.At/1000, []byte(c.Request.UserID), c.Denied, costs, meters) {
		signal(r.monthly)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run packs and writes until ctx ends, then writes the rest within grace.
func (r *Recorder) Run(ctx context.Context, grace time.Duration) {
	var writing panics.Group
	writing.Loop(ctx, r.log, "the writer of recorded checks", r.write)
	panics.Loop(ctx, r.log, "the packer of recorded checks", r.packUntil)
	_ = writing.Wait()
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := panics.Do(r.log, "the last write of recorded checks", func() error { return r.Flush(final) })
	if err != nil {
		r.log.ErrorContext(final, "recorded checks are lost: they could not be written before the process ended",
			"error", err)
	}
}

func (r *Recorder) packUntil(ctx context.Context) {
	tick := time.NewTicker(packEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-r.full:
		}
		r.pack(false)
	}
}

// Flush packs and writes everything.
func (r *Recorder) Flush(ctx context.Context) error {
	r.pack(true)
	for {
		more, err := r.writeSome(ctx)
		if err == nil && !more {
			err = r.writeMonths(ctx)
		}
		if err != nil || !more {
			return err
		}
	}
}

func (r *Recorder) pack(all bool) {
	r.packing.Lock()
	defer r.packing.Unlock()
	for _, s := range r.shards {
		buffer, counts := s.take()
		r.unpack(buffer)
		for tenant, c := range counts {
			held := r.tallies[tenant]
			if held == nil {
				held = new(Counts)
				r.tallies[tenant] = held
			}
			held.add(c)
		}
		s.reuse(buffer)
	}
	now := r.options.Now()
	for key, p := range r.packs {
		age := now.Sub(p.began)
		if all || p.checks >= MaxBlockChecks || age >= fewFactor*r.options.MaxAge || age >= r.options.MaxAge &&
			p.checks >= busyChecks {
			r.finish(key, p)
		}
	}
	for r.bytes > r.options.MaxBytes/2 { // many tenants; the largest pack is closest to a block's size
		var largest packKey
		for key, p := range r.packs {
			if held := r.packs[largest]; held == nil || p.bytes > held.bytes {
				largest = key
			}
		}
		r.finish(largest, r.packs[largest])
	}
}

func (r *Recorder) finish(key packKey, p *pack) {
	delete(r.packs, key)
	r.bytes -= p.bytes
	r.number++
	block := p.block(key)
	block.Writer, block.Number = r.writer, r.number
	if counts := r.tallies[key.tenant]; counts != nil {
		block.Counts = *counts
		delete(r.tallies, key.tenant)
	}
	r.queue.Lock()
	defer r.queue.Unlock()
	r.waiting = append(r.waiting, block)
	r.waitBytes += block.Bytes()
	for r.waitBytes > r.options.MaxBytes/4 && len(r.waiting) > 1 {
		r.lost.Add(int64(r.waiting[0].Checks))
		r.waitBytes -= r.waiting[0].Bytes()
		r.waiting = r.waiting[1:]
	}
	signal(r.packed)
}

// write also adjusts the samples now and then.
func (r *Recorder) write(ctx context.Context) {
	usage := time.NewTicker(usageEvery)
	defer usage.Stop()
	months := time.NewTicker(r.options.MaxAge)
	defer months.Stop()
	away, isDue := false, false
	for ctx.Err() == nil {
		more, err := r.writeSome(ctx)
		if err == nil && isDue {
			isDue = false
			if err := r.writeMonths(ctx); err != nil && ctx.Err() == nil { // blocks do not wait for the counts
				r.log.ErrorContext(ctx, "counts of users' checks cannot be written; they wait in memory until the "+
					"next minute", "error", err)
			}
		}
		if err != nil && ctx.Err() == nil && !away {
			r.log.ErrorContext(ctx, "recorded checks cannot be written; they wait in memory meanwhile", "error", err)
		} else if err == nil && away {
			r.log.InfoContext(ctx, "recorded checks are written again")
		}
		away = err != nil
		switch {
		case err != nil:
			select {
			case <-ctx.Done():
			case <-time.After(writeRetry):
			}
		case !more:
			select {
			case <-ctx.Done():
			case <-r.packed:
			case <-months.C:
				isDue = true
			case <-r.monthly:
				isDue = true
			case <-usage.C:
				r.adjust(ctx)
			}
		default: // budgets matter most during a backlog
			select {
			case <-usage.C:
				r.adjust(ctx)
			default:
			}
		}
	}
}

func (r *Recorder) writeSome(ctx context.Context) (more bool, err error) {
	r.queue.Lock()
	n, bytes := 0, 0
	for n < len(r.waiting) && (n == 0 || bytes+r.waiting[n].Bytes() <= bytesPerWrite) {
		bytes += r.waiting[n].Bytes()
		n++
	}
	blocks := slices.Clone(r.waiting[:n])
	r.queue.Unlock()
	if n == 0 {
		return false, nil
	}
	err = r.sink.WriteTraffic(ctx, blocks)
	if errors.Is(err, ErrRefused) {
		r.log.ErrorContext(ctx, "recorded checks were refused", "error", err)
		err = r.oneByOne(ctx, blocks)
	}
	if err != nil {
		return true, err
	}
	r.queue.Lock()
	defer r.queue.Unlock()
	done := map[int64]bool{}
	for i := range blocks {
		done[blocks[i].Number] = true
		r.written.Add(int64(blocks[i].Checks))
	}
	r.waiting = slices.DeleteFunc(r.waiting, func(b Block) bool {
		if done[b.Number] {
			r.waitBytes -= b.Bytes()
		}
		return done[b.Number]
	})
	return len(r.waiting) > 0, nil
}

func (r *Recorder) oneByOne(ctx context.Context, blocks []Block) error {
	for i := range blocks {
		err := r.sink.WriteTraffic(ctx, blocks[i:i+1])
		if errors.Is(err, ErrRefused) {
			r.lost.Add(int64(blocks[i].Checks))
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Recorder) adjust(ctx context.Context) {
	levels := maps.Clone(*r.levels.Load())
	r.packing.Lock()
	for key := range r.packs {
		levels[key.tenant] += 0
	}
	for tenant := range r.tallies {
		levels[tenant] += 0
	}
	r.packing.Unlock()
	if len(levels) == 0 {
		return
	}
	usage, all, tenants, err := r.sink.TrafficUsage(ctx, slices.Collect(maps.Keys(levels)))
	if err != nil {
		if ctx.Err() == nil {
			r.log.WarnContext(ctx, "the use of recorded checks could not be read; samples stay as they are", "error",
				err)
		}
		return
	}
	next := make(map[rules.TenantID]int, len(usage))
	for i := range usage {
		if u := &usage[i]; u.Days > 0 {
			next[u.Tenant] = r.options.Budget.Level(u, all, tenants)
		}
	}
	r.levels.Store(&next)
	r.stored.Store(all)
}

// Stats describe a Recorder.
type Stats struct {
	Recorded, Dropped int64 // checks since the start; dropped ones had no room in a buffer
	Written           int64 // of the recorded ones
	Lost              int64 // packed checks that could not be written
	Bytes             int   // unwritten
	LostUsers         int64 // users whose month's counts were refused
	DroppedCounts     int64 // of a check for its user and month, by meter, without memory

	Stored           int64 // bytes of all tenants in the database; 0 before the first read
	Sampled, Stopped int   // tenants that are recorded in part, or not at all, because of the budgets
}

// Stats returns the present state.
func (r *Recorder) Stats() Stats {
	r.queue.Lock()
	defer r.queue.Unlock()
	stats := Stats{
		Recorded: r.recorded.Load(), Dropped: r.dropped.Load(), Written: r.written.Load(), Lost: r.lost.Load(),
		Bytes:     r.waitBytes,
		LostUsers: r.lostUsers.Load(), DroppedCounts: r.months.dropped.Load(), Stored: r.stored.Load(),
	}
	for _, level := range *r.levels.Load() {
		switch {
		case level >= Stopped:
			stats.Stopped++
		case level > 0:
			stats.Sampled++
		}
	}
	return stats
}
