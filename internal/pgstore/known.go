package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// requireKnown refuses rules whose algorithm a live process does not know, or which adapt or have a meter while one
// knows nothing of that. Every write that puts a rule into force calls this. Rules that take no part in checks are
// accepted, so that a rule can always be turned off. Whatever reports itself knows token buckets, so rules of these
// cost no query.
func (w write) requireKnown(ctx context.Context, all ...rules.Rule) error {
	return requireKnown(ctx, w.Queries, all)
}

// RequireKnown returns rules.UnknownToProcessError if a live process does not know a feature that one of the rules
// needs. A write of these rules would be refused with the same error.
func (s *Store) RequireKnown(ctx context.Context, all []rules.Rule) error {
	_, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		return struct{}{}, requireKnown(ctx, q, all)
	})
	return err
}

func requireKnown(ctx context.Context, queries *dbsqlc.Queries, all []rules.Rule) error {
	asked := map[string]bool{string(rules.TokenBucket): true}
	for i := range all {
		rule := &all[i]
		if !rule.Active || rule.Action != rules.ActionLimit {
			continue
		}
		words := []string{string(rule.Algorithm)}
		if rule.Adapts() { // an older process would leave the configured rate in force
			words = append(words, rules.WordAdapt)
		}
		if rule.Meter != "" || rule.ChargedAfter {
			words = append(words, rules.WordMeters)
		}
		for _, word := range words {
			if asked[word] {
				continue
			}
			asked[word] = true
			if err := requireKnownWord(ctx, queries, word); err != nil {
				return err
			}
		}
	}
	return nil
}

// KnownToAll reports whether every live process knows a word.
func (s *Store) KnownToAll(ctx context.Context, word string) (bool, error) {
	return ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (bool, error) {
		var unknown rules.UnknownToProcessError
		err := requireKnownWord(ctx, q, word)
		if errors.As(err, &unknown) {
			return false, nil
		}
		return err == nil, err
	})
}

func requireKnownWord(ctx context.Context, queries *dbsqlc.Queries, word string) error {
	process, err := queries.ProcessThatKnowsNot(ctx, fleet.Recent.Seconds(), word)
	switch {
	case err == nil:
		return rules.UnknownToProcessError{Word: word, Process: process.Name, Version: process.Version}
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	}
	return err
}
