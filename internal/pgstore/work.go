package pgstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/meter"
)

// workTracer tells the Meter of a request how long the database works for it. Waits for a connection are no work, nor is a
// COMMIT: it waits for the disk, for as long as everybody's writes keep the disk busy.
type workTracer struct{ usual meter.Usual }

var (
	_ pgx.QueryTracer       = (*workTracer)(nil)
	_ pgx.BatchTracer       = (*workTracer)(nil)
	_ pgx.CopyFromTracer    = (*workTracer)(nil)
	_ pgxpool.AcquireTracer = (*workTracer)(nil)
)

type lookupKey struct{}

// asLookup marks queries that read one row by its key, so that their time tells what any query takes at present.
func asLookup(ctx context.Context) context.Context {
	return context.WithValue(ctx, lookupKey{}, true)
}

// asked is a query under way.
type asked struct {
	*meter.Query             // nil for a COMMIT
	ended        atomic.Bool // because pgx tells twice of the end of a batch that could not be sent
	answered     func(work time.Duration)
}

type askedKey struct{}

func (w *workTracer) ask(ctx context.Context) context.Context {
	isLookup := ctx.Value(lookupKey{}) != nil
	return context.WithValue(ctx, askedKey{}, &asked{Query: w.usual.Begin(isLookup), answered: meter.Ask(ctx)})
}

func (w *workTracer) end(ctx context.Context, err error) {
	query, ok := ctx.Value(askedKey{}).(*asked)
	switch {
	case !ok || query.ended.Swap(true):
	case query.Query == nil:
		query.answered(0)
	default:
		query.answered(w.usual.End(query.Query, err == nil))
	}
}

// commit is what pgx sends for the COMMIT of a transaction.
const commit = "commit"

func (w *workTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL == commit {
		return context.WithValue(ctx, askedKey{}, &asked{answered: meter.Ask(ctx)})
	}
	return w.ask(ctx)
}

func (w *workTracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	w.end(ctx, data.Err)
}

func (w *workTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return w.ask(ctx)
}

func (w *workTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (w *workTracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	w.end(ctx, data.Err)
}

func (w *workTracer) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return w.ask(ctx)
}

func (w *workTracer) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceCopyFromEndData) {
	w.end(ctx, data.Err)
}

type waitKey struct{}

func (w *workTracer) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return context.WithValue(ctx, waitKey{}, meter.Wait(ctx))
}

func (w *workTracer) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	if ended, ok := ctx.Value(waitKey{}).(func()); ok {
		ended()
	}
}
