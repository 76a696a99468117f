package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/certs"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lease"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/store/redisbucket"
	"github.com/sluicegate/sluice/internal/telemetry/metrics"
)

// Buckets are a process's buckets: in Redis or PostgreSQL, and in memory, for rules that fail local.
type Buckets struct {
	Local  *membucket.Store
	store  bucketStore // redis, pg or Local
	redis  *redisbucket.Store
	pg     *pgBuckets
	Leases *lease.Buckets // in front of Redis; nil if they are off, or without Redis
	client redis.UniversalClient
	health atomic.Pointer[health] // nil until the first ping
	Pinged chan struct{}          // closed when health is known
	shedAt atomic.Int64           // when a check was last shed, in nanoseconds since the Unix epoch
	log    *slog.Logger
}

type bucketStore interface {
	enforce.ReservingBuckets
	enforce.Creditor
	enforce.EditStore
}

type shedObserver struct {
	*metrics.StoreQueue
	at *atomic.Int64
}

// Shed implements redisbucket.Observer.
func (o shedObserver) Shed(checks int, early bool) {
	o.StoreQueue.Shed(checks, early)
	o.at.Store(time.Now().UnixNano())
}

const overloadShown = 10 * time.Second

// OpenBuckets opens the buckets that the configuration names, whose store need not answer yet.
func OpenBuckets(ctx context.Context, cfg config.Config, log *slog.Logger) (*Buckets, error) {
	b := &Buckets{
		Local: membucket.New(membucket.Options{
			MaxBuckets: cfg.LocalBuckets, CheckpointAbove: checkpointAbove(cfg),
			IsCopy: cfg.BucketStore() != config.BucketsInMemory,
		}),
		log: log, Pinged: make(chan struct{}),
	}
	b.store = b.Local
	switch cfg.BucketStore() {
	case config.BucketsInMemory:
		close(b.Pinged)
		log.Warn("buckets are in this process's memory, so limits are per process")
		if checkpointAbove(cfg) == 0 {
			log.Warn("buckets are full after a restart")
		}
		return b, nil
	case config.BucketsInPostgres:
		var err error
		if b.pg, err = openPGBuckets(ctx, cfg, log); err != nil {
			return nil, err
		}
		b.store = b.pg.store
		b.pg.store.RecallDenials()
		b.pg.store.Teach(b.Local)
		return b, nil
	}
	options, err := redisbucket.Options(string(cfg.RedisURL), cfg.StoreBudget)
	if err != nil {
		return nil, err
	}
	source, err := certs.Open(cfg.RedisCerts(), log)
	if err != nil {
		return nil, err
	}
	if options.TLSConfig != nil { // else the driver dials
		dialer := &certs.Dialer{Source: source, ServerName: cfg.RedisTLS.ServerName, Timeout: cfg.StoreBudget}
		options.Dialer = dialer.DialContext
	}
	redis.SetLogger(driverLog{log}) // it is global
	b.client = redis.NewUniversalClient(options)
	b.redis = redisbucket.NewPrefixed(b.client, cfg.StoreBudget, cfg.RedisPrefix)
	b.store = b.redis
	b.redis.RecallDenials()
	b.redis.Teach(b.Local)
	if cfg.Leases != config.LeasesOff {
		b.Leases = lease.Open(ctx, b.redis, nil, log)
	}
	return b, nil
}

func (b *Buckets) recoverBy(recovery enforce.Recovery, above time.Duration) {
	if b.redis != nil {
		b.redis.RecoverBy(recovery, above)
	}
}

// ForgetTenant erases a removed tenant's keys from Redis.
func (b *Buckets) ForgetTenant(ctx context.Context, tenant rules.TenantID) error {
	if b.redis == nil {
		return nil
	}
	return b.redis.ForgetTenant(ctx, tenant)
}

// checkpointAbove returns 0 for one of several processes that have buckets in memory, because the table has one state
// of each bucket.
func checkpointAbove(cfg config.Config) time.Duration {
	if cfg.BucketStore() == config.BucketsInMemory && cfg.Command != config.SluiceDev {
		return 0
	}
	return cfg.CheckpointAbove
}

