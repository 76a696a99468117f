package adminapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
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

func classOf(rt route, o *operation) class {
	ends := func(with string) bool { return strings.HasSuffix(rt.path, with) }
	switch {
	case o.isUpload(), o.isFile:
		return bulk
	case strings.Contains(rt.path, "/stats/"), ends("/violations"), ends("/simulate"), ends("/effect"),
		rt.method == http.MethodPost && (ends("/replays") || ends("/export") || ends("/data")):
		return heavy
	}
	return light
}

const (
	// maxWaiting caps the waiting requests of one account; more are refused at once.
	maxWaiting, maxWaitingHeavy, maxWaitingBulk = 64, 32, 4
	// maxWaitingLookups is for a credential or for all unverified ones of a network, such as an office's after a
	// restart.
	maxWaitingLookups = 256
	// lightTimeout and heavyTimeout are below the deadline of requests, so that a refusal can name its reason.
	lightTimeout = 5 * time.Second
	heavyTimeout = 15 * time.Second
	// bulkTimeout is about as long as an import of 100,000 users.
	bulkTimeout = 30 * time.Second
	// A refusal takes between one and two times refusalPause. Without it a client that retries at once, in dozens of
	// loops, keeps a processor busy with refusals alone. The random part keeps the loops from coming back at the same
	// moment.
	refusalPause = time.Second
	// maxPaused caps the refusals that wait; beyond it, callers are refused at once.
	maxPaused = 512
	// usualConnections is the pool for which the slots below are counted; others scale them. 4 connections are left for
	// sign-in and for the program's own work.
	usualConnections = 20
)

// semaphores are the fair semaphores of the surface. A running request uses at most one connection to the database at a
// time, so the slots of the classes divide the connections.
type semaphores struct {
	// identify is for the lookups of a request's session or key, tenant and role, apart from the classes, so that slow
	// requests do not keep others from being identified.
	identify *shares.Shares
	classes  map[class]*shares.Shares
	// uploads, downloads and tails limit open files and streams, which last as long as their callers' networks allow.
	// An upload holds its file in memory.
	uploads, downloads, tails *shares.Shares
	// unread counts the bytes of answers that are in memory while their callers read them.
	unread *shares.Budget
	// paused holds refusals for a moment; see pauseRefusal.
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
		// Lookups are short, so turns are enough. The cap is for unverified credentials alone; see takeLookup.
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

// takeSlot waits for a slot of the request's class. Routes for anyone, such as sign-in and health, need none.
func (s *surface) takeSlot(q *apiRequest) error {
	if q.route.least == anyone {
		return nil
	}
	return q.slot.Take(q.r.Context(), s.classes[q.class], q.caller())
}

// checkUnread refuses callers that leave too much unread. Sizes are not known in advance, so the total can exceed the
// limit by one answer per slot.
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

// countUnread counts an answer in memory until done is called.
func (s *surface) countUnread(q *apiRequest, size int) (done func()) {
	s.unread.Add(q.caller(), size)
	return func() { s.unread.Add(q.caller(), -size) }
}

// openTransfer takes a slot for a file or stream, until the request ends.
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

// sharesProblem turns the errors of the package shares into problems, and returns nil for others.
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

// pauseRefusal releases a refused request's slots, and delays the answer if its caller asks for too much, until the
// caller leaves or the server stops.
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
