package snapshot

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestAGoodPollClearsTheErrorOfAReread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		w := watch(t, source, nil)
		source.mu.Lock()
		source.pause = func(_ context.Context, whole bool) error {
			if whole {
				return errors.New("connection reset")
			}
			return nil
		}
		source.mu.Unlock()
		source.changeUnseen()
		if err := w.reread(t.Context()); err == nil || !errors.Is(w.LastError(), errors.Unwrap(err)) {
			t.Fatalf("the re-read failed with %v and the last error is %v", err, w.LastError())
		}
		after(time.Second)
		if err := w.LastError(); err != nil {
			t.Errorf("a poll succeeded since, and the last error is %v", err)
		}
	})
}

func TestOverridesRemovedWithTheirRuleAreKeptAsTraces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		addRule(t, source)
		source.change(func(rows *Rows) {
			for i := range 100 {
				for _, rule := range []rules.RuleID{1, 2} {
					rows.Overrides = append(rows.Overrides,
						rules.Override{TenantID: testTenant, RuleID: rule, UserID: userName(i), Revision: 1})
				}
			}
		})
		w := watch(t, source, nil)
		if got := w.Snapshot().Sizes().Overrides; got != 200 {
			t.Fatalf("%d overrides at first", got)
		}
		source.change(func(rows *Rows) { // a store marks the rule and its overrides removed
			rows.Tenants[0].Revision++
			rows.Rules[1].Removed, rows.Rules[1].Revision = true, rows.Tenants[0].Revision
			for i := range rows.Overrides {
				if o := &rows.Overrides[i]; o.RuleID == 2 {
					o.RemovedAt, o.Revision = testNow, rows.Tenants[0].Revision
				}
			}
		})
		after(time.Second)
		if got, want := w.Snapshot().Sizes(),
			(Sizes{Tenants: 1, Rules: 1, Overrides: 200, Assignments: 1, Keys: 1}); got != want {
			t.Errorf("after the poll %+v, want %+v", got, want)
		}
		after(2 * time.Minute)
		if n := source.counted()["anew"]; n != 2 {
			t.Errorf("the tenant was read in full %d times, want at first and after the change: no rows are lost", n)
		}
	})
}

func TestPollsGoOnWhileATenantThatLostRowsIsReadAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		w := watch(t, source, nil)
		source.change(func(rows *Rows) { rows.Assignments = nil }) // without a new revision
		source.mu.Lock()
		source.pause = func(ctx context.Context, whole bool) error {
			if !whole {
				return nil
			}
			select {
			case <-time.After(4 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		source.mu.Unlock()
		after(time.Minute + 4*time.Second) // everything was read; the tenant is next
		if n := source.counted()["anew"]; n != 3 {
			t.Fatalf("the tenant was read in full %d times, want at first, at the reread, and because rows are lost", n)
		}
		addRule(t, source)
		after(time.Second)
		if got := w.Snapshot().Sizes().Rules; got != 2 {
			t.Errorf("%d rules after the poll", got)
		}
		after(4 * time.Second)
		if got, want := w.Snapshot().Sizes(), (Sizes{Tenants: 1, Rules: 2, Keys: 1}); got != want {
			t.Errorf("after the re-read %+v, want %+v", got, want)
		}
	})
}

