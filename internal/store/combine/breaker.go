package combine

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// ProbeEvery is when an open breaker lets one batch through.
const ProbeEvery = 250 * time.Millisecond

// State is a breaker's state.
type State string

// The states. Probing is half-open: one batch is in flight.
const (
	Up      State = "up"
	Probing State = "probing"
	Down    State = "down"
)

// Breaker fails calls at once while the store behind it is down.
type Breaker struct {
	*gobreaker.CircuitBreaker[struct{}]
	trips atomic.Int64
}

// NewBreaker returns a Breaker that opens after tripAfter failures in a row; excluded errors count neither way.
func NewBreaker(tripAfter uint32, excluded func(error) bool) *Breaker {
	b := &Breaker{}
	b.CircuitBreaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout: ProbeEvery,
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if from == gobreaker.StateClosed && to == gobreaker.StateOpen {
				b.trips.Add(1)
			}
		},
		ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= tripAfter },
		IsExcluded:  excluded,
	})
	return b
}

// State is Closed, Probing or Open.
func (b *Breaker) State() State {
	switch b.CircuitBreaker.State() {
	case gobreaker.StateClosed:
		return Up
	case gobreaker.StateHalfOpen:
		return Probing
	default:
		return Down
	}
}

// Trips counts openings.
func (b *Breaker) Trips() int64 { return b.trips.Load() }

// IsRefusal reports whether an open breaker refused the call.
func IsRefusal(err error) bool {
	return errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)
}
