package pgbucket

import (
	"context"
	"fmt"

	"github.com/sluicegate/sluice/internal/store/combine"
)

// State is the breaker's state.
type State = combine.State

// The states.
const (
	Up      = combine.Up
	Probing = combine.Probing
	Down    = combine.Down
)

// State sends nothing.
func (s *Store) State() State { return s.breaker.State() }

// Trips counts the breaker's openings.
func (s *Store) Trips() int64 { return s.breaker.Trips() }

// Ping reads a missing bucket, past the breaker, within the budget.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.budget)
	defer cancel()
	if err := s.run(ctx, s.background, &transaction{}, func() {}); err != nil {
		return fmt.Errorf("ping the database of buckets: %w", err)
	}
	return nil
}
