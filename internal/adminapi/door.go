package adminapi

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/shares"
)

const (
	// maxLight and maxHeavy are how many requests of one session or key may be under way, most of them waiting.
	maxLight, maxHeavy = 64, 32
	// lightPatience and heavyPatience are below the deadline of requests, so that a refusal says what was waited for.
	lightPatience = 5 * time.Second
	heavyPatience = 15 * time.Second
	// filePatience is short, because other files may take as long as their callers' networks.
	filePatience = 5 * time.Second
)

// door lets few requests run at once, because connections bound the work of the database and not that of processors.
// Light and heavy requests have doors of their own, so that nothing waits behind charts and files. Signing in, health
// and what else anybody may ask for goes through no door.
type door struct {
	// arrivals are the requests under way of one session or key. They are counted by a digest of what was sent,
	// before anybody looks whose it is: refusing a request takes no query.
	arrivals *shares.Shares
	// running are the requests that are let through, in the name of an account and tenant.
	running *shares.Shares
}

// newDoor returns a door for so many requests of one session or key. All of them may wait.
func newDoor(arrivals int, running shares.Limits) door {
	running.Waiting = arrivals
	return door{arrivals: shares.New(shares.Limits{PerAccount: arrivals}), running: shares.New(running)}
}

// doorOf returns the door of an operation. It is a door without limits for what anybody may ask.
func (s *surface) doorOf(rt route, o *operation) door {
	switch {
	case rt.least == anyone:
		return door{}
	case o.isStream:
		return door{arrivals: s.light.arrivals} // which transfer limits
	case isHeavy(rt, o):
		return s.heavy
	}
	return s.light
}

// isHeavy tells whether an operation keeps a processor busy for more than some milliseconds, here or in the database.
func isHeavy(rt route, o *operation) bool {
	return o.isFile || o.isUpload() || strings.Contains(rt.path, "/stats/") ||
		strings.HasSuffix(rt.path, "/violations") || strings.HasSuffix(rt.path, "/simulate")
}

// places are those that a request has taken.
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

// asSender returns a request whose queries take places in the name of the session or key that was sent, until it is
// known whose it is. What anybody may ask takes none.
func (s *surface) asSender(rt route, r *http.Request) *http.Request {
	credential := s.credential(r)
	if rt.least == anyone || credential == "" {
		return r
	}
	return r.WithContext(shares.With(r.Context(), shares.Caller{Account: credential}))
}

// arrive counts a request of a session or key.
func (d door) arrive(v *visit) (err error) {
	ctx := v.r.Context()
	sender, ok := shares.CallerOf(ctx)
	if !ok || d.arrivals == nil {
		return nil
	}
	v.places.arrival, err = d.arrivals.Take(ctx, sender)
	return err
}

// enter waits until the request may run.
func (d door) enter(v *visit) (err error) {
	if d.running == nil {
		return nil
	}
	v.running = d.running
	v.places.running, err = d.running.Take(v.r.Context(), v.caller())
	return err
}

// whileAway gives the request's place to others while it waits for its caller's network, and then takes one again.
func (v *visit) whileAway(ctx context.Context, wait func() error) error {
	if v.places.running == nil {
		return wait()
	}
	v.places.running()
	v.places.running = nil
	err := wait()
	if err != nil {
		return err
	}
	v.places.running, err = v.running.TakeAgain(ctx, v.caller())
	return err
}

// credential is a digest of the API key or session that identify would use, or "" without one. It covers the secret, so
// that nobody who knows only the id of a key can use up the key's share.
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
