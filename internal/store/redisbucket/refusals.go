package redisbucket

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Refusal is a node's last answer of an error of one kind to a script. The node may still answer pings.
type Refusal struct {
	Addr string
	Kind string // the error's first word, such as NOPERM, OOM or READONLY
	Err  error
	At   time.Time
}

const maxRefusals = 64

// refusals keeps the last error of each kind and node.
type refusals struct {
	count atomic.Int64
	mu    sync.Mutex
	last  map[[2]string]Refusal
}

var errorKind = regexp.MustCompile(`^[A-Z][A-Z_]+`)

// note keeps err if Redis answered it to a script. Errors about a slot only mean that the slot is elsewhere.
func (r *refusals) note(addr string, err error, at time.Time) {
	var answer redis.Error
	if !errors.As(err, &answer) || isOfSlot(answer) || redis.HasErrorPrefix(answer, "NOSCRIPT") {
		return
	}
	r.count.Add(1)
	kind := errorKind.FindString(answer.Error())
	if kind == "" {
		kind = "ERR"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[[2]string]Refusal{}
	}
	key := [2]string{addr, kind}
	if _, known := r.last[key]; known || len(r.last) < maxRefusals {
		r.last[key] = Refusal{Addr: addr, Kind: kind, Err: answer, At: at}
	}
}

// RefusedScripts counts answers of an error to a script.
func (s *Store) RefusedScripts() int64 { return s.refusals.count.Load() }

// Refusals returns the last error of each kind and node in answers to scripts since then.
func (s *Store) Refusals(since time.Time) []Refusal {
	r := &s.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Refusal
	for key, refusal := range r.last {
		if refusal.At.Before(since) {
			delete(r.last, key)
			continue
		}
		found = append(found, refusal)
	}
	slices.SortFunc(found, func(a, b Refusal) int { return strings.Compare(a.Addr+a.Kind, b.Addr+b.Kind) })
	return found
}
