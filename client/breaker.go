package sluice

import (
	"math/rand/v2"
	"time"
)

const (
	// After failuresUntilProbing failures in a row the failure mode decides at once, but for one probe after each
	// pause.
	failuresUntilProbing = 5
	maxPause             = 5 * time.Second
)

// breaker bounds the cost of a failing server. Pauses double from one timeout to longTimeouts or maxPause. The queue's
// mu guards it.
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

func (b *breaker) ended(how outcome) {
	switch how {
	case answered:
		b.failures, b.pause, b.probing = 0, 0, false
	case silent:
		if b.failures++; b.failures == failuresUntilProbing || b.probing {
			b.pause = min(max(b.timeout, 2*b.pause), longTimeouts*b.timeout, maxPause)
			// The jitter keeps the processes of a service from probing together.
			b.probing, b.next = false, b.now().Add(b.pause/2+rand.N(b.pause/2+1))
		}
	}
}

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