// Shared returns the buckets that decide checks.
func (b *Buckets) Shared() enforce.ReservingBuckets {
	if b.Leases != nil {
		return b.Leases
	}
	return b.store
}

// Creditor returns the store for credits, without the leases in front.
func (b *Buckets) Creditor() enforce.Creditor { return b.store }

// Manageable returns the buckets that people can read and change, or nil if those are in the memory of other
// processes.
func (b *Buckets) Manageable(checksHere bool) ManageableBuckets {
	if b.store == bucketStore(b.Local) && !checksHere {
		return nil
	}
	return b.store
}

// ManageableBuckets can be read and changed by people.
type ManageableBuckets interface {
	enforce.Buckets
	enforce.Creditor
	enforce.EditStore
}

// Lender returns the store that lends tokens to clients, or nil.
func (b *Buckets) Lender() enforce.Lender {
	switch {
	case b.redis != nil:
		return b.redis
	case b.pg != nil:
		return nil
	}
	return b.Local
}

// Lends reports whether every process that shares the Lender knows that buckets lend.
func (b *Buckets) Lends() bool { return b.redis == nil || b.Leases != nil && b.Leases.IsOn() }

// EditApplier returns an applier of edits to the buckets in memory and in the shared store.
func (b *Buckets) EditApplier(snapshot func() *snapshot.Snapshot, poll time.Duration,
	log *slog.Logger,
) *enforce.EditApplier {
	stores := []enforce.EditableStore{b.Local}
	if b.store != bucketStore(b.Local) {
		stores = append(stores, b.store)
	}
	return enforce.NewEditApplier(snapshot, min(2*poll, editDelay), log, stores...)
}

const editDelay = 4 * time.Second // for other processes to read an edit; a full bucket is kept for ten seconds

// Close returns leased tokens and closes the connections.
func (b *Buckets) Close() error {
	if b.pg != nil {
		b.pg.store.Close()
	}
	if b.Leases != nil {
		b.Leases.Close() // while Redis is still open
	}
	if b.client == nil {
		return nil
	}
	if err := b.client.Close(); err != nil {
		return fmt.Errorf("close the redis client: %w", err)
	}
	return nil
}

func (b *Buckets) observe(m *metrics.Metrics, written func() int64) *metrics.Decisions {
	m.LocalBuckets(b.Local.Len, b.Local.Evictions)
	m.Checkpoints(written, b.Local.MovedBuckets, b.Local.Lost)
	if b.pg != nil {
		return b.pg.observe(m)
	}
	if b.redis == nil {
		return m.Decisions("memory")
	}
	m.SharedStore(b.breakers, b.redis.BrokenValues, b.redis.UnknownVersions, b.redis.ForgottenReservations)
	m.RefusedScripts(b.redis.RefusedScripts)
	if b.Leases != nil {
		m.Leases(b.leased)
	}
	b.redis.Observe(shedObserver{m.StoreQueue(func() int { return b.redis.Waiting() }), &b.shedAt})
	return m.Decisions("redis")
}

func (b *Buckets) leased() metrics.Leases {
	moved := b.Leases.Moved()
	whole := func(tokens enforce.Tokens) float64 { return float64(tokens) / float64(enforce.Token) }
	return metrics.Leases{
		Buckets: b.Leases.Len(), Served: b.Leases.Served(), Split: b.Leases.Split(), Asks: b.Leases.Asks(),
		Lent: whole(moved.Lent), Spent: whole(moved.Spent), GivenBack: whole(moved.Back),
		Forfeited: whole(moved.Forfeited),
	}
}

func (b *Buckets) breakers() map[string]metrics.Breaker {
	breakers := map[string]metrics.Breaker{}
	for _, node := range b.redis.Nodes() {
		breaker := metrics.Breaker{State: metrics.BreakerOpen, Trips: node.Trips}
		switch node.State {
		case redisbucket.Up:
			breaker.State = metrics.BreakerClosed
		case redisbucket.Probing:
			breaker.State = metrics.BreakerHalfOpen
		}
		breakers[node.Addr] = breaker
	}
	return breakers
}

