package adminapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/shares"
)

func TestARefusalPausesUntilItsCallerLeavesOrTheServerStops(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		paused int // refusals that wait already
		end    func(leave context.CancelFunc, stop chan struct{})
		want   time.Duration // a whole pause is a random time more, so that loops do not return together
	}{
		"a share is used up":   {err: shares.ErrAccount, want: refusalPause},
		"others use all slots": {err: shares.ErrBusy},
		"another problem":      {err: errors.New("away")},
		"enough refusals wait": {err: shares.ErrAccount, paused: maxPaused},
		"one more may wait":    {err: shares.ErrAccount, paused: maxPaused - 1, want: refusalPause},
		"the caller leaves": {
			err: shares.ErrTenant,
			end: func(leave context.CancelFunc, _ chan struct{}) { leave() }, want: time.Millisecond,
		},
		"the server stops": {
			err: shares.ErrAccount,
			end: func(_ context.CancelFunc, stop chan struct{}) { close(stop) }, want: time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				s := &surface{Config: Config{Closing: stop}, semaphores: newSemaphores(20)}
				for range test.paused {
					if _, err := s.paused.Take(t.Context(), shares.Caller{}); err != nil {
						t.Fatal(err)
					}
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				q := &apiRequest{r: httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), began: time.Now()}
				one := shares.New(shares.Limits{Slots: 1})
				if err := q.slot.Take(ctx, one, shares.Caller{}); err != nil {
					t.Fatal(err)
				}
				if test.end != nil {
					time.AfterFunc(time.Millisecond, func() { test.end(leave, stop) })
				}
				s.pauseRefusal(ctx, q, test.err)
				took := time.Since(q.began)
				isWhole := test.want == refusalPause
				if isWhole && (took <= test.want || took >= 2*test.want) || !isWhole && took != test.want {
					t.Errorf("the refusal takes %s, want %s, or a random time more if whole", took, test.want)
				}
				if test.want > 0 && one.Count().Held > 0 {
					t.Error("a paused request keeps its slot")
				}
				if now := s.paused.Count().Held; now != test.paused {
					t.Errorf("%d refusals wait afterwards, want %d", now, test.paused)
				}
			})
		})
	}
}
