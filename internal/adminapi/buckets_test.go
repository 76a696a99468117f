package adminapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// lossyBuckets credit, and lose the first answer.
type lossyBuckets struct {
	adminapi.Buckets
	meanwhile func(context.Context) // what happens while they are asked
	lost      bool
}

func (b *lossyBuckets) CreditOnce(
	ctx context.Context, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, isRepeated bool, err error) {
	b.meanwhile(ctx)
	before, after, isRepeated, err = b.Buckets.CreditOnce(ctx, id, key, limit, amount)
	if !b.lost {
		b.lost, err = true, errors.New("the answer was lost")
	}
	return before, after, isRepeated, err
}

func TestACreditWhoseAnswerWasLostIsRepeatedAndGivenOnce(t *testing.T) {
	t.Parallel()
	buckets := &lossyBuckets{}
	w := newWorld(t, func(c *adminapi.Config) { buckets.Buckets, c.Buckets = c.Buckets, buckets })
	by := w.person(w.acme, auth.Editor)
	rule := w.rule(w.acme)
	w.refresh()
	writes := 0
	buckets.meanwhile = func(ctx context.Context) {
		plan := rules.Plan{TenantID: w.acme.ID, Name: fmt.Sprintf("meanwhile-%d", writes)}
		if _, err := w.system().CreatePlan(ctx, plan); err != nil {
			t.Errorf("a write waits for the buckets: %v", err)
		}
		writes++
	}
	credit := func(tokens float64, id string) answer {
		return w.send(by, "POST", "/api/v1/tenants/acme/users/42/buckets/credit",
			map[string]any{"bucket_key": fmt.Sprintf("%d:42", rule.ID), "tokens": tokens}, "Idempotency-Key", id)
	}
	type change struct {
		Before   float64 `json:"tokens_before"`
		After    float64 `json:"tokens_after"`
		Repeated bool    `json:"repeated"`
	}
	const one = "one-credit-for-sure"
	lost := w.want(credit(-4, one), http.StatusServiceUnavailable)
	if !strings.Contains(lost.body, "same Idempotency-Key") {
		t.Errorf("the answer does not say what to do: %s", lost.body)
	}
	for range 2 {
		if got := read[change](t, w.want(credit(-4, one), http.StatusOK)); got != (change{10, 6, true}) {
			t.Errorf("the credit that is repeated answers %+v", got)
		}
	}
	w.want(credit(-3, one), http.StatusUnprocessableEntity)
	w.want(credit(-3, "not a key"), http.StatusBadRequest)
	if got := read[change](t, w.want(credit(-1, "another-credit-0002"), http.StatusOK)); got.Before-got.After != 1 || got.Repeated {
		t.Errorf("another credit answers %+v", got)
	}
	entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{ObjectKind: "bucket"}, auth.AuditCursor{}, 10)
	if err != nil || len(entries) != 3 {
		t.Fatalf("the audit log has %d entries, want 3: %v", len(entries), err)
	}
	for i, want := range []string{`"tokens"`, `"repeated"`, `"unknown"`} {
		if !strings.Contains(string(entries[i].After), want) {
			t.Errorf("entry %d is %s, want %s in it", i, entries[i].After, want)
		}
	}
}
