package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// requireKnown refuses rules whose algorithm a live process does not know, or which adapt while one knows nothing of that. Every write that puts a rule into force
// comes here. Rules that take no part in checks are accepted, so that a rule can always be turned off. Whatever reports
// itself knows token buckets, so rules of these cost no query.
func (w write) requireKnown(ctx context.Context, all ...rules.Rule) error {
	if err := requireFits(ctx, w.Queries, w.tenant, all); err != nil {
		return err
	}
	return requireKnown(ctx, w.Queries, all)
}

// RequireKnown returns the error with which a write of a tenant's rules would be refused, because a live process does not know
// what one of them needs, or because the tenant's buckets are spread.
func (s *Store) RequireKnown(ctx context.Context, tenant rules.TenantID, all []rules.Rule) error {
	_, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		if err := requireFits(ctx, q, tenant, all); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, requireKnown(ctx, q, all)
	})
	return err
}

// requireFits refuses rules that a tenant whose buckets are spread cannot have. Most rules fit any tenant and cost no query.
func requireFits(ctx context.Context, queries *dbsqlc.Queries, id rules.TenantID, all []rules.Rule) error {
	for i := range all {
		wrong := all[i].WrongIfSpread()
		if len(wrong) == 0 {
			continue
		}
		switch tenant, err := queries.Tenant(ctx, id); {
		case err != nil:
			return err
		case tenant.Buckets == rules.BucketsSpread:
			return wrong
		}
		return nil
	}
	return nil
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
