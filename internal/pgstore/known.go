package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// requireKnown is called by every write that puts a rule into force. Rules without part in checks are accepted, so that
// a rule can always be turned off.
func (w write) requireKnown(ctx context.Context, all ...rules.Rule) error {
	return requireKnown(ctx, w.Queries, all)
}

// RequireKnown returns rules.UnknownToProcessError if a live process does not know a feature that a rule needs.
func (s *Store) RequireKnown(ctx context.Context, all []rules.Rule) error {
	return domainError(requireKnown(ctx, s.queriesFor(classRead, everyTenant), all))
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
	err := requireKnownWord(ctx, s.queriesFor(classRead, everyTenant), word)
	if errors.As(err, new(rules.UnknownToProcessError)) {
		return false, nil
	}
	return err == nil, domainError(err)
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
