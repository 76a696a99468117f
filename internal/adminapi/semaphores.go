package adminapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/shares"
)

// class is what a request costs: its semaphore, and its tokens in ratelimit.go.
type class string

const (
	light class = "light" // some milliseconds of a processor, here or in the database
	heavy class = "heavy" // a search, chart or what-if
	bulk  class = "bulk"  // a file: an upload or a configuration is in memory as a whole, up to some hundred MB
)

const (
	// maxWaiting caps the waiting requests of one account; more are refused at once.
	maxWaiting, maxWaitingHeavy, maxWaitingBulk = 64, 32, 4
	// maxWaitingLookups is for all unverified credentials of a network, such as an office's after a restart.
	maxWaitingLookups = 256
	// lightTimeout and heavyTimeout are below the deadline of requests, so that a refusal can name its reason.
	lightTimeout = 5 * time.Second
	heavyTimeout = 15 * time.Second
	// bulkTimeout is about as long as an import of 100,000 users.
	bulkTimeout = 30 * time.Second
	// A refusal takes one to two times refusalPause, at random, so that loops that retry at once neither keep a
	// processor busy nor return together.
	refusalPause = time.Second
	maxPaused    = 512
	// usualConnections is the pool that the slots below are counted for; 4 are left for the program's own work.
	usualConnections = 20
)

// semaphores divide the connections to the database; a running request uses at most one.
type semaphores struct {
	// identify is apart from the classes, so that slow requests do not keep others from being identified.
	identify *shares.Shares
	classes  map[class]*shares.Shares
	// uploads, downloads and tails limit files and streams, which last as long as their callers' networks allow.
	uploads, downloads, tails *shares.Shares
	// unread counts the bytes of answers that are in memory while their callers read them.
	unread *shares.Budget
	paused *shares.Shares
}

func newSemaphores(connections int) semaphores {
	of := func(n int) int { return max(1, connections*n/usualConnections) }
	divided := func(slots, waiting int, timeout time.Duration) *shares.Shares {
		return shares.New(shares.Limits{
			Slots: slots, PerTenant: (slots + 1) / 2, PerAccount: max(1, slots/2), Waiting: waiting,
			Timeout: timeout,
		})
	}
	return semaphores{
		// Lookups are short, so turns are enough. The cap is for unverified credentials; see takeLookup.
		identify: shares.New(shares.Limits{
			Slots: of(4), PerTenant: of(2), Waiting: maxWaitingLookups, Timeout: lightTimeout,
		}),
		classes: map[class]*shares.Shares{
			light: divided(of(7), maxWaiting, lightTimeout),
			heavy: divided(of(3), maxWaitingHeavy, heavyTimeout),
			bulk:  divided(of(2), maxWaitingBulk, bulkTimeout),
		},
		uploads: shares.New(shares.Limits{
			Slots: 24, PerTenant: 4, PerAccount: 2, Waiting: maxWaitingHeavy,
			Timeout: lightTimeout,
		}),
		downloads: shares.New(shares.Limits{
			Slots: 64, PerTenant: 16, PerAccount: 4, Waiting: maxWaitingHeavy,
			Timeout: lightTimeout,
		}),
		// A browser opens six connections to a host; with more than 4 tails too few are left for the rest.
		tails:  shares.New(shares.Limits{Slots: 100, PerTenant: 20, PerAccount: 4}),
		unread: shares.NewBudget(shares.BudgetLimits{Bytes: 64 << 20, PerTenant: 16 << 20, PerAccount: 8 << 20}),
		paused: shares.New(shares.Limits{Slots: maxPaused}),
	}
}

func (s *semaphores) observe(show func(class string, count func() shares.Count)) {
	for name, of := range map[string]*shares.Shares{
		"identify": s.identify, "light": s.classes[light], "heavy": s.classes[heavy], "bulk": s.classes[bulk],
		"uploads": s.uploads, "downloads": s.downloads, "tails": s.tails, "paused": s.paused,
	} {
		show(name, of.Count)
	}
	show("unread", func() shares.Count { return shares.Count{Refused: s.unread.Refused()} })
}

func (q *apiRequest) caller() shares.Caller {
	return shares.Caller{Tenant: q.tenant.ID, Account: string(q.actor.Kind) + ":" + q.actor.ID}
}

// Routes for anyone, such as sign-in and health, need no slot.
func (s *surface) takeSlot(q *apiRequest) error {
	if q.route.least == anyone {
		return nil
	}
	return q.slot.Take(q.r.Context(), s.classes[q.route.class], q.caller())
}

// checkUnread cannot know sizes in advance, so the total can exceed the limit by one answer per slot.
func (s *surface) checkUnread(q *apiRequest) error {
	err := s.unread.Reserve(q.caller(), 0)
	switch {
	case errors.Is(err, shares.ErrAccount):
		return httpapi.TooSoon.Problem("You have too many answers that you have not read; read some of them.")
	case errors.Is(err, shares.ErrTenant):
		return httpapi.TooSoon.Problem("The members of this tenant have too many answers that they have not read; " +
			"try again when they have read some.")
	}
	return err
}

func (s *surface) countUnread(q *apiRequest, size int) (done func()) {
	s.unread.Add(q.caller(), size)
	return func() { s.unread.Add(q.caller(), -size) }
}

func (s *surface) openTransfer(q *apiRequest) error {
	of, what := s.downloads, "files"
	switch {
	case q.operation.isUpload():
		of = s.uploads
	case q.operation.isStream:
		of, what = s.tails, "streams"
	case !q.operation.isFile:
		return nil
	}
	err := q.transfer.Take(q.r.Context(), of, q.caller())
	switch {
	case errors.Is(err, shares.ErrAccount):
		return httpapi.TooSoon.Problem("You have too many open " + what + "; close one, or wait until one ends.")
	case errors.Is(err, shares.ErrTenant):
		return httpapi.TooSoon.Problem("The members of this tenant have too many open " + what +
			"; wait until one ends.")
	case errors.Is(err, shares.ErrBusy):
		return httpapi.Unavailable.Problem("Too many " + what + " are open on this server; try again later.")
	}
	return err
}

func (q *apiRequest) release() {
	q.slot.Release()
	q.transfer.Release()
}

func sharesProblem(err error) error {
	switch {
	case errors.Is(err, shares.ErrAccount):
		return httpapi.TooSoon.Problem("You have too many requests in flight; wait for some of their answers.")
	case errors.Is(err, shares.ErrTenant):
		return httpapi.TooSoon.Problem(
			"This tenant has too many requests in flight; try again when some of them have ended.")
	case errors.Is(err, shares.ErrBusy):
		return httpapi.Unavailable.Problem("The server is busy with other requests, and nothing was done; try again.")
	}
	return nil
}

// pauseRefusal delays the answer of callers that ask for too much.
func (s *surface) pauseRefusal(ctx context.Context, q *apiRequest, err error) {
	q.release()
	var problem *httpapi.Problem
	if !errors.As(asProblem(err), &problem) || problem.Type != httpapi.TooSoon.Type &&
		problem.Type != httpapi.LimitExceeded.Type {
		return
	}
	leave, err := s.paused.Take(ctx, shares.Caller{})
	if err != nil {
		return
	}
	defer leave()
	pause := time.NewTimer(refusalPause - time.Since(q.began) + rand.N(refusalPause))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	case <-s.Closing:
	}
}

func sayWhen(w http.ResponseWriter, p *httpapi.Problem) {
	isPassing := p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests
	if isPassing && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "1")
	}
}
