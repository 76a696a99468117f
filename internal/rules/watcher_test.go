package rules

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memorySource is a database in memory that keeps Source's contract: its rows have revisions, and
// a read sees one moment. It can fail, and stop between its pages.
type memorySource struct {
	mu    sync.Mutex
	rows  Rows
	fails error                             // after the first page
	pause func(context.Context, bool) error // before the first page; says whether all is read
	reads []string                          // "all" or "newer"
}

func (s *memorySource) change(change func(*Rows)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.rows)
}

func (s *memorySource) Read(ctx context.Context, newerThan map[TenantID]int64, visit func(Rows) error) error {
	s.mu.Lock()
	rows, fails, pause := s.rows, s.fails, s.pause
	rows.Tenants, rows.Keys = slices.Clone(rows.Tenants), slices.Clone(rows.Keys)
	rows.Rules, rows.Assignments = slices.Clone(rows.Rules), slices.Clone(rows.Assignments)
	kind := "newer"
	if newerThan == nil {
		kind = "all"
	}
	s.reads = append(s.reads, kind)
	s.mu.Unlock()

	if pause != nil {
		if err := pause(ctx, newerThan == nil); err != nil {
			return err
		}
	}
	newer := func(id TenantID, revision int64) bool {
		known, ok := newerThan[id]
		return !ok || revision > known
	}
	rows.Tenants = slices.DeleteFunc(rows.Tenants, func(r Tenant) bool { return !newer(r.ID, r.Revision) })
	rows.Rules = slices.DeleteFunc(rows.Rules, func(r Rule) bool { return !newer(r.TenantID, r.Revision) })
	rows.Assignments = slices.DeleteFunc(rows.Assignments, func(r Assignment) bool { return !newer(r.TenantID, r.Revision) })
	rows.Keys = slices.DeleteFunc(rows.Keys, func(r Key) bool { return !newer(r.TenantID, r.Revision) })
	if err := visit(Rows{Tenants: rows.Tenants, Rules: rows.Rules}); err != nil {
		return err
	}
	if fails != nil {
		return fails
	}
	return visit(Rows{Assignments: rows.Assignments, Keys: rows.Keys})
}

func (s *memorySource) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

func newMemorySource(t *testing.T) *memorySource {
	t.Helper()
	return &memorySource{rows: Rows{
		Tenants:     []Tenant{tenantRow()},
		Rules:       []Rule{activeRule(t, 1, "global")},
		Assignments: []Assignment{{TenantID: testTenant, UserID: "42", Plan: "pro", Revision: 1}},
		Keys:        []Key{{ID: "demo", TenantID: testTenant, Revision: 1}},
	}}
}

// addRule writes rule 2 as a store would: with the tenant's next revision.
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

// watch runs a Watcher within a synctest bubble, until its end.
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

// after lets time pass in the bubble, where it costs none; the millisecond keeps clear of a tick.
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
		source.change(func(rows *Rows) { rows.Tenants = []Tenant{{ID: testTenant, Revision: 3}} })
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
		if strings.Count(log.String(), "\n") != 2 || !strings.Contains(log.String(), "connection refused") || !strings.Contains(log.String(), "again") {
			t.Errorf("an outage and its end are one line each, not:\n%s", &log)
		}
	})
}

func TestAFailedReadChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		w := watch(t, source, nil)
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

// slowSource takes a second for each page.
type slowSource struct{ Source }

