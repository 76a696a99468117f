package enforce

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestLostReservationsAreBoundedAndTenantsHaveShares(t *testing.T) {
	t.Parallel()
	var l lostReservations
	one := &Reservation{Life: time.Hour}
	for range 2 * maxLostOfTenant {
		l.add(1, one, true)
	}
	if l.count != maxLostOfTenant {
		t.Errorf("%d wait of one tenant, want %d", l.count, maxLostOfTenant)
	}
	for tenant := range rules.TenantID(2 * maxLost / maxLostOfTenant) {
		for range maxLostOfTenant {
			l.add(2+tenant, one, true)
		}
	}
	const others = 2 * maxLost / maxLostOfTenant // each has at least one
	if l.count < maxLost || l.count > maxLost+others || len(l.waiting) != 1+others {
		t.Errorf("%d wait of %d tenants, want about %d of %d", l.count, len(l.waiting), maxLost, 1+others)
	}
	l.add(3, nil, true)
	due := time.Now().Add(releaseTick)
	for first := true; ; first = false {
		popped := l.pop(due)
		if first && len(popped) != 1+others {
			t.Errorf("a turn has %d tenants, want all %d", len(popped), 1+others)
		}
		if len(popped) == 0 {
			break
		}
	}
	if l.count != 0 || len(l.waiting) != 0 {
		t.Errorf("in the end %d wait of %d tenants", l.count, len(l.waiting))
	}
}

type settling struct {
	ReservingBuckets
	answers []Settled
	errs    []error
	with    []Settlement
}

func (s *settling) SettleReservation(_ context.Context, _ rules.TenantID, _ ReservationID, with Settlement) (Settled,
	error,
) {
	n := len(s.with)
	s.with = append(s.with, with)
	return s.answers[n], s.errs[n]
}

func TestALostReservationIsReleasedOnceTheStoreAnswers(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	none, found := Settled{}, Settled{Found: true}
	tests := map[string]struct {
		passed  bool
		answers []Settled
		errs    []error
		after   []time.Duration // when it is tried
	}{
		"found":  {false, []Settled{found}, []error{nil}, []time.Duration{time.Second}},
		"passed": {true, []Settled{found}, []error{nil}, []time.Duration{time.Second}},
		"on its way": {
			false,
			[]Settled{none, found},
			[]error{nil, nil},
			[]time.Duration{time.Second, 3 * time.Second},
		},
		"never executed": {
			false,
			[]Settled{none, none},
			[]error{nil, nil},
			[]time.Duration{time.Second, 3 * time.Second},
		},
		"the store is away": {
			false,
			[]Settled{none, none, found},
			[]error{away, away, nil},
			[]time.Duration{time.Second, 3 * time.Second, 7 * time.Second},
		},
		"the store is away too long": {
			false,
			[]Settled{none, none},
			[]error{away, away},
			[]time.Duration{time.Second, 3 * time.Second},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &settling{answers: test.answers, errs: test.errs}
			l := &Limiter{shared: store}
			lost := time.Now()
			life := time.Hour
			if name == "the store is away too long" {
				life = 2 * time.Second
			}
			l.lost.add(1, &Reservation{Life: life, Key: "a key"}, test.passed)
			for i, after := range test.after {
				l.release(t.Context(), lost.Add(after-time.Millisecond))
				if len(store.with) != i {
					t.Errorf("it was tried before %v", after)
				}
				l.release(t.Context(), lost.Add(after+time.Second/2))
				lost = lost.Add(time.Second / 2) // later pauses begin there
				if len(store.with) != i+1 {
					t.Fatalf("after %v it was tried %d times", after, len(store.with))
				}
			}
			if l.lost.count != 0 {
				t.Error("it still waits")
			}
			if with := store.with[0]; with.Cancel == test.passed || with.Key != "a key" {
				t.Errorf("it is settled by %+v", with)
			}
		})
	}
}