func (b *Buckets) nodes() []redisbucket.Node {
	h := b.health.Load()
	if h == nil {
		return []redisbucket.Node{{State: redisbucket.Down}}
	}
	nodes := slices.Clone(h.nodes)
	for _, breaker := range b.redis.Nodes() {
		for i := range nodes {
			if nodes[i].Addr == breaker.Addr && breaker.State == redisbucket.Down {
				nodes[i].State = redisbucket.Down
			}
		}
	}
	return nodes
}

// State returns the word for readyz (memory if buckets are there, else up, down, or partial) and, if partial, the nodes
// that are down.
func (b *Buckets) State() (word string, down []string) {
	if b.pg != nil {
		return b.pg.state(), nil
	}
	if b.redis == nil {
		return "memory", nil
	}
	nodes := b.nodes()
	state := redisbucket.Summary(nodes)
	if state == redisbucket.Partial {
		for _, node := range nodes {
			if node.State != redisbucket.Up {
				down = append(down, node.Addr)
			}
		}
	}
	return string(state), down
}

func (b *Buckets) warnings() []string {
	var warnings []string
	if _, down := b.State(); len(down) > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"these nodes of the redis cluster do not answer, and failure modes decide for the tenants whose buckets "+
				"they keep: %s",
			strings.Join(down, ", ")))
	}
	if time.Since(time.Unix(0, b.shedAt.Load())) < overloadShown {
		warnings = append(warnings, "redis is overloaded: in the last seconds failure modes decided checks of the "+
			"tenants that send "+
			"most, because more waited than redis decides in time; see sluice_store_shed_checks_total")
	}
	if h := b.health.Load(); h != nil {
		warnings = append(warnings, h.warnings...)
		for _, refusal := range h.refusals {
			warnings = append(warnings, describeRefusal(refusal))
		}
	}
	return warnings
}

type health struct {
	nodes    []redisbucket.Node
	warnings []string
	refusals []redisbucket.Refusal
}

const (
	watchEvery    = time.Second // checks notice an outage sooner
	settingsEvery = time.Minute
	refusalsEvery = time.Minute // of logs and warnings of a recurring error
)

func (b *Buckets) watch(ctx context.Context) {
	if b.pg != nil {
		b.pg.watch(ctx, b.Pinged)
		return
	}
	if b.redis == nil {
		return
	}
	last := health{}
	var checked time.Time
	logged := map[string]time.Time{} // by node and kind of refusal
	panics.Every(ctx, watchEvery, func() {
		now := health{
			nodes: b.redis.Ping(ctx), warnings: last.warnings,
			refusals: b.redis.Refusals(time.Now().Add(-refusalsEvery)),
		}
		if ctx.Err() != nil {
			return
		}
		b.logRefusals(logged, now.refusals)
		if b.logPings(last.nodes, now.nodes) {
			checked = time.Time{}
		}
		if redisbucket.Summary(now.nodes) != redisbucket.Down && time.Since(checked) >= settingsEvery {
			if warnings, ok := b.checkSettings(ctx); ok {
				now.warnings, checked = warnings, time.Now()
			}
		}
		for _, warning := range now.warnings {
			if !slices.Contains(last.warnings, warning) {
				b.log.Warn(warning)
			}
		}
		last = now
		if b.health.Swap(&now) == nil {
			close(b.Pinged)
		}
	})
}

func (b *Buckets) logRefusals(logged map[string]time.Time, refusals []redisbucket.Refusal) {
	for _, r := range refusals {
		key := r.Addr + " " + r.Kind
		if r.At.Sub(logged[key]) < refusalsEvery {
			continue
		}
		logged[key] = r.At
		b.log.Error("Redis refuses the scripts of checks; failure modes decide them", "node", r.Addr, "kind", r.Kind,
			"error", explainRedis(r.Err))
	}
}

