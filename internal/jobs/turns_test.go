package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
)

func TestAGreedyNeighbourDelaysNobodysFirst(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "webhook", 100_000)
	b.queue(t, b.greedy, "mail", 200)
	b.queue(t, b.greedy, "erasure", 50)
	gate := make(chan struct{})
	var mu sync.Mutex
	inFlight, most, served := map[string]int{}, map[string]int{}, map[string]int{}
	kind := func(name string, atOnce, perTenant int) jobs.Kind {
		return jobs.Kind{
			Name: name, MaxConcurrent: atOnce, PerTenant: perTenant, Timeout: time.Hour,
			Do: func(_ context.Context, job *jobs.Job) (time.Time, error) {
				mu.Lock()
				defer mu.Unlock()
				if job.Tenant == b.quiet {
					served[name]++
					return done()
				}
				inFlight[name]++
				most[name] = max(most[name], inFlight[name])
				mu.Unlock()
				<-gate
				mu.Lock()
				inFlight[name]--
				return jobs.DueNow, nil
			},
		}
	}
	kinds := []jobs.Kind{kind("webhook", 8, 4), kind("mail", 4, 2), kind("erasure", 2, 1)}
	processes := []*jobs.Runner{b.runner(kinds...), b.runner(kinds...)}
	for range 3 {
		for _, r := range processes {
			begin(t, r)
		}
	}
	// The quiet tenant queues as much as one process has room for beside the greedy one.
	b.queue(t, b.quiet, "webhook", 4)
	b.queue(t, b.quiet, "mail", 2)
	b.queue(t, b.quiet, "erasure", 1)
	for _, r := range processes {
		begin(t, r)
	}
	waitFor(t, func() bool { return b.like(t, fmt.Sprint("tenant_id = ", b.quiet)) == 0 })
	close(gate)
	for _, r := range processes {
		r.Wait()
	}
	mu.Lock()
	defer mu.Unlock()
	if served["webhook"] != 4 || served["mail"] != 2 || served["erasure"] != 1 {
		t.Errorf("in the first round the quiet tenant had the attempts %v", served)
	}
	if most["webhook"] != 4 || most["mail"] != 2 || most["erasure"] != 1 {
		t.Errorf("the greedy tenant had %v attempts at once in all processes, want its caps", most)
	}
}

func TestATurnEndsWithTheAttempt(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "erasure", 20)
	var order []int64
	r := b.runner(jobs.Kind{
		Name: "erasure", Timeout: time.Hour, Do: func(_ context.Context, job *jobs.Job) (time.Time, error) {
			order = append(order, job.Tenant)
			if job.Tenant == b.quiet {
				return done()
			}
			return jobs.DueNow, nil
		},
	})
	for range 5 {
		round(t, r)
	}
	b.queue(t, b.quiet, "erasure", 1)
	// Chance decides between the two, with nothing in flight: all attempts are the greedy tenant's once in 10¹².
	for range 40 {
		if round(t, r); slices.Contains(order, b.quiet) {
			return
		}
	}
	t.Errorf("%d attempts were all the greedy tenant's", len(order))
}

func TestAPeriodicJobRunsOnceInAllProcesses(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	var ran atomic.Int64
	kinds := []jobs.Kind{
		jobs.Periodic("keep", time.Hour, func(context.Context) error { ran.Add(1); return nil }),
		jobs.Periodic("broken", time.Hour, func(context.Context) error { return errors.New("out of order") }),
	}
	var processes sync.WaitGroup
	for range 5 {
		r := b.runner(kinds...)
		processes.Go(func() {
			for range 3 {
				if err := r.Round(t.Context()); err != nil {
					t.Error(err)
				}
				r.Wait()
			}
		})
	}
	processes.Wait()
	if got := ran.Load(); got != 1 {
		t.Errorf("it ran %d times, want once", got)
	}
	if b.like(t, "kind = 'keep' AND error = '' AND last_run_at IS NOT NULL AND next_run_at > now() + interval "+
		"'59 minutes'") != 1 {
		t.Error("the next run is not in an hour")
	}
	if b.like(t, "kind = 'broken' AND error = 'out of order' AND state = 'waiting' AND next_run_at < now() + "+
		"interval '1 minute'") != 1 {
		t.Error("a run that failed is not repeated soon, with its own error")
	}
}

func TestAShorterPauseBringsTheNextRunForward(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	nothing := func(context.Context) error { return nil }
	round(t, b.runner(jobs.Periodic("keep", time.Hour, nothing)))
	round(t, b.runner(jobs.Periodic("keep", time.Minute, nothing)))
	if b.like(t, "kind = 'keep' AND next_run_at BETWEEN now() AND now() + interval '1 minute'") != 1 {
		t.Error("the next run is later than the new pause")
	}
	round(t, b.runner(jobs.Periodic("keep", time.Hour, nothing)))
	if b.like(t, "kind = 'keep' AND next_run_at < now() + interval '1 minute'") != 1 {
		t.Error("a longer pause puts the next run off")
	}
}

func TestAProcessThatStartsTakesNoJobFromTheOneThatRunsIt(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	began, end := make(chan struct{}), make(chan struct{})
	r := b.runner(jobs.Periodic("keep", time.Second, func(context.Context) error {
		close(began)
		<-end
		return nil
	}))
	begin(t, r)
	<-began
	round(t, b.runner(jobs.Periodic("keep", time.Second, func(context.Context) error { return nil })))
	if b.like(t, "kind = 'keep' AND next_run_at > now() + interval '20 seconds'") != 1 {
		t.Error("the job can be taken before its lease ends")
	}
	close(end)
	r.Wait()
}

func TestARemovedTenantsJobsWait(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	b.queue(t, b.quiet, "send", 1)
	b.exec(t, "UPDATE tenant SET removed_at = now(), suspended_at = now() WHERE tenant_id = $1", b.greedy)
	var tenants []int64
	round(t, b.runner(jobs.Kind{
		Name: "send", Timeout: time.Minute, Do: func(_ context.Context, job *jobs.Job) (time.Time, error) {
			tenants = append(tenants, job.Tenant)
			return done()
		},
	}))
	if !slices.Equal(tenants, []int64{b.quiet}) || b.like(t, "attempts = 0") != 1 {
		t.Errorf("the tenants %v had attempts, want %d alone", tenants, b.quiet)
	}
}

func TestARunnerGoesOnUntilItIsStopped(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 30)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	r := b.runner(jobs.Kind{Name: "send", MaxConcurrent: 2, PerTenant: 2, Timeout: time.Minute, Do: failing(nil)})
	running.Go(func() { r.Run(ctx) })
	waitFor(t, func() bool { return b.like(t, "true") == 0 })
	stop()
	running.Wait()
}

func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // other goroutines work meanwhile
	}
}
