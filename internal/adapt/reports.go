package adapt

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

const (
	flushEvery = 2 * time.Second
	// maxHeld bounds the backends in memory, at 2 MiB. A tenant may use half of what the others leave.
	maxHeld = 5000
)

// Report is a service's sum since its last report.
type Report struct {
	Backend string
	Seen
}

// BackendReport is the sum of a tenant's reports about a backend.
type BackendReport struct {
	Tenant rules.TenantID
	Report
}

// Sink stores reports.
type Sink interface {
	// WriteReports adds reports, sorted by tenant and backend, to the present slice: all or none, within a few seconds.
	WriteReports(ctx context.Context, reports []BackendReport) error
}

// Reports sums up reports in memory and writes the sums to a Sink. Reports that cannot be written are dropped, because
// a minute later they would be worthless.
type Reports struct {
	sink Sink
	log  *slog.Logger

	mu   sync.Mutex
	held map[backendKey]*Seen
	by   map[rules.TenantID]int

	accepted, unknown, noRoom, lost atomic.Int64
}

type backendKey struct {
	tenant  rules.TenantID
	backend string
}

// NewReports returns a Reports; call Run to write.
func NewReports(sink Sink, log *slog.Logger) *Reports {
	r := &Reports{sink: sink, log: log}
	r.reset()
	return r
}

func (r *Reports) reset() {
	r.held, r.by = map[backendKey]*Seen{}, map[rules.TenantID]int{}
}

// Add returns the ignored backends: no active rule of the tenant follows them, or the memory is full.
func (r *Reports) Add(tenant *snapshot.Tenant, reports []Report) (ignored []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range reports {
		report := &reports[i]
		switch known := tenant.HasBackend(report.Backend); {
		case !known:
			r.unknown.Add(1)
		case !r.add(tenant.Tenant.ID, report):
			r.noRoom.Add(1)
		default:
			r.accepted.Add(1)
			continue
		}
		if !slices.Contains(ignored, report.Backend) {
			ignored = append(ignored, report.Backend)
		}
	}
	return ignored
}

func (r *Reports) add(tenant rules.TenantID, report *Report) bool {
	key := backendKey{tenant, report.Backend}
	held := r.held[key]
	if held == nil {
		if r.by[tenant]+1 > maxHeld-len(r.held) {
			return false
		}
		held = new(Seen)
		r.held[key] = held
		r.by[tenant]++
	}
	held.Add(&report.Seen)
	return true
}

// Run writes every two seconds until ctx ends, and then once more.
func (r *Reports) Run(ctx context.Context) {
	isFailing := false
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			if err := r.Flush(context.WithoutCancel(ctx)); err != nil {
				r.log.WarnContext(ctx, "the last reports of backends were lost", "error", err)
			}
			return
		case <-ticker.C:
		}
		err := r.Flush(ctx)
		switch {
		case err != nil && !isFailing && ctx.Err() == nil:
			r.log.WarnContext(ctx, "reports of backends cannot be stored and are dropped; rates that adapt are as "+
				"configured within a minute", "error", err)
		case err == nil && isFailing:
			r.log.InfoContext(ctx, "reports of backends are stored again")
		}
		isFailing = err != nil
	}
}

// Flush writes the waiting sums, or drops them after an error.
func (r *Reports) Flush(ctx context.Context) error {
	r.mu.Lock()
	held := r.held
	r.reset()
	r.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	all := make([]BackendReport, 0, len(held))
	for key, seen := range held {
		all = append(all, BackendReport{key.tenant, Report{key.backend, *seen}})
	}
	slices.SortFunc(all, func(a, b BackendReport) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Backend, b.Backend))
	})
	err := r.sink.WriteReports(ctx, all)
	if err != nil {
		r.lost.Add(int64(len(all)))
	}
	return err
}

// ReportCounts count reports since the start.
type ReportCounts struct {
	Accepted int64
	Unknown  int64 // of backends that no active rule follows
	NoRoom   int64 // dropped because the memory was full
	Lost     int64 // sums of a backend that could not be written
}

// Counts returns the present counts.
func (r *Reports) Counts() ReportCounts {
	return ReportCounts{
		Accepted: r.accepted.Load(), Unknown: r.unknown.Load(), NoRoom: r.noRoom.Load(),
		Lost: r.lost.Load(),
	}
}
