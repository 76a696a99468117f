package adminapi

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/shares"
)

// divided is what this process shares out among tenants and their members. The store shares out connections to the
// database; see apiRequest.caller.
type divided struct {
	// uploads, downloads and tails take as long as their callers' networks. An upload holds its file in memory. A
	// tail asks the database once a second; nobody waits for one to end.
	uploads, downloads, tails *shares.Shares
	// whole limits operations that hold all of a tenant's configuration or users in memory, up to some hundred MB.
	whole *shares.Shares
	// light and heavy are the doors that requests go through.
	light, heavy door
	// paused holds refusals for a moment; see pauseRefusal.
	paused *shares.Shares
}

func divide() divided {
	cores := runtime.GOMAXPROCS(0)
	d := divided{
		uploads:   shares.New(shares.Limits{Places: 24, PerTenant: 4, PerAccount: 2, Waiting: maxHeavy, Patience: filePatience}),
		downloads: shares.New(shares.Limits{Places: 64, PerTenant: 16, PerAccount: 4, Waiting: maxHeavy, Patience: filePatience}),
		// A browser opens six connections to a host; with more than 4 tails too few are left for the rest.
		tails:  shares.New(shares.Limits{Places: 100, PerTenant: 20, PerAccount: 4}),
		whole:  shares.New(shares.Limits{Places: 2, PerTenant: 1, Waiting: 4, Patience: 30 * time.Second}),
		light:  newDoor(maxLight, shares.Limits{Places: 8 * cores, PerTenant: 4 * cores, PerAccount: 2 * cores, Patience: lightPatience}),
		heavy:  newDoor(maxHeavy, shares.Limits{Places: max(2, cores), PerTenant: max(1, cores/2), Patience: heavyPatience}),
		paused: shares.New(shares.Limits{Places: maxPaused}),
	}
	// One processor is left to light requests, if there are two.
	d.heavy.processors = shares.New(shares.Limits{Places: max(1, cores-1), Waiting: maxHeavy, Patience: heavyPatience})
	return d
}

// observe calls show for each class of places.
func (d *divided) observe(show func(class string, count func() shares.Count)) {
	for class, of := range map[string]*shares.Shares{
		"light": d.light.running, "heavy": d.heavy.running, "light_arrivals": d.light.arrivals, "heavy_arrivals": d.heavy.arrivals,
		"uploads": d.uploads, "downloads": d.downloads, "tails": d.tails, "whole": d.whole, "processors": d.heavy.processors, "paused": d.paused,
	} {
		show(class, of.Count)
	}
}

// caller returns the caller for shares.
func (q *apiRequest) caller() shares.Caller {
	return shares.Caller{Tenant: q.tenant.ID, Account: string(q.actor.Kind) + ":" + q.actor.ID}
}

// transfer takes a place for a file or stream, until the request ends.
func (s *surface) transfer(q *apiRequest, o *operation) error {
	of, what := s.downloads, "files"
	switch {
	case o.isUpload():
		of = s.uploads
	case o.isStream:
		of, what = s.tails, "streams"
	case !o.isFile:
		return nil
	}
	release, err := of.Take(q.r.Context(), q.caller())
	switch {
	case errors.Is(err, shares.ErrAccount):
		return httpapi.TooSoon.Problem("You have too many open " + what + "; close one, or wait until one ends.")
	case errors.Is(err, shares.ErrTenant):
		return httpapi.TooSoon.Problem("The members of this tenant have too many open " + what + "; wait until one ends.")
	case errors.Is(err, shares.ErrBusy):
		return httpapi.Unavailable.Problem("Too many " + what + " are open on this server; try again later.")
	case err != nil:
		return err
	}
	q.places.transfer = release
	return nil
}

// takeWhole waits for one of the places for whole operations. Other requests run meanwhile.
func (s *surface) takeWhole(ctx context.Context) (release func(), err error) {
	q := requestOf(ctx)
	err = q.whileAway(ctx, func() (err error) {
		release, err = s.whole.Take(ctx, q.caller())
		return err
	})
	if err == nil {
		return release, nil
	}
	if release != nil {
		release()
	}
	s.pauseRefusal(ctx, q, err)
	return nil, err
}

// sharesProblem turns the errors of the package shares into problems, and returns nil for others.
func sharesProblem(err error) error {
	switch {
	case errors.Is(err, shares.ErrAccount):
		return httpapi.TooSoon.Problem("You have too many requests in flight; wait for some of their answers.")
	case errors.Is(err, shares.ErrTenant):
		return httpapi.TooSoon.Problem("This tenant has too many requests in flight; try again when some of them have ended.")
	case errors.Is(err, shares.ErrBusy):
		return httpapi.Unavailable.Problem("The server is busy with other requests, and nothing was done; try again.")
	}
	return nil
}

// sayWhen adds Retry-After to a temporary refusal that has none.
func sayWhen(w http.ResponseWriter, p *httpapi.Problem) {
	isPassing := p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests
	if isPassing && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "1")
	}
}
