package auth

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"sync"
	"time"
)

// How failed attempts slow further ones down.
const (
	FreeAttempts = 5
	LongestWait  = time.Minute
	// ForgottenAfter is how long after the last one attempts stop counting.
	ForgottenAfter = 24 * time.Hour
)

// WaitAfter is how long after an attempt the next one is looked at, if that many have failed.
func WaitAfter(failures int) time.Duration {
	if failures < FreeAttempts {
		return 0
	}
	const doublings = 6 // 2^6 s is above LongestWait
	return min(LongestWait, time.Second<<min(failures-FreeAttempts, doublings))
}

// counterOf hashes what is counted, in a namespace of its kind.
func counterOf(kind string, what []byte) Counter {
	return sha256.Sum256(append([]byte(kind+"\x00"), what...))
}

func addressCounter(email string) Counter {
	return counterOf("address", []byte(foldAddress(email)))
}

// sessionCounter counts for the holder of a session, who may be a thief that guesses the password; and
// guesses at the sign-in must not keep the owner from changing it.
func sessionCounter(id int64) Counter {
	return counterOf("session", binary.BigEndian.AppendUint64(nil, uint64(id)))
}

// mostWaits bounds the memory of a flood; 10,000 waits take about 1 MB.
const mostWaits = 10_000

// waits remembers who was told to wait, so that a flood of guesses at one account is refused without a
// write to the database, which counts for all processes.
type waits struct {
	sync.Mutex
	until map[Counter]time.Time
}

func (w *waits) left(counter Counter, now time.Time) time.Duration {
	w.Lock()
	defer w.Unlock()
	return w.until[counter].Sub(now)
}

func (w *waits) remember(counter Counter, until, now time.Time) {
	w.Lock()
	defer w.Unlock()
	if len(w.until) >= mostWaits {
		maps.DeleteFunc(w.until, func(_ Counter, until time.Time) bool { return !until.After(now) })
	}
	if len(w.until) >= mostWaits || w.until == nil {
		w.until = map[Counter]time.Time{} // what is lost here, the database still knows
	}
	w.until[counter] = until
}

func (w *waits) forget(counter Counter) {
	w.Lock()
	defer w.Unlock()
	delete(w.until, counter)
}

// judge counts an attempt and compares its password. It is TooSoonError, ErrBusy or ErrWrongPassword unless that
// fits. It counts when it is its turn: who is turned away, or gives up before, has not guessed.
func (g *Gate) judge(ctx context.Context, counter Counter, isKnown bool, password, hash string) (weak bool, err error) {
	now := g.options.Now()
	if wait := g.waits.left(counter, now); wait > 0 {
		return false, TooSoonError{wait}
	}
	done, err := g.hasher.turn(ctx, isKnown)
	if err != nil {
		return false, err
	}
	defer done()
	wait, err := g.store.Attempt(ctx, counter)
	if err != nil {
		return false, err
	}
	if wait > 0 {
		g.waits.remember(counter, now.Add(wait), now)
		return false, TooSoonError{wait}
	}
	fits, weak, err := g.hasher.verify(password, hash)
	if err == nil && !fits {
		err = ErrWrongPassword
	}
	return weak, err
}

func (g *Gate) forget(ctx context.Context, counter Counter) error {
	g.waits.forget(counter)
	return g.store.ForgetAttempts(ctx, counter)
}