func describeRefusal(r redisbucket.Refusal) string {
	node := "redis"
	if r.Addr != "" {
		node += " " + r.Addr
	}
	return fmt.Sprintf("%s refuses the scripts of checks, and failure modes decide them: %v", node, explainRedis(r.Err))
}

func (b *Buckets) logPings(last, now []redisbucket.Node) (back bool) {
	for _, node := range now {
		was, lastCause := redisbucket.Up, ""
		if i := slices.IndexFunc(last, func(n redisbucket.Node) bool { return n.Addr == node.Addr }); i >= 0 {
			was = last[i].State
			lastCause = causeOf(last[i].Err)
		}
		switch {
		case node.State == was && causeOf(node.Err) == lastCause:
		case node.State == redisbucket.Up:
			b.log.Info("Redis answers pings again", "node", node.Addr)
			back = true
		default:
			b.log.Error("Redis did not answer a ping in time; failure modes decide its checks", "node", node.Addr,
				"error", explainRedis(node.Err))
		}
	}
	return back
}

// causeOf leaves out network errors, whose texts contain ports.
func causeOf(err error) string {
	var refusal redis.Error
	if errors.As(err, &refusal) {
		return refusal.Error()
	}
	return ""
}

func explainRedis(err error) error {
	if err != nil && strings.Contains(err.Error(), "redis: all sentinels ") { // the driver's words
		return explainSentinels(err)
	}
	switch {
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"),
		redis.HasErrorPrefix(err, "ERR AUTH"):
		return fmt.Errorf("check the user and password in SLUICE_REDIS_URL or SLUICE_REDIS_PASSWORD: %w", err)
	case redis.HasErrorPrefix(err, "NOPERM"), err != nil && (strings.Contains(err.Error(), "ACL failure in script") ||
		strings.Contains(err.Error(), "user executing the script can't")):
		return fmt.Errorf("the ACL of the user in SLUICE_REDIS_URL does not allow a command or a key; "+
			"docs/production.md lists the commands that it needs, and ACL LOG names what was refused: %w", err)
	case redis.HasErrorPrefix(err, "OOM"):
		return fmt.Errorf("raise Redis's maxmemory; docs/production.md says how much it needs: %w", err)
	case redis.HasErrorPrefix(err, "READONLY"):
		return fmt.Errorf("the server in SLUICE_REDIS_URL is a replica; name the primary, or use Sentinel: %w", err)
	}
	return err
}

func explainSentinels(err error) error {
	text := err.Error()
	switch {
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("the sentinels in SLUICE_REDIS_URL know no master of the name that follows them: %w", err)
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "NOAUTH"), strings.Contains(text, "ERR AUTH"):
		return fmt.Errorf("check sentinel_user and sentinel_password in SLUICE_REDIS_URL, or "+
			"SLUICE_REDIS_SENTINEL_PASSWORD: %w", err)
	case strings.Contains(text, "unknown command"):
		return fmt.Errorf("a server in SLUICE_REDIS_URL is no sentinel; give the port of the sentinels, 26379 by "+
			"default: %w", err)
	}
	return fmt.Errorf("no sentinel in SLUICE_REDIS_URL answers: %w", err)
}

func (b *Buckets) checkSettings(ctx context.Context) (warnings []string, ok bool) {
	warnings, err := b.redis.CheckSettings(ctx)
	switch {
	case err == nil:
		return warnings, true
	case redis.HasErrorPrefix(err, "ERR"), redis.HasErrorPrefix(err, "NOPERM"):
		return append(warnings, "redis's maxmemory-policy could not be read; make sure that it is noeviction"), true
	default:
		return nil, false
	}
}

// driverLog logs the driver's messages at debug level instead of to standard error, because watch sums up failed
// dials.
type driverLog struct{ log *slog.Logger }

// Printf implements the driver's interface.
func (d driverLog) Printf(ctx context.Context, format string, v ...any) {
	d.log.DebugContext(ctx, "redis driver", "message", fmt.Sprintf(format, v...))
}
