package lease

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

type allowing struct{ Store }

func (allowing) Take(_ context.Context, checks []enforce.BucketCheck) error {
	for i := range checks {
		checks[i].Allowed, checks[i].Answered = true, true
	}
	return nil
}

func (allowing) Lease(context.Context, []enforce.Lease) error { return io.EOF }

func BenchmarkCold(b *testing.B) {
	limit := enforce.Limit{Rate: rules.MaxRate, Burst: rules.MaxBurst}
	leased := Open(b.Context(), allowing{}, nil, slog.New(slog.DiscardHandler))
	leased.TurnOn(true)
	defer leased.Close()
	for name, store := range map[string]enforce.Buckets{"without": allowing{}, "leases": leased} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			checks := make([]enforce.BucketCheck, 1)
			tiers := make([]enforce.Tier, 4)
			i := 0
			for rule := range tiers {
				tiers[rule] = enforce.Tier{Key: enforce.Key{Tenant: 1, Rule: rules.RuleID(rule + 1)}, Limit: limit}
			}
			var text [16]byte
			for b.Loop() {
				i = (i + 7919) % 100_000
				subject := strconv.AppendInt(text[:0], int64(i+1_000_000), 10)
				tiers[0].Key.Subject = string(subject)
				tiers[3].Key.Subject = tiers[0].Key.Subject
				checks[0] = enforce.BucketCheck{Cost: enforce.Token, Tiers: tiers}
				_ = store.Take(context.Background(), checks)
			}
		})
	}
}
