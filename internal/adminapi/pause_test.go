package adminapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
)

func TestARefusalPausesUntilItsCallerLeavesOrTheServerStops(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		paused int // refusals that wait already
		end    func(leave context.CancelFunc, stop chan struct{})
		want   time.Duration
	}{
		"a share is used up":    {err: shares.ErrAccount, want: refusalPause},
		"others use all places": {err: shares.ErrBusy},
		"another problem":       {err: errors.New("away")},
		"enough refusals wait":  {err: shares.ErrAccount, paused: maxPaused},
		"one more may wait":     {err: shares.ErrAccount, paused: maxPaused - 1, want: refusalPause},
		"the caller leaves":     {err: shares.ErrTenant, end: func(leave context.CancelFunc, _ chan struct{}) { leave() }, want: time.Millisecond},
		"the server stops":      {err: shares.ErrAccount, end: func(_ context.CancelFunc, stop chan struct{}) { close(stop) }, want: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				s := &surface{Config: Config{Closing: stop}, divided: divide()}
				for range test.paused {
					if _, err := s.paused.Take(t.Context(), shares.Caller{}); err != nil {
						t.Fatal(err)
					}
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				q := &apiRequest{r: httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), began: time.Now()}
				released := false
				q.places.arrival = func() { released = true }
				if test.end != nil {
					time.AfterFunc(time.Millisecond, func() { test.end(leave, stop) })
				}
				s.pauseRefusal(ctx, q, test.err)
				if took := time.Since(q.began); took != test.want {
					t.Errorf("the refusal takes %s, want %s", took, test.want)
				}
				if test.want > 0 && !released {
					t.Error("a paused request keeps its places")
				}
				if now := s.paused.Count().Held; now != test.paused {
					t.Errorf("%d refusals wait afterwards, want %d", now, test.paused)
				}
			})
		})
	}
}

func TestAHeavyRequestKeepsAProcessorForOneTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &surface{divided: divide()}
		s.heavy.running = shares.New(shares.Limits{Places: 2, PerTenant: 1, Waiting: 1, Patience: time.Minute})
		s.heavy.processors = shares.New(shares.Limits{Places: 1, Waiting: 1, Patience: time.Minute})
		began := time.Now()
		enter := func(tenant int) *apiRequest {
			q := &apiRequest{r: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)}
			q.tenant.ID = rules.TenantID(tenant)
			if err := s.heavy.enter(q); err != nil {
				t.Error(err)
			}
			return q
		}
		slow := enter(1)
		second := enter(2)
		if took := time.Since(began); took != processorTurn {
			t.Errorf("the second request starts after %s, want %s", took, processorTurn)
		}
		second.places.release()
		slow.places.release()
		if now := s.heavy.processors.Count(); now.Held != 0 || s.heavy.running.Count().Held != 0 {
			t.Errorf("places are held after both requests: %+v", now)
		}
		quick := enter(1)
		began = time.Now()
		err := quick.whileAway(t.Context(), func() error {
			enter(2).places.release()
			return nil
		})
		if err != nil || time.Since(began) != 0 {
			t.Errorf("beside a request that waits for its caller another starts after %s: %v", time.Since(began), err)
		}
		quick.places.release()
		if now := s.heavy.processors.Count(); now.Held != 0 {
			t.Errorf("%d processors are held in the end", now.Held)
		}
	})
}
