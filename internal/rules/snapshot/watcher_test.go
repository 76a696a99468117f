package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// Reads can fail, and pause between pages.
type memorySource struct {
	mu        sync.Mutex
	rows      Rows
	noDigests error // what Digests returns
	fails     error // after the first page
	pause     func(context.Context, bool) error
	reads     []string // "newer", or "anew" if some tenants are read in full
}

func (s *memorySource) change(change func(*Rows)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.rows)
}

func (s *memorySource) Read(ctx context.Context, newerThan map[rules.TenantID]int64, visit func(Rows) error) error {
	s.mu.Lock()
	rows, fails, pause := s.rows, s.fails, s.pause
	rows.Tenants, rows.Keys = slices.Clone(rows.Tenants), slices.Clone(rows.Keys)
	rows.Rules, rows.Assignments = slices.Clone(rows.Rules), slices.Clone(rows.Assignments)
	rows.Overrides = slices.Clone(rows.Overrides)
	whole := func(id rules.TenantID) bool {
		_, known := newerThan[id]
		return !known
	}
	kind := "newer"
	if slices.ContainsFunc(rows.Tenants, func(r rules.Tenant) bool { return whole(r.ID) }) {
		kind = "anew"
	}
	s.reads = append(s.reads, kind)
	s.mu.Unlock()

	if pause != nil {
		if err := pause(ctx, kind != "newer"); err != nil {
			return err
		}
	}
	newer := func(id rules.TenantID, revision int64) bool {
		return whole(id) || revision > newerThan[id]
	}
	rows.Tenants = slices.DeleteFunc(rows.Tenants, func(r rules.Tenant) bool { return !newer(r.ID, r.Revision) })
	rows.Rules = slices.DeleteFunc(rows.Rules, func(r rules.Rule) bool {
		return !newer(r.TenantID, r.Revision) || r.Removed && whole(r.TenantID)
	})
	rows.Overrides = slices.DeleteFunc(rows.Overrides,
		func(r rules.Override) bool { return !newer(r.TenantID, r.Revision) })
	rows.Steps = slices.DeleteFunc(slices.Clone(rows.Steps),
		func(r rules.Step) bool { return !newer(r.TenantID, r.Revision) })
	rows.Assignments = slices.DeleteFunc(rows.Assignments,
		func(r rules.Assignment) bool { return !newer(r.TenantID, r.Revision) })
	rows.Keys = slices.DeleteFunc(rows.Keys, func(r auth.Key) bool { return !newer(r.TenantID, r.Revision) })
	first := Rows{Tenants: rows.Tenants, Rules: rows.Rules, Overrides: rows.Overrides, Steps: rows.Steps}
	if err := visit(first); err != nil {
		return err
	}
	if fails != nil {
		return fails
	}
	return visit(Rows{Assignments: rows.Assignments, Keys: rows.Keys})
}

func (s *memorySource) Digests(context.Context) (time.Time, map[rules.TenantID]Digest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noDigests != nil {
		return time.Time{}, nil, s.noDigests
	}
	digests := map[rules.TenantID]Digest{}
	add := func(id rules.TenantID, revision int64, row any) {
		hash := fnv.New32a()
		_, _ = fmt.Fprintf(hash, "%+v", row)
		d := digests[id]
		digests[id] = Digest{d.Revision + revision, d.Rows + 1, d.Sum + int64(hash.Sum32())}
	}
	for _, r := range s.rows.Tenants {
		add(r.ID, r.Revision, r)
	}
	for _, r := range s.rows.Rules {
		add(r.TenantID, 0, r)
	}
	for _, r := range s.rows.Overrides {
		add(r.TenantID, 0, r)
	}
	for _, r := range s.rows.Assignments {
		add(r.TenantID, 0, r)
	}
	for _, r := range s.rows.Keys {
		add(r.TenantID, 0, r)
	}
	return time.UnixMicro(1), digests, nil
}

func (s *memorySource) counted() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := map[string]int{}
	for _, kind := range s.reads {
		count[kind]++
	}
	return count
}

func (s *memorySource) changeUnseen() {
	s.change(func(rows *Rows) {
		rows.Rules = slices.Clone(rows.Rules)
		rows.Rules[0].Description += "."
	})
}

func (s *memorySource) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

func newMemorySource(t *testing.T) *memorySource {
	t.Helper()
	return &memorySource{rows: Rows{
		Tenants:     []rules.Tenant{tenantRow()},
		Rules:       []rules.Rule{activeRule(t, 1, "global")},
		Assignments: []rules.Assignment{{TenantID: testTenant, UserID: "42", Plan: "pro", Revision: 1}},
		Keys:        []auth.Key{{ID: "demo", TenantID: testTenant, Revision: 1}},
	}}
}

func addRule(t *testing.T, source *memorySource) {
	t.Helper()
	rule := activeRule(t, 2, "global")
	source.change(func(rows *Rows) {
		tenants := slices.Clone(rows.Tenants)
		tenants[0].Revision++
		rule.Revision = tenants[0].Revision
		rows.Tenants, rows.Rules = tenants, append(slices.Clone(rows.Rules), rule)
	})
}

