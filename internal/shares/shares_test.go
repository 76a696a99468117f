package shares

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

func caller(tenant int, account string) Caller {
	return Caller{Tenant: rules.TenantID(tenant), Account: account}
}

func TestNobodyHoldsMoreThanTheirShare(t *testing.T) {
	t.Parallel()
	limits := Limits{Slots: 4, PerTenant: 3, PerAccount: 2}
	for name, test := range map[string]struct {
		held []Caller
		asks Caller
		want error
	}{
		"a free slot":                  {nil, caller(1, "a"), nil},
		"an account's second":          {[]Caller{caller(1, "a")}, caller(1, "a"), nil},
		"an account's third":           {[]Caller{caller(1, "a"), caller(1, "a")}, caller(1, "a"), ErrAccount},
		"an account in two tenants":    {[]Caller{caller(1, "a"), caller(2, "a")}, caller(3, "a"), ErrAccount},
		"a greedy account's colleague": {[]Caller{caller(1, "a"), caller(1, "a")}, caller(1, "b"), nil},
		"a tenant's fourth": {
			[]Caller{caller(1, "a"), caller(1, "a"), caller(1, "b")},
			caller(1, "c"),
			ErrTenant,
		},
		"a greedy tenant's neighbour": {[]Caller{caller(1, "a"), caller(1, "a"), caller(1, "b")}, caller(2, "d"), nil},
		"a fifth of all": {
			[]Caller{caller(1, "a"), caller(1, "a"), caller(2, "b"), caller(2, "b")}, caller(3, "c"), ErrBusy,
		},
		"accounts without a tenant": {[]Caller{caller(0, "a"), caller(0, "b"), caller(0, "c")}, caller(0, "d"), nil},
		"a tenant without accounts": {[]Caller{caller(1, ""), caller(1, ""), caller(1, "")}, caller(1, ""), ErrTenant},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(limits)
			var releases []func()
			for _, c := range test.held {
				release, err := s.Take(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				releases = append(releases, release)
			}
			release, err := s.Take(t.Context(), test.asks)
			if !errors.Is(err, test.want) {
				t.Errorf("the answer is %v, want %v", err, test.want)
			}
			if err == nil {
				release()
			}
			for _, release := range releases {
				release()
			}
			if s.Count().Held+len(s.tenants)+len(s.owners) != 0 {
				t.Errorf("slots are held by nobody: %d, %v, %v", s.held, s.tenants, s.owners)
			}
		})
	}
}

func TestAFreeSlotGoesToWhoeverHoldsLeast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{Slots: 3, Waiting: 10, Timeout: time.Second})
		take := func(c Caller) func() {
			release, err := s.Take(t.Context(), c)
			if err != nil {
				t.Error(err)
			}
			return release
		}
		first, second, third := take(caller(1, "a")), take(caller(1, "b")), take(caller(2, "d"))
		var mu sync.Mutex
		var order []string
		var group sync.WaitGroup
		for _, c := range []Caller{caller(1, "b"), caller(1, "b"), caller(1, "c"), caller(2, "d"), caller(3, "e")} {
			group.Go(func() {
				release := take(c)
				mu.Lock()
				order = append(order, fmt.Sprintf("%d%s", c.Tenant, c.Account))
				mu.Unlock()
				time.Sleep(time.Millisecond) //nolint:forbidigo // in synctest: the moment in which the others may come
				release()
			})
			synctest.Wait()
		}
		first()
		group.Wait()
		second()
		third()
		// Tenant 3 holds nothing, and of tenant 1 account c. Tenants 1 and 2 hold as many, and then take turns.
		if want := []string{"3e", "1c", "2d", "1b", "1b"}; !slices.Equal(order, want) {
			t.Errorf("served in the order %v, want %v", order, want)
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{Slots: 2, PerTenant: 1, Waiting: 1, Timeout: time.Second})
		held, err := s.Take(t.Context(), caller(1, "a"))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := s.Take(t.Context(), caller(1, "b")); !errors.Is(err, ErrTenant) ||
			time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		gone, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2)
		go func() {
			_, err := s.Take(gone, caller(1, "b"))
			results <- err
		}()
		synctest.Wait()
		if _, err := s.Take(t.Context(), caller(1, "b")); !errors.Is(err, ErrAccount) {
			t.Errorf("a second that waits got %v", err)
		}
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that went away got %v", err)
		}
		go func() {
			release, err := s.Take(t.Context(), caller(1, "b"))
			if err == nil {
				release()
			}
			results <- err
		}()
		synctest.Wait()
		held()
		if err := <-results; err != nil || s.Count() != (Count{Refused: 2}) || len(s.waiting) != 0 {
			t.Errorf("who waited got %v; the count is %+v, and %v wait", err, s.Count(), s.waiting)
		}
	})
}

// One account's callers fill the line before a colleague and a neighbour come.
func TestTenantsAndAccountsTakeTurnsForOneSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{Slots: 1, Waiting: 10, Timeout: time.Minute})
		first, err := s.Take(t.Context(), caller(1, "a"))
		if err != nil {
			t.Fatal(err)
		}
		var order []string // one slot: no two append at once
		var group sync.WaitGroup
		for _, c := range []Caller{
			caller(1, "a"), caller(1, "a"), caller(1, "a"), caller(1, "b"), caller(1, "b"), caller(2, "c"),
			caller(2, "c"),
		} {
			group.Go(func() {
				release, err := s.Take(t.Context(), c)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, fmt.Sprintf("%d%s", c.Tenant, c.Account))
				release()
			})
			synctest.Wait()
		}
		first()
		group.Wait()
		if want := []string{"1a", "2c", "1b", "2c", "1a", "1b", "1a"}; !slices.Equal(order, want) {
			t.Errorf("served in the order %v, want %v", order, want)
		}
	})
}

func TestWorkThatTakesItsSlotAgainIsNotRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{Slots: 1, Waiting: 1, Timeout: time.Second})
		held, err := s.Take(t.Context(), caller(1, "a"))
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				release, err := s.takeAgain(t.Context(), caller(1, "a"))
				if err != nil {
					t.Error(err)
					return
				}
				release()
			})
		}
		time.Sleep(time.Minute) //nolint:forbidigo // in synctest: longer than anybody's patience
		held()
		group.Wait()
		gone, cancel := context.WithCancel(t.Context())
		held, _ = s.takeAgain(gone, caller(1, "a"))
		cancel()
		if _, err := s.takeAgain(gone, caller(1, "a")); !errors.Is(err, context.Canceled) {
			t.Errorf("work whose client left got %v", err)
		}
		held()
		if s.Count() != (Count{}) {
			t.Errorf("the count is %+v", s.Count())
		}
	})
}
