package sluice

import (
	"math/rand/v2"
	"time"
)

const (
	// failuresUntilProbing is the number of consecutive failures after which the failure mode decides at once, except
	// for one probe after each pause.
	failuresUntilProbing = 5
	// maxPause bounds the pauses, also of clients with a long timeout.
	maxPause = 5 * time.Second
)

// breaker bounds what a server that fails costs its callers. The pauses between probes double from one timeout to
// longTimeouts or maxPause. The queue's mu guards it.
type breaker struct {
	timeout time.Duration
	now     func() time.Time

	failures int // consecutive
	pause    time.Duration
	next     time.Time // the start of the next probe
	probing  bool
}

func (b *breaker) isOpen() bool { return b.failures >= failuresUntilProbing }

// admits reports whether to send a request, which is a probe if the breaker is open.
func (b *breaker) admits() bool {
	if !b.isOpen() {
		return true
	}
	now := b.now()
	if now.Before(b.next) {
		return false
	}
	b.probing, b.next = true, now.Add(b.timeout)
	return true
}

// ended records the end of a request.
func (b *breaker) ended(how outcome) {
	switch how {
	case answered:
		b.failures, b.pause, b.probing = 0, 0, false
	case silent:
		if b.failures++; b.failures == failuresUntilProbing || b.probing {
			b.pause = min(max(b.timeout, 2*b.pause), longTimeouts*b.timeout, maxPause)
			// Jitter, so that the processes of a service do not probe at the same time.
			b.probing, b.next = false, b.now().Add(b.pause/2+rand.N(b.pause/2+1))
		}
	}
}

// outcome is what a request shows about the server.
type outcome int

const (
	answered outcome = iota // decided or refused; a refusal is an answer
	silent
	unknown
)

func outcomeOf(failed *Error) outcome {
	if failed == nil || failed.Kind == KindRequest || failed.Kind == KindKey {
		return answered
	}
	return silent
}