func TestRowsThatVanishedGoAtTheReread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		other := rules.Tenant{ID: 2, Slug: "gone", Revision: 1}
		source.change(func(rows *Rows) {
			rows.Tenants = append(rows.Tenants, other)
			rows.Assignments = append(rows.Assignments,
				rules.Assignment{TenantID: testTenant, UserID: "7", Plan: "pro", Revision: 1})
			rows.Keys = append(rows.Keys, auth.Key{ID: "stays", TenantID: testTenant, Revision: 1})
		})
		w := watch(t, source, nil)
		if got, want := w.Snapshot().Sizes(), (Sizes{Tenants: 2, Rules: 1, Assignments: 2, Keys: 2}); got != want {
			t.Fatalf("at first %+v, want %+v", got, want)
		}
		addRule(t, source)
		source.change(func(rows *Rows) { // without a new revision or a tombstone
			rows.Tenants, rows.Rules = rows.Tenants[:1], rows.Rules[1:]
			rows.Assignments, rows.Keys = rows.Assignments[1:], rows.Keys[1:]
		})
		after(time.Minute)
		s := w.Snapshot()
		if got, want := s.Sizes(), (Sizes{Tenants: 1, Rules: 1, Assignments: 1, Keys: 1}); got != want {
			t.Errorf("after the re-read %+v, want %+v", got, want)
		}
		if got := matchedIDs(s.Tenant(testTenant), &rules.Request{}, ""); !slices.Equal(got, []rules.RuleID{2}) ||
			s.Tenant(2) != nil {
			t.Errorf("matched %v", got)
		}
		if plan, _ := s.Tenant(testTenant).PlanOf(&rules.Request{UserID: "7"}); plan != "pro" {
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
			rows.Keys = []auth.Key{{ID: "demo", TenantID: testTenant, Revision: 1}}
		},
		"though a later read lacks it": func(rows *Rows) { rows.Keys = nil },
		"though its tenant is read anew": func(rows *Rows) {
			rows.Keys = []auth.Key{{ID: "demo", TenantID: testTenant, Revision: 1}}
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
				source.change(func(rows *Rows) { // as after restoring a backup
					rows.Tenants = []rules.Tenant{tenantRow()}
					rows.Keys = []auth.Key{{ID: "demo", TenantID: testTenant, Revision: 1}}
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
		source.changeUnseen()
		after(time.Minute)
		addRule(t, source) // the re-read has begun and does not see it
		source.change(func(rows *Rows) {
			rows.Tenants[0].Revision++
			rows.Keys = []auth.Key{{
				ID: "demo", TenantID: testTenant, Revoked: true,
				Revision: rows.Tenants[0].Revision,
			}}
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
			rows.Keys = []auth.Key{{ID: "demo", TenantID: testTenant, Revision: 1}}
		})
		after(5 * time.Second)
		if w.RereadDuration() < 4*time.Second || w.LastError() != nil {
			t.Fatalf("the re-read took %v: %v", w.RereadDuration(), w.LastError())
		}
		expect("after it")
	})
}

func TestATenantThatDiffersIsRereadWithinAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		source.change(func(rows *Rows) {
			rows.Tenants = append(rows.Tenants, rules.Tenant{ID: 2, Slug: "other", Revision: 1})
			rows.Keys = append(rows.Keys, auth.Key{ID: "other", TenantID: 2, Revision: 1})
		})
		w := watch(t, source, nil)
		after(3 * time.Minute)
		// The first load and each reread end with a poll.
		if got, want := source.counted(), map[string]int{"anew": 1, "newer": 180 + 3 + 4}; !maps.Equal(got, want) {
			t.Errorf("reads in three minutes: %v, want %v", got, want)
		}
		other, readAt := w.Snapshot().Tenant(2), w.Snapshot().Tenant(2).ReadAt()
		source.change(func(rows *Rows) { rows.Assignments = nil })
		after(time.Minute)
		if n := source.counted()["anew"]; n != 1+2 {
			t.Errorf("after a change without a revision tenants were read in full %d times, want twice more", n-1)
		}
		if got, want := w.Snapshot().Sizes(), (Sizes{Tenants: 2, Rules: 1, Keys: 2}); got != want {
			t.Errorf("after the reread %+v, want %+v", got, want)
		}
		if w.Snapshot().Tenant(2) != other || readAt != 1 {
			t.Errorf("the other tenant was built again, or read at %d", readAt)
		}
		after(time.Minute)
		if n := source.counted()["anew"]; n != 1+2 {
			t.Errorf("it was read %d times more though nothing changed", n-3)
		}
	})
}

func TestRulesAreReadWithoutDigests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		source.noDigests = context.DeadlineExceeded
		w := watch(t, source, nil)
		after(3 * time.Minute)
		if got := source.counted()["anew"]; got != 4 || w.LastError() != nil {
			t.Errorf("it was read in full %d times in three minutes, want 4: %v", got, w.LastError())
		}
	})
}

func TestAFailoverThatRestoresADigestIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		w := watch(t, source, nil)
		before := source.rows
		addRule(t, source)
		after(time.Second)
		if got := w.Snapshot().Sizes().Rules; got != 2 {
			t.Fatalf("%d rules after the poll", got)
		}
		source.change(func(rows *Rows) { *rows = before })
		after(time.Minute)
		if got := w.Snapshot().Sizes().Rules; got != 1 {
			t.Errorf("%d rules after the reread", got)
		}
	})
}
