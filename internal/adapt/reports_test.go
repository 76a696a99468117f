package adapt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

type kept struct {
	reports []BackendReport
	err     error
}

func (k *kept) WriteReports(_ context.Context, reports []BackendReport) error {
	if k.err != nil {
		return k.err
	}
	k.reports = append(k.reports, reports...)
	return nil
}

func tenantWith(t *testing.T, id rules.TenantID, backends int) *snapshot.Tenant {
	t.Helper()
	pattern, err := rules.ParsePattern("global")
	if err != nil {
		t.Fatal(err)
	}
	rows := snapshot.Rows{Tenants: []rules.Tenant{{ID: id, Slug: fmt.Sprint("t", id)}}}
	for n := range backends {
		rows.Rules = append(rows.Rules, rules.Rule{
			ID: rules.RuleID(n + 1), TenantID: id, Pattern: pattern, Name: fmt.Sprint(n), RatePerSecond: 10, Burst: 50,
			Algorithm: rules.TokenBucket,
			Mode:      rules.ModeEnforce, Action: rules.ActionLimit, Active: true,
			Adapt: rules.Adapt{Backend: fmt.Sprint("b", n), FloorPercent: 10, ErrorPercent: 1},
		})
	}
	return snapshot.New(rows).Tenant(id)
}

func TestReportsAreSummedUpAndWrittenInOrder(t *testing.T) {
	t.Parallel()
	sink := &kept{}
	reports := NewReports(sink, slog.New(slog.DiscardHandler))
	one, two := tenantWith(t, 1, 2), tenantWith(t, 2, 1)
	for range 3 {
		reports.Add(two, []Report{{"b0", Seen{Requests: 5}}})
		if ignored := reports.Add(one, []Report{
			{"b1", Seen{Requests: 10, Errors: 1}},
			{"b7", Seen{Requests: 1}},
			{"b0", Seen{Requests: 2}},
		}); fmt.Sprint(ignored) != "[b7]" {
			t.Errorf("ignored %v", ignored)
		}
	}
	if err := reports.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []BackendReport{
		{1, Report{"b0", Seen{Requests: 6}}},
		{1, Report{"b1", Seen{Requests: 30, Errors: 3}}},
		{2, Report{"b0", Seen{Requests: 15}}},
	}
	if fmt.Sprint(sink.reports) != fmt.Sprint(want) {
		t.Errorf("written %v, want %v", sink.reports, want)
	}
	if counts := reports.Counts(); counts != (ReportCounts{Accepted: 9, Unknown: 3}) {
		t.Errorf("counted %+v", counts)
	}
}

func TestReportsThatCannotBeWrittenAreDropped(t *testing.T) {
	t.Parallel()
	sink := &kept{err: errors.New("away")}
	reports := NewReports(sink, slog.New(slog.DiscardHandler))
	tenant := tenantWith(t, 1, 1)
	reports.Add(tenant, []Report{{"b0", Seen{Requests: 5}}})
	if err := reports.Flush(t.Context()); err == nil {
		t.Error("a sink that is away wrote")
	}
	sink.err = nil
	if err := reports.Flush(t.Context()); err != nil || len(sink.reports) != 0 {
		t.Errorf("later %v were written, %v", sink.reports, err)
	}
	if counts := reports.Counts(); counts.Lost != 1 {
		t.Errorf("counted %+v", counts)
	}
}

func TestATenantThatReportsALotLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	sink := &kept{}
	reports := NewReports(sink, slog.New(slog.DiscardHandler))
	greedy, modest := tenantWith(t, 1, 2*maxHeld), tenantWith(t, 2, rules.MaxAdapting)
	for n := range 2 * maxHeld {
		reports.Add(greedy, []Report{{fmt.Sprint("b", n), Seen{Requests: 1}}})
	}
	if held := len(reports.held); held > maxHeld/2 {
		t.Errorf("one tenant holds %d of %d places", held, maxHeld)
	}
	for n := range rules.MaxAdapting {
		if ignored := reports.Add(modest, []Report{{fmt.Sprint("b", n), Seen{Requests: 1}}}); len(ignored) > 0 {
			t.Fatalf("of another tenant's backends %v was ignored", ignored)
		}
	}
	if err := reports.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reports.Add(greedy, []Report{{"b0", Seen{Requests: 1}}}) != nil {
		t.Error("no place is free after a flush")
	}
}