func (s slowSource) Read(ctx context.Context, newerThan map[TenantID]int64, visit func(Rows) error) error {
	return s.Source.Read(ctx, newerThan, func(rows Rows) error {
		select {
		case <-time.After(time.Second):
			return visit(rows)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func TestRowsThatVanishedGoAtTheReread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		other := Tenant{ID: 2, Slug: "gone", Revision: 1}
		source.change(func(rows *Rows) {
			rows.Tenants = append(rows.Tenants, other)
			rows.Assignments = append(rows.Assignments, Assignment{TenantID: testTenant, UserID: "7", Plan: "pro", Revision: 1})
			rows.Keys = append(rows.Keys, Key{ID: "stays", TenantID: testTenant, Revision: 1})
		})
		w := watch(t, source, nil)
		if got, want := w.Snapshot().Sizes(), (Sizes{Tenants: 2, Rules: 1, Assignments: 2, Keys: 2}); got != want {
			t.Fatalf("at first %+v, want %+v", got, want)
		}
		addRule(t, source)
		source.change(func(rows *Rows) { // behind the platform's back: no revision, no tombstone
			rows.Tenants, rows.Rules = rows.Tenants[:1], rows.Rules[1:]
			rows.Assignments, rows.Keys = rows.Assignments[1:], rows.Keys[1:]
		})
		after(time.Minute)
		s := w.Snapshot()
		if got, want := s.Sizes(), (Sizes{Tenants: 1, Rules: 1, Assignments: 1, Keys: 1}); got != want {
			t.Errorf("after the re-read %+v, want %+v", got, want)
		}
		if got := matchedIDs(s.Tenant(testTenant), &Request{}, ""); !slices.Equal(got, []RuleID{2}) || s.Tenant(2) != nil {
			t.Errorf("matched %v", got)
		}
		if plan, _ := s.Tenant(testTenant).PlanOf(&Request{UserID: "7"}); plan != "pro" {
			t.Errorf("the assignment that stayed says %q", plan)
		}
		if _, ok := s.Key("demo"); ok {
			t.Error("the key that vanished is still there")
		}
		settled := w.Snapshot()
		after(3 * time.Minute)
		if w.Snapshot() != settled {
			t.Error("re-reads that found nothing made another Snapshot")
		}
	})
}

func TestAKeySeenRevokedStaysRevoked(t *testing.T) {
	t.Parallel()
	revoke := func(rows *Rows) {
		tenants, keys := slices.Clone(rows.Tenants), slices.Clone(rows.Keys)
		tenants[0].Revision++
		keys[0].Revoked, keys[0].Revision = true, tenants[0].Revision
		rows.Tenants, rows.Keys = tenants, keys
	}
	tests := map[string]func(*Rows){
		"though a later read shows it active": func(rows *Rows) {
			rows.Keys = []Key{{ID: "demo", TenantID: testTenant, Revision: 1}}
		},
		"though a later read lacks it": func(rows *Rows) { rows.Keys = nil },
		"though its tenant is read anew": func(rows *Rows) {
			rows.Keys = []Key{{ID: "demo", TenantID: testTenant, Revision: 1}}
			rows.Assignments = nil
		},
		"though its tenant was away": func(rows *Rows) { rows.Tenants, rows.Keys = nil, nil },
	}
	for name, restore := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				source := newMemorySource(t)
				w := watch(t, source, nil)
				if key, ok := w.Snapshot().Key("demo"); !ok || key.Revoked {
					t.Fatalf("at first %+v, %v", key, ok)
				}
				source.change(revoke)
				after(time.Second)
				source.change(restore)
				after(time.Minute)
				source.change(func(rows *Rows) { // and back as in a backup
					rows.Tenants = []Tenant{tenantRow()}
					rows.Keys = []Key{{ID: "demo", TenantID: testTenant, Revision: 1}}
				})
				after(time.Minute)
				if key, ok := w.Snapshot().Key("demo"); !ok || !key.Revoked {
					t.Errorf("the key is back: %+v, %v", key, ok)
				}
			})
		})
	}
}

func TestPollsGoOnDuringALongReread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		w := watch(t, source, nil)
		source.mu.Lock()
		source.pause = func(ctx context.Context, all bool) error {
			if !all {
				return nil
			}
			select {
			case <-time.After(4 * time.Second): // less than the page timeout
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		source.mu.Unlock()
		after(time.Minute)
		addRule(t, source) // the re-read has begun and does not see it
		source.change(func(rows *Rows) {
			rows.Tenants[0].Revision++
			rows.Keys = []Key{{ID: "demo", TenantID: testTenant, Revoked: true, Revision: rows.Tenants[0].Revision}}
		})
		after(time.Second)
		expect := func(when string) {
			t.Helper()
			key, _ := w.Snapshot().Key("demo")
			if got := w.Snapshot().Sizes().Rules; got != 2 || !key.Revoked {
				t.Errorf("%s: %d rules, revoked %v", when, got, key.Revoked)
			}
		}
		expect("during the re-read")
		source.change(func(rows *Rows) { // the revocation is lost from the database meanwhile
			rows.Keys = []Key{{ID: "demo", TenantID: testTenant, Revision: 1}}
		})
		after(5 * time.Second)
		if w.RereadDuration() < 4*time.Second || w.LastError() != nil {
			t.Fatalf("the re-read took %v: %v", w.RereadDuration(), w.LastError())
		}
		expect("after it")
	})
}

func TestEverythingIsRereadEachMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		watch(t, source, nil)
		after(3 * time.Minute)
		count := map[string]int{}
		for _, kind := range source.reads {
			count[kind]++
		}
		// The first load and each re-read end with a poll of their own.
		if want := map[string]int{"all": 4, "newer": 180 + 4}; !maps.Equal(count, want) {
			t.Errorf("reads in three minutes: %v, want %v", count, want)
		}
	})
}
