package pgstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestWritersWaitForTheirTenantOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		take := func(tenant rules.TenantID, bulk bool) (func(), error) {
			timeout := statementTimeout
			if bulk {
				timeout = bulkTimeout
			}
			return turns.take(t.Context(), tenant, timeout)
		}
		must := func(done func(), err error) func() {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		first := must(take(1, true))
		if _, err := take(1, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second writer of the tenant got %v, want its deadline", err)
		}
		second := must(take(2, true))
		if _, err := take(3, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third bulk write got %v, want its deadline", err)
		}
		must(take(3, false))() // the bulk write that gave up holds nothing
		waiting := make(chan func())
		go func() { waiting <- must(take(1, true)) }()
		synctest.Wait()
		first()
		third := <-waiting
		second()
		third()
		if len(turns.held) != 0 || len(turns.bulk) != 0 {
			t.Errorf("%d tenants and %d bulk writes are held by nobody", len(turns.held), len(turns.bulk))
		}
	})
}
