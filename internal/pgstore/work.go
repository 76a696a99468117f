package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/meter"
)

// workTracer tells the Meter of a request how long the database works for it. Waits for a connection are no work.
type workTracer struct{ distance meter.Distance }

var (
	_ pgx.QueryTracer       = (*workTracer)(nil)
	_ pgx.BatchTracer       = (*workTracer)(nil)
	_ pgx.CopyFromTracer    = (*workTracer)(nil)
	_ pgxpool.AcquireTracer = (*workTracer)(nil)
)

type beganKey struct{}

func begin(ctx context.Context) context.Context {
	return context.WithValue(ctx, beganKey{}, time.Now())
}

func (w *workTracer) end(ctx context.Context, err error) {
	began, ok := ctx.Value(beganKey{}).(time.Time)
	if !ok {
		return
	}
	now := time.Now()
	took := now.Sub(began)
	work := took
	if err == nil { // an error may come without an answer, and says nothing of the distance
		work = w.distance.Work(took, now)
	}
	meter.Asked(ctx, took, work)
}

func (w *workTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return begin(ctx)
}

func (w *workTracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	w.end(ctx, data.Err)
}

func (w *workTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return begin(ctx)
}

func (w *workTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (w *workTracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	w.end(ctx, data.Err)
}

func (w *workTracer) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return begin(ctx)
}

func (w *workTracer) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceCopyFromEndData) {
	w.end(ctx, data.Err)
}

func (w *workTracer) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return begin(ctx)
}

func (w *workTracer) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	if began, ok := ctx.Value(beganKey{}).(time.Time); ok {
		meter.Waited(ctx, began)
	}
}
