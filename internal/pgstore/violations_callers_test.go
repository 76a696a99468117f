package pgstore_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func accepted(tenant rules.TenantID, user, ip string, times int64) *violations.Check {
	return &violations.Check{
		Tenant: tenant, Request: &rules.Request{UserID: user, IP: netip.MustParseAddr(ip), Endpoint: "/search"},
		Plan: "free", Cost: violations.Token, Allowed: true, Times: times,
	}
}

func TestWhoMakesMostChecks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := time.Now().UTC().Truncate(violations.PresentTime).Add(-2 * time.Minute)
	until := since.Add(violations.PresentTime)
	recorders := w.processes(2)
	for i, r := range recorders {
		for before := range int64(3) { // the first of them is too early
			r.Record(since.Add(time.Duration(before-2)*31*time.Minute), accepted(w.ours.ID, "7", "192.0.2.7", 300))
		}
		for address := range 100 {
			r.Record(since.Add(time.Second), accepted(w.ours.ID, fmt.Sprint("bot ", i*100+address),
				fmt.Sprintf("198.51.100.%d", address), 30))
		}
		r.Record(since.Add(time.Second), accepted(w.theirs.ID, "7", "203.0.113.7", 1000))
	}
	recorders.flush(t)
	network := must(w.Busiest(t.Context(), w.ours.ID, violations.ByNetwork, since, until, 10))(t)
	want := []violations.Caller{
		{Value: "198.51.100.0/24", Checks: 6000}, {Value: "192.0.2.0/24", Checks: 600, Before: 600},
	}
	if fmt.Sprint(network.Callers) != fmt.Sprint(want) ||
		network.All != (violations.Caller{Checks: 6600, Before: 600}) {
		t.Errorf("the networks are %+v, want %v of 6600 and 600 before", network, want)
	}
	user := must(w.Busiest(t.Context(), w.ours.ID, violations.ByUser, since, until, 10))(t)
	if len(user.Callers) != 1 || user.Callers[0] != (violations.Caller{Value: "7", Checks: 600, Before: 600}) {
		t.Errorf("the users are %+v, want 7 alone", user)
	}
	first := must(w.Busiest(t.Context(), w.ours.ID, violations.ByNetwork, since, until, 1))(t)
	if len(first.Callers) != 1 || first.Callers[0] != network.Callers[0] {
		t.Errorf("the first network is %+v", first)
	}
	quiet := must(w.Busiest(t.Context(), w.ours.ID, violations.ByUser, since.Add(-time.Hour), until.Add(-time.Hour),
		10))(t)
	if len(quiet.Callers) != 0 || quiet.All.Checks != 0 {
		t.Errorf("in a quiet time there is %+v", quiet)
	}
}

func TestCallersAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().UTC()
	recorders := w.processes(1)
	for _, ago := range []time.Duration{violations.CallersKept + time.Minute, 2 * time.Minute} {
		recorders[0].Record(now.Add(-ago), accepted(w.ours.ID, "42", "198.51.100.7", 100))
	}
	recorders.flush(t)
	if rows := rowsIn(t, w.url, "recent_check"); rows != 6 {
		t.Fatalf("%d rows are written, want a user, a network and all of two times", rows)
	}
	must(w.KeepViolations(t.Context(), now, keep))(t)
	if rows := rowsIn(t, w.url, "recent_check"); rows != 3 {
		t.Errorf("%d rows are left, want a user, a network and all", rows)
	}
}
