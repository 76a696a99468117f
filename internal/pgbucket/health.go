package pgbucket

import (
	"context"
	"fmt"

	"github.com/sony/gobreaker/v2"
)

// State is the state of the circuit breaker.
type State string

// The states. Probing is a half-open breaker, which waits for the answer to one batch.
const (
	Up      State = "up"
	Probing State = "probing"
	Down    State = "down"
)

// State returns the breaker's state. It sends nothing.
func (s *Store) State() State {
	switch s.breaker.State() {
	case gobreaker.StateClosed:
		return Up
	case gobreaker.StateHalfOpen:
		return Probing
	default:
		return Down
	}
}

// Trips counts how often the breaker opened.
func (s *Store) Trips() int64 { return s.trips.Load() }

// Ping asks PostgreSQL for a bucket that does not exist, past the breaker, within the budget.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.budget)
	defer cancel()
	if err := s.run(ctx, s.background, &transaction{}, func() {}); err != nil {
		return fmt.Errorf("ping the database of buckets: %w", err)
	}
	return nil
}
