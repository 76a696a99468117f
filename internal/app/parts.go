package app

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/sluicegate/sluice/internal/jobs/panics"
)

// Parts are the goroutines of a process, which all end when one fails.
type Parts struct {
	group *errgroup.Group
	log   *slog.Logger
}

// NewParts returns an empty group, and the context that ends when a part fails.
func NewParts(ctx context.Context, log *slog.Logger) (*Parts, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	return &Parts{group, log}, ctx
}

// Go runs a part, whose error or panic ends the process in order.
func (p *Parts) Go(what string, part func() error) {
	p.group.Go(func() error { return panics.Do(p.log, what, part) })
}

// Loop runs a part until ctx ends, and restarts it after a panic.
func (p *Parts) Loop(ctx context.Context, what string, part func(context.Context)) {
	p.Go(what, func() error { panics.Loop(ctx, p.log, what, part); return nil })
}

// Wait waits for all parts, and returns the first error.
func (p *Parts) Wait() error { return p.group.Wait() } //nolint:wrapcheck // the part's own
