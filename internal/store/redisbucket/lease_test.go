package redisbucket

import (
	"fmt"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
)

func TestManyLeasesAreSeveralScripts(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	mustCheck(t, s)
	mustTake(t, s, one(user("42", still)))
	leases := make([]enforce.Lease, 2*inOneScript+1)
	for i := range leases {
		tier := user(fmt.Sprint(i), still)
		leases[i] = enforce.Lease{
			Key: tier.Key, Limit: still,
			Ask: enforce.Ask{Need: enforce.Token, Want: enforce.Token},
		}
	}
	before := scriptCalls(t, s)
	if err := s.Lease(t.Context(), leases); err != nil {
		t.Fatal(err)
	}
	for i := range leases {
		if l := &leases[i]; !l.Answered || l.Grant.Amount != enforce.Token {
			t.Fatalf("bucket %d: answered: %t, with %+v", i, l.Answered, l.Grant)
		}
	}
	// a script unknown to Redis counts in no call or in two
	if first := scriptCalls(t, s) - before; first < 3 || first > 4 {
		t.Errorf("%d leases are %d scripts", len(leases), first)
	}
	before = scriptCalls(t, s)
	if err := s.Lease(t.Context(), leases); err != nil {
		t.Fatal(err)
	}
	if got := scriptCalls(t, s) - before; got != 3 {
		t.Errorf("%d leases are %d scripts, want 3", len(leases), got)
	}
}