func watch(t *testing.T, source Source, log *bytes.Buffer) *Watcher {
	t.Helper()
	options := WatcherOptions{Logger: slog.New(slog.DiscardHandler)}
	if log != nil {
		options.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	w := NewWatcher(source, options)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	synctest.Wait()
	return w
}

// The extra millisecond avoids a tie with a tick.
func after(d time.Duration) {
	<-time.After(d + time.Millisecond)
	synctest.Wait()
}

func TestAChangeIsSeenWithinOnePoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		w := watch(t, source, nil)
		if got := w.Snapshot().Sizes().Rules; got != 1 {
			t.Fatalf("%d rules at first", got)
		}
		first := w.Snapshot()
		after(3 * time.Second)
		if w.Snapshot() != first {
			t.Error("polls that found nothing made another Snapshot")
		}
		addRule(t, source)
		after(time.Second)
		if got := w.Snapshot().Sizes().Rules; got != 2 {
			t.Errorf("%d rules after the poll", got)
		}
		source.change(func(rows *Rows) { rows.Tenants = []rules.Tenant{{ID: testTenant, Revision: 3}} })
		if err := w.Refresh(t.Context()); err != nil || w.Snapshot().Tenant(testTenant).Tenant.Revision != 3 {
			t.Errorf("Refresh did not read at once: %v", err)
		}
	})
}

func TestTheFirstLoadIsTriedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		source.fail(errors.New("connection refused"))
		var log bytes.Buffer
		w := watch(t, source, &log)
		after(time.Minute)
		if w.Snapshot() != nil {
			t.Fatal("half of a failed load was published")
		}
		if n := len(source.reads); n < 10 || n > 30 {
			t.Errorf("%d tries in a minute", n)
		}
		if w.Age() < time.Minute || w.LastError() == nil || w.RereadDuration() != 0 {
			t.Errorf("age %v, error %v, duration %v", w.Age(), w.LastError(), w.RereadDuration())
		}
		source.fail(nil)
		after(lastRetry)
		if w.Snapshot() == nil || w.LastError() != nil {
			t.Errorf("not loaded after the source came back: %v", w.LastError())
		}
		if strings.Contains(log.String(), "stay in force") || !strings.Contains(log.String(), "rules cannot be read") {
			t.Errorf("no rules were loaded, and the log says:\n%s", &log)
		}
		if strings.Count(log.String(), "\n") != 2 || !strings.Contains(log.String(), "connection refused") ||
			!strings.Contains(log.String(), "again") {
			t.Errorf("an outage and its end are one line each, not:\n%s", &log)
		}
	})
}

func TestAFailedReadChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		var log bytes.Buffer
		w := watch(t, source, &log)
		good := w.Snapshot()
		addRule(t, source)
		source.fail(errors.New("connection reset"))
		after(3 * time.Minute)
		if w.Snapshot() != good {
			t.Error("a read that failed after its first page was published")
		}
		if w.Age() < 3*time.Minute || w.LastError() == nil {
			t.Errorf("age %v, error %v", w.Age(), w.LastError())
		}
		source.fail(nil)
		after(time.Second)
		if got := w.Snapshot().Sizes().Rules; got != 2 || w.Age() > time.Second {
			t.Errorf("%d rules and age %v after the source came back", got, w.Age())
		}
		if !strings.Contains(log.String(), "rules cannot be read; the last good ones stay in force") {
			t.Errorf("the log does not say what holds during the outage:\n%s", &log)
		}
	})
}

func TestASourceThatStopsAnsweringIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		w := NewWatcher(source, WatcherOptions{PageTimeout: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		source.pause = func(ctx context.Context, _ bool) error {
			<-ctx.Done()
			return ctx.Err()
		}
		began := time.Now()
		if err := w.Refresh(t.Context()); !errors.Is(err, errPageLate) || time.Since(began) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Refresh(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that gives up sooner gets %v", err)
		}
	})
}

func TestAReadMayTakeLongIfItsPagesCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		w := NewWatcher(slowSource{source}, WatcherOptions{PageTimeout: 2 * time.Second})
		began := time.Now()
		if err := w.Refresh(t.Context()); err != nil || time.Since(began) < 3*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if w.RereadDuration() < 3*time.Second {
			t.Errorf("it says that it took %v", w.RereadDuration())
		}
	})
}

func TestEmptyPagesAreSignsOfLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewWatcher(emptyPagesSource{newMemorySource(t)}, WatcherOptions{Logger: slog.New(slog.DiscardHandler)})
		if err := w.Refresh(t.Context()); err != nil || w.RereadDuration() < time.Minute {
			t.Errorf("after %v: %v", w.RereadDuration(), err)
		}
	})
}

type emptyPagesSource struct{ Source }

func (s emptyPagesSource) Read(ctx context.Context, newerThan map[rules.TenantID]int64, visit func(Rows) error) error {
	for range 30 {
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := visit(Rows{}); err != nil {
			return err
		}
	}
	return s.Source.Read(ctx, newerThan, visit)
}

type slowSource struct{ Source }

func (s slowSource) Read(ctx context.Context, newerThan map[rules.TenantID]int64, visit func(Rows) error) error {
	return s.Source.Read(ctx, newerThan, func(rows Rows) error {
		select {
		case <-time.After(time.Second):
			return visit(rows)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}
