package pgstore_test

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/meter"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

// TestADelayOfTheNetworkIsNoWork delays what a store sends, first little and then much, as a busy network does.
func TestADelayOfTheNetworkIsNoWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var delay atomic.Int64
	delay.Store(int64(time.Millisecond))
	proxied := behindProxy(t, runtimeOf(t, w.url)+"&pool_max_conns=1", func() (sent, received func()) {
		return func() { <-time.After(time.Duration(delay.Load())) }, func() {}
	})
	store := must(pgstore.Open(t.Context(), proxied, slog.New(slog.DiscardHandler)))(t)
	defer store.Close()
	ctx, work := meter.With(t.Context(), meter.NewProcessors(meter.Used))
	read := func(times int) {
		t.Helper()
		for range times {
			must(store.TenantBySlug(ctx, "ours"))(t)
			must(store.Key(ctx, w.ours.ID, w.ours.key.ID))(t)
			must(store.Rule(ctx, w.ours.ID, w.ours.user.ID))(t)
		}
	}
	read(10)
	const much = 50 * time.Millisecond
	delay.Store(int64(much))
	read(20) // until that is usual
	before, began := work.Worked(), time.Now()
	read(20)
	worked, took := work.Worked()-before, time.Since(began)
	if took < 60*much || worked > took/4 {
		t.Errorf("60 queries that are delayed by %v took %v and cost %v", much, took, worked)
	}
}

// TestASlowDiskIsNoWork has a COMMIT that takes long, as it does while others keep the disk busy.
func TestASlowDiskIsNoWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const slow = 500 * time.Millisecond
	must(connect(t, w.url).Exec(t.Context(), `
		CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON plan DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION be_slow()`))(t)
	ctx, work := meter.With(t.Context(), meter.NewProcessors(meter.Used))
	began := time.Now()
	must(w.CreatePlan(ctx, rules.Plan{TenantID: w.ours.ID, Name: "slowly"}))(t)
	if took := time.Since(began); took < slow {
		t.Fatalf("the COMMIT did not take long: all took %v", took)
	}
	if worked := work.Worked(); worked > slow/2 {
		t.Errorf("a COMMIT that waited for %v cost %v", slow, worked)
	}
}

// TestAQueryIsPaidOnce has a query whose end pgx tells twice, as it does of a batch that could not be sent.
func TestAQueryIsPaidOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pass := func() { <-time.After(time.Second) }
		ctx, work := meter.With(t.Context(), meter.NewProcessors(func() time.Duration { return 0 }))
		var tracer pgstore.WorkTracer
		query := tracer.TraceBatchStart(ctx, nil, pgx.TraceBatchStartData{})
		pass()
		for range 2 {
			tracer.TraceBatchEnd(query, nil, pgx.TraceBatchEndData{Err: errors.New("an argument cannot be sent")})
		}
		wait := tracer.TraceAcquireStart(ctx, nil, pgxpool.TraceAcquireStartData{})
		pass()
		tracer.TraceAcquireEnd(wait, nil, pgxpool.TraceAcquireEndData{})
		if got := work.Worked(); got != time.Second {
			t.Errorf("a query of a second and a wait of another cost %v", got)
		}
	})
}
