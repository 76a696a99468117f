package decide

import (
	"context"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/violations"
)

type keptByRule struct {
	kept
	taken map[rules.RuleID]violations.Tokens
}

func (k *keptByRule) WriteViolations(ctx context.Context, batch *violations.Batch) error {
	for i := range batch.Decisions {
		k.taken[batch.Decisions[i].Rule] += violations.Tokens(batch.Decisions[i].Taken)
	}
	return k.kept.WriteViolations(ctx, batch)
}

func TestRecordsCountWhatTheyCharged(t *testing.T) {
	t.Parallel()
	tenant := snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: rules.DefaultSettings()}},
		Rules: []rules.Rule{
			quotaRow(t, 1, func(*rules.Rule) {}),
			quotaRow(t, 2, func(r *rules.Rule) {
				r.Algorithm, r.Window, r.NotifyAt, r.RatePerSecond = rules.TokenBucket, rules.Window{}, nil, 1e-6
			}),
			quotaRow(t, 3, func(r *rules.Rule) { r.Action, r.NotifyAt = rules.ActionBlock, nil }),
		},
	}).Tenant(1)
	sink := &keptByRule{taken: map[rules.RuleID]violations.Tokens{}}
	recorder := violations.NewRecorder(sink, violations.Options{})
	buckets := membucket.New(membucket.Options{})
	limiter := enforce.NewLimiter(buckets, buckets, observers{recording{recorder}}, nil)
	for _, cost := range []enforce.Tokens{90, 50} {
		decisions := make([]enforce.Decision, 1)
		limiter.Decide(t.Context(), tenant, []enforce.Check{{
			Cost: cost * enforce.Token, Record: true, Request: rules.Request{UserID: "42"},
		}}, decisions)
		if !decisions[0].Allowed {
			t.Fatalf("a record is denied: %+v", decisions[0])
		}
	}
	if err := recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for rule, want := range map[rules.RuleID]violations.Tokens{0: 140, 1: 100, 2: 140} {
		if got := sink.taken[rule]; got != want {
			t.Errorf("rule %d counts %d tokens, want %d", rule, got, want)
		}
	}
	if len(sink.rows) > 0 || sink.checks.Denied > 0 || len(sink.crossings) != 2 {
		t.Errorf("%d violations, %d denied and %d crossings, want 0, 0 and 2", len(sink.rows), sink.checks.Denied,
			len(sink.crossings))
	}
}
