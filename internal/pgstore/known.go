package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/rules"
)

// requireKnown refuses rules whose algorithm a live process does not know. Every write that puts a rule into force
// comes here. Rules that take no part in checks are accepted, so that a rule can always be turned off. Whatever reports
// itself knows token buckets, so rules of these cost no query.
func (w write) requireKnown(ctx context.Context, all ...rules.Rule) error {
	asked := map[rules.Algorithm]bool{rules.TokenBucket: true}
	for i := range all {
		rule := &all[i]
		if !rule.Active || rule.Action != rules.ActionLimit || asked[rule.Algorithm] {
			continue
		}
		asked[rule.Algorithm] = true
		process, err := w.ProcessThatKnowsNot(ctx, fleet.Recent.Seconds(), string(rule.Algorithm))
		switch {
		case err == nil:
			return rules.UnknownToProcessError{Algorithm: rule.Algorithm, Process: process.Name, Version: process.Version}
		case !errors.Is(err, pgx.ErrNoRows):
			return err
		}
	}
	return nil
}
