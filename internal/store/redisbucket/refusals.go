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

// Refusal is a node's last error of one kind; the node may still answer pings.
type Refusal struct {
	Addr string
	Kind string // the error's first word, such as NOPERM, OOM or READONLY
	Err  error
	At   time.Time
}

const maxRefusals = 64

type refusals struct {
	count atomic.Int64
	mu    sync.Mutex
	last  map[[2]string]Refusal
}

var errorKind = regexp.MustCompile(`^[A-Z][A-Z_]+`)

// Errors about a slot only mean that the slot is elsewhere.
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

// RefusedScripts counts error answers.
func (s *Store) RefusedScripts() int64 { return s.refusals.count.Load() }

// Refusals returns the last error of each kind and node since a time.
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
