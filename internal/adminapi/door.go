package adminapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/meter"
	"github.com/sluicegate/sluice/internal/shares"
)

const (
	// maxLight and maxHeavy cap the requests of one session or key that are in flight, waiting ones included.
	maxLight, maxHeavy = 64, 32
	// lightPatience and heavyPatience are below the deadline of requests, so that a refusal can name its reason.
	lightPatience = 5 * time.Second
	heavyPatience = 15 * time.Second
	// filePatience is short, because another file may take as long as its caller's network.
	filePatience = 5 * time.Second
	// processorTurn is how long a heavy request keeps a processor. After that it probably waits for the database, so
	// the next one starts.
	processorTurn = time.Second
	// refusalPause is the least time that a refusal takes. Without it a client that retries at once, in dozens of
	// loops, keeps a processor busy with refusals alone.
	refusalPause = 500 * time.Millisecond
	// maxPaused caps the refusals that wait; beyond it, callers are refused at once.
	maxPaused = 512
)

// door limits how many requests run at once. Connections limit the work of the database, but not of processors.
// Light and heavy requests have separate doors, so that nothing waits behind charts and files. Routes for anyone, such
// as sign-in and health, have no door.
type door struct {
	// arrivals counts the requests in flight of one session or key, by a digest of the credential. It is asked
	// before authentication, so that a refusal takes no query.
	arrivals *shares.Shares
	// running limits the requests that run, by tenant and account.
	running *shares.Shares
	// processors limits how many of the running requests compute at once; nil for no limit. See processorTurn.
	processors *shares.Shares
}

// newDoor returns a door for at most arrivals requests of one session or key. All of them may wait.
func newDoor(arrivals int, running shares.Limits) door {
	running.Waiting = arrivals
	return door{arrivals: shares.New(shares.Limits{PerAccount: arrivals}), running: shares.New(running)}
}

// doorOf returns the door of an operation. A door without limits is for routes that anyone may call.
func (s *surface) doorOf(rt route, o *operation) door {
	switch {
	case rt.least == anyone:
		return door{}
	case o.isStream:
		return door{arrivals: s.light.arrivals} // transfer limits running streams
	case isHeavy(rt, o):
		return s.heavy
	}
	return s.light
}

// isHeavy reports whether an operation takes more than some milliseconds of processor time, here or in the database.
func isHeavy(rt route, o *operation) bool {
	return o.isFile || o.isUpload() || strings.Contains(rt.path, "/stats/") ||
		strings.HasSuffix(rt.path, "/violations") || strings.HasSuffix(rt.path, "/simulate") || strings.HasSuffix(rt.path, "/effect") ||
		rt.method == http.MethodPost && strings.HasSuffix(rt.path, "/replays")
}

// places are what a request holds until it ends.
type places struct {
	arrival, transfer, running func()
}

func (p *places) release() {
	for _, release := range []func(){p.running, p.transfer, p.arrival} {
		if release != nil {
			release()
		}
	}
	*p = places{}
}

// asSender lets a request's queries take connections in the name of its credential until its caller is known.
// Routes for anyone take none.
func (s *surface) asSender(rt route, r *http.Request) *http.Request {
	credential := s.credential(r)
	if rt.least == anyone || credential == "" {
		return r
	}
	return r.WithContext(shares.With(r.Context(), shares.Caller{Account: credential}))
}

// arrive counts a request of a session or key.
func (d door) arrive(q *apiRequest) (err error) {
	ctx := q.r.Context()
	sender, ok := shares.CallerOf(ctx)
	if !ok || d.arrivals == nil {
		return nil
	}
	q.places.arrival, err = d.arrivals.Take(ctx, sender)
	return err
}

// enter waits until the request may run.
func (d door) enter(q *apiRequest) error {
	q.door = d
	return q.run(q.r.Context(), (*shares.Shares).Take)
}

// run takes a place to run and a processor. After an error it may hold the first one, which the request's end releases.
func (q *apiRequest) run(ctx context.Context, take func(*shares.Shares, context.Context, shares.Caller) (func(), error)) error {
	if q.door.running == nil {
		return nil
	}
	leave, err := take(q.door.running, ctx, q.caller())
	if err != nil {
		return err
	}
	q.places.running = leave
	if q.door.processors == nil {
		return nil
	}
	free, err := take(q.door.processors, ctx, q.caller())
	if err != nil {
		return err
	}
	free = sync.OnceFunc(free)
	turn := time.AfterFunc(processorTurn, free)
	q.places.running = func() {
		turn.Stop()
		free()
		leave()
	}
	return nil
}

// whileAway lets other requests run while this one waits for its caller's network or for another place.
func (q *apiRequest) whileAway(ctx context.Context, wait func() error) error {
	if q.places.running == nil {
		return wait()
	}
	q.places.running()
	q.places.running = nil
	if err := wait(); err != nil {
		return err
	}
	return q.run(ctx, (*shares.Shares).TakeAgain)
}

// pauseRefusal delays the answer to a request that was refused because its caller asks for too much. The request
// holds no other place meanwhile. The pause ends early when the caller leaves or the server stops.
func (s *surface) pauseRefusal(ctx context.Context, q *apiRequest, err error) {
	var told *httpapi.Problem
	if !errors.As(asProblem(err), &told) || told.Type != httpapi.TooSoon.Type && told.Type != httpapi.LimitExceeded.Type {
		return
	}
	q.places.release()
	defer meter.Wait(ctx)()
	leave, err := s.paused.Take(ctx, shares.Caller{})
	if err != nil {
		return
	}
	defer leave()
	pause := time.NewTimer(refusalPause - time.Since(q.began))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	case <-s.Closing:
	}
}

// credential returns a digest of the API key or session that identify would use, or "" without one. The digest covers
// the secret, so that knowing a key's id is not enough to use up its share.
func (s *surface) credential(r *http.Request) string {
	var sent string
	if authorization := r.Header["Authorization"]; slices.ContainsFunc(authorization, isBearer) {
		sent = strings.Join(authorization, "\n")
	} else if cookie, err := r.Cookie(s.cookie(plainSession)); err == nil {
		sent = cookie.Value
	}
	if sent == "" {
		return ""
	}
	digest := sha256.Sum256([]byte(sent))
	return string(digest[:])
}
